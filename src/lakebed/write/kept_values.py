"""Whether an Arrow column holds the Python values that it was made of, exactly.

Arrow converts many values to what they are not: it cuts nanoseconds of a Timestamp of pandas, stores the UTC of an
aware datetime in a column without a zone, drops the offset of a time and the members of a dict that a struct lacks,
rounds 1.5 to the integer, and makes -1 of the largest ``numpy.uint64``. So each column is compared with its values:
:func:`lost_row` finds the first that is not the same in the column.

Rules. A value is *kept* if it is the same number, text, bytes, instant or clock time, and null only if it was missing.
A text is no list. Whole numbers are also accepted for times, in the unit of the column, bytes for text and text for
bytes as UTF-8. A boolean is no number. Exact arithmetic of Python, and nothing of Arrow's conversions. Types of which
Arrow keeps each value, or raises, are not compared. Pure: no I/O.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model import types
from lakebed.model.moments import PER_SECOND, is_missing, moment_of
from lakebed.model.type_names import UUID

_DAY_S = 86_400
_EPOCH_DAY = dt.date(1970, 1, 1)
_NONE = type(None)

_SURE: tuple[tuple[Callable[[pa.DataType], bool], frozenset[type]], ...] = (
    (pa.types.is_integer, frozenset({int, _NONE})),
    (pa.types.is_float64, frozenset({float, int, _NONE})),
    (pa.types.is_boolean, frozenset({bool, _NONE})),
    (pa.types.is_string, frozenset({str, _NONE})),
    (pa.types.is_binary, frozenset({bytes, _NONE})),
    (pa.types.is_decimal, frozenset({Decimal, int, _NONE})),
    (pa.types.is_date32, frozenset({int, _NONE})),
    (pa.types.is_time, frozenset({int, _NONE})),
    (pa.types.is_timestamp, frozenset({int, _NONE})),
)
"""The types of Python of which Arrow keeps each value in a type, raises, or makes null what is no number."""


def lost_row(values: Any, made: pa.Array | pa.ChunkedArray) -> int | None:
    """Return the position of the first value that is another one in the column that Arrow made of the values; None if
    it holds all.

    Values of an array or series with a type are kept by Arrow. NaN may be null in a series of pandas.
    """
    kind = getattr(values, "dtype", None)
    if kind is not None and str(kind) != "object":
        return None
    is_series = type(values).__module__.startswith("pandas.")
    given = values if isinstance(values, list) else list(values)
    if is_series:
        given = [None if isinstance(one, float | np.floating) and np.isnan(one) else one for one in given]
        made = pc.if_else(pc.is_nan(made), None, made) if pa.types.is_floating(made.type) else made
    before = 0
    for chunk in made.chunks if isinstance(made, pa.ChunkedArray) else [made]:
        lost = first_lost(given[before : before + len(chunk)], chunk)
        if lost is not None:
            return before + lost
        before += len(chunk)
    return None


def times_of(values: Iterable[Any], kind: pa.DataType) -> pa.Array | int | None:
    """Return datetimes as a column of timestamps, exactly; the position of the first that the type does not hold; None
    if there are other values.
    """
    numbers: list[int | None] = []
    for row, value in enumerate(values):
        moment = moment_of(value)
        if moment is None and not is_missing(value):
            return None
        number = None if moment is None else moment.in_units(PER_SECOND[kind.unit])
        if moment is not None and (
            number is None or moment.zoned == (kind.tz is None) or not -(2**63) <= number < 2**63
        ):
            return row
        numbers.append(number)
    return pa.array(numbers, pa.int64()).view(kind)


def first_lost(values: Sequence[Any], column: pa.Array) -> int | None:
    """Return the position of the first value that is another one in the column; None if there is none."""
    kinds = set(map(type, values))
    nulls = values.count(None) if _NONE in kinds else 0
    if nulls == column.null_count and any(kinds <= sure for is_kind, sure in _SURE if is_kind(column.type)):
        return None
    if kinds <= _PYTHON_TIMES and pa.types.is_timestamp(column.type) and column.type.unit == "us":
        zoned = column.type.tz is not None
        if not zoned and {one.tzinfo for one in values if one is not None} <= {None}:
            return None
        wrong = (row for row, one in enumerate(values) if one is not None and (one.utcoffset() is not None) != zoned)
        return next(wrong, None)
    given = [one.as_py() if isinstance(one, pa.Scalar) else one for one in values] if _has_scalars(kinds) else values
    null = [is_missing(one) for one in given]
    stored = column.is_null().to_pylist()
    lost = next((row for row, (a, b) in enumerate(zip(null, stored, strict=True)) if a != b), None)
    # The rows before are compared all the same.
    there = [row for row, missing in enumerate(null[:lost]) if not missing]
    inside = _first_lost_inside([given[row] for row in there], column.slice(0, len(null[:lost])).drop_null())
    return lost if inside is None else there[inside]


_PYTHON_TIMES = frozenset({dt.datetime, _NONE})

_SPELT = (str, bytes, bytearray, memoryview)
"""Values that Arrow makes lists of characters or of numbers."""


def _has_scalars(kinds: Iterable[type]) -> bool:
    return any(issubclass(kind, pa.Scalar) for kind in kinds)


def _first_lost_inside(values: Sequence[Any], column: pa.Array) -> int | None:
    """As :func:`first_lost`, without nulls."""
    kind = column.type
    if pa.types.is_struct(kind):
        return _first_lost_member(values, column)
    if pa.types.is_map(kind):
        pairs = [list(one.items() if isinstance(one, Mapping) else one) for one in values]
        items = list(chain.from_iterable(pairs))
        found = [
            first_lost([pair[place] for pair in items], side)
            for place, side in enumerate((_entries(column, column.keys), _entries(column, column.items)))
        ]
        return _row_of_item(found, pairs)
    if types.is_list(kind):
        spelt = next((row for row, one in enumerate(values) if isinstance(one, _SPELT)), None)
        lists = [_items_of(one) for one in values[:spelt]]
        items = column.slice(0, len(lists)).flatten()
        inside = _row_of_item([first_lost(list(chain.from_iterable(lists)), items)], lists)
        return spelt if inside is None else inside
    same = _comparison(kind)
    return next((row for row, pair in enumerate(zip(values, _stored(column), strict=True)) if not same(*pair)), None)


def _first_lost_member(values: Sequence[Any], column: pa.Array) -> int | None:
    names = {member.name for member in column.type}
    rows = [_members_of(one) for one in values]
    found = [row for row, members in enumerate(rows) if members is None or not names.issuperset(members)][:1]
    rows = rows[: found[0]] if found else rows
    for place, name in enumerate(member.name for member in column.type):
        lost = first_lost([row.get(name) for row in rows if row is not None], column.field(place).slice(0, len(rows)))
        found += [] if lost is None else [lost]
    return min(found, default=None)


def _members_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the members of a struct by name; None for values without names, which Arrow takes in their order, and for
    pairs of which two have one name.
    """
    if isinstance(value, Mapping):
        return value
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
        return None
    members = dict(value)
    return members if len(members) == len(value) else None


