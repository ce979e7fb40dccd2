"""Changes of the partitions: concatenated runs, splits and joins. Pure.

* A split names partitions and keys, never references, so references added since it was planned are moved too.
* Partitions are joined only if no open job overlaps them, and each file of one of them is referenced by all of the
  others that it reaches. Otherwise the file was merged away in one of them, and its rows would come back.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.files import Reference
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import EncodedRange
from lakebed.model.state.fields import Hex, Id, Positive, StoredAsIs
from lakebed.model.state.reference_lists import ReferenceList, decode_references, encode_references
from lakebed.model.state.transactions.add_files import add_references, drop_references
from lakebed.model.state.transactions.resolution import Description, Rejected, Repeated
from lakebed.model.wording import count_text

if TYPE_CHECKING:
    from lakebed.model.files import DataFile, PartitionFile
    from lakebed.model.state.reference_lists import ReferenceCounts, SidecarData, Sidecars
    from lakebed.model.state.table_state import TableState

Cuts = Mapping[Positive, tuple[bytes, ...]]
"""Partitions by id, each with the ascending keys strictly inside it at which to cut it. New ids are in the order of
this mapping."""


# -- concatenated runs ------------------------------------------------------------------------------------------


class ConcatenateRuns(StoredAsIs, frozen=True, tag="concatenate_runs"):
    """Make one run of some files of a partition, which do not overlap: their references take another run id."""

    partition: Positive
    files: tuple[Id, ...]
    run: str

    def resolve(self, state: TableState) -> ConcatenateRuns | Repeated | Rejected:
        """Return self; rejected if the partition does not refer to a file, or if two files overlap.

        Open jobs do not matter: they claim files, not runs.
        """
        references = {one.file.id: one for one in state.held_by(self.partition)}
        if gone := [name for name in self.files if name not in references]:
            text = f"partition {self.partition} does not refer to {gone[0]}; plan again"
            return Rejected(Code.PROPOSAL_OUTDATED, text, {"partition": self.partition, "file": gone[0]})
        if len(set(self.files)) != len(self.files) or len(self.files) < 2:
            return Rejected(Code.PROPOSAL_INVALID, "less than two files to concatenate, or one twice; plan again")
        links = sorted((references[name] for name in self.files), key=lambda one: (one.file.min_key, one.file.max_key))
        if all(one.run == self.run for one in links):
            return Repeated(state.version)
        others = (references[name] for name in references.keys() - set(self.files))
        if any(one.run == self.run for one in others):
            text = f"partition {self.partition} has a run {self.run} already"
            return Rejected(Code.PROPOSAL_INVALID, text, {"partition": self.partition})
        for a, b in itertools.pairwise(links):
            # Two files of one run may share the key at which one ends and the other begins.
            if a.file.max_key > b.file.min_key or (a.file.max_key == b.file.min_key and a.run != b.run):
                text = f"files {a.file.id} and {b.file.id} overlap, and are no run together"
                return Rejected(Code.PROPOSAL_INVALID, text, {"partition": self.partition})
        return self

    def apply(self, state: TableState) -> TableState:
        """Return the state with the other run id in the references, whose order does not change."""
        references = {one.file.id: one for one in state.held_by(self.partition)}
        absent = [name for name in self.files if name not in references]
        if absent:
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"entry {state.version} concatenates {absent[0]} in partition {self.partition}, which lacks it"
            )
        renamed = {name: references[name]._replace(run=self.run) for name in self.files}
        # All references are dropped and added again, so that they stay in the order of arrival.
        rest = state.references.drop({self.partition: list(references)})
        return replace(
            state, references=rest.add({self.partition: [renamed.get(name, references[name]) for name in references]})
        )

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the files and their partition."""
        return Description(f"{count_text(len(self.files), 'file')} of partition {self.partition} made one run")


# -- splits -----------------------------------------------------------------------------------------------------


