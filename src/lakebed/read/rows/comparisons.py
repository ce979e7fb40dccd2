"""The position of a literal in the order of a key field: the ends of the values below it, and of those up to it. Pure.

An engine compares a column with a literal of another type by casting one of them. Numbers, dates and times keep their
order in such a cast, so the least value of the column that passes is found by binary search among the codes of the
field (:mod:`lakebed.model.key_types`): exactly, for any fraction or size of the literal, and even where a float64
cannot represent an integer.

Core function: :func:`ends_of`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import BadKeyError
from lakebed.model.key_types import PER_SECOND, Form
from lakebed.model.key_values import encode_content
from lakebed.model.keys import KeyCodec, successor
from lakebed.model.type_names import UUID
from lakebed.model.types import is_binary, is_bytes, is_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.model.schema import Field

_DAY_S = 86_400


def ends_of(field: Field, literal: pa.Scalar) -> tuple[bytes | None, bytes | None] | None:
    """Return the encoded ends of the values below the literal, and of those up to it; an end is None if all values are
    below.

    None if the two cannot be compared, or a cast may not keep their order.
    """
    match field.key_type.form:
        case Form.TEXT | Form.BINARY:
            return _ends_of_content(field, literal)
        case Form.BYTES:
            return _ends_of_bytes(field, literal)
        case _:
            return _ends_of_number(field, literal)


def _ends_of_content(field: Field, literal: pa.Scalar) -> tuple[bytes, bytes | None] | None:
    kind = literal.type
    if not (is_text(kind) if field.is_text else is_bytes(kind)):
        return None
    try:
        value = KeyCodec((field,)).encode((literal.as_py(),))
    except BadKeyError:
        # Longer than a key may be.
        return None
    return value, successor(value)


def _ends_of_bytes(field: Field, literal: pa.Scalar) -> tuple[bytes | None, bytes | None] | None:
    kind = literal.type
    if kind == UUID:
        content = literal.value.as_py()
    elif is_binary(kind):
        content = literal.as_py()
    else:
        return None
    smaller = content[: field.width].ljust(field.width, b"\x00")
    after = successor(smaller)
    # A longer literal is above the value that it begins with; a shorter one equals no value.
    return after if len(content) > field.width else smaller, after if len(content) >= field.width else smaller


def _ends_of_number(field: Field, literal: pa.Scalar) -> tuple[bytes | None, bytes | None] | None:
    image = _monotonic_cast(field.type, literal.type)
    bound = _number(literal)
    if image is None or bound is None:
        return None
    if image is _same and field.key_type.holds_integers:
        return _least_integer_from(field, _rounded(bound, math.ceil)), _least_integer_from(
            field, _rounded(bound, math.floor) + 1
        )
    if literal.type == field.type and not field.key_type.holds_integers:
        value = encode_content(field, literal.as_py())
        return value, successor(value)
    return _least_passing(field, lambda content: image(content) >= bound), _least_passing(
        field, lambda content: image(content) > bound
    )


def _rounded(bound: Any, rounded: Callable[[Any], int]) -> float:
    return bound if isinstance(bound, float) and math.isinf(bound) else rounded(bound)


def _least_integer_from(field: Field, integer: float) -> bytes | None:
    """Return the encoding of the field's least integer from this one on, empty if all are; None if there is none."""
    held = field.key_type
    if integer <= held.least:
        return b""
    return None if integer > held.greatest else encode_content(field, int(integer))


def _least_passing(field: Field, passes: Callable[[Any], bool]) -> bytes | None:
    """Return the encoding of the least value that passes, None if none does; all larger ones must pass as well."""
    low, high = 0, 1 << (8 * field.width)
    while low < high:
        middle = (low + high) // 2
        found = field.key_type.content(middle)
        if found is None or passes(found[0]):
            high = middle
        else:
            low = middle + 1
    found = field.key_type.content(low) if low < 1 << (8 * field.width) else None
    return None if found is None else encode_content(field, found[0]) if low else b""


def _number(literal: pa.Scalar) -> Any:
    """Return a literal as a number that compares exactly with those of columns; None for other types."""
    kind = literal.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return literal.as_py()
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return literal.value
    if pa.types.is_decimal(kind):
        return Fraction(literal.as_py())
    if pa.types.is_floating(kind) and not pa.types.is_float16(kind):
        value = literal.as_py()
        # An engine may distinguish negative zero from zero, and sorts NaN above all numbers.
        return None if math.isnan(value) or (value == 0 and math.copysign(1, value) < 0) else value
    return None


# -- casts ------------------------------------------------------------------------------------------------------


def _same(content: Any) -> Any:
    return content


def _ordered(content: float) -> float:
    """Return a float in an order in which NaN is above infinity: a number that no literal is above."""
    return _AboveAll() if math.isnan(content) else content


class _AboveAll(float):
    """Above every number."""

    def __ge__(self, other: object) -> bool:
        return True

    def __gt__(self, other: object) -> bool:
        return True


def _monotonic_cast(kind: pa.DataType, wanted: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a cast as a function of the column's content that keeps the order; None if it may not keep it."""
    if pa.types.is_floating(kind):
        return _ordered if pa.types.is_floating(wanted) and wanted.bit_width >= kind.bit_width else None
    if pa.types.is_decimal(kind):
        return Fraction if pa.types.is_decimal(wanted) and wanted.scale >= kind.scale else None
    if kind == wanted or (pa.types.is_decimal(wanted) and pa.types.is_integer(kind)):
        return _same
    if pa.types.is_integer(kind):
        if pa.types.is_float64(wanted):
            return float
        if not pa.types.is_integer(wanted):
            return None
        signs = pa.types.is_signed_integer(kind), pa.types.is_signed_integer(wanted)
        wider = wanted.bit_width > kind.bit_width or (signs[0] == signs[1] and wanted.bit_width == kind.bit_width)
        return _same if wider and (signs[1] or not signs[0]) else None
    if pa.types.is_date32(kind) and pa.types.is_timestamp(wanted) and wanted.tz is None:
        ticks = _DAY_S * PER_SECOND[wanted.unit]
        return lambda integer: integer * ticks
    if pa.types.is_time(kind) and pa.types.is_time(wanted):
        return _cast_to_finer_unit(kind, wanted)
    if pa.types.is_timestamp(kind):
        return _monotonic_time_cast(kind, wanted)
    return None


def _cast_to_finer_unit(kind: pa.DataType, wanted: pa.DataType) -> Callable[[int], int] | None:
    """Return a cast to the same or a finer unit; None for a coarser one."""
    times, rest = divmod(PER_SECOND[wanted.unit], PER_SECOND[kind.unit])
    return None if rest else lambda integer: integer * times


def _monotonic_time_cast(kind: pa.TimestampType, wanted: pa.DataType) -> Callable[[int], Any] | None:
    if pa.types.is_date32(wanted) and _is_utc(kind.tz):
        ticks = _DAY_S * PER_SECOND[kind.unit]
        return lambda integer: integer // ticks
    if not pa.types.is_timestamp(wanted):
        return None
    # Time zones only affect the display, but a local time has none.
    if (kind.tz is None) != (wanted.tz is None) and not (_is_utc(kind.tz) and _is_utc(wanted.tz)):
        return None
    return _cast_to_finer_unit(kind, wanted)


def _is_utc(zone: str | None) -> bool:
    return zone in (None, "UTC", "+00:00")
