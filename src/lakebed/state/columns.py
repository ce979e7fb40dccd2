"""Rows by key as columns: the form in which the many files and references of a state are written and opened.

A *part* is an Arrow record batch whose first column, the key, ascends; parts follow one another in the order of their
keys. Opening one reads nothing but its schema: a lookup is a binary search over the raw keys, and decodes one row. So
a state of millions of files is there as soon as its bytes are, and takes their memory and no more.

:meth:`Columns.rewritten` merges changes into the parts that they touch and leaves all others as they are, which is
what makes the cost of a snapshot follow the changes and not the state.

Pure. Arrow's kernels take 60 ms to import, so they are imported where they are needed: who only reads need not pay.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from lakebed.errors import DamagedError

K = TypeVar("K", int, str)
V = TypeVar("V")

PART_ROWS = 16_384
"""Rows of a part as it is written; one that has grown to twice as many is written as two."""


@dataclass(frozen=True, slots=True)
class Form(Generic[K, V]):
    """How the values of one kind are kept: the columns, the key's first, and both ways between a row and a value.

    Columns are int64, bool, string, binary, or lists of these. Text compares by code point, as its UTF-8 does.
    """

    schema: pa.Schema
    encode: Callable[[Sequence[tuple[K, V]]], pa.RecordBatch]
    decode: Callable[[Sequence[Any]], V]


class Part(Generic[K, V]):
    """One record batch, and how to find a key in it. ``stored`` names the object that holds it, if one does."""

    __slots__ = ("_form", "_key", "_readers", "_rows", "batch", "first", "last", "stored")

    def __init__(self, form: Form[K, V], batch: pa.RecordBatch, stored: Any = None) -> None:
        if not batch.num_rows or batch.schema != form.schema:
            raise DamagedError(f"a part of a state has {batch.num_rows} rows of {batch.schema.names}")
        self._form: Form[K, V] = form
        self.batch = batch
        self.stored = stored
        self._key = _reader(batch.column(0))
        self._rows = range(batch.num_rows)
        self._readers: tuple[Read, ...] = ()
        self.first: K = self.key(0)
        self.last: K = self.key(batch.num_rows - 1)

    def position(self, key: Any) -> int | None:
        """The row of the key; None: not here."""
        found = bisect_left(self._rows, key, key=self._key)
        return found if found < len(self._rows) and self._key(found) == key else None

    def value(self, position: int) -> V:
        """The value in a row."""
        if not self._readers:
            self._readers = tuple(map(_reader, self.batch.columns))
        return self._form.decode([read(position) for read in self._readers])

    def key(self, position: int) -> K:
        """The key in a row."""
        return self._key(position)  # type: ignore[no-any-return]

    def keys(self) -> Sequence[K]:
        """All keys, ascending."""
        return self.batch.column(0).to_pylist()  # type: ignore[no-any-return]


# -- single values, read where they lie -------------------------------------------------------------------------

Read = Callable[[int], Any]
"""The value in a row. Arrow's own way to one value takes ten times as long, and a lookup takes hundreds of them."""


def _reader(column: pa.Array) -> Read:
    read = _plain_reader(column)
    if not column.null_count:
        return read
    valid = _bits(column.buffers()[0], column.offset)
    return lambda row: read(row) if valid(row) else None


def _plain_reader(column: pa.Array) -> Read:
    kind, start, buffers = column.type, column.offset, column.buffers()
    if pa.types.is_int64(kind):
        numbers = memoryview(buffers[1]).cast("q")
        return lambda row: numbers[start + row]
    if pa.types.is_boolean(kind):
        return _bits(buffers[1], start)
    offsets = memoryview(buffers[1]).cast("i")
    if pa.types.is_list(kind):
        item = _reader(column.values)
        return lambda row: [item(child) for child in range(offsets[start + row], offsets[start + row + 1])]
    # A column of empty texts has no bytes.
    content = memoryview(buffers[2] or b"")
    if pa.types.is_string(kind):
        return lambda row: str(content[offsets[start + row] : offsets[start + row + 1]], "utf-8")
    assert pa.types.is_binary(kind), kind
    return lambda row: bytes(content[offsets[start + row] : offsets[start + row + 1]])


def _bits(buffer: pa.Buffer, start: int) -> Callable[[int], bool]:
    bits = memoryview(buffer)
    return lambda row: bool(bits[(start + row) >> 3] >> ((start + row) & 7) & 1)


