"""Keys as byte strings: one encoding, one order, everywhere.

A key is the tuple of row key values. Encodings compare, as unsigned bytes, exactly as the tuples do field by field, so
bounds, partition lookup, summaries and range pruning compare bytes and never tuples. Rules of a field:

* a type with a fixed width, such as an integer: that many bytes (:mod:`lakebed.model.key_type`);
* text and bytes of any length: escaped, and with a terminator (:mod:`lakebed.model.byte_keys`).

No encoding of a whole key is a prefix of another's, so all keys that begin with the field values ``p`` are the range
``[enc(p), successor(enc(p)))``. A bound need not be the encoding of a key: a partition boundary may be cut anywhere
between characters (a *separator*), and a successor may end in ``00 02``; :meth:`KeyCodec.decode_bound` turns any of
these back into field values for the comparisons of a columnar engine.

The order of UTF-8 bytes is that of code points, and of Arrow, DataFusion and Parquet (but not of Java's strings).
Columns of keys are encoded as bytes, so that nothing imports pandas (:mod:`lakebed.model.arrays`). Pure: no I/O.
Source: the order-preserving tuple encodings of FoundationDB and CockroachDB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from msgspec import Struct

from lakebed.errors import Code
from lakebed.model.arrays import of_binary, plain
from lakebed.model.checks import check_flag, shown
from lakebed.model.key_type import KEY_BYTES_MAX, Content
from lakebed.model.key_types import key_type
from lakebed.model.types import is_untyped, with_inner
from lakebed.model.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.model.schema import Field


class EncodedRange(Struct, frozen=True):
    """All keys whose encoding lies in ``[min, max)``; a ``max`` of None means no end."""

    min: bytes = b""
    max: bytes | None = None

    @property
    def empty(self) -> bool:
        """Whether no key can lie inside."""
        return self.max is not None and self.max <= self.min

    def contains(self, key: bytes) -> bool:
        """Return whether the encoded key lies inside."""
        return key >= self.min and (self.max is None or key < self.max)

    def covers(self, other: EncodedRange) -> bool:
        """Return whether all of the other range lies inside."""
        return other.min >= self.min and (self.max is None or (other.max is not None and other.max <= self.max))

    def intersect(self, other: EncodedRange) -> EncodedRange:
        """Return the range of keys in both; may be empty."""
        if self.max is None or other.max is None:
            upper = other.max if self.max is None else self.max
        else:
            upper = min(self.max, other.max)
        return EncodedRange(max(self.min, other.min), upper)


ALL_KEYS = EncodedRange()


class Bound(Struct, frozen=True):
    """A byte bound as field values: just before (``after`` False) or just after (True) the keys that begin with them.

    ``values`` covers the first fields only; a key with equal values in those is above the bound iff ``after`` is False.
    The values are contents: dates as days, times and timestamps as integers of their unit.
    """

    values: tuple[Content, ...]
    after: bool


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from ``min`` (inclusive) up to ``max`` (exclusive unless ``max_inclusive``), as values of a user.

    A bound is a tuple of values of one or more of the first row key fields; a scalar is a 1-tuple; None means no bound.
    A shorter bound stands for all keys that begin with it: ``max=("NYC",), max_inclusive=True`` ends after the last key
    whose first field is NYC.
    """

    min: Any = None
    max: Any = None
    max_inclusive: bool = False

    def __init__(self, min: Any = None, max: Any = None, *, max_inclusive: bool = False) -> None:
        object.__setattr__(self, "min", _as_tuple(min))
        object.__setattr__(self, "max", _as_tuple(max))
        object.__setattr__(self, "max_inclusive", max_inclusive)

    @classmethod
    def prefix(cls, *values: Any) -> KeyRange:
        """Return the range of all keys whose first fields equal these values."""
        return cls(values, values, max_inclusive=True)

    @classmethod
    def starts_with(cls, *values: Any) -> KeyRange:
        """Return the range of all keys whose first fields equal the values; the last (text or bytes) is a prefix."""
        if not values:
            raise Code.KEY_RANGE_INVALID("starts_with needs a value; for all keys give KeyRange()")
        *fields, stem = values
        if not isinstance(stem, str | bytes):
            raise Code.KEY_RANGE_INVALID(
                f"starts_with needs text or bytes as its last value, not {shown(stem)}; prefix takes any value"
            )
        end = _stem_successor(stem)
        if end is not None:
            return cls((*fields, stem), (*fields, end))
        return cls((*fields, stem), tuple(fields) or None, max_inclusive=True)


def _as_tuple(bound: Any) -> tuple[Any, ...] | None:
    if bound is None:
        return None
    if isinstance(bound, list | tuple):
        return tuple(bound) or None
    return (bound,)


def _stem_successor(stem: str | bytes) -> str | bytes | None:
    """Return the least text above every text that begins with ``stem``; None if there is none."""
    if isinstance(stem, bytes):
        return successor(stem)
    for end in range(len(stem) - 1, -1, -1):
        point = ord(stem[end]) + 1
        if point <= 0x10FFFF:
            # U+D800..U+DFFF are not characters; U+E000 is the next one.
            return stem[:end] + chr(0xE000 if 0xD800 <= point <= 0xDFFF else point)
    return None