def _entries(column: pa.Array, side: pa.Array) -> pa.Array:
    """Return the keys or items of a map column without those before its first row and after its last."""
    offsets = column.offsets
    return side.slice(offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py()) if len(column) else side.slice(0, 0)


def _items_of(values: Any) -> Sequence[Any]:
    is_plain = isinstance(values, np.ndarray) and values.dtype.kind in "biufSU"
    return values.tolist() if is_plain else values if isinstance(values, list | tuple) else list(values)


def _row_of_item(found: Iterable[int | None], lists: Sequence[Sequence[Any]]) -> int | None:
    """Return the list that has the first of some items, by their positions among the items of all lists."""
    first = min((one for one in found if one is not None), default=None)
    return None if first is None else bisect_right(list(accumulate(map(len, lists))), first)


# -- single values ----------------------------------------------------------------------------------------------------


def _stored(column: pa.Array) -> list[Any]:
    """Return the values of a column as Python has them: times as their numbers, UUIDs as their bytes."""
    kind = column.type
    if pa.types.is_temporal(kind):
        return list(column.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist())
    if pa.types.is_string(kind):
        # Arrow takes bytes for text, and does not check them here.
        return list(column.view(pa.binary()).to_pylist())
    return list((column.storage if isinstance(column, pa.ExtensionArray) else column).to_pylist())


def _comparison(kind: pa.DataType) -> Callable[[Any, Any], bool]:
    """Return the function that tells whether a value is the same as one of a column of the type."""
    if types.is_number(kind):
        return _is_number
    if pa.types.is_boolean(kind):
        return lambda value, stored: isinstance(value, bool | np.bool_) and bool(value) == stored
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return _dates_of(kind)
    if pa.types.is_time(kind):
        return _clock_of(kind)
    if kind == UUID:
        return lambda value, stored: _uuid_bytes(value) == stored
    if types.is_text(kind) or types.is_binary(kind) or isinstance(kind, pa.BaseExtensionType):
        return lambda value, stored: _as_bytes(value) == _as_bytes(stored)
    # No field has another type, so the conformer refuses the column.
    return lambda *_: True


def _is_number(value: Any, stored: Any) -> bool:
    given = _exact_number(value)
    if isinstance(given, float) and isinstance(stored, float):
        same_sign = math.copysign(1, given) == math.copysign(1, stored)
        return (given == stored and same_sign) or (math.isnan(given) and math.isnan(stored))
    return given is not None and bool(given == stored)


def _exact_number(value: Any) -> int | float | Decimal | None:
    """Return a number of Python that is the same; None for a value that is no number, and a long double."""
    if isinstance(value, bool | np.timedelta64) or (isinstance(value, Decimal) and not value.is_finite()):
        return None
    if isinstance(value, int | float | Decimal):
        return value
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.floating) and value.dtype.itemsize <= 8:
        return float(value)
    return None


def _dates_of(kind: pa.DataType) -> Callable[[Any, Any], bool]:
    # A date is the time of its first midnight.
    per_second = 1 if pa.types.is_date32(kind) else PER_SECOND[kind.unit]
    scale = _DAY_S if pa.types.is_date32(kind) else 1
    zoned = getattr(kind, "tz", None) is not None

    def is_date(value: Any, stored: int) -> bool:
        moment = moment_of(value)
        if moment is not None:
            return moment.zoned == zoned and moment.in_units(per_second) == stored * scale
        if isinstance(value, dt.date):
            return not zoned and (value - _EPOCH_DAY).days * _DAY_S * per_second == stored * scale
        return _is_whole(value, stored)

    return is_date


def _clock_of(kind: pa.DataType) -> Callable[[Any, Any], bool]:
    per_second = PER_SECOND[kind.unit]

    def is_clock(value: Any, stored: int) -> bool:
        if not isinstance(value, dt.time):
            return _is_whole(value, stored)
        since = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        return value.tzinfo is None and since * per_second == stored * 1_000_000

    return is_clock


def _is_whole(value: Any, stored: int) -> bool:
    return not isinstance(value, float | Decimal) and _is_number(value, stored)


def _uuid_bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return uuid.UUID(value).bytes
    return value.bytes if isinstance(value, uuid.UUID) else _as_bytes(value)


def _as_bytes(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None