class ProposeSplit(Struct, frozen=True, tag_field="type", tag="propose_split"):
    """Cut partitions, all or none of them. ``summaries`` (by file id) only improve the estimates of rows."""

    cuts: Cuts
    summaries: Mapping[str, Summary] = msgspec.field(default_factory=dict)

    def resolve(self, state: TableState) -> SplitPartitions | Rejected:
        """Return the split with the references of the current partitions."""
        if not self.cuts:
            return Rejected(Code.PROPOSAL_INVALID, "a split names a partition at least")
        for partition, keys in self.cuts.items():
            if state.partitions.position_of(partition) is None:
                return _partition_gone(partition)
            refused = state.partitions.refuses(partition, keys)
            if refused is not None:
                return Rejected(Code.PROPOSAL_INVALID, refused, {"partition": partition})
        return resolved_split(self, state)


def _partition_gone(partition: int) -> Rejected:
    text = f"partition {partition} is gone: it was split or joined before"
    return Rejected(Code.PROPOSAL_OUTDATED, text, {"partition": partition})


def resolved_split(proposal: ProposeSplit, state: TableState) -> SplitPartitions:
    """Return a split that the state allows, with the references of the new partitions."""
    references: list[Reference] = []
    next_id = state.partitions.next_id
    for partition, keys in proposal.cuts.items():
        position = state.partitions.position_of(partition)
        assert position is not None
        whole = state.partitions.range_at(position)
        edges = (whole.min, *keys)
        parts = [EncodedRange(low, high) for low, high in zip(edges, (*keys, whole.max), strict=True)]
        for old in state.held_by(partition):
            counts = _split_shares(old, parts, proposal.summaries.get(old.file.id))
            for index, (part, (rows, exact)) in enumerate(zip(parts, counts, strict=True)):
                if (rows or not exact) and old.file.reaches(part):
                    references.append(Reference(old.file.id, next_id + index, rows, exact, old.run))
        next_id += len(parts)
    return SplitPartitions(proposal.cuts, tuple(references))


def _split_shares(
    reference: PartitionFile, parts: Sequence[EncodedRange], summary: Summary | None
) -> list[tuple[int, bool]]:
    """Return the rows of one reference in each part of its partition, and whether each count is exact.

    The counts come from the summary, whatever the estimate for the whole partition; if the count of the whole is exact,
    so is the sum of the parts.
    """
    file = reference.file
    arrived = summary is None
    if summary is None:
        # The file was added after the split was planned: equal shares for the parts that its bounds reach.
        summary = Summary((file.min_key,), (0,), file.rows, file.max_key)
    ranks = [summary.rank(part.min) for part in parts]
    end = parts[-1].max
    ranks.append((summary.rows, True) if end is None else summary.rank(end))
    counts = [(b - a, x and y) for (a, x), (b, y) in itertools.pairwise(ranks)]
    if all(exact for _, exact in counts) or not (reference.exact or arrived):
        return counts
    return _scaled(counts, reference.rows, exact_sum=reference.exact)


def _scaled(counts: Sequence[tuple[int, bool]], rows: int, *, exact_sum: bool) -> list[tuple[int, bool]]:
    """Return the exact counts unchanged, and the rest of ``rows`` divided among the others in proportion."""
    open_counts = [count for count, exact in counts if not exact]
    total, rows_left = sum(open_counts), max(0, rows - sum(count for count, exact in counts if exact))
    shared: list[tuple[int, bool]] = []
    passed = assigned = index = 0
    for count, exact in counts:
        if exact:
            shared.append((count, True))
            continue
        passed, index = passed + count, index + 1
        # Without any counts, the rows are divided equally.
        upto = rows_left * passed // total if total else rows_left * index // len(open_counts)
        # A single unknown share of an exact sum is exact: it is what the others leave.
        shared.append((upto - assigned, exact_sum and len(open_counts) == 1))
        assigned = upto
    return shared


