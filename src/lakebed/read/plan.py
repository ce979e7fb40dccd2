"""Which partitions and files answer a set of key ranges. Pure: no I/O, no storage, no clock.

A reference stands for all rows of its file inside its partition, so a partition answers alone: its query is the
partition's range cut down to what was asked, over the referenced files whose bounds reach that. Partitions do not
overlap and are taken in key order, so answers are concatenated, never merged, across partitions. The partition range
matters even for a query over all keys: a file may hold rows outside the partition that were compacted away, or removed,
there.

:func:`live_files` says the same for an engine that reads data files by itself: which rows of which files count. A file
by itself will do only where all of it counts; otherwise key ranges go with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from lakebed.model.files import DataFile
from lakebed.model.keys import ALL_KEYS, EncodedRange, iter_ranges, successor
from lakebed.model.schema import Schema
from lakebed.state.table_state import TableState

if TYPE_CHECKING:
    from lakebed.read.key_ranges import KeySet

RANGES_MIN = 16
ROWS_A_RANGE = 4096
"""A read of one more range takes 0.4 ms or more, in which so many rows are decoded and filtered."""


@dataclass(frozen=True, slots=True)
class PartitionQuery:
    """What to read in one partition: disjoint ascending ranges inside it, and the files that may hold rows of them.

    Neither is empty. Files are in the order of arrival.
    """

    partition: int
    ranges: tuple[EncodedRange, ...]
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Partition queries in key order; partitions that cannot hold a row of the answer are left out.

    Rows are given as ``schema`` has them, whatever schema a file was written with. ``partitions_met`` and
    ``files_considered`` count what was looked at: the partitions that share a key with the ranges, and what these refer
    to.
    """

    partitions: tuple[PartitionQuery, ...]
    schema: Schema
    partitions_met: int = 0
    files_considered: int = 0


def plan(state: TableState, ranges: Sequence[EncodedRange], among: KeySet | None = None) -> QueryPlan:
    """The plan of a query for all rows with a key in any of the ranges; each row counts once.

    ``among`` are the keys that the caller's predicate leaves over, over all fields that rows are sorted by
    (:attr:`Schema.order`): files of which no row can be among them are left out.
    """
    # A partition may be met by several ranges, and a range by several partitions: both ascend, so equal partitions are
    # neighbours.
    inside: dict[int, list[EncodedRange]] = {}
    for keys in iter_ranges(ranges):
        for position in state.partitions.overlapping(keys):
            inside.setdefault(position, []).append(keys.intersect(state.partitions.range_at(position)))
    partitions: list[PartitionQuery] = []
    considered = 0
    for position, inner in inside.items():
        partition = state.partitions.ids[position]
        files = state.files_of(partition)
        considered += len(files)
        partitions += _partition_query(partition, files if among is None else _matching(files, among), inner)
    return QueryPlan(tuple(partitions), state.created, len(inside), considered)


def _matching(files: Sequence[DataFile], keys: KeySet) -> Sequence[DataFile]:
    """The files that may have a row among these keys, by the bounds of their fields after the first."""
    later = [
        [(position - 1, ranges, [keys.min for keys in ranges]) for position, ranges in box if position]
        for box in keys.boxes
    ]
    if not all(later) or not later:
        return files
    from lakebed.model.field_bounds import decode_bounds

    return [file for file in files if not file.bounds or _may_match(decode_bounds(file.bounds), later)]


_LaterField = tuple[int, Sequence[EncodedRange], Sequence[bytes]]
"""A key field after the first, by its place among them; its ranges, which ascend and are disjoint; their minimums."""


def _may_match(bounds: Sequence[EncodedRange], boxes: Sequence[Sequence[_LaterField]]) -> bool:
    for box in boxes:
        for place, ranges, minimums in box:
            if place < len(bounds) and not _meets(bounds[place], ranges, minimums):
                break
        else:
            return True
    return False


def _meets(bound: EncodedRange, ranges: Sequence[EncodedRange], minimums: Sequence[bytes]) -> bool:
    """Whether the bound shares a value with a range: if it does, then with the last that begins below its end."""
    last = (len(ranges) if bound.max is None else bisect_left(minimums, bound.max)) - 1
    return last >= 0 and not bound.intersect(ranges[last]).empty


