"""Sets of keys, and the key ranges that include them. Pure.

Core type: a :class:`KeySet` is a union of *boxes*. A box has ranges for some of the key's fields, in the encoding of
that field alone, and any value for the others. :func:`both` and :func:`either` are the intersection and the union of
sets, as for AND and OR. The encoding of a key is the concatenation of its fields, so :func:`key_ranges` derives ranges
of the whole key field by field: a single value is a prefix of the next field's ranges, and the first field with a
longer range, or without a condition, ends the range.

Rule: every function may return more keys than its arguments have, never fewer. A set that would exceed ``RANGES_MAX``
becomes a larger, simpler one. A reader that reads the ranges, and applies the predicate to each row, misses no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from lakebed.model.keys import ALL_KEYS, EncodedRange, KeyCodec, iter_ranges, successor
from lakebed.model.schema import Field

RANGES_MAX = 10_000
"""The most ranges: values of several fields multiply, and beyond this number ranges are joined."""

_FieldRanges = tuple[EncodedRange, ...]
"""Sorted and disjoint ranges of the encoding of one field alone. Adjacent values stay separate."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """A set of keys: the union of its boxes, each a tuple of (position of a key field, its ranges), in key order.

    No box: no key. A box without fields: every key.
    """

    boxes: tuple[tuple[tuple[int, _FieldRanges], ...], ...]


EVERY_KEY = KeySet(((),))
NO_KEY = KeySet(())


def both(sets: Sequence[KeySet]) -> KeySet:
    """Return the keys that are in all of the sets, and maybe some that are not."""
    found = list(sets) or [EVERY_KEY]
    while len(found) > 1:
        # By pairs, which keeps the intermediate sets small.
        found = [reduce(_both, found[begin : begin + 2]) for begin in range(0, len(found), 2)]
    return found[0]


def either(sets: Sequence[KeySet]) -> KeySet:
    """Return the keys that are in any of the sets, and maybe some that are not."""
    boxes = [box for one in sets for box in one.boxes]
    # All ranges of a single field are one box.
    alone: dict[int, list[EncodedRange]] = {}
    for box in boxes:
        if len(box) == 1:
            alone.setdefault(box[0][0], []).extend(box[0][1])
    joined = [((position, tuple(_united(ranges))),) for position, ranges in sorted(alone.items())]
    several = list(dict.fromkeys(box for box in boxes if len(box) != 1))
    if () in several or len(joined) + len(several) > RANGES_MAX:
        return EVERY_KEY
    return KeySet((*joined, *several))


def within(position: int, ranges: Iterable[EncodedRange]) -> KeySet:
    """Return the keys whose field at that position is encoded inside any of the ranges of its own encoding."""
    found = tuple(_united(ranges))
    if not found:
        return NO_KEY
    return EVERY_KEY if found == (ALL_KEYS,) else KeySet((((position, found),),))


def key_ranges(keys: KeySet, codec: KeyCodec) -> tuple[EncodedRange, ...]:
    """Ranges of the whole key that include the set, sorted and disjoint."""
    return tuple(iter_ranges([one for box in keys.boxes for one in _spread(dict(box), codec)[0]]))


def exact_fields(keys: KeySet, codec: KeyCodec) -> int:
    """Return the number of leading key fields for which :func:`key_ranges` is no larger than the set."""
    if not keys.boxes:
        return len(codec.fields)
    return _spread(dict(keys.boxes[0]), codec)[1] if len(keys.boxes) == 1 else 0


def _both(one: KeySet, other: KeySet) -> KeySet:
    if len(one.boxes) * len(other.boxes) > RANGES_MAX:
        return min(one, other, key=lambda keys: len(keys.boxes))
    crossed = (_crossed(a, b) for a in one.boxes for b in other.boxes)
    return KeySet(tuple(dict.fromkeys(box for box in crossed if box is not None)))


def _crossed(
    one: tuple[tuple[int, _FieldRanges], ...], other: tuple[tuple[int, _FieldRanges], ...]
) -> tuple[tuple[int, _FieldRanges], ...] | None:
    """Return the intersection of two boxes; None if it is empty."""
    fields = dict(one)
    for position, ranges in other:
        held = fields.get(position)
        fields[position] = ranges if held is None else tuple(shared(held, ranges))
        if not fields[position]:
            return None
    return tuple(sorted(fields.items()))


def shared(one: Sequence[EncodedRange], other: Sequence[EncodedRange]) -> Iterator[EncodedRange]:
    """Return the intersection of two lists of sorted disjoint ranges, sorted."""
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
    """Return the ranges in order, overlapping ones joined."""
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


def _spread(box: dict[int, _FieldRanges], codec: KeyCodec) -> tuple[list[EncodedRange], int]:
    """Return a box as ranges of the whole key, and the number of leading fields that they express exactly."""
    done: list[EncodedRange] = []
    prefixes = [b""]
    exact, only_points = 0, True
    for position, field in enumerate(codec.fields):
        ranges = box.get(position)
        room = (RANGES_MAX - len(done)) // max(len(prefixes), 1)
        if ranges is None or not room:
            break
        points, stretches = [], []
        for keys in _join_near(ranges, room):
            if is_value(field, keys):
                points.append(keys.min.ljust(field.width, b"\x00"))
            else:
                stretches.append(keys)
        done += [_after(prefix, keys) for prefix in prefixes for keys in stretches]
        only_points = only_points and len(ranges) <= room
        exact += only_points
        only_points = only_points and not stretches
        prefixes = [prefix + point for prefix in prefixes for point in points]
    return done + [_after(prefix, ALL_KEYS) for prefix in prefixes], exact


def _join_near(ranges: _FieldRanges, ranges_max: int) -> Iterator[EncodedRange]:
    """Return the ranges, joined with neighbours if there are more than ``ranges_max``."""
    neighbours = -(-len(ranges) // ranges_max)
    for begin in range(0, len(ranges), neighbours):
        yield EncodedRange(ranges[begin].min, ranges[min(begin + neighbours, len(ranges)) - 1].max)


def _after(prefix: bytes, keys: EncodedRange) -> EncodedRange:
    """Return the keys that begin with the prefix and continue inside the range."""
    return EncodedRange(prefix + keys.min, successor(prefix) if keys.max is None else prefix + keys.max)


def is_value(field: Field, keys: EncodedRange) -> bool:
    """Return whether the range of one field's encoding holds a single value."""
    if field.width:
        end = 1 << (8 * field.width) if keys.max is None else _unsigned(field, keys.max)
        return end - _unsigned(field, keys.min) == 1
    # The encoding of a whole text ends with a terminator; that of a prefix does not.
    return keys.max is not None and keys.max == successor(keys.min) and keys.min.endswith(b"\x00\x01")


def _unsigned(field: Field, bound: bytes) -> int:
    return int.from_bytes(bound.ljust(field.width, b"\x00"), "big")