class SplitPartitions(Struct, frozen=True):
    """A split with the references of the new partitions, which take the next partition ids, cut by cut in key order."""

    cuts: Cuts
    references: tuple[Reference, ...]

    def apply(self, state: TableState) -> TableState:
        """Return the state with the references moved to the new partitions."""
        going = {partition: state.files_of(partition) for partition in self.cuts}
        after = replace(drop_references(state, going), partitions=state.partitions.split(self.cuts))
        parts = range(state.partitions.next_id, after.partitions.next_id)
        file_ids = {partition: {file.id for file in files} for partition, files in going.items()}
        for reference in self.references:
            # A reference may be missing if two exact ranks prove it empty; a reference that was not there may not be
            # added.
            if (
                reference.partition not in parts
                or reference.file not in file_ids[after.partitions.parents[reference.partition][0]]
            ):
                raise Code.TRANSACTION_IMPOSSIBLE(
                    f"entry {state.version} brings {reference.file} into partition {reference.partition} by a split"
                )
        return add_references(after, {file.id: file for files in going.values() for file in files}, self.references)

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the partitions and their parts."""
        cuts = (f"partition {partition} cut into {len(keys) + 1}" for partition, keys in self.cuts.items())
        return Description(", ".join(cuts))

    def document(self, sidecars: Sidecars) -> SplitDocument:
        """Return the document that the log stores."""
        return SplitDocument(encode_cuts(self.cuts), encode_references(self.references, sidecars))


StoredCuts = list[tuple[Positive, list[Hex]]]


def encode_cuts(cuts: Cuts) -> StoredCuts:
    """Return cuts as they are stored."""
    return [(partition, [key.hex() for key in keys]) for partition, keys in cuts.items()]


def decode_split(cuts: StoredCuts, references: ReferenceList, sidecars: SidecarData) -> SplitPartitions:
    """Return the split of stored cuts and references. Raises ValueError if a partition is cut twice."""
    decoded = {partition: tuple(map(bytes.fromhex, keys)) for partition, keys in cuts}
    if len(decoded) != len(cuts):
        raise ValueError("a partition is cut twice")
    return SplitPartitions(decoded, decode_references(references, sidecars))


class SplitDocument(Struct, frozen=True, tag_field="type", tag="split_partitions"):
    """The stored document; docs/format.md describes its fields."""

    cuts: StoredCuts
    references: ReferenceList

    def transaction(self, sidecars: SidecarData) -> SplitPartitions:
        """Return the transaction of this document."""
        return decode_split(self.cuts, self.references, sidecars)


def bounds_of_cuts(cuts: Mapping[int, Sequence[bytes]], state: TableState) -> dict[str, tuple[DataFile, list[bytes]]]:
    """Return the files that the cuts divide, by id, each with the keys at which its rows have to be counted.

    These are the keys of the cuts and both ends of the partition, inside the file's bounds, ascending. Partitions that
    no longer exist are left out.
    """
    cut_files: dict[str, tuple[DataFile, set[bytes]]] = {}
    for partition, keys in cuts.items():
        position = state.partitions.position_of(partition)
        if position is None:
            continue
        whole = state.partitions.range_at(position)
        bounds = [whole.min, *keys, *([] if whole.max is None else [whole.max])]
        for file in state.files_of(partition):
            # A file that is not cut keeps its count.
            if any(file.min_key < key <= file.max_key for key in keys):
                inside = (key for key in bounds if file.min_key < key <= file.max_key)
                cut_files.setdefault(file.id, (file, set()))[1].update(inside)
    return {name: (file, sorted(keys)) for name, (file, keys) in cut_files.items()}


# -- joins ------------------------------------------------------------------------------------------------------


class ProposeJoin(Struct, frozen=True, tag_field="type", tag="propose_join"):
    """Join two or more neighbouring partitions, given in key order."""

    partitions: tuple[Positive, ...]

    def resolve(self, state: TableState) -> JoinPartitions | Rejected:
        """Return the join with the references of the current partitions."""
        if refused := self._refused(state):
            return refused
        first, last = (state.partitions.position_of(self.partitions[end]) or 0 for end in (0, -1))
        whole = EncodedRange(state.partitions.range_at(first).min, state.partitions.range_at(last).max)
        for job in state.jobs.values():
            if not job.keys.intersect(whole).empty:
                text = f"job {job.id} is open there; join when it is closed"
                return Rejected(Code.JOB_CONFLICT, text, {"job": job.id})
        for name, partition in reaching_over(self.partitions, state).items():
            text = f"file {name} reaches into partition {partition}, which has no rows of it; compact first"
            return Rejected(Code.PROPOSAL_OUTDATED, text, {"file": name, "partition": partition})
        joined: dict[str, Reference] = {}
        for reference in itertools.chain.from_iterable(map(state.held_by, self.partitions)):
            name = reference.file.id
            rows, exact = (joined[name].rows, joined[name].exact) if name in joined else (0, True)
            rows, exact = rows + reference.rows, exact and reference.exact
            if reference.file.lies_in(whole):
                # The count is exact even if its parts were estimates.
                rows, exact = reference.file.rows, True
            joined[name] = Reference(name, state.partitions.next_id, rows, exact, reference.run)
        return JoinPartitions(self.partitions, tuple([joined[name] for name in _in_one_list(self.partitions, state)]))

    def _refused(self, state: TableState) -> Rejected | None:
        positions = []
        for partition in self.partitions:
            position = state.partitions.position_of(partition)
            if position is None:
                return _partition_gone(partition)
            positions.append(position)
        if len(positions) < 2 or any(b - a != 1 for a, b in itertools.pairwise(positions)):
            text = f"a join takes two or more neighbours in key order, not {list(self.partitions)}"
            return Rejected(Code.PROPOSAL_INVALID, text)
        return None


def _in_one_list(partitions: Sequence[int], state: TableState) -> list[str]:
    """Merge the lists of files of partitions into one that keeps the order of each; among possible next files, the one
    with the least sequence comes first.

    The sequences alone do not give the order: two outputs of a job have the same, and one of them may have been merged
    with an older file since. Only a table that merges rows has to keep the order; in other tables, lists may contradict
    each other.
    """
    lists = [[one.file.id for one in state.held_by(partition)] for partition in partitions]
    spans = {n: (state.files[n].sequence_hi, state.files[n].sequence_lo, n) for n in itertools.chain(*lists)}
    if state.merge.keeps_all:
        return sorted(spans, key=spans.__getitem__)
    sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(spans, ()))
    for before, after in itertools.chain.from_iterable(map(itertools.pairwise, lists)):
        sorter.add(after, before)
    sorter.prepare()
    ordered: list[str] = []
    ready: list[tuple[int, int, str]] = []
    while sorter.is_active():
        for name in sorter.get_ready():
            heapq.heappush(ready, spans[name])
        *_, name = heapq.heappop(ready)
        ordered.append(name)
        sorter.done(name)
    return ordered


def reaching_over(partitions: Sequence[int], state: TableState) -> dict[str, int]:
    """Return the files that prevent a join, by id, each with a partition that it reaches without a reference."""
    first = state.partitions.position_of(partitions[0])
    assert first is not None
    reached: dict[str, tuple[DataFile, set[int]]] = {}
    for position, partition in enumerate(partitions, first):
        for file in state.files_of(partition):
            reached.setdefault(file.id, (file, set()))[1].add(position)
    missing: dict[str, int] = {}
    for name, (file, positions) in reached.items():
        low = max(first, state.partitions.position(file.min_key))
        high = min(first + len(partitions) - 1, state.partitions.position(file.max_key))
        if len(positions) <= high - low:
            missing[name] = next(state.partitions.ids[p] for p in range(low, high + 1) if p not in positions)
    return missing


class JoinPartitions(Struct, frozen=True):
    """A join with the references of the one partition, which takes the next partition id."""

    partitions: tuple[int, ...]
    references: tuple[Reference, ...]

    def apply(self, state: TableState) -> TableState:
        """Return the state in which one partition has all files of the others."""
        going = {partition: state.files_of(partition) for partition in self.partitions}
        moved = {file.id: file for files in going.values() for file in files}
        if set(moved) != {r.file for r in self.references}:
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"entry {state.version} joins partitions {self.partitions} and changes what they refer to"
            )
        state = drop_references(state, going)
        return add_references(replace(state, partitions=state.partitions.join(self.partitions)), moved, self.references)

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the partitions."""
        return Description(f"partitions {', '.join(map(str, self.partitions))} made one")

    def document(self, sidecars: Sidecars) -> JoinDocument:
        """Return the document that the log stores."""
        return JoinDocument(self.partitions, encode_references(self.references, sidecars))


class JoinDocument(Struct, frozen=True, tag_field="type", tag="join_partitions"):
    """The stored document; docs/format.md describes its fields."""

    partitions: tuple[Positive, ...]
    references: ReferenceList

    def transaction(self, sidecars: SidecarData) -> JoinPartitions:
        """Return the transaction of this document."""
        return JoinPartitions(self.partitions, decode_references(self.references, sidecars))
