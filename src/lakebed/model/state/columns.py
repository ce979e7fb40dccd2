"""A mapping stored as columns: how the files and references of a large state are stored and opened.

A *segment* has the rows of a span of keys, in ascending order; segments are in the order of their spans. The first key,
the last key and the number of rows of a segment are in memory; its rows are loaded when one of them is read. A lookup
is a binary search over the segments, then over the raw keys of one, and decodes one row. So a state of millions of
files opens at once, and takes the memory of the segments in use.

:meth:`Columns.rewritten` merges changes into the segments that they touch and keeps all others, so the cost of a
checkpoint depends on the changes and not on the state.

Pure, except for loading the rows of a segment. Arrow's kernels take 60 ms to import, so they are imported where they
are used: lookups do not need them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Generic, TypeVar

import pyarrow as pa
from msgspec import Struct

from lakebed.errors import Code

K = TypeVar("K", int, str)
V = TypeVar("V")

SEGMENT_BYTES = 1024 * 1024
"""Bytes of a stored segment; one that has grown to twice the size is divided. A lookup in an object store fetches one
segment: at 100 MB/s this takes as long as the request."""


class ColumnarCodec(Struct, Generic[K, V], frozen=True):
    """Encodes the values of one kind as columns of a segment, key columns first, and decodes them.

    A segment may store data that several of its rows share only once, so rows are merged in a *flat* form without
    sharing. ``encode`` turns values into flat rows, ``pack`` turns flat rows in key order into a segment, and
    ``unpack`` does the reverse; ``reader`` decodes one row of a segment. Only ``nullable`` columns have nulls. Keys are
    int64 or string; strings compare by code point, which is the order of their UTF-8.
    """

    schema: pa.Schema
    encode: Callable[[Sequence[tuple[K, V]]], pa.Table]
    reader: Callable[[pa.RecordBatch], Callable[[int], V]]
    pack: Callable[[pa.Table], pa.RecordBatch]
    unpack: Callable[[pa.RecordBatch], pa.Table]
    nullable: frozenset[str] = frozenset()


class SegmentRows(Generic[K, V]):
    """The rows of one segment, with binary search by key."""

    __slots__ = ("_codec", "_key", "_positions", "_value", "batch")

    def __init__(self, codec: ColumnarCodec[K, V], batch: pa.RecordBatch) -> None:
        if not batch.num_rows or batch.schema != codec.schema:
            raise Code.CHECKPOINT_DAMAGED(f"a segment of a state has {batch.num_rows} rows of {batch.schema.names}")
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name not in codec.nullable and _has_nulls(column):
                raise Code.CHECKPOINT_DAMAGED(f"a segment of a state has nulls in {name}")
        self._codec: ColumnarCodec[K, V] = codec
        self.batch = batch
        self._key = _key_reader(batch.column(0))
        self._positions = range(batch.num_rows)
        self._value: Callable[[int], V] | None = None

    def position(self, key: Any) -> int | None:
        """Return the row of the key; None if the segment does not have it."""
        position = bisect_left(self._positions, key, key=self._key)
        return position if position < len(self._positions) and self._key(position) == key else None

    def value(self, position: int) -> V:
        """Return the value in a row."""
        if self._value is None:
            self._value = self._codec.reader(self.batch)
        return self._value(position)

    def key(self, position: int) -> K:
        """Return the key in a row."""
        return self._key(position)  # type: ignore[no-any-return]

    def keys(self) -> Sequence[K]:
        """Return all keys, ascending."""
        return self.batch.column(0).to_pylist()  # type: ignore[no-any-return]


def _has_nulls(array: pa.Array) -> bool:
    """Return whether a value, or a member of one, is null."""
    if array.null_count:
        return True
    if pa.types.is_list(array.type):
        return _has_nulls(array.values)
    return pa.types.is_struct(array.type) and any(map(_has_nulls, array.flatten()))


class Segment(Generic[K, V]):
    """The rows of a span of keys. ``opened`` loads them each time they are read.

    ``stored`` identifies the object that contains them, if any.
    """

    __slots__ = ("_opened", "count", "first", "last", "size_bytes", "stored")

    def __init__(self, span: tuple[K, K], count: int, size_bytes: int, opened: Callable[[], SegmentRows[K, V]]) -> None:
        self.first: K = span[0]
        self.last: K = span[1]
        self.count = count
        self.size_bytes = size_bytes
        self.stored: Any = None
        self._opened: Callable[[], SegmentRows[K, V]] = opened

    @classmethod
    def of(cls, codec: ColumnarCodec[K, V], batch: pa.RecordBatch) -> Segment[K, V]:
        """Make a segment with its rows in memory. Raises DamagedError if the batch is empty or has another schema."""
        rows = SegmentRows(codec, batch)
        return cls((rows.key(0), rows.key(batch.num_rows - 1)), batch.num_rows, batch.nbytes, lambda: rows)

    def rows(self) -> SegmentRows[K, V]:
        """Return the rows. Raises the errors of loading them."""
        return self._opened()

    def rebase_onto(self, stored: Any, opened: Callable[[], SegmentRows[K, V]]) -> None:
        """Load the same rows with ``opened`` from now on."""
        self.stored, self._opened = stored, opened


class Columns(Mapping[K, V], Generic[K, V]):
    """An immutable mapping over segments."""

    __slots__ = ("_count", "_firsts", "codec", "segments")

    def __init__(self, codec: ColumnarCodec[K, V], segments: Sequence[Segment[K, V]] = ()) -> None:
        self.codec: ColumnarCodec[K, V] = codec
        self.segments: tuple[Segment[K, V], ...] = tuple(segments)
        self._firsts: list[K] = [segment.first for segment in self.segments]
        self._count: int = sum(segment.count for segment in self.segments)
        if any(a.last >= b.first for a, b in pairwise(self.segments)):
            raise Code.CHECKPOINT_DAMAGED("the segments of a state overlap")

    def _find(self, key: Any) -> tuple[SegmentRows[K, V], int] | None:
        index = bisect_right(self._firsts, key) - 1
        # A key between segments or beyond the last one, such as a new id, reads no segment.
        if index < 0 or key > self.segments[index].last:
            return None
        rows = self.segments[index].rows()
        position = rows.position(key)
        return None if position is None else (rows, position)

    def length(self, key: K, name: str, *, bytes_min: int = 0) -> int:
        """Return the length of the key's list in that column; 0 if missing, or in a segment below ``bytes_min``."""
        index = bisect_right(self._firsts, key) - 1
        if index < 0 or self.segments[index].size_bytes < bytes_min:
            return 0
        located = self._find(key)
        return 0 if located is None else len(located[0].batch.column(name)[located[1]])

    def __getitem__(self, key: K) -> V:
        located = self._find(key)
        if located is None:
            raise KeyError(key)
        rows, position = located
        return rows.value(position)

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not None

    def __iter__(self) -> Iterator[K]:
        for segment in self.segments:
            yield from segment.rows().keys()

    def __len__(self) -> int:
        return self._count

    def having(self, name: str) -> Iterator[tuple[K, V]]:
        """Return the rows whose value in that column is not null; others are not decoded."""
        for segment in self.segments:
            rows = segment.rows()
            column = rows.batch.column(name)
            if column.null_count < len(column):
                import pyarrow.compute as pc

                for position in pc.indices_nonzero(column.is_valid()).to_pylist():
                    yield rows.key(position), rows.value(position)

    def at_least(self, name: str, least: int) -> Columns[K, V]:
        """Return the rows whose number in that column is at least ``least``; unchanged segments are shared."""
        import pyarrow.compute as pc

        segments: list[Segment[K, V]] = []
        for segment in self.segments:
            batch = segment.rows().batch
            kept = batch.filter(pc.greater_equal(batch.column(name), least))
            if kept.num_rows:
                segments.append(segment if kept.num_rows == batch.num_rows else Segment.of(self.codec, kept))
        return Columns(self.codec, segments)

    def between(self, first: K, last: K) -> pa.RecordBatch:
        """Return the rows with keys in ``[first, last]``, packed as one segment."""
        import pyarrow.compute as pc

        flat = [self.codec.unpack(p.rows().batch) for p in self.segments if p.last >= first and p.first <= last]
        table = pa.concat_tables(flat or [self.codec.encode([])])
        keys = table.column(0)
        return self.codec.pack(table.filter(pc.and_(pc.greater_equal(keys, first), pc.less_equal(keys, last))))

    def rewritten(self, changes: Mapping[K, V | None], segment_bytes: int = SEGMENT_BYTES) -> Columns[K, V]:
        """Return the mapping with these changes; None removes a key. Unchanged segments are shared, changed ones have
        about ``segment_bytes``.

        A value is read from ``changes`` when its segment is made, and is not kept.
        """
        touched: dict[int, list[K]] = {}
        for key in sorted(changes):
            index = max(0, bisect_right(self._firsts, key) - 1)
            # Keys beyond the last go into new segments if the last one is full, so that growth rewrites nothing.
            beyond = (
                index == len(self.segments) - 1
                and key > self.segments[index].last
                and self.segments[index].size_bytes >= segment_bytes
            )
            touched.setdefault(index + beyond, []).append(key)
        segments: list[Segment[K, V]] = []
        for index in range(max(len(self.segments), *(i + 1 for i in touched)) if touched else len(self.segments)):
            here = touched.get(index)
            if here is None:
                segments.append(self.segments[index])
            else:
                merged = self._merged(self.segments[index] if index < len(self.segments) else None, here, changes)
                segments += packed(self.codec, merged, segment_bytes)
        return Columns(self.codec, segments)

    def _merged(self, segment: Segment[K, V] | None, keys: Collection[K], changes: Mapping[K, V | None]) -> pa.Table:
        import pyarrow.compute as pc

        flat = [self.codec.encode([(key, value) for key in keys if (value := changes[key]) is not None])]
        if segment is not None:
            rows = self.codec.unpack(segment.rows().batch)
            replaced = pc.is_in(rows.column(0), value_set=pa.array(keys, self.codec.schema.field(0).type))
            flat.insert(0, rows.filter(pc.invert(replaced)))
        table = pa.concat_tables(flat)
        return table.take(pc.sort_indices(table.column(0)))


