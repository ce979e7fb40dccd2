"""Conditions on the key, from predicates of several engines, and the keys for which they can be true. Pure.

Predicates of DataFusion (:mod:`lakebed.read.expressions`), Polars and Spark are translated into conditions, and
:func:`keys_of` derives their :class:`~lakebed.read.key_ranges.KeySet`. Core types: :class:`Comparison`, :class:`OneOf`,
:class:`StartsWith` and :class:`IsNull` are conditions on one column; :class:`And`, :class:`Or` and :class:`Not` combine
conditions, by SQL's three-valued logic; :class:`Constant` is one of the three values, and ``UNKNOWN`` stands for any
other condition.

Rule: a translation may be weaker than the predicate, never stronger. UNKNOWN, and a condition on a column that is no
key field, can be true for every key.

*Casts.* An engine compares a column with a literal of another type by casting one of them. Integers, dates and times
keep their order in such a cast, so the least integer of the column that passes is found by binary search: exactly, for
any fraction or size of the literal, and even where a float64 cannot represent the integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, Final, Literal, TypeAlias, assert_never

import pyarrow as pa

from lakebed.errors import BadKeyError
from lakebed.model.keys import ALL_KEYS, EncodedRange, KeyCodec, KeyRange, successor
from lakebed.model.schema import Field
from lakebed.read.key_ranges import EVERY_KEY, NO_KEY, KeySet, both, either, within

Operator = Literal["=", "!=", "<", "<=", ">", ">="]

FLIPPED: Final[dict[str, Operator]] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operator with its sides exchanged."""

_NEGATED: Final[dict[Operator, Operator]] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_S = 86_400


class _Unknown(Enum):
    UNKNOWN = "unknown"


UNKNOWN: Final = _Unknown.UNKNOWN
"""A condition that may be true, false or null."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column, cast to the type of the literal if it has another, compared with it."""

    column: str
    operator: Operator
    literal: pa.Scalar


@dataclass(frozen=True, slots=True)
class OneOf:
    """A column that equals one of the literals."""

    column: str
    literals: Sequence[pa.Scalar]


@dataclass(frozen=True, slots=True)
class StartsWith:
    """A column of text that begins with ``stem``."""

    column: str
    stem: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column that is null."""

    column: str


@dataclass(frozen=True, slots=True)
class Constant:
    """True, false, or null: None."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class And:
    """All of the conditions; none is true."""

    parts: Sequence[Condition]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of the conditions; none is false."""

    parts: Sequence[Condition]


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a condition."""

    part: Condition


Condition: TypeAlias = (
    "Comparison | OneOf | StartsWith | IsNull | Constant | And | Or | Not | Literal[_Unknown.UNKNOWN]"
)


def keys_of(condition: Condition, codec: KeyCodec, *, truth: bool = True) -> KeySet:
    """The keys of the rows for which the condition can be true; with ``truth=False``, for which it can be false."""
    match condition:
        case And() | Or():
            sets = [keys_of(part, codec, truth=truth) for part in condition.parts]
            return both(sets) if isinstance(condition, And) == truth else either(sets)
        case Not():
            return keys_of(condition.part, codec, truth=not truth)
        case Comparison(column, operator, literal):
            return _compared(codec, column, operator if truth else _NEGATED[operator], literal)
        case OneOf(column, literals):
            equal = [_compared(codec, column, "=" if truth else "!=", literal) for literal in literals]
            return either(equal) if truth else both(equal)
        case StartsWith(column, stem):
            return _starting(codec, column, stem) if truth else EVERY_KEY
        case IsNull(column):
            # Key fields are never null.
            return NO_KEY if truth and _field(codec, column) is not None else EVERY_KEY
        case Constant(value):
            return EVERY_KEY if value is truth else NO_KEY
        case _Unknown.UNKNOWN:
            return EVERY_KEY
        case _:
            assert_never(condition)


def _compared(codec: KeyCodec, name: str, operator: Operator, literal: pa.Scalar) -> KeySet:
    found = _field(codec, name)
    if found is None:
        return EVERY_KEY
    position, field = found
    if not literal.is_valid:
        return NO_KEY
    below = _below_integer(field, literal) if field.width else _below_content(field, literal)
    return EVERY_KEY if below is None else within(position, _passing(operator, *below))


def _starting(codec: KeyCodec, name: str, stem: str) -> KeySet:
    found = _field(codec, name)
    if found is None or not found[1].is_text:
        return EVERY_KEY
    position, field = found
    try:
        keys = KeyCodec((field,)).encode_range(KeyRange.starts_with(stem)) if stem else ALL_KEYS
    except BadKeyError:
        return EVERY_KEY
    return within(position, (keys,))


def _field(codec: KeyCodec, name: str) -> tuple[int, Field] | None:
    return next(((position, field) for position, field in enumerate(codec.fields) if field.name == name), None)


