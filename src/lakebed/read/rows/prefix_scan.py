"""Skip scans: the distinct values of the first row key fields, without reading the rows between them.

All keys with one prefix follow one another. So the scan finds the first key, then the first key at or after the
successor of its prefix, and so on. In each file that is a binary search: bounds of the file, of its row groups and of
its pages, and then the key columns of one page. Files and pages in which every key has the prefix are passed over.

A decoded page gives all of its prefixes at once. While no more than a few pages are skipped, twice as many pages are
decoded each time: where prefixes are about as many as pages, or more, this becomes a scan of the key columns.

If rows are merged, a row that is found may be a delete. So a prefix for which a file with deletes or partial rows has a
row counts only if a scan finds a merged row of it; and so does one that several files have, if a merge function may
drop its rows, and one of which the table's filter may hide all rows.

Rules: a partition answers alone, from the files that it refers to and for the keys inside it, so removed rows do not
count. A prefix may continue in the next partition; it counts once.

Errors: as :meth:`lakebed.read.rows.reader.Reader.scan`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code
from lakebed.files.parquet.page_decoder import RowSlice, read_columns
from lakebed.model.checks import is_whole, shown
from lakebed.model.keys import EncodedRange, KeyCodec, comparable, successor
from lakebed.read.rows.plan import plan

if TYPE_CHECKING:
    from lakebed.files.parquet.pages import PagedFile
    from lakebed.model.files import DataFile
    from lakebed.model.schema import Schema
    from lakebed.model.state.table_state import TableState
    from lakebed.read.rows.reader import Reader

PARTS_AT_ONCE = 16
"""Partitions scanned side by side on a store, where each page takes a round trip."""


def prefixes(
    state: TableState, ranges: Sequence[EncodedRange], depth: int, limit: int | None, reader: Reader
) -> pa.Table:
    """Return the first ``limit`` distinct values of the first ``depth`` row key fields of rows in the ranges, in key
    order.

    Raises UsageError for a depth that the row key does not have.
    """
    check_depth(depth, state.created)
    fields = state.created.row_key[:depth]
    encoded = list(islice(_distinct(state, ranges, depth, limit, reader), limit))
    columns = KeyCodec(fields).decode_columns(encoded).columns
    return pa.Table.from_arrays(columns, schema=state.created.arrow_of([field.name for field in fields]))


def check_depth(depth: Any, schema: Schema) -> None:
    """Raise UsageError unless it is a number of row key fields."""
    names = schema.row_key_names
    if not is_whole(depth, 1, len(names)):
        raise Code.ARGUMENT_INVALID(
            f"depth = {shown(depth)}: must be a whole number from 1 to {len(names)}, the number of row key fields "
            f"({', '.join(names)})"
        )


def _distinct(
    state: TableState, ranges: Sequence[EncodedRange], depth: int, limit: int | None, reader: Reader
) -> Iterator[bytes]:
    """Return the encoded prefixes, ascending."""
    parts = [
        (keys, [file for file in partition.files if file.reaches(keys)])
        for partition in plan(state, ranges).partitions
        for keys in partition.ranges
    ]

    def of_part(part: tuple[EncodedRange, Sequence[DataFile]]) -> Iterator[bytes]:
        keys, files = part
        cursors = [_Cursor(file, keys, depth, state.created, reader) for file in files]
        merged_prefixes = _merged(cursors, keys.min, may_drop=state.merge.may_drop_rows and len(files) > 1)
        return (prefix for prefix, merged in merged_prefixes if _has_rows(state, prefix, keys, reader, merged=merged))

    if reader.is_local or limit is not None or len(parts) < 2:
        yield from _join_parts(map(of_part, parts))
        return
    with ThreadPoolExecutor(PARTS_AT_ONCE, "lakebed-prefixes") as threads:
        yield from _join_parts(threads.map(lambda part: list(of_part(part)), parts))


def _join_parts(parts: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Return the prefixes of successive parts; one that continues in the next part counts once."""
    last = None
    for part in parts:
        for prefix in part:
            if prefix != last:
                yield prefix
            last = prefix


def _has_rows(state: TableState, prefix: bytes, keys: EncodedRange, reader: Reader, *, merged: bool) -> bool:
    """Return whether a row in the range that the table's filter shows has the prefix; ``merged``: a merged row has."""
    if merged and not state.filter_version:
        return True
    inside = plan(state, [EncodedRange(prefix, successor(prefix)).intersect(keys)])
    if merged and inside.shows_all:
        return True
    with reader.scan(inside, state.created.row_key_names[:1], 1) as rows:
        return any(batch.num_rows for batch in rows)