def successor(encoding: bytes) -> bytes | None:
    """Return the least byte string above every string that begins with ``encoding``; None if there is none."""
    stripped = encoding.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes([stripped[-1] + 1])


def shortest_separator(low: bytes, high: bytes) -> bytes:
    """Return the shortest prefix of ``high`` that is above ``low`` and does not end inside a character.

    Requires low < high. Partition boundaries are kept short, because every state and log entry contains them.
    """
    length = 0
    while length < len(low) and low[length] == high[length]:
        length += 1
    length += 1
    while length < len(high) and high[length] & 0xC0 == 0x80:
        length += 1
    return high[:length]


class KeyCodec(Struct, frozen=True):
    """Encodes and decodes the keys of one schema; ``fields`` are its row key fields in order."""

    fields: tuple[Field, ...]

    def parse(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the values of a key, or of its first fields, with texts parsed by :meth:`Field.parse`.

        Surplus values are unchanged, and refused where the key is used. Raises BadKeyError.
        """
        given = zip(self.fields, values, strict=False)
        return (*(f.parse(v) if isinstance(v, str) else v for f, v in given), *values[len(self.fields) :])

    def encode(self, values: Sequence[Any]) -> bytes:
        """Encode the first ``len(values)`` fields. Raises BadKeyError on too many values, a wrong type or length."""
        if len(values) > len(self.fields):
            names = ", ".join(field.name for field in self.fields)
            raise Code.KEY_LENGTH_MISMATCH(f"{len(values)} values for a key of {len(self.fields)} fields ({names})")
        encoding = b"".join(map(_encode_value, self.fields, values))
        if len(encoding) > KEY_BYTES_MAX:
            raise Code.KEY_TOO_LONG(
                f"the encoded key is {len(encoding)} bytes long; at most {KEY_BYTES_MAX} are allowed",
                size_bytes=len(encoding),
            )
        return encoding

    def encode_key(self, values: Sequence[Any]) -> bytes:
        """Encode a whole key. Raises BadKeyError unless there is one value for every row key field."""
        if len(values) != len(self.fields):
            names = ", ".join(f"{field.name} ({field.type})" for field in self.fields)
            remedy = "; for a part of the key scan its prefix: KeyRange.prefix(…), --prefix"
            if len(values) > len(self.fields):
                remedy = "; for several keys use get_many, with a key for each"
            if len(values) == 1 and isinstance(values[0], tuple | list):
                remedy = f"; give the values one by one: {', '.join(map(shown, values[0]))}"
            wanted = f"{count_text(len(self.fields), 'value')} ({names})"
            raise Code.KEY_LENGTH_MISMATCH(f"a key has {wanted}, not {len(values)}{remedy if values else ''}")
        return self.encode(values)

    def encode_range(self, key_range: KeyRange) -> EncodedRange:
        """Return the byte range of a key range. Raises BadKeyError if min is above max, UsageError for another type."""
        if not isinstance(key_range, KeyRange):
            raise Code.ARGUMENT_INVALID(
                f"key range = {shown(key_range)}: must be a KeyRange, such as KeyRange.prefix(…)"
            )
        check_flag("max_inclusive", key_range.max_inclusive)
        lower = b"" if key_range.min is None else self.encode(key_range.min)
        upper = None if key_range.max is None else self.encode(key_range.max)
        if upper is not None and key_range.max_inclusive:
            upper = successor(upper)
        if upper is not None and upper < lower:
            bounds = f"from {shown(key_range.min)} to {shown(key_range.max)}"
            raise Code.KEY_RANGE_INVALID(f"the minimum of the key range is above its maximum: {bounds}")
        return EncodedRange(lower, upper)

    def encode_ranges(self, key_ranges: Sequence[KeyRange]) -> tuple[EncodedRange, ...]:
        """Return the byte ranges, disjoint and in key order; all keys if no range is given. Raises as
        :meth:`encode_range`.

        The result is empty if all of the given ranges are.
        """
        return tuple(iter_ranges([self.encode_range(one) for one in key_ranges])) if key_ranges else (ALL_KEYS,)

    def encode_columns(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        """Return the encoded key of every row, as one binary array in row order. Columns have the schema's types."""
        import pyarrow.compute as pc

        if isinstance(rows, pa.Table):
            rows = rows.combine_chunks()
        parts = []
        for field in self.fields:
            column = rows.column(field.name)
            if isinstance(column, pa.ChunkedArray):
                column = column.chunk(0) if column.num_chunks else pa.array([], field.type)
            parts += field.key_type.encode_column(column)
        if len(parts) == 1:
            return parts[0]
        # Joins all parts at once: each join copies every key.
        return pc.binary_join_element_wise(*parts, *of_binary([b""]))

    def decode_columns(self, keys: Sequence[bytes]) -> pa.RecordBatch:
        """Decode whole keys into columns of the fields."""
        columns = []
        for field in self.fields:
            column, keys = field.key_type.decode_column(keys)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, [field.name for field in self.fields])

    def encode_row(self, rows: pa.RecordBatch | pa.Table, index: int) -> bytes:
        """Return the encoded key of one row."""
        return b"".join(encode_scalar(field, rows.column(field.name)[index]) for field in self.fields)

    def lower_ranks(self, rows: pa.Table | pa.RecordBatch, bounds: Sequence[bytes]) -> list[int]:
        """Return for each bound the number of rows with a smaller key. Requires sorted rows, and ascending bounds."""
        ranks: list[int] = []
        low = 0
        for bound in bounds:
            low = self.lower_rank(rows, bound, low, rows.num_rows)
            ranks.append(low)
        return ranks

    def lower_rank(self, rows: pa.Table | pa.RecordBatch, bound: bytes, low: int, high: int) -> int:
        """Return the first of the sorted rows ``[low, high)`` whose key is not smaller, or ``high``."""
        while low < high:
            middle = (low + high) // 2
            if self.encode_row(rows, middle) < bound:
                low = middle + 1
            else:
                high = middle
        return low

    def decode_bound(self, bound: bytes) -> Bound:
        """Return field values that compare as the bound does; accepts separators and successors as well as keys."""
        values: list[Content] = []
        position = 0
        for field in self.fields:
            if position >= len(bound):
                break
            content, end, after = field.key_type.read(bound, position)
            values.append(content)
            if end is None:
                # No value has these bytes, so later fields do not matter.
                return Bound(tuple(values), after=after)
            position = end
        return Bound(tuple(values), after=False)

    def beginning(self, key: bytes) -> bytes:
        """Return the prefix of a longer encoding (row key and sort key) for these fields; all of a shorter one."""
        position = 0
        for field in self.fields:
            position = field.key_type.end(key, position)
        return key[:position]

    def decode_values(self, bound: bytes) -> dict[str, Any]:
        """Return the bound's field values as a user would write them (dates as dates …); missing fields are None."""
        values: dict[str, Any] = {field.name: None for field in self.fields}
        for field, value in zip(self.fields, self.decode_bound(bound).values, strict=False):
            values[field.name] = field.key_type.value_of(value)
        return values