def coarser(
    found: QueryPlan, within: Sequence[EncodedRange] = (ALL_KEYS,), rows_a_range: int = ROWS_A_RANGE
) -> QueryPlan:
    """The plan with fewer ranges for a partition that has many, where to read the rows between them costs less.

    For who asks each row whether it is wanted: more rows come than those of the ranges, but none outside the ranges
    ``within``, which the caller asks for and no predicate checks. To begin another range costs as much as
    ``rows_a_range`` rows.
    """
    apart = list(iter_ranges(within))
    return replace(found, partitions=tuple(_coarser(partition, apart, rows_a_range) for partition in found.partitions))


def _coarser(partition: PartitionQuery, apart: Sequence[EncodedRange], rows_a_range: int) -> PartitionQuery:
    if (
        len(partition.ranges) < RANGES_MIN
        or sum(file.rows for file in partition.files) > len(partition.ranges) * rows_a_range
    ):
        return partition
    begins = [keys.min for keys in apart]
    joined = [list(some) for _, some in groupby(partition.ranges, lambda keys: bisect_right(begins, keys.min))]
    return replace(partition, ranges=tuple(EncodedRange(some[0].min, some[-1].max) for some in joined))


def _partition_query(partition: int, files: Sequence[DataFile], ranges: list[EncodedRange]) -> Iterator[PartitionQuery]:
    if len(ranges) == 1:
        # A lookup: of a hundred files each step counts.
        low, high = ranges[0].min, ranges[0].max
        some = [file for file in files if file.max_key >= low and (high is None or file.min_key < high)]
        if some:
            yield PartitionQuery(partition, tuple(ranges), tuple(some))
        return
    reaching = [[file.id for file in files if file.reaches(keys)] for keys in ranges]
    reached = tuple(keys for keys, names in zip(ranges, reaching, strict=True) if names)
    if reached:
        wanted = {name for names in reaching for name in names}
        yield PartitionQuery(partition, reached, tuple([file for file in files if file.id in wanted]))


def at(files: Sequence[DataFile], keys: EncodedRange) -> list[tuple[EncodedRange, tuple[DataFile, ...]]]:
    """As :func:`successive`, for a range that is of one whole key: all files that reach it overlap there."""
    key = keys.min
    reaching = tuple([file for file in files if file.max_key >= key >= file.min_key])
    return [(keys, reaching)] if reaching else []


def successive(files: Sequence[DataFile], keys: EncodedRange) -> Iterator[tuple[EncodedRange, tuple[DataFile, ...]]]:
    """The range cut into parts in key order, each with files that overlap; files of one run need no merge.

    Files that share no more than a key are in one part, because the rows of that key have an order too.
    """
    parts: list[list[DataFile]] = []
    end = b""
    for file in sorted((file for file in files if file.reaches(keys)), key=lambda file: file.min_key):
        if parts and file.min_key <= end:
            parts[-1].append(file)
        else:
            parts.append([file])
        end = max(end, file.max_key)
    begins = [keys.min, *(part[0].min_key for part in parts[1:])]
    for part, begin, following in zip(parts, begins, [*begins[1:], keys.max], strict=True):
        yield EncodedRange(begin, following), tuple(part)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file, and the keys whose rows in it count: sorted disjoint ranges."""

    file: DataFile
    ranges: tuple[EncodedRange, ...]

    @property
    def whole(self) -> bool:
        """Whether every row of the file counts."""
        every = EncodedRange(self.file.min_key, successor(self.file.max_key))
        return any(keys.covers(every) for keys in self.ranges)


def live_files(plan: QueryPlan) -> tuple[LiveFile, ...]:
    """The files of a plan, each once, with the keys of the plan in it; in the order in which the plan meets them."""
    found: dict[str, tuple[DataFile, list[EncodedRange]]] = {}
    for partition in plan.partitions:
        for file in partition.files:
            reached = (keys for keys in partition.ranges if file.reaches(keys))
            found.setdefault(file.id, (file, []))[1].extend(reached)
    return tuple(LiveFile(file, tuple(iter_ranges(ranges))) for file, ranges in found.values())


def over_partitions(plan: QueryPlan, state: TableState) -> QueryPlan:
    """The plan over all keys of its partitions: for a reader who asks the rows himself, and need only know which count.

    Requires a plan of this state.
    """
    whole = []
    for partition in plan.partitions:
        position = state.partitions.position_of(partition.partition)
        assert position is not None
        whole.append(replace(partition, ranges=(state.partitions.range_at(position),)))
    return replace(plan, partitions=tuple(whole))
