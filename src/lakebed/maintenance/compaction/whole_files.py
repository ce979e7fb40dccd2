"""Merges many small files that reach many partitions whole: one job over all partitions that they reach. Pure: no I/O.

A write of a few hundred rows over all keys makes one file, and a reference in every partition. Merged partition by
partition, a thousand such writes to 149 partitions are 12,900 jobs, each of which opens twelve files for one row of
each: opening files is the cost, not rows. Merged whole, every file is read once, and the output is again one file with
a reference in every partition. Once such outputs are large enough, their slices are merged partition by partition like
any others.

*Candidates.* All rows of the file count: its references are exact and sum to its rows, so that none was merged away or
removed in some partition. Its references stand for less than :data:`SLICE_BYTES_MAX` each on average. No open job
merges it.

*Choice.* Those of like size, by the rule of size-ratio over whole files, so that write amplification is the same; all
of them under ``full``. They must save :data:`REFERENCES_MIN` references; otherwise merging partition by partition is as
good.

Core types: :class:`WholeFiles`.

Source: docs/decisions/0030.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lakebed.maintenance.compaction.strategies import of_like_size
from lakebed.model.keys import EncodedRange
from lakebed.settings import KIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakebed.model.files import DataFile
    from lakebed.settings import Settings
    from lakebed.state.table_state import TableState

SLICE_BYTES_MAX = 256 * KIB
"""Opening a file and planning a merge over it takes as long as merging some hundred KiB."""

REFERENCES_MIN = 256
"""About twenty tasks of twelve inputs: with fewer, one task over several partitions saves little."""

FILES_MAX = 2_000
"""Inputs of one job, which bound its record, the digests to verify and the levels of the merge."""


class _Seen(NamedTuple):
    """A file, and its rows in the partitions considered; ``rows`` is -1 if one of them has an estimate."""

    file: DataFile
    rows: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WholeFiles:
    """Files to become one run, and the ids of the partitions that refer to any of them, in key order."""

    files: tuple[DataFile, ...]
    partitions: tuple[int, ...]
    keys: EncodedRange


def merge_whole(
    state: TableState, partitions: Sequence[int], settings: Settings, *, full: bool = False
) -> list[WholeFiles]:
    """The files to merge whole, of those in these partitions, which are all partitions with several runs."""
    if len(partitions) < 2:
        return []
    seen = _look(state, partitions)
    if any(_is_small(one) and state.files[one.file.id].references > len(one.partitions) for one in seen):
        # Some of the references are in partitions of one run.
        seen = _look(state, state.partitions.ids)
    small = [one for one in seen if _is_small(one) and one.rows == one.file.rows and len(one.partitions) > 1]
    small.sort(key=lambda one: one.file.size_bytes)
    sizes = [one.file.size_bytes for one in small]
    count = len(small) if full else of_like_size(sizes, settings.compaction_ratio)
    parts = -(-count // FILES_MAX)
    groups = [small[count * part // parts : count * (part + 1) // parts] for part in range(parts)]
    return [_job(state, group) for group in groups if _saved(group) >= REFERENCES_MIN]


def _is_small(seen: _Seen) -> bool:
    return seen.file.size_bytes < SLICE_BYTES_MAX * len(seen.partitions)


def _look(state: TableState, partitions: Iterable[int]) -> list[_Seen]:
    """The files in these partitions that no open job merges."""
    busy = {name for job in state.jobs.values() for name in job.inputs}
    files: dict[str, DataFile] = {}
    rows: dict[str, int] = {}
    held_in: dict[str, list[int]] = {}
    for partition in partitions:
        for one in state.held_by(partition):
            name = one.file.id
            if name in busy:
                continue
            if name not in files:
                files[name], rows[name], held_in[name] = one.file, 0, []
            rows[name] = rows[name] + one.rows if one.exact and rows[name] >= 0 else -1
            held_in[name].append(partition)
    return [_Seen(file, rows[name], tuple(held_in[name])) for name, file in files.items()]


def _saved(group: Sequence[_Seen]) -> int:
    """By how many references the state shrinks if the files become one."""
    if len(group) < 2:
        return 0
    return sum(len(seen.partitions) for seen in group) - len(
        {partition for seen in group for partition in seen.partitions}
    )


def _job(state: TableState, group: Sequence[_Seen]) -> WholeFiles:
    held = {partition for seen in group for partition in seen.partitions}
    positions = sorted(
        position for partition in held if (position := state.partitions.position_of(partition)) is not None
    )
    low, high = state.partitions.range_at(positions[0]), state.partitions.range_at(positions[-1])
    return WholeFiles(
        tuple(seen.file for seen in group),
        tuple(state.partitions.ids[position] for position in positions),
        EncodedRange(low.min, high.max),
    )