def packed(codec: ColumnarCodec[K, V], flat: pa.Table, segment_bytes: int) -> Iterator[Segment[K, V]]:
    """Pack flat rows, in the order of their keys, as segments of about ``segment_bytes``; none if there are no rows."""
    if not flat.num_rows:
        return
    whole = codec.pack(flat)
    count = min(flat.num_rows, max(1, whole.nbytes // segment_bytes))
    if count == 1:
        yield Segment.of(codec, whole)
        return
    edges = [flat.num_rows * index // count for index in range(count + 1)]
    for begin, end in pairwise(edges):
        # take, not slice: a slice would keep and write the buffers of the whole array.
        yield Segment.of(codec, codec.pack(flat.take(pa.array(range(begin, end), pa.int64()))))


# -- values, read from Arrow's buffers --------------------------------------------------------------------------

Span = Callable[[int, int], list[Any]]
"""Returns the values of rows ``[begin, end)``. Arrow takes ten times as long for single values, and a lookup reads
hundreds of them; those of one partition are adjacent."""


def _key_reader(column: pa.Array) -> Callable[[int], Any]:
    start, buffers = column.offset, column.buffers()
    if pa.types.is_int64(column.type):
        numbers = memoryview(buffers[1] or b"").cast("q")
        return lambda row: numbers[start + row]
    offsets = memoryview(buffers[1] or b"").cast("i")
    # A column of empty strings has no data buffer.
    content = memoryview(buffers[2] or b"")
    return lambda row: str(content[offsets[start + row] : offsets[start + row + 1]], "utf-8")


def span_reader(column: pa.Array) -> Span:
    """Return a reader of a column of int64, int32, bool, string or binary; null is None."""
    read = _plain_span_reader(column)
    if not column.null_count:
        return read
    valid = _bits(column.buffers()[0], column.offset)
    return lambda begin, end: [
        v if there else None for v, there in zip(read(begin, end), valid(begin, end), strict=True)
    ]


def _plain_span_reader(column: pa.Array) -> Span:
    kind, start, buffers = column.type, column.offset, column.buffers()
    if pa.types.is_integer(kind):
        numbers = memoryview(buffers[1] or b"").cast("q" if pa.types.is_int64(kind) else "i")
        return lambda begin, end: numbers[start + begin : start + end].tolist()
    if pa.types.is_boolean(kind):
        return _bits(buffers[1], start)
    offsets = memoryview(buffers[1] or b"").cast("i")
    content = memoryview(buffers[2] or b"")
    if pa.types.is_binary(kind) and len(column) and offsets[start] == offsets[start + len(column)]:
        # The column of bounds of later key fields is empty if the table has one key field. The shortcut saves a tenth
        # of decoding a partition.
        return lambda begin, end: [b""] * (end - begin)

    def binaries(begin: int, end: int) -> list[bytes]:
        edges = offsets[start + begin : start + end + 1].tolist()
        base = edges[0]
        # One copy, from which the values are sliced.
        data = bytes(content[base : edges[-1]])
        return [data[low - base : high - base] for low, high in pairwise(edges)]

    def texts(begin: int, end: int) -> list[str]:
        edges = offsets[start + begin : start + end + 1].tolist()
        base = edges[0]
        text = str(content[base : edges[-1]], "utf-8")
        if text.isascii():
            return [text[low - base : high - base] for low, high in pairwise(edges)]
        return [str(content[low:high], "utf-8") for low, high in pairwise(edges)]

    return texts if pa.types.is_string(kind) else binaries


def _bits(buffer: pa.Buffer, start: int) -> Span:
    bits = memoryview(buffer)
    return lambda begin, end: [bool(bits[i >> 3] >> (i & 7) & 1) for i in range(start + begin, start + end)]


def edges_reader(column: pa.ListArray) -> Callable[[int], tuple[int, int]]:
    """Return a function from a row to the range of its values in ``column.values``."""
    start, offsets = column.offset, memoryview(column.buffers()[1]).cast("i")
    return lambda row: (offsets[start + row], offsets[start + row + 1])
