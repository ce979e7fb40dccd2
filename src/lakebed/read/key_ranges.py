"""Which keys a predicate leaves over: sorted disjoint key ranges that hold every row of which it can be true. Pure.

A predicate comes here as sets of keys put together: *partitions* say what one field is compared with
(:func:`compared`, :func:`starting`), and :func:`both` and :func:`either` follow AND and OR. A set is a union of
*boxes*; a box has, for some of the key's fields, the ranges of that field's own encoding, and any value for the
others. Since a key's encoding is those of its fields in a row, a box becomes ranges of the whole key field by field:
values asked for one by one are put before those of the next field, and the first field that is asked for in a stretch,
or not at all, ends the range.

All of it is conservative: what is not understood is every key, and a set that would grow beyond bounds becomes a larger
one. So a reader that looks at the ranges alone, and then asks the predicate of each row, misses none.

*Other types.* An engine compares a column with a literal of another type by casting one of them. Integers, dates and
times are ordered alike before and after such a cast, so the least integer that passes is found in the integers of the
column itself: exactly, whatever the literal's fraction or size, and also where a float64 cannot keep the integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, Literal

import pyarrow as pa

from lakebed.errors import BadKeyError
from lakebed.model.keys import ALL_KEYS, EncodedRange, KeyCodec, KeyRange, iter_ranges, successor
from lakebed.model.schema import Field

RANGES_MAX = 10_000
"""Values of several fields are multiplied; beyond this a range is coarser."""

Operator = Literal["=", "!=", "<", "<=", ">", ">="]

TURNED: dict[str, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""What an operator is with its sides exchanged."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_S = 86_400

_FieldRanges = tuple[EncodedRange, ...]
"""Sorted and disjoint, of the encoding of one field by itself. Values stay apart where they touch."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """A set of keys: the union of its boxes, each a tuple of (position of a key field, its ranges), in key order.

    No box: no key. A box without fields: every key.
    """

    boxes: tuple[tuple[tuple[int, _FieldRanges], ...], ...]


EVERY_KEY = KeySet(((),))
NO_KEY = KeySet(())


# -- partitions -----------------------------------------------------------------------------------------------------


def compared(codec: KeyCodec, name: str, operator: Operator, literal: pa.Scalar) -> KeySet:
    """The keys whose field of that name, cast to the literal's type if it has another, compares so with it."""
    found = _field(codec, name)
    if found is None:
        return EVERY_KEY
    position, field = found
    if not literal.is_valid:
        return NO_KEY
    below = _below_integer(field, literal) if field.width else _below_content(field, literal)
    if below is None:
        return EVERY_KEY
    smaller, not_larger = below
    return _within(position, _compared(operator, smaller, not_larger))


def one_of(codec: KeyCodec, name: str, literals: Iterable[pa.Scalar]) -> KeySet:
    """The keys whose field of that name equals one of the literals."""
    return either([compared(codec, name, "=", literal) for literal in literals])


def none_of(codec: KeyCodec, name: str, literals: Iterable[pa.Scalar]) -> KeySet:
    """The keys whose field of that name is unlike each of the literals."""
    return both([compared(codec, name, "!=", literal) for literal in literals])


def starting(codec: KeyCodec, name: str, stem: str) -> KeySet:
    """The keys whose field of that name is text and begins so."""
    found = _field(codec, name)
    if found is None or not found[1].is_text:
        return EVERY_KEY
    position, field = found
    try:
        keys = KeyCodec((field,)).encode_range(KeyRange.starts_with(stem)) if stem else ALL_KEYS
    except BadKeyError:
        return EVERY_KEY
    return _within(position, (keys,))


def null(codec: KeyCodec, name: str) -> KeySet:
    """The keys whose field of that name is null: there is none, for keys never are."""
    return EVERY_KEY if _field(codec, name) is None else NO_KEY


# -- put together -----------------------------------------------------------------------------------------------


def both(sets: Sequence[KeySet]) -> KeySet:
    """The keys that are in all of the sets, and maybe some that are not."""
    found = list(sets) or [EVERY_KEY]
    while len(found) > 1:
        # By pairs, for a set grows with what is put into it.
        found = [reduce(_both, found[begin : begin + 2]) for begin in range(0, len(found), 2)]
    return found[0]


def either(sets: Sequence[KeySet]) -> KeySet:
    """The keys that are in any of the sets, and maybe some that are not."""
    boxes = [box for one in sets for box in one.boxes]
    # Stretches of a single field are one box, however many there are.
    alone: dict[int, list[EncodedRange]] = {}
    for box in boxes:
        if len(box) == 1:
            alone.setdefault(box[0][0], []).extend(box[0][1])
    joined = [((position, tuple(_united(ranges))),) for position, ranges in sorted(alone.items())]
    several = list(dict.fromkeys(box for box in boxes if len(box) != 1))
    if () in several or len(joined) + len(several) > RANGES_MAX:
        return EVERY_KEY
    return KeySet((*joined, *several))


def key_ranges(keys: KeySet, codec: KeyCodec) -> tuple[EncodedRange, ...]:
    """The set as ranges of the whole key, sorted and disjoint; they hold all of it, and maybe more."""
    ranges = [one for box in keys.boxes for one in _spread(dict(box), codec)]
    return tuple(iter_ranges(ranges))


def _both(one: KeySet, other: KeySet) -> KeySet:
    if len(one.boxes) * len(other.boxes) > RANGES_MAX:
        return min(one, other, key=lambda keys: len(keys.boxes))
    crossed = (_crossed(a, b) for a in one.boxes for b in other.boxes)
    return KeySet(tuple(dict.fromkeys(box for box in crossed if box is not None)))


