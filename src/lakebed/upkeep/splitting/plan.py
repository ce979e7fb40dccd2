"""Plans splits of partitions that are too large, and joins of small neighbours. Pure: no I/O.

A split takes two steps, because the second needs summaries, which have to be loaded. :func:`due` finds the partitions
that exceed ``split_rows`` or ``split_bytes``; :func:`choose` picks the cuts of one.

*Candidates* are keys in the summaries of the partition's files, above the least key present: each has a row below it,
and one at it or above. A partition is cut at once into as many parts as its size needs, each cut at the candidate
nearest to an even share. A key with more rows than a partition may have ends up alone in one, after at most two rounds;
that partition cannot be split, because all rows of one key stay together.

*Ranks* come from the summaries. For one run they are exact at every candidate. For several runs they may be off by the
steps between sampled keys; if that could be more than a tenth of the partition, it is compacted first.

*Boundaries* are shortened to the shortest byte string that separates the sampled keys around the cut, because every
state and every later log entry contains them.

*Joins* (:func:`small`) never undo a split, and a split never undoes a join: a join makes a partition of at most half
the size at which it would be split, and two parts of an even split have more.

Core types: :class:`SplitPlan`, :class:`LargePartition`, :class:`SplitAt`, :class:`NotSplit`, :class:`SmallPartitions`.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from lakebed.model.key_summaries import candidates, error_rows, even_cuts, merged_rank, separator
from lakebed.model.state.sums import partition_sums
from lakebed.model.state.transactions.partition_changes import reaching_over
from lakebed.upkeep.compaction.plan import merges_due, runs_piled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.model.files import DataFile
    from lakebed.model.key_summaries import Summary
    from lakebed.model.keys import EncodedRange
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import TableState

ERROR_SHARE_MAX = 0.1
"""Maximum error of a rank. The size of a part may then be off by a fifth, which the next split corrects."""


FEW_SHARE = 0.01
"""The share of a partition's rows that may move to the other side of a cut for a shorter boundary."""

FILL = 0.75
"""The planned share of its limit for a part: a full part would be split again after one more row."""

FAR_ABOVE = 4
"""A partition larger than this many times its limit is cut despite an open job, which commits into the parts (decision
0005), and despite due merges, which do not catch up."""

JOINED_MAX = 10_000
"""Maximum partitions of one join: some tens of kB of its entry. Joining many more empty ones takes a few calls."""


@dataclass(frozen=True, slots=True)
class LargePartition:
    """A partition above its limits, and the number of parts it should be cut into. ``files`` are oldest first."""

    partition: int
    keys: EncodedRange
    rows: int
    size_bytes: int
    runs: int
    parts: int
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class SplitAt:
    """Cut the partition at these ascending keys."""

    partition: int
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class NotSplit:
    """A partition that is too large but not split, and why."""

    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class CompactFirst(NotSplit):
    """The files of the partition overlap too much to locate its rows."""