def _merged(cursors: Sequence[_Cursor], bound: bytes, *, may_drop: bool) -> Iterator[tuple[bytes, bool]]:
    """Return the prefixes that any of the cursors has from the bound on, ascending, each once.

    With each: whether it is sure to have a merged row. Not if a file with markers has it, nor if a merge ``may_drop``
    any row.
    """
    marked = {index for index, cursor in enumerate(cursors) if may_drop or cursor.has_markers}
    heads = [(head, index) for index, cursor in enumerate(cursors) if (head := cursor.seek(bound)) is not None]
    heapify(heads)
    while heads:
        prefix = heads[0][0]
        yield prefix, not marked or not any(head == prefix and index in marked for head, index in heads)
        following = successor(prefix)
        while heads and heads[0][0] == prefix:
            index = heads[0][1]
            head = None if following is None else cursors[index].seek(following)
            if head is None:
                heappop(heads)
            else:
                heapreplace(heads, (head, index))


class _Cursor:
    """The prefixes of one file's rows inside a range of keys. For one thread, and bounds that ascend."""

    def __init__(self, file: DataFile, keys: EncodedRange, depth: int, schema: Schema, reader: Reader) -> None:
        self.has_markers = file.markers > 0
        self._file = file
        self._keys = keys
        self._prefix = KeyCodec(schema.row_key[:depth])
        self._schema = schema
        self._reader = reader
        self._paged: PagedFile | None = None
        self._prefixes: list[bytes] = []
        self._next = (0, 0)
        """Row group and page after those that ``_found`` is of."""
        self._pages = 1

    def seek(self, bound: bytes) -> bytes | None:
        """Return the least prefix of a row whose key is in the range and not below the bound; None if there is none.

        The bound is the beginning of the range, or the successor of a prefix.
        """
        if bound <= self._file.min_key and self._keys.contains(self._file.min_key):
            return self._prefix.beginning(self._file.min_key)
        if bound > self._file.max_key:
            return None
        index = bisect_left(self._prefixes, bound)
        if index < len(self._prefixes):
            return self._prefixes[index]
        with self._reader.attribute_errors([self._file]):
            if self._paged is None:
                self._paged = self._reader.paged(self._file, self._schema)
            self._prefixes = self._decode(self._paged, bound)
        return self._prefixes[0] if self._prefixes else None

    def _decode(self, file: PagedFile, bound: bytes) -> list[bytes]:
        """Return the prefixes of the first pages that have a row in the range and not below the bound."""
        wanted, limits = self._keys.intersect(EncodedRange(bound)), self._reader.limits
        for position in file.footer.fences.reaching(wanted):
            group = file.footer.groups[position]
            if file.footer.paged:
                pages = file.key_pages(position, group)
                starts, ends, firsts = pages.fences.starts, pages.fences.ends, [*pages.first_rows, group.rows]
            else:
                fences = file.footer.fences
                starts, ends, firsts = (fences.starts[position],), (fences.ends[position],), [0, group.rows]
            low = bisect_right(ends, bound)
            stop = len(starts) if wanted.max is None else bisect_left(starts, wanted.max)
            while low < stop:
                group_before, page_before = self._next
                near = group_before == position and low - page_before <= limits.prefix_skipped
                self._pages = min(2 * self._pages, limits.prefix_pages) if near else 1
                high = min(low + self._pages, stop)
                self._next = (position, high)
                row_slice = RowSlice(file, position, group, range(firsts[low], firsts[high]))
                if prefixes := self._of_rows(row_slice, wanted, EncodedRange(starts[low], ends[high - 1])):
                    return prefixes
                low = high
            self._next = (position + 1, 0) if stop == len(starts) else self._next
        return []

    def _of_rows(self, row_slice: RowSlice, wanted: EncodedRange, extent: EncodedRange) -> list[bytes]:
        """Return the distinct prefixes of those of the rows whose key is wanted; all of their keys lie ``extent``."""
        # To compare with the ends of the range takes whole keys; a prefix compares with the successor of another. Where
        # all keys around are in the range, nothing is compared with its beginning, which may have the first prefix.
        inside = self._keys.covers(extent)
        codec = self._prefix if inside else self._schema.codec
        columns = read_columns([row_slice], codec.fields)
        names = [field.name for field in codec.fields]
        rows = pa.RecordBatch.from_arrays([columns[name] for name in names], names)
        first = 0 if wanted.min <= extent.min else codec.lower_rank(rows, wanted.min, 0, rows.num_rows)
        last = rows.num_rows
        if not inside and wanted.max is not None:
            last = codec.lower_rank(rows, wanted.max, first, last)
        if first == last:
            return []
        ends = [self._prefix.encode_row(rows, row) for row in (first, last - 1)]
        return ends[:1] if ends[0] == ends[1] else _changes(rows.slice(first, last - first), self._prefix)


def _changes(rows: pa.RecordBatch, prefix: KeyCodec) -> list[bytes]:
    """Return the distinct prefixes of sorted rows."""
    import pyarrow.compute as pc

    differs = None
    for field in prefix.fields:
        column = comparable(rows.column(field.name))
        changed = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
        differs = changed if differs is None else pc.or_(differs, changed)
    begins = pa.concat_arrays([pa.array([True]), differs])
    prefixes: list[bytes] = prefix.encode_columns(rows.filter(begins)).to_pylist()
    return prefixes