def _crossed(
    one: tuple[tuple[int, _FieldRanges], ...], other: tuple[tuple[int, _FieldRanges], ...]
) -> tuple[tuple[int, _FieldRanges], ...] | None:
    """What two boxes share; None if nothing."""
    fields = dict(one)
    for position, ranges in other:
        held = fields.get(position)
        fields[position] = ranges if held is None else tuple(shared(held, ranges))
        if not fields[position]:
            return None
    return tuple(sorted(fields.items()))


def shared(one: Sequence[EncodedRange], other: Sequence[EncodedRange]) -> Iterator[EncodedRange]:
    """What two lists of sorted disjoint ranges share, sorted."""
    i = j = 0
    while i < len(one) and j < len(other):
        found = one[i].intersect(other[j])
        if not found.empty:
            yield found
        a, b = one[i].max, other[j].max
        if b is None or (a is not None and a <= b):
            i += 1
        else:
            j += 1


def _united(ranges: Iterable[EncodedRange]) -> Iterator[EncodedRange]:
    """The ranges in order, those that overlap as one."""
    pending: EncodedRange | None = None
    for following in sorted((keys for keys in ranges if not keys.empty), key=lambda keys: keys.min):
        if pending is None:
            pending = following
        elif pending.max is None or following.min < pending.max:
            ends = None if pending.max is None or following.max is None else max(pending.max, following.max)
            pending = EncodedRange(pending.min, ends)
        else:
            yield pending
            pending = following
    if pending is not None:
        yield pending


def _spread(box: dict[int, _FieldRanges], codec: KeyCodec) -> list[EncodedRange]:
    """A box as ranges of the whole key."""
    done: list[EncodedRange] = []
    prefixes = [b""]
    for position, field in enumerate(codec.fields):
        ranges = box.get(position)
        room = (RANGES_MAX - len(done)) // max(len(prefixes), 1)
        if ranges is None or not room:
            break
        points, stretches = [], []
        for keys in _joined(ranges, room):
            if _is_value(field, keys):
                points.append(keys.min.ljust(field.width, b"\x00"))
            else:
                stretches.append(keys)
        done += [_after(prefix, keys) for prefix in prefixes for keys in stretches]
        prefixes = [prefix + point for prefix in prefixes for point in points]
    return done + [_after(prefix, ALL_KEYS) for prefix in prefixes]


def _joined(ranges: _FieldRanges, ranges_max: int) -> Iterator[EncodedRange]:
    """The ranges, or at most so many that hold them, each of as many neighbours."""
    neighbours = -(-len(ranges) // ranges_max)
    for begin in range(0, len(ranges), neighbours):
        yield EncodedRange(ranges[begin].min, ranges[min(begin + neighbours, len(ranges)) - 1].max)


def _after(prefix: bytes, keys: EncodedRange) -> EncodedRange:
    """The keys that begin with the prefix and go on inside the range."""
    return EncodedRange(prefix + keys.min, successor(prefix) if keys.max is None else prefix + keys.max)


def _is_value(field: Field, keys: EncodedRange) -> bool:
    """Whether the range of one field's encoding holds a single value."""
    if field.width:
        end = 1 << (8 * field.width) if keys.max is None else _unsigned(field, keys.max)
        return end - _unsigned(field, keys.min) == 1
    # An ending that closes the text itself; what a stem partitions open goes on to another text.
    return keys.max is not None and keys.max == successor(keys.min) and keys.min.endswith(b"\x00\x01")


def _unsigned(field: Field, bound: bytes) -> int:
    return int.from_bytes(bound.ljust(field.width, b"\x00"), "big")


# -- one field --------------------------------------------------------------------------------------------------


def _field(codec: KeyCodec, name: str) -> tuple[int, Field] | None:
    return next(((position, field) for position, field in enumerate(codec.fields) if field.name == name), None)


def _within(position: int, ranges: Iterable[EncodedRange]) -> KeySet:
    found = tuple(_united(ranges))
    if not found:
        return NO_KEY
    return EVERY_KEY if found == (ALL_KEYS,) else KeySet((((position, found),),))


def _compared(operator: Operator, smaller: bytes | None, not_larger: bytes | None) -> list[EncodedRange]:
    """Ranges of one field; what is smaller than the literal ends at ``smaller``, what is not larger at the other."""
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
    """Where the texts (or bytes) below the literal end, and where those not above it do; None: not comparable."""
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
    """The same of integers, dates and times: the ends are None where the field's integers end first."""
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
    """The least integer of the field that passes, if every larger one does too; else the one after the greatest."""
    low, high = -(1 << (8 * field.width - 1)), 1 << (8 * field.width - 1)
    while low < high:
        middle = (low + high) // 2
        if passes(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _encoded(field: Field, integer: float) -> bytes | None:
    """Where the field's integers from this one on begin; None: there are none."""
    half = 1 << (8 * field.width - 1)
    if integer <= -half:
        return b""
    return None if integer >= half else int(integer + half).to_bytes(field.width, "big")


def _number(literal: pa.Scalar) -> Any:
    """A literal as something that compares exactly with integers; None for what orders in a way of its own."""
    kind = literal.type
    if pa.types.is_integer(kind):
        return literal.as_py()
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return literal.value
    if pa.types.is_decimal(kind):
        return Fraction(literal.as_py())
    if pa.types.is_float64(kind):
        value = literal.as_py()
        # An engine may tell negative zero from zero, and has NaN above all.
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
    """What a cast makes of a column's integer, never falling as that rises; None: it is not known to do so."""
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
    # A zone is only how a time is shown, but local time is another one.
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