def encode_scalar(field: Field, scalar: pa.Scalar) -> bytes:
    """Return the encoding of an Arrow scalar of the field's own type."""
    return field.key_type.encode(field.key_type.of_scalar(scalar))


def _encode_value(field: Field, value: Any) -> bytes:
    return field.key_type.encode(field.key_type.content_of(value, field.name))


def iter_ranges(ranges: Sequence[EncodedRange]) -> Iterator[EncodedRange]:
    """Return the ranges in key order, without empty ones; ranges that overlap or touch are joined."""
    pending: EncodedRange | None = None
    for following in sorted((r for r in ranges if not r.empty), key=lambda r: r.min):
        if pending is not None and (pending.max is None or following.min <= pending.max):
            ends = None if pending.max is None or following.max is None else max(pending.max, following.max)
            pending = EncodedRange(pending.min, ends)
            continue
        if pending is not None:
            yield pending
        pending = following
    if pending is not None:
        yield pending


# -- columns of keys ---------------------------------------------------------------------------------------------------


Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)

_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def inside(keys: pa.Array, key_range: EncodedRange) -> pa.Array:
    """Return whether each encoded key lies in the range."""
    import pyarrow.compute as pc

    mask = pc.greater_equal(keys, pa.scalar(key_range.min, keys.type))
    if key_range.max is None:
        return mask
    return pc.and_(mask, pc.less(keys, pa.scalar(key_range.max, keys.type)))


def same_key(column: pa.Array) -> pa.Array:
    """Return a key column with one value for each key: floats with one zero and one NaN."""
    found = key_type(column.type)
    return column if found is None else found.one_form(column)


def comparable(column: pa.Array) -> pa.Array:
    """Return a key column without nulls in a form that Arrow orders as keys."""
    found = key_type(column.type)
    return plain(column) if found is None else found.comparable(column)


def by_bits(column: pa.Array) -> pa.Array:
    """Return floats and times, at any depth, as integers of the same bits, and UUIDs as bytes.

    So NaN is itself, zero has a sign, and times that Python's types lack become Python values. A column with a null
    type inside stays as it is: a view by Arrow would give its null arrays the length of the column.
    """
    column = plain(column)
    kind = _with_bits(column.type)
    return column if kind == column.type or is_untyped(kind) else column.view(kind)


def _with_bits(kind: pa.DataType) -> pa.DataType:
    is_time = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    if pa.types.is_floating(kind) or is_time:
        return _BITS[kind.bit_width]
    return kind if pa.types.is_dictionary(kind) else with_inner(kind, _with_bits)


def sorted_by(rows: Rows, names: Sequence[str]) -> Rows:
    """Return the rows in ascending order of some columns, sorted stably."""
    import pyarrow.compute as pc

    keys = pa.table([plain(rows.column(name)) for name in names], [str(number) for number in range(len(names))])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return rows.take(order)
