"""Query plans: the partitions and files that hold the rows of some key ranges. Pure: no I/O, no clock.

A reference stands for all rows of its file inside its partition, so each partition is queried alone: its range is
intersected with the requested ranges, and the files are those whose bounds reach the result. Partitions do not overlap
and come in key order, so their rows are concatenated, never merged. Even a query over all keys needs the ranges of
partitions, because a file may hold rows of another partition that were compacted away or removed there.

:func:`live_files` gives the same for an engine that reads data files by itself: the files, with the key ranges of their
live rows. :func:`divided` finds the parts of a plan for which an engine may do so.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from lakebed.model.files import DataFile
from lakebed.model.keys import ALL_KEYS, EncodedRange, iter_ranges, successor
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.schema import Schema
from lakebed.model.state.table_state import TableState
from lakebed.model.state.visibility import EVERY_ROW, Visibility

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.read.rows.conditions import Condition
    from lakebed.read.rows.key_ranges import KeySet

RANGES_MIN = 16
ROWS_A_RANGE = 4096
"""Reading one more range takes 0.4 ms or more, in which this many rows are decoded and filtered."""


class PartitionQuery(Struct, frozen=True):
    """The query of one partition: disjoint ascending ranges inside it, and the files that may hold their rows.

    Neither is empty. Files are in commit order.
    """

    partition: int
    ranges: tuple[EncodedRange, ...]
    files: tuple[DataFile, ...]


class QueryPlan(Struct, frozen=True):
    """Partition queries in key order, without partitions that cannot hold a result.

    Rows have the form of ``schema``, whatever schema their file was written with. ``partitions_met`` is the number of
    partitions that overlap the ranges, ``files_considered`` that of their file references. Rows of overlapping files
    are merged by ``merge``. Of the remaining rows, those outside ``shown`` are hidden, and a read may leave out those
    for which the ``condition`` is not true, or whose key is not ``contested``. ``keys_by_index`` counts the keys that
    an index gave for the ranges.
    """

    partitions: tuple[PartitionQuery, ...]
    schema: Schema
    partitions_met: int = 0
    files_considered: int = 0
    merge: MergeMode = KEEP_ALL
    shown: Visibility = EVERY_ROW
    condition: Condition | None = None
    keys_by_index: int | None = None
    contested: pa.Table | None = None

    @property
    def shows_all(self) -> bool:
        """Whether no row of the files is hidden, as far as is known."""
        shown = self.shown
        return not shown.sql or all(shown.shows_all(file) for query in self.partitions for file in query.files)


def plan(state: TableState, ranges: Sequence[EncodedRange], key_set: KeySet | None = None) -> QueryPlan:
    """Return the plan of a query for all rows with a key in any of the ranges, each row once.

    ``key_set`` is that of the caller's predicate, over all fields of the sort order (:attr:`Schema.order`). Files
    without a key of it, by their bounds, are left out. If rows are merged, only the fields that they are merged by
    count: a row of a file that is left out for another field may supersede a row of a file that is not.
    """
    fields = len(state.merge.merge_key(state.created) or state.created.sort_names)
    # A partition may be met by several ranges, and a range by several partitions: both ascend, so equal partitions are
    # neighbours.
    inside: dict[int, list[EncodedRange]] = {}
    for keys in iter_ranges(ranges):
        for position in state.partitions.overlapping(keys):
            inside.setdefault(position, []).append(keys.intersect(state.partitions.range_at(position)))
    partitions: list[PartitionQuery] = []
    considered = 0
    shown = state.visibility if state.filter_version else EVERY_ROW
    for position, inner in inside.items():
        partition = state.partitions.ids[position]
        files = state.files_of(partition)
        considered += len(files)
        if shown.times is not None:
            files = tuple([file for file in files if not shown.hides_all(file)])
        partitions += _partition_query(
            partition, files if key_set is None else _matching(files, key_set, fields), inner
        )
    return QueryPlan(tuple(partitions), state.created, len(inside), considered, state.merge, shown)


def _matching(files: Sequence[DataFile], keys: KeySet, fields: int) -> Sequence[DataFile]:
    """Return the files that may have a row with a key of the set, by the bounds of the first ``fields`` key fields."""
    later = [
        [(position - 1, ranges, [keys.min for keys in ranges]) for position, ranges in box if 0 < position < fields]
        for box in keys.boxes
    ]
    if not all(later) or not later:
        return files
    from lakebed.model.files import decode_bounds

    return [file for file in files if not file.bounds or _may_match(decode_bounds(file.bounds), later)]


_LaterField = tuple[int, Sequence[EncodedRange], Sequence[bytes]]
"""A key field after the first: its index among these, its ascending disjoint ranges, and their minimums."""


def _may_match(bounds: Sequence[EncodedRange], boxes: Sequence[Sequence[_LaterField]]) -> bool:
    for box in boxes:
        for index, ranges, minimums in box:
            if index < len(bounds) and not _meets(bounds[index], ranges, minimums):
                break
        else:
            return True
    return False


def _meets(bound: EncodedRange, ranges: Sequence[EncodedRange], minimums: Sequence[bytes]) -> bool:
    """Return whether the bound overlaps a range: if it does, it overlaps the last one that begins below its end."""
    last = (len(ranges) if bound.max is None else bisect_left(minimums, bound.max)) - 1
    return last >= 0 and not bound.intersect(ranges[last]).empty


def coarser(
    found: QueryPlan, within: Sequence[EncodedRange] = (ALL_KEYS,), rows_a_range: int = ROWS_A_RANGE
) -> QueryPlan:
    """Return the plan with the ranges of a partition joined, where reading the rows between them costs less.

    For callers that evaluate their predicate on each row: the joined ranges have more rows, but none outside the ranges
    ``within``, which the predicate does not check. One more range costs as much as ``rows_a_range`` rows.
    """
    bounds = list(iter_ranges(within))
    return replace(found, partitions=tuple(_coarser(partition, bounds, rows_a_range) for partition in found.partitions))


def _coarser(partition: PartitionQuery, bounds: Sequence[EncodedRange], rows_a_range: int) -> PartitionQuery:
    if (
        len(partition.ranges) < RANGES_MIN
        or sum(file.rows for file in partition.files) > len(partition.ranges) * rows_a_range
    ):
        return partition
    begins = [keys.min for keys in bounds]
    joined = [list(group) for _, group in groupby(partition.ranges, lambda keys: bisect_right(begins, keys.min))]
    return replace(partition, ranges=tuple(EncodedRange(group[0].min, group[-1].max) for group in joined))


def _partition_query(partition: int, files: Sequence[DataFile], ranges: list[EncodedRange]) -> Iterator[PartitionQuery]:
    if len(ranges) == 1:
        # The path of a lookup among hundreds of files: few steps for each.
        low, high = ranges[0].min, ranges[0].max
        matching = [file for file in files if file.max_key >= low and (high is None or file.min_key < high)]
        if matching:
            yield PartitionQuery(partition, tuple(ranges), tuple(matching))
        return
    reaching = [[file.id for file in files if file.reaches(keys)] for keys in ranges]
    reached = tuple(keys for keys, names in zip(ranges, reaching, strict=True) if names)
    if reached:
        wanted = {name for names in reaching for name in names}
        yield PartitionQuery(partition, reached, tuple([file for file in files if file.id in wanted]))


def at(files: Sequence[DataFile], keys: EncodedRange) -> list[tuple[EncodedRange, tuple[DataFile, ...]]]:
    """As :func:`successive`, for the range of one whole key, where all files that reach it overlap."""
    key = keys.min
    reaching = tuple([file for file in files if file.max_key >= key >= file.min_key])
    return [(keys, reaching)] if reaching else []


def successive(files: Sequence[DataFile], keys: EncodedRange) -> Iterator[tuple[EncodedRange, tuple[DataFile, ...]]]:
    """Cut the range into parts in key order, each with a group of overlapping files, so that other files need no merge.

    Files that share a single key are in one part, because the rows of that key are sorted as well. The files of a part
    are in the order in which they are given.
    """
    parts: list[list[tuple[int, DataFile]]] = []
    begins: list[bytes] = []
    end = b""
    reaching = [(index, file) for index, file in enumerate(files) if file.reaches(keys)]
    for indexed in sorted(reaching, key=lambda indexed: indexed[1].min_key):
        file = indexed[1]
        if parts and file.min_key <= end:
            parts[-1].append(indexed)
        else:
            begins.append(file.min_key if parts else keys.min)
            parts.append([indexed])
        end = max(end, file.max_key)
    for part, begin, following in zip(parts, begins, [*begins[1:], keys.max], strict=True):
        yield EncodedRange(begin, following), tuple([file for _, file in sorted(part, key=itemgetter(0))])


def is_merged(mode: MergeMode, files: Sequence[DataFile]) -> bool:
    """Return whether the rows of these overlapping files must be merged. A file has one row at most for a key, so one
    file without markers need not.
    """
    return not mode.keeps_all and (len(files) > 1 or any(file.markers for file in files))


def divided(plan: QueryPlan) -> tuple[QueryPlan, QueryPlan]:
    """Return the parts of a plan whose files hold rows of the table, and those whose rows are merged or filtered."""
    keeps_all = plan.merge.keeps_all
    if keeps_all and plan.shown is EVERY_ROW:
        return plan, replace(plan, partitions=())
    direct: list[PartitionQuery] = []
    others: list[PartitionQuery] = []
    for query in plan.partitions:
        if keeps_all:
            visible = tuple([file for file in query.files if plan.shown.shows_all(file)])
            direct += [replace(query, files=visible)] if visible else []
            rest = tuple([file for file in query.files if file not in visible])
            others += [replace(query, files=rest)] if rest else []
            continue
        for keys in query.ranges:
            for part, files in successive(query.files, keys):
                is_direct = not is_merged(plan.merge, files) and all(map(plan.shown.shows_all, files))
                (direct if is_direct else others).append(PartitionQuery(query.partition, (part,), files))
    return replace(plan, partitions=tuple(direct), shown=EVERY_ROW), replace(plan, partitions=tuple(others))


class LiveFile(Struct, frozen=True):
    """A file, and the key ranges of its live rows: sorted and disjoint."""

    file: DataFile
    ranges: tuple[EncodedRange, ...]

    @property
    def whole(self) -> bool:
        """Whether all rows of the file are live."""
        every = EncodedRange(self.file.min_key, successor(self.file.max_key))
        return any(keys.covers(every) for keys in self.ranges)


def live_files(plan: QueryPlan) -> tuple[LiveFile, ...]:
    """Return the files of a plan, each once, with the ranges of the plan that reach it; in the order of the plan."""
    ranges_by_id: dict[str, tuple[DataFile, list[EncodedRange]]] = {}
    for partition in plan.partitions:
        for file in partition.files:
            reached = (keys for keys in partition.ranges if file.reaches(keys))
            ranges_by_id.setdefault(file.id, (file, []))[1].extend(reached)
    return tuple(LiveFile(file, tuple(iter_ranges(ranges))) for file, ranges in ranges_by_id.values())


def inside_of(plan: QueryPlan, other: QueryPlan) -> QueryPlan:
    """Return the rows of a plan that lie in the key ranges of another one of the same state."""
    from lakebed.read.rows.key_ranges import shared

    ranges = {query.partition: query.ranges for query in other.partitions}
    cut = (replace(one, ranges=tuple(shared(one.ranges, ranges.get(one.partition, ())))) for one in plan.partitions)
    return replace(plan, partitions=tuple([query for query in cut if query.ranges]))


def over_partitions(plan: QueryPlan, state: TableState) -> QueryPlan:
    """Return the plan over all keys of its partitions: for an engine that filters rows itself, and needs only the live
    ones.

    Requires a plan of this state.
    """
    whole = []
    for partition in plan.partitions:
        position = state.partitions.position_of(partition.partition)
        assert position is not None
        whole.append(replace(partition, ranges=(state.partitions.range_at(position),)))
    return replace(plan, partitions=tuple(whole))
