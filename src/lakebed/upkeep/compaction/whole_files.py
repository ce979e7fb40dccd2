"""Plans merges of small files that reach many partitions: one job over all of these partitions. Pure: no I/O.

A write of a few hundred rows over all keys makes one file, and a reference in every partition. Merged partition by
partition, a thousand such writes to 149 partitions are 12,900 jobs, each of which opens twelve files for one row of
each: opening files is the cost, not rows. Merged whole, every file is read once, and the output is again one file with
a reference in every partition. Once such outputs are large enough, their slices are merged partition by partition like
any others.

*Candidates.* No row of the file was merged away or removed in some partition: its references are exact and sum to its
rows. Its references cover less than :data:`SLICE_BYTES_MAX` each on average. No open job merges it.

*Choice.* The candidates of like size, by the rule of size-ratio over whole files, so that write amplification is the
same; all of them under ``full``. They must save :data:`REFERENCES_MIN` references; otherwise merging partition by
partition is as good. In a table that merges rows they are neighbours by arrival in every partition that they reach.

Core types: :class:`WholeFiles`.

Source: docs/decisions/0030.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lakebed.model.keys import EncodedRange
from lakebed.model.settings import KIB
from lakebed.upkeep.compaction.neighbours import alike
from lakebed.upkeep.compaction.strategies import of_like_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakebed.model.files import DataFile
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import TableState

SLICE_BYTES_MAX = 256 * KIB
"""Opening a file and planning a merge over it takes as long as merging some hundred KiB."""

REFERENCES_MIN = 256
"""Minimum references saved, about twenty tasks of twelve inputs: below it, one task over several partitions saves
little."""

FILES_MAX = 2_000
"""Maximum inputs of one job, which bounds its record, the digests to verify and the levels of the merge."""


class _Seen(NamedTuple):
    """A file, and its rows in the partitions considered; ``rows`` is -1 if one of them has an estimate.

    ``positions`` has its position among the files of each partition, in order of arrival.
    """

    file: DataFile
    rows: int
    partitions: tuple[int, ...]
    positions: tuple[int, ...]

    @property
    def pairs(self) -> Iterator[tuple[int, int]]:
        """Return each partition with its position."""
        return zip(self.partitions, self.positions, strict=True)


@dataclass(frozen=True, slots=True)
class WholeFiles:
    """Files to merge into one run, and the ids of the partitions that refer to any of them, in key order.

    ``oldest``: in every partition, the files among them are the oldest.
    """

    files: tuple[DataFile, ...]
    partitions: tuple[int, ...]
    keys: EncodedRange
    oldest: bool


def merge_whole(
    state: TableState, partitions: Sequence[int], settings: Settings, *, full: bool = False
) -> list[WholeFiles]:
    """Return the files to merge whole, among those in these partitions, which are all partitions with several runs."""
    if len(partitions) < 2:
        return []
    seen = _files_seen(state, partitions)
    small = [one for one in seen if one.rows >= 0 and _is_small(one)]
    if any(state.files[one.file.id].references > len(one.partitions) for one in small):
        # Some of the references are in partitions of one run.
        seen = _files_seen(state, state.partitions.ids)
    small = [one for one in seen if _is_small(one) and one.rows == one.file.rows and len(one.partitions) > 1]
    if state.merge.keeps_all:
        small.sort(key=lambda one: one.file.size_bytes)
        sizes = [one.file.size_bytes for one in small]
        chosen: list[Sequence[_Seen]] = [small if full else small[: of_like_size(sizes, settings.compaction_ratio)]]
    else:
        chosen = _neighbours(state, seen, small)
        if not full:
            chosen = [part for group in chosen for part in _of_like_size(group, settings.compaction_ratio)]
    groups = [part for group in chosen for part in _in_parts(group)]
    return [_job(state, group) for group in groups if _saved(group) >= REFERENCES_MIN]


def _in_parts(group: Sequence[_Seen]) -> list[Sequence[_Seen]]:
    """Divide the group into even parts of at most ``FILES_MAX`` files."""
    count, parts = len(group), -(-len(group) // FILES_MAX)
    return [group[count * part // parts : count * (part + 1) // parts] for part in range(parts)]


def _of_like_size(group: Sequence[_Seen], ratio: float) -> list[Sequence[_Seen]]:
    parts = alike([seen.file.size_bytes for seen in group], ratio)
    return [group[part.start : part.stop] for part in parts]


def _neighbours(state: TableState, seen: Sequence[_Seen], small: Sequence[_Seen]) -> list[Sequence[_Seen]]:
    """Return the small files in order of arrival, in groups that a job may merge (docs/decisions/0012, rule 3).

    Files of a group are neighbours in every partition, and no file of one of its partitions, among all ``seen``, has a
    greatest sequence between those of two of the group. Files with equal sequences are left to merges of single
    partitions, which use the order of their lists.
    """
    wanted = {one.file.id for one in small}
    ordered = sorted((state.files[one.file.id].sequence_hi, index) for index, one in enumerate(seen))
    groups: list[list[_Seen]] = [[]]
    # The partitions of the last group, each with the position after its last file; and those of files that arrived
    # since the first of the group and are not in it.
    ends: dict[int, int] = {}
    barred: set[int] = set()
    for _, every in itertools.groupby(ordered, key=lambda one: one[0]):
        came = [seen[index] for _, index in every]
        reached = {partition for one in came for partition in one.partitions}
        if len(came) > 1 or came[0].file.id not in wanted:
            if reached.isdisjoint(ends):
                barred |= reached
            else:
                groups.append([])
                ends, barred = {}, set()
            continue
        [file] = came
        if not barred.isdisjoint(reached) or any(
            ends.get(partition, index) != index for partition, index in file.pairs
        ):
            groups.append([])
            ends, barred = {}, set()
        groups[-1].append(file)
        ends.update((partition, index + 1) for partition, index in file.pairs)
    return list(groups)


def _is_small(seen: _Seen) -> bool:
    return seen.file.size_bytes < SLICE_BYTES_MAX * len(seen.partitions)


def _files_seen(state: TableState, partitions: Iterable[int]) -> list[_Seen]:
    """Return the files in these partitions; files that an open job merges are treated as having an estimate."""
    busy = {name for job in state.jobs.values() for name in job.inputs}
    files: dict[str, DataFile] = {}
    rows: dict[str, int] = {}
    held_in: dict[str, list[tuple[int, int]]] = {}
    for partition in partitions:
        for index, reference in enumerate(state.held_by(partition)):
            name = reference.file.id
            if name not in files:
                files[name], rows[name], held_in[name] = reference.file, 0, []
            rows[name] = rows[name] + reference.rows if reference.exact and rows[name] >= 0 and name not in busy else -1
            held_in[name].append((partition, index))
    return [_Seen(file, rows[name], *zip(*held_in[name], strict=True)) for name, file in files.items()]


def _saved(group: Sequence[_Seen]) -> int:
    """Return the number of references that the state saves if the files are merged into one."""
    if len(group) < 2:
        return 0
    return sum(len(seen.partitions) for seen in group) - len(
        {partition for seen in group for partition in seen.partitions}
    )


def _job(state: TableState, group: Sequence[_Seen]) -> WholeFiles:
    first_indices: dict[int, int] = {}
    for partition, index in (pair for seen in group for pair in seen.pairs):
        first_indices[partition] = min(index, first_indices.get(partition, index))
    positions = sorted(
        position for partition in first_indices if (position := state.partitions.position_of(partition)) is not None
    )
    low, high = state.partitions.range_at(positions[0]), state.partitions.range_at(positions[-1])
    return WholeFiles(
        tuple(seen.file for seen in group),
        tuple(state.partitions.ids[position] for position in positions),
        EncodedRange(low.min, high.max),
        oldest=not any(first_indices.values()),
    )