class Columns(Mapping[K, V], Generic[K, V]):
    """An immutable mapping over parts."""

    __slots__ = ("_count", "_firsts", "form", "parts")

    def __init__(self, form: Form[K, V], parts: Sequence[Part[K, V]] = ()) -> None:
        self.form: Form[K, V] = form
        self.parts: tuple[Part[K, V], ...] = tuple(parts)
        self._firsts: list[K] = [part.first for part in self.parts]
        self._count: int = sum(part.batch.num_rows for part in self.parts)
        if any(a.last >= b.first for a, b in zip(self.parts, self.parts[1:], strict=False)):
            raise DamagedError("the parts of a state overlap")

    def _find(self, key: Any) -> tuple[Part[K, V], int] | None:
        index = bisect_right(self._firsts, key) - 1
        if index < 0:
            return None
        position = self.parts[index].position(key)
        return None if position is None else (self.parts[index], position)

    def __getitem__(self, key: K) -> V:
        found = self._find(key)
        if found is None:
            raise KeyError(key)
        part, position = found
        return part.value(position)

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not None

    def __iter__(self) -> Iterator[K]:
        for part in self.parts:
            yield from part.keys()

    def __len__(self) -> int:
        return self._count

    def having(self, name: str) -> Iterator[tuple[K, V]]:
        """The rows with a value in that column; others are not decoded."""
        for part in self.parts:
            column = part.batch.column(name)
            if column.null_count < len(column):
                import pyarrow.compute as pc

                for position in pc.indices_nonzero(column.is_valid()).to_pylist():
                    yield part.key(position), part.value(position)

    def at_least(self, name: str, least: int) -> Columns[K, V]:
        """Without the rows with less in that column of numbers; parts that lose none are the very same."""
        import pyarrow.compute as pc

        parts: list[Part[K, V]] = []
        for part in self.parts:
            rows = part.batch.filter(pc.greater_equal(part.batch.column(name), least))
            if rows.num_rows:
                parts.append(part if rows.num_rows == part.batch.num_rows else Part(self.form, rows))
        return Columns(self.form, parts)

    def rewritten(self, changes: Mapping[K, V | None]) -> Columns[K, V]:
        """With these values, None taking a key away; parts that no change touches are the very same."""
        touched: dict[int, dict[K, V | None]] = {}
        for key in sorted(changes):
            index = max(0, bisect_right(self._firsts, key) - 1)
            # What is new beyond the last key goes into parts of its own, so that growth rewrites nothing.
            beyond = index == len(self.parts) - 1 and key > self.parts[index].last and self._full(index)
            touched.setdefault(index + beyond, {})[key] = changes[key]
        parts: list[Part[K, V]] = []
        for index in range(max(len(self.parts), *(i + 1 for i in touched)) if touched else len(self.parts)):
            here = touched.get(index)
            if here is None:
                parts.append(self.parts[index])
            else:
                parts += self._merged(self.parts[index].batch if index < len(self.parts) else None, here)
        return Columns(self.form, parts)

    def _full(self, index: int) -> bool:
        return bool(self.parts[index].batch.num_rows >= PART_ROWS)

    def _merged(self, batch: pa.RecordBatch | None, changes: Mapping[K, V | None]) -> Iterator[Part[K, V]]:
        import pyarrow.compute as pc

        added = [(key, value) for key, value in changes.items() if value is not None]
        batches = [self.form.encode(added)] if added else []
        if batch is not None:
            replaced = pc.is_in(batch.column(0), value_set=pa.array(list(changes), self.form.schema.field(0).type))
            batches.insert(0, batch.filter(pc.invert(replaced)))
        table = pa.Table.from_batches(batches, self.form.schema).combine_chunks()
        rows = table.take(pc.sort_indices(table.column(0))).combine_chunks()
        count = max(1, rows.num_rows // PART_ROWS)
        step = -(-rows.num_rows // count)
        for begin in range(0, rows.num_rows, max(1, step)):
            # Taken, not sliced: a slice would keep, and write, all that it was cut from.
            taken = rows.slice(begin, step).combine_chunks()
            yield Part(self.form, pa.Table.from_batches(taken.to_batches(), self.form.schema).to_batches()[0])
