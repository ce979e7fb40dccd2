"""Types of columns, each with a few values in order, as plain contents.

A content is the model's representation of a value: an integer for times, else a plain Python value.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa

from lakebed.engine.statement_parameters import literal
from lakebed.model.types import nullable_members

Content = Any
NAN = math.nan


@dataclass(frozen=True)
class Kind:
    """A type and the contents of its columns, in order if the type has one."""

    name: str
    type: pa.DataType
    contents: tuple[Content, ...]
    is_key: bool = True
    ladder: tuple[str, ...] = ()
    """The types to which fields of this type can be widened."""

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return {repr(content): rank for rank, content in enumerate(self.contents)}

    @cached_property
    def is_time(self) -> bool:
        return pa.types.is_temporal(self.type)

    def of_time(self, seconds: int, unit: str) -> int | None:
        """Return the content that is a time, in seconds since 1970; None for a type without. Integers have a unit."""
        if pa.types.is_date32(self.type):
            return seconds // DAY
        if pa.types.is_timestamp(self.type):
            return seconds * PER_SECOND[self.type.unit]
        return seconds * PER_SECOND[unit] if pa.types.is_integer(self.type) else None

    def rank(self, content: Content) -> int:
        """Return the position of a content in the order of its type."""
        return self._ranks[repr(content)]

    def array(self, contents: list[Content]) -> pa.Array:
        """Return a column of contents; None is null."""
        plain = pa.types.is_dictionary(self.type)
        wanted = self.type.value_type if plain else self.type
        if pa.types.is_temporal(wanted):
            return pa.array(contents, pa.int32() if wanted.bit_width == 32 else pa.int64()).cast(wanted)
        if isinstance(wanted, pa.BaseExtensionType):
            storage = [c.bytes if isinstance(c, uuid.UUID) else c for c in contents]
            return pa.ExtensionArray.from_storage(wanted, pa.array(storage, wanted.storage_type))
        found = pa.array(contents, wanted)
        return found.dictionary_encode() if plain else found

    def contents_of(self, column: pa.ChunkedArray) -> list[Content]:
        """Return the contents of a column that a reader returned; a value that was never written is returned
        unchanged.
        """
        wanted = self.type.value_type if pa.types.is_dictionary(self.type) else self.type
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if isinstance(wanted, pa.BaseExtensionType):
            if isinstance(column.type, pa.BaseExtensionType):
                column = pa.chunked_array([c.storage for c in column.chunks], column.type.storage_type)
            found = column.to_pylist()
            if wanted == pa.uuid():
                found = [uuid.UUID(bytes=one) if isinstance(one, bytes) else one and uuid.UUID(one) for one in found]
        elif pa.types.is_temporal(wanted):
            column = column.cast(wanted)
            found = column.cast(pa.int32() if wanted.bit_width == 32 else pa.int64()).to_pylist()
        else:
            found = column.cast(nullable_members(wanted)).to_pylist()
        return [NAN if isinstance(one, float) and math.isnan(one) else one for one in found]

    def literals(self, content: Content) -> list[str]:
        """Return SQL literals of a content: of its exact type, and as people write it."""
        [scalar] = self.array([content])
        found = [literal(scalar)]
        kind = scalar.type
        if pa.types.is_integer(kind):
            found += [str(content), f"{content}.0"] if abs(content) < 2**53 else [str(content)]
        elif pa.types.is_decimal(kind):
            found += [f"{content:f}"] if kind.precision <= 18 else []
        elif pa.types.is_floating(kind) and math.isfinite(content):
            found += [f"{content!r}"]
        elif kind == pa.uuid():
            found += [f"'{content}'"]
        elif pa.types.is_date(kind) and 0 <= content < 50_000:
            text = scalar.as_py().isoformat()
            found += [f"DATE '{text}'", f"'{text}'"]
        elif pa.types.is_timestamp(kind) and 0 <= content < 4 * 10**18:
            naive = scalar.cast(pa.int64()).cast(pa.timestamp(kind.unit)).cast(pa.string()).as_py()
            found += [f"'{naive}{'Z' if kind.tz else ''}'"]
        return found


INT8 = (-128, -1, 0, 1, 7, 127)
INT16 = tuple(sorted({*INT8, -32768, 300, 32767}))
INT32 = tuple(sorted({*INT16, -(2**31), 70_000, 2**31 - 1}))
INT64 = tuple(sorted({*INT32, -(2**63), 2**53 + 1, 2**63 - 1}))
UINT8 = (0, 1, 7, 128, 255)
UINT16 = (*UINT8, 300, 65535)
UINT32 = (*UINT16, 2**31, 2**32 - 1)
UINT64 = (*UINT32, 2**53 + 1, 2**63, 2**64 - 1)
FLOAT = (-math.inf, -1.5, 0.0, 0.5, 1.0, 3.0, math.inf, NAN)
TEXT = ("", " ", "A", "a", "a\0b", "ab", "abc", "b", "z" * 40, "é", "\U0010ffff")
BYTES = (b"", b"\0", b"\0\xff", b"a", b"ab", b"\xff", b"\xff\xff")
UUIDS = tuple(uuid.UUID(int=n) for n in (0, 1, 2**64, 2**127, 2**128 - 1))
JSONS = ('"x"', "1", "null", '{"a": [1, null]}')


def _decimals(precision: int, scale: int) -> tuple[Decimal, ...]:
    most = 10**precision - 1
    digits = (
        sorted({-most, -150, -1, 0, 1, 25, 150, most} & set(range(-most, most + 1)))
        if precision < 5
        else sorted({-most, -150, -1, 0, 1, 25, 150, most})
    )
    return tuple(Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)) for n in digits)


DAY = 86_400
DATE = dt.date(2000, 1, 1)
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def _stamps(unit: str) -> tuple[int, ...]:
    per = PER_SECOND[unit]
    found = {
        0,
        -1,
        1,
        1_600_000_000 * per,
        1_600_000_000 * per + 1,
        1_600_000_000 * per + per // 2,
        4_102_444_800 * per,
    }
    return tuple(sorted(found | {-DAY * per, DAY * per}))


def _times(unit: str) -> tuple[int, ...]:
    per = PER_SECOND[unit]
    return tuple(sorted({0, 1, per, 3_600 * per, 43_200 * per + per // 2, DAY * per - 1}))


KINDS = {
    one.name: one
    for one in [
        Kind("bool", pa.bool_(), (False, True)),
        Kind("int8", pa.int8(), INT8, ladder=("int16", "int32", "int64")),
        Kind("int16", pa.int16(), INT16, ladder=("int32", "int64")),
        Kind("int32", pa.int32(), INT32, ladder=("int64",)),
        Kind("int64", pa.int64(), INT64),
        Kind("uint8", pa.uint8(), UINT8, ladder=("uint16", "uint64")),
        Kind("uint16", pa.uint16(), UINT16, ladder=("uint32",)),
        Kind("uint32", pa.uint32(), UINT32, ladder=("uint64",)),
        Kind("uint64", pa.uint64(), UINT64),
        Kind("float", pa.float32(), FLOAT, ladder=("double",)),
        Kind("double", pa.float64(), FLOAT),
        Kind("string", pa.string(), TEXT),
        Kind("binary", pa.binary(), BYTES),
        Kind("binary2", pa.binary(2), (b"\0\0", b"\0\xff", b"ab", b"\xff\xff")),
        Kind("uuid", pa.uuid(), UUIDS),
        Kind("date32", pa.date32(), (-DAY, -1, 0, 1, 18_000, 47_000)),
        Kind("decimal5", pa.decimal128(5, 2), _decimals(5, 2)),
        Kind("decimal20", pa.decimal128(20, 0), _decimals(20, 0)),
        Kind("decimal38", pa.decimal128(38, 10), _decimals(38, 10)),
        Kind("decimal50", pa.decimal256(50, 3), _decimals(50, 3)),
        *(Kind(f"time_{u}", pa.time32(u), _times(u)) for u in ("s", "ms")),
        *(Kind(f"time_{u}", pa.time64(u), _times(u)) for u in ("us", "ns")),
        *(Kind(f"timestamp_{u}", pa.timestamp(u), _stamps(u)) for u in PER_SECOND),
        *(Kind(f"timestamp_{u}_utc", pa.timestamp(u, "UTC"), _stamps(u)) for u in PER_SECOND),
        Kind("timestamp_us_berlin", pa.timestamp("us", "Europe/Berlin"), _stamps("us")),
        Kind("timestamp_s_offset", pa.timestamp("s", "+05:30"), _stamps("s")),
        Kind("half", pa.float16(), (-1.5, 0.0, 0.5, 3.0), is_key=False),
        Kind("json", pa.json_(), JSONS, is_key=False),
        Kind("dictionary", pa.dictionary(pa.int32(), pa.string()), TEXT, is_key=False),
        Kind("dictionary_int", pa.dictionary(pa.int32(), pa.int64()), INT64, is_key=False),
        Kind("list", pa.list_(pa.int32()), ([], [1], [None, 2], [3] * 9), is_key=False),
        Kind("lists", pa.list_(pa.list_(pa.string())), ([], [[]], [None, ["a", None]]), is_key=False),
        Kind("fixed_list", pa.list_(pa.float32(), 2), ([0.0, 1.0], [None, 2.0]), is_key=False),
        Kind("struct", pa.struct([pa.field("x", pa.int32(), nullable=False), ("y", pa.string())]),
             ({"x": 1, "y": None}, {"x": 0, "y": None}, {"x": 2, "y": "é"}), is_key=False),
        Kind("map", pa.map_(pa.string(), pa.int64()), ([], [("a", 1)], [("a", None), ("b", 2)]), is_key=False),
        Kind("struct_list", pa.struct([("s", pa.list_(pa.struct([pa.field("t", pa.date32(), nullable=False)])))]),
             ({"s": None}, {"s": []}, {"s": [None, {"t": DATE}]}), is_key=False),
    ]
}  # fmt: skip
KEYS = [name for name, kind in KINDS.items() if kind.is_key]
ORDERED = [*KEYS, "dictionary", "dictionary_int"]
