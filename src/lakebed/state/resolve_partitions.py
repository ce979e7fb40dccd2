"""Resolving what changes the partitions: splits, joins, and removals, which split first where they must. Pure.

* Partitions are joined only if no open job meets them, and every file that one of them refers to is referred to by each
  of the others that it reaches. A file that is not was merged away there, and its rows would come back.
* A removal leaves no reference that is removed in part. Where it ends inside a partition that has rows on both sides,
  as far as bounds and exact ranks tell, the partition is cut there. So a job that is open over the partition finds none
  of its inputs in the part that went, and brings nothing back.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from lakebed.model.files import Reference
from lakebed.model.key_summaries import Summary
from lakebed.model.keys import EncodedRange, iter_ranges
from lakebed.state.apply import apply
from lakebed.state.transactions import (
    ConcatenateRuns,
    JoinPartitions,
    ProposeJoin,
    ProposeRemoval,
    ProposeSplit,
    Rejected,
    RemoveRange,
    Repeated,
    SplitPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.model.files import DataFile, PartitionFile
    from lakebed.state.table_state import TableState

FENCES_MAX = 1_000
"""Every add is held against every fence. Garbage collection takes them down once they are as old as request keys."""


def resolve_split(proposal: ProposeSplit, state: TableState) -> SplitPartitions | Rejected:
    """A split of the partitions as they are now, or why there is none."""
    if not proposal.cuts:
        return Rejected("a split names a partition at least")
    for partition, keys in proposal.cuts.items():
        refused = state.partitions.refuses(partition, keys)
        if refused is not None:
            return Rejected(refused)
    references: list[Reference] = []
    next_id = state.partitions.next_id
    for partition, keys in proposal.cuts.items():
        position = state.partitions.position_of(partition)
        assert position is not None
        whole = state.partitions.range_at(position)
        edges = (whole.min, *keys)
        parts = [EncodedRange(low, high) for low, high in zip(edges, (*keys, whole.max), strict=True)]
        for held in state.held_by(partition):
            counts = _split_shares(held, parts, proposal.summaries.get(held.file.id))
            for index, (part, (rows, exact)) in enumerate(zip(parts, counts, strict=True)):
                if (rows or not exact) and held.file.reaches(part):
                    references.append(Reference(held.file.id, next_id + index, rows, exact, held.run))
        next_id += len(parts)
    return SplitPartitions(proposal.cuts, tuple(references))


def _split_shares(
    held: PartitionFile, parts: Sequence[EncodedRange], summary: Summary | None
) -> list[tuple[int, bool]]:
    """The rows of one reference in each part of its partition, and whether that is exact.

    As the summary tells, whatever was thought of the whole partition; but an exact count of the whole stays one in sum.
    """
    file = held.file
    arrived = summary is None
    if summary is None:
        # Arrived after the split was planned: even shares over the parts that its bounds reach.
        summary = Summary((file.min_key,), (0,), file.rows, file.max_key)
    ranks = [summary.rank(part.min) for part in parts]
    end = parts[-1].max
    ranks.append((summary.rows, True) if end is None else summary.rank(end))
    counts = [(b - a, x and y) for (a, x), (b, y) in itertools.pairwise(ranks)]
    if all(exact for _, exact in counts) or not (held.exact or arrived):
        return counts
    return _scaled(counts, held.rows, exact_sum=held.exact)


def _scaled(counts: Sequence[tuple[int, bool]], rows: int, *, exact_sum: bool) -> list[tuple[int, bool]]:
    """The exact counts as they are; what is left of ``rows`` shared by the others in proportion."""
    open_counts = [count for count, exact in counts if not exact]
    total, left = sum(open_counts), max(0, rows - sum(count for count, exact in counts if exact))
    shared: list[tuple[int, bool]] = []
    passed = given = place = 0
    for count, exact in counts:
        if exact:
            shared.append((count, True))
            continue
        passed, place = passed + count, place + 1
        # With nothing to go by, everything even.
        upto = left * passed // total if total else left * place // len(open_counts)
        # The only share of an exact sum that is not known is what the others leave.
        shared.append((upto - given, exact_sum and len(open_counts) == 1))
        given = upto
    return shared


def resolve_concatenation(proposal: ConcatenateRuns, state: TableState) -> ConcatenateRuns | Repeated | Rejected:
    """A chain of what the partition refers to now; refused if a part of it is gone, or if two files of it overlap.

    An open job does not mind: it claims files, and knows of no runs.
    """
    held = {one.file.id: one for one in state.held_by(proposal.partition)}
    gone = [name for name in proposal.files if name not in held]
    if gone or len(set(proposal.files)) != len(proposal.files) or len(proposal.files) < 2:
        named = (
            f"{gone[0]}, which partition {proposal.partition} does not refer to"
            if gone
            else "less than two files, or one twice"
        )
        return Rejected(f"a chain of {named}; plan again")
    links = sorted((held[name] for name in proposal.files), key=lambda one: (one.file.min_key, one.file.max_key))
    if all(one.run == proposal.run for one in links):
        return Repeated(state.version)
    others = (held[name] for name in held.keys() - set(proposal.files))
    if any(one.run == proposal.run for one in others):
        return Rejected(f"partition {proposal.partition} has a run {proposal.run} already")
    for a, b in itertools.pairwise(links):
        # Files of one run may share a key, at which the one ends and the other begins.
        if a.file.max_key > b.file.min_key or (a.file.max_key == b.file.min_key and a.run != b.run):
            return Rejected(f"files {a.file.id} and {b.file.id} overlap, and are no run together")
    return proposal


def resolve_join(proposal: ProposeJoin, state: TableState) -> JoinPartitions | Rejected:
    """A join of the partitions as they are now, or why there is none."""
    positions = [state.partitions.position_of(partition) for partition in proposal.partitions]
    if None in positions:
        return Rejected(
            f"partition {proposal.partitions[positions.index(None)]} is gone: it was split or joined before"
        )
    found = [position for position in positions if position is not None]
    if len(found) < 2 or any(b - a != 1 for a, b in itertools.pairwise(found)):
        return Rejected(f"to join takes two or more neighbours in key order, not {list(proposal.partitions)}")
    ranges = [state.partitions.range_at(position) for position in found]
    whole = EncodedRange(ranges[0].min, ranges[-1].max)
    for job in state.jobs.values():
        if not job.keys.intersect(whole).empty:
            return Rejected(f"job {job.id} is open there; join when it is closed")
    for name, partition in reaching_over(proposal.partitions, state).items():
        return Rejected(f"file {name} reaches into partition {partition}, which has no rows of it; compact first")
    joined: dict[str, Reference] = {}
    for one in itertools.chain.from_iterable(map(state.held_by, proposal.partitions)):
        name = one.file.id
        rows, exact = (joined[name].rows, joined[name].exact) if name in joined else (0, True)
        rows, exact = rows + one.rows, exact and one.exact
        if one.file.lies_in(whole):
            # Whatever was thought of the parts.
            rows, exact = one.file.rows, True
        joined[name] = Reference(name, state.partitions.next_id, rows, exact, one.run)
    spans = {name: (state.files[name].sequence_hi, state.files[name].sequence_lo) for name in joined}
    return JoinPartitions(
        proposal.partitions, tuple(joined[name] for name in sorted(joined, key=lambda name: (spans[name], name)))
    )


def reaching_over(partitions: Sequence[int], state: TableState) -> dict[str, int]:
    """The files that keep neighbours apart, by id; each with a partition that it reaches and that has none of it."""
    first = state.partitions.position_of(partitions[0])
    assert first is not None
    held: dict[str, tuple[DataFile, set[int]]] = {}
    for position, partition in enumerate(partitions, first):
        for file in state.files_of(partition):
            held.setdefault(file.id, (file, set()))[1].add(position)
    found: dict[str, int] = {}
    for name, (file, positions) in held.items():
        low = max(first, state.partitions.position(file.min_key))
        high = min(first + len(partitions) - 1, state.partitions.position(file.max_key))
        if len(positions) <= high - low:
            found[name] = next(state.partitions.ids[p] for p in range(low, high + 1) if p not in positions)
    return found


def resolve_remove(proposal: ProposeRemoval, state: TableState) -> RemoveRange | Repeated | Rejected:
    """A removal from the partitions as they are now. Nothing there to remove, and no fence: no entry."""
    ranges = tuple(iter_ranges(proposal.ranges))
    if not ranges:
        return Rejected("there is no key in the ranges to remove")
    if proposal.fence and len(state.fences) + len(ranges) > FENCES_MAX:
        return Rejected(f"there are {len(state.fences)} fences, at most {FENCES_MAX}; collect garbage, and try again")
    cuts = {}
    partitions: list[int] = []
    for partition, ends in _cuts(ranges, state).items():
        split = resolve_split(ProposeSplit({partition: ends}, proposal.summaries), state)
        assert isinstance(split, SplitPartitions), split
        going = _inside(apply(state, split, state.version), split, ranges)
        if len(going) == len(split.references):
            partitions += [partition] if going else []
        elif going:
            cuts[partition] = ends
    split = resolve_split(ProposeSplit(cuts, proposal.summaries), state) if cuts else SplitPartitions({}, ())
    assert isinstance(split, SplitPartitions), split
    state = apply(state, split, state.version)
    for keys in ranges:
        for position in state.partitions.overlapping(keys):
            partition = state.partitions.ids[position]
            if state.references_of(partition) and keys.covers(state.partitions.range_at(position)):
                partitions.append(partition)
    if not partitions and not proposal.fence:
        return Repeated(state.version)
    return RemoveRange(ranges, proposal.fence, split, tuple(partitions))


def bounds_of_removal(ranges: Sequence[EncodedRange], state: TableState) -> dict[str, tuple[DataFile, list[bytes]]]:
    """The files that a removal cuts, by id, each with the keys at which its rows have to be counted; ascending."""
    return bounds_of_cuts(_cuts(tuple(iter_ranges(ranges)), state), state)


def bounds_of_cuts(cuts: Mapping[int, Sequence[bytes]], state: TableState) -> dict[str, tuple[DataFile, list[bytes]]]:
    """The same for partitions that are cut at keys: these keys, and both ends of the partition. Partitions that are
    gone count not.

    Only keys inside the file's bounds: below and above them there is nothing to count.
    """
    found: dict[str, tuple[DataFile, set[bytes]]] = {}
    for partition, keys in cuts.items():
        position = state.partitions.position_of(partition)
        if position is None:
            continue
        whole = state.partitions.range_at(position)
        bounds = [whole.min, *keys, *([] if whole.max is None else [whole.max])]
        for file in state.files_of(partition):
            # A file that is not cut keeps the count that it has.
            if any(file.min_key < key <= file.max_key for key in keys):
                inside = (key for key in bounds if file.min_key < key <= file.max_key)
                found.setdefault(file.id, (file, set()))[1].update(inside)
    return {name: (file, sorted(keys)) for name, (file, keys) in found.items()}


def _cuts(ranges: Sequence[EncodedRange], state: TableState) -> dict[int, tuple[bytes, ...]]:
    """The ends of the ranges that lie strictly inside a partition, ascending, by partition."""
    cuts: dict[int, tuple[bytes, ...]] = {}
    for key in [end for keys in ranges for end in (keys.min, keys.max) if end is not None]:
        position = state.partitions.position(key)
        if state.partitions.range_at(position).min != key:
            partition = state.partitions.ids[position]
            cuts[partition] = (*cuts.get(partition, ()), key)
    return cuts


def _inside(after: TableState, split: SplitPartitions, ranges: Sequence[EncodedRange]) -> set[int]:
    """Which references of a split, by their place among them, lie inside the ranges."""
    inside = set()
    for place, reference in enumerate(split.references):
        position = after.partitions.position_of(reference.partition)
        assert position is not None
        if any(keys.covers(after.partitions.range_at(position)) for keys in ranges):
            inside.add(place)
    return inside