def _passing(operator: Operator, smaller: bytes | None, not_larger: bytes | None) -> list[EncodedRange]:
    """Ranges of one field: values below the literal end at ``smaller``, values up to it at ``not_larger``."""
    below, above = EncodedRange(b"", smaller), EncodedRange(not_larger or b"", None)
    match operator:
        case "<":
            return [below]
        case "<=":
            return [EncodedRange(b"", not_larger)]
        case ">":
            return [above] if not_larger is not None else []
        case ">=":
            return [EncodedRange(smaller, None)] if smaller is not None else []
        case "=":
            return [EncodedRange(smaller, not_larger)] if smaller is not None else []
        case "!=":
            return [below, above] if not_larger is not None else [below]


def _below_content(field: Field, literal: pa.Scalar) -> tuple[bytes | None, bytes | None] | None:
    """The ends of the texts (or bytes) below the literal, and of those up to it; None if not comparable."""
    kind = literal.type
    if field.is_text:
        alike = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    else:
        alike = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    if not alike:
        return None
    try:
        value = KeyCodec((field,)).encode((literal.as_py(),))
    except BadKeyError:
        # Longer than a key may be.
        return None
    return value, successor(value)


def _below_integer(field: Field, literal: pa.Scalar) -> tuple[bytes | None, bytes | None] | None:
    """As :func:`_below_content`, for integers, dates and times; an end is None if all integers are below it."""
    image = _image(field.type, literal.type)
    bound = _number(literal)
    if image is None or bound is None:
        return None
    if image is _same:
        smaller, not_larger = _ceiling(bound), _floor(bound) + 1
    else:
        smaller = _first(field, lambda integer: image(integer) >= bound)
        not_larger = _first(field, lambda integer: image(integer) > bound)
    return _encoded(field, smaller), _encoded(field, not_larger)


def _first(field: Field, passes: Callable[[int], bool]) -> int:
    """The least integer of the field that passes, or the one after the greatest; all larger ones must pass as well."""
    low, high = -(1 << (8 * field.width - 1)), 1 << (8 * field.width - 1)
    while low < high:
        middle = (low + high) // 2
        if passes(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _encoded(field: Field, integer: float) -> bytes | None:
    """The encoded begin of the field's integers from this one on; None if there are none."""
    half = 1 << (8 * field.width - 1)
    if integer <= -half:
        return b""
    return None if integer >= half else int(integer + half).to_bytes(field.width, "big")


def _number(literal: pa.Scalar) -> Any:
    """A literal as a number that compares exactly with integers; None for other types."""
    kind = literal.type
    if pa.types.is_integer(kind):
        return literal.as_py()
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return literal.value
    if pa.types.is_decimal(kind):
        return Fraction(literal.as_py())
    if pa.types.is_float64(kind):
        value = literal.as_py()
        # An engine may distinguish negative zero from zero, and sorts NaN above all numbers.
        return None if math.isnan(value) or (value == 0 and math.copysign(1, value) < 0) else value
    return None


def _ceiling(bound: Any) -> float:
    return bound if isinstance(bound, float) and math.isinf(bound) else math.ceil(bound)


def _floor(bound: Any) -> float:
    return bound if isinstance(bound, float) and math.isinf(bound) else math.floor(bound)


# -- casts ------------------------------------------------------------------------------------------------------


def _same(integer: int) -> int:
    return integer


def _image(kind: pa.DataType, wanted: pa.DataType) -> Callable[[int], Any] | None:
    """A cast as a function of the column's integer that keeps the order; None if it may not keep it."""
    if kind == wanted or (pa.types.is_decimal(wanted) and pa.types.is_integer(kind)):
        return _same
    if pa.types.is_integer(kind):
        if pa.types.is_float64(wanted):
            return float
        return _same if pa.types.is_signed_integer(wanted) and wanted.bit_width >= kind.bit_width else None
    if pa.types.is_date32(kind) and pa.types.is_timestamp(wanted) and wanted.tz is None:
        ticks = _DAY_S * _PER_SECOND[wanted.unit]
        return lambda integer: integer * ticks
    if pa.types.is_timestamp(kind):
        return _image_of_time(kind, wanted)
    return None


def _image_of_time(kind: pa.TimestampType, wanted: pa.DataType) -> Callable[[int], Any] | None:
    own = _PER_SECOND[kind.unit]
    if pa.types.is_date32(wanted) and _is_utc(kind.tz):
        return lambda integer: integer // (own * _DAY_S)
    if not pa.types.is_timestamp(wanted):
        return None
    # Time zones only affect the display, but a local time has none.
    if (kind.tz is None) != (wanted.tz is None) and not (_is_utc(kind.tz) and _is_utc(wanted.tz)):
        return None
    other = _PER_SECOND[wanted.unit]
    if other == own:
        return _same
    if other > own:
        return lambda integer: integer * (other // own)
    return None


def _is_utc(zone: str | None) -> bool:
    return zone in (None, "UTC", "+00:00")