@dataclass(frozen=True, slots=True)
class Unsplittable(NotSplit):
    """The partition has a single key, according to the summaries."""


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Partitions above their limits, in key order, and those that have to wait."""

    large: tuple[LargePartition, ...]
    waiting: tuple[NotSplit, ...]


@dataclass(frozen=True, slots=True)
class SmallPartitions:
    """Neighbours in key order to join into one partition.

    ``compact_first`` are those that refer to files which prevent the join; a compaction replaces these files.
    """

    partitions: tuple[int, ...]
    rows: int
    size_bytes: int
    compact_first: tuple[int, ...]


def due(state: TableState, settings: Settings) -> SplitPlan:
    """Return the partitions that exceed a limit.

    A partition with an open job waits, unless it is far above its limit: the job's files are made for the whole
    partition, and each part would refer to all of them. So does one in which runs pile up: each part would refer to all
    of these as well, and its merges would open each file once for each part.
    """
    large, waiting = [], []
    sums = partition_sums(state)
    for position, partition in enumerate(state.partitions.ids):
        sizes = sums.get(partition)
        if sizes is None:
            continue
        parts = max(_parts(sizes.rows, settings.split_rows), _parts(sizes.size_bytes, settings.split_bytes))
        if parts < 2:
            continue
        keys = state.partitions.range_at(position)
        far = max(sizes.rows / settings.split_rows, sizes.size_bytes / settings.split_bytes) > FAR_ABOVE
        job = next((j for j in state.jobs.values() if not j.keys.intersect(keys).empty), None)
        if job is not None and not far:
            waiting.append(NotSplit(partition, f"job {job.id} is open in the partition"))
        elif sizes.runs > runs_piled(settings) and not far and merges_due(state, partition, settings):
            waiting.append(NotSplit(partition, f"its {sizes.runs} runs are merged first; lakebed compact merges them"))
        else:
            files = state.files_of(partition)
            large.append(LargePartition(partition, keys, sizes.rows, sizes.size_bytes, sizes.runs, parts, files))
    return SplitPlan(tuple(large), tuple(waiting))


def _parts(size: int, limit: int) -> int:
    return 1 if size <= limit else max(2, ceil(size / (FILL * limit)))


def choose(large: LargePartition, summaries: Sequence[Summary]) -> SplitAt | CompactFirst | Unsplittable:
    """Choose where to cut the partition; ``summaries`` are those of its files."""
    # Files of one run do not overlap: a sampled key of one of them has an exact rank over all of them.
    off = error_rows(summaries) if large.runs > 1 else 0
    if off > ERROR_SHARE_MAX * large.rows:
        return CompactFirst(
            large.partition,
            f"its summaries may be wrong by {off} of {large.rows} rows; compact it first",
        )
    low, high = large.keys.min, large.keys.max
    if not candidates(summaries, low, high):
        return Unsplittable(large.partition, "it holds a single key according to its summaries")
    cuts = even_cuts(summaries, large.parts, low, high)
    noted = sorted({key for summary in summaries for key in summary.keys if large.keys.contains(key)})
    return SplitAt(large.partition, tuple(dict.fromkeys(_shortened(key, noted, summaries, large.rows) for key in cuts)))


def _shortened(key: bytes, noted: Sequence[bytes], summaries: Sequence[Summary], rows: int) -> bytes:
    """Return a short key that cuts where a sampled key does, except for a few of the partition's rows."""
    position = bisect_left(noted, key)
    ranks = [merged_rank(summaries, noted[p]) for p in (position, min(position + 1, len(noted) - 1))]
    return separator(noted, position, ranks[1] - ranks[0], FEW_SHARE * rows)


def small(state: TableState, settings: Settings) -> tuple[SmallPartitions, ...]:
    """Return the neighbours to join: each group has as many partitions as stay within half the size at which one is
    split.

    Partitions with an open job are left out, and so is a table without rows, whose partitions were made for future
    rows.
    """
    rows_max, bytes_max = (int(settings.join_share * most) for most in (settings.split_rows, settings.split_bytes))
    sums = partition_sums(state)
    if not sums or not rows_max:
        return ()
    busy = {position for job in state.jobs.values() for position in state.partitions.overlapping(job.keys)}
    groups: list[SmallPartitions] = []
    group: list[int] = []
    rows = size_bytes = 0
    for position, partition in enumerate(state.partitions.ids):
        sizes = sums.get(partition)
        more_rows, more_bytes = (sizes.rows, sizes.size_bytes) if sizes else (0, 0)
        full = rows + more_rows > rows_max or size_bytes + more_bytes > bytes_max or len(group) == JOINED_MAX
        if full or position in busy:
            groups += _together(group, rows, size_bytes, state)
            group, rows, size_bytes = [], 0, 0
        if position not in busy:
            group.append(partition)
            rows, size_bytes = rows + more_rows, size_bytes + more_bytes
    return (*groups, *_together(group, rows, size_bytes, state))


def _together(partitions: Sequence[int], rows: int, size_bytes: int, state: TableState) -> list[SmallPartitions]:
    if len(partitions) < 2:
        return []
    files = reaching_over(partitions, state)
    compact_first = [
        partition for partition in partitions if any(file.id in files for file in state.files_of(partition))
    ]
    return [SmallPartitions(tuple(partitions), rows, size_bytes, tuple(compact_first))]
