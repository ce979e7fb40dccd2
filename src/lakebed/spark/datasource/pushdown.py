"""Which key ranges Spark's filters leave over. Pure: no I/O.

The filters come as a list, all of which must hold. Those on the row key are turned into ranges, field by field: values
asked for one by one (``=``, ``IN``) are put together with those of the next field; the first field that is compared
(``<``, ``BETWEEN``, a prefix) or not mentioned ends it. The ranges are exact, so that Spark need not look again; what
they do not say stays with Spark. What filters say of later fields, and of sort key fields, leaves out files that cannot
match (:func:`among`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from lakebed.errors import BadKeyError
from lakebed.model.keys import ALL_KEYS, EncodedRange, KeyRange, iter_ranges, successor
from lakebed.read.key_ranges import EVERY_KEY, NO_KEY, KeySet, both

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from lakebed.model.keys import KeyCodec
    from lakebed.model.schema import Field

POINTS_MAX = 10_000
"""Values of several fields are multiplied; with more than this a range is coarser, and Spark looks again."""

_COMPARED = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, StringStartsWith)
_CHOSEN = (EqualTo, EqualNullSafe, In)


@dataclass(frozen=True, slots=True)
class Pushed:
    """What filters become: the keys that may pass, None for all, and the positions of the filters that are done."""

    ranges: tuple[EncodedRange, ...] | None
    done: frozenset[int]


def push(filters: Sequence[Filter], codec: KeyCodec) -> Pushed:
    """Turn filters into ranges of the key, as far as they can be."""
    done = {position for position, one in enumerate(filters) if isinstance(one, IsNotNull) and _is_key(one, codec)}
    prefixes: list[tuple[Any, ...]] = [()]
    ranges: list[EncodedRange] | None = None
    for field in codec.fields:
        usable = {position: one for position, one in enumerate(filters) if _usable(one, field, codec)}
        chosen = [one for one in usable.values() if isinstance(one, _CHOSEN)]
        compared = [one for one in usable.values() if isinstance(one, _COMPARED)]
        if not usable:
            break
        if not chosen:
            ranges = [_compared(prefix, compared, codec) for prefix in prefixes]
            done |= set(usable)
            break
        values = _named_by_all(chosen)
        if len(values) * len(prefixes) > POINTS_MAX:
            break
        within = [(*prefix, value) for prefix in prefixes for value in values]
        prefixes = [point for point in within if _passes(point, compared, codec)]
        ranges = [_point(prefix, codec) for prefix in prefixes]
        done |= set(usable)
    if ranges is None:
        return Pushed(None, frozenset(done))
    return Pushed(tuple(keys for keys in ranges if not keys.empty), frozenset(done))


def among(filters: Sequence[Filter], order: KeyCodec) -> KeySet:
    """The keys that may pass, over all fields that rows are sorted by: what a plan leaves files out by."""
    return both([_said(one, order) for one in filters])


def _said(one: Any, order: KeyCodec) -> KeySet:
    """What one filter says of the field that it is on."""
    for position, field in enumerate(order.fields):
        if _usable(one, field, order):
            own = type(order)((field,))
            if isinstance(one, _CHOSEN):
                ranges = [_point((value,), own) for value in _values(one)]
            else:
                ranges = [_passing((), one, own)]
            found = tuple(iter_ranges(ranges))
            return KeySet((((position, found),),)) if found else NO_KEY
    return EVERY_KEY


def _is_key(one: Any, codec: KeyCodec) -> bool:
    return len(one.attribute) == 1 and one.attribute[0] in [field.name for field in codec.fields]


def _usable(one: Any, field: Field, codec: KeyCodec) -> bool:
    """Whether the filter is on the field, and its values are such as keys may have."""
    if not isinstance(one, (*_CHOSEN, *_COMPARED)) or one.attribute != (field.name,):
        return False
    if isinstance(one, _COMPARED) and (one.value is None or isinstance(one, StringStartsWith) > field.is_text):
        return False
    try:
        for value in _values(one):
            type(codec)((field,)).encode((value,))
    except BadKeyError:
        return False
    return True


def _values(one: Any) -> list[Any]:
    """The values that the filter names, each once; null equals nothing."""
    listed = one.value if isinstance(one, In) else [one.value]
    return list(dict.fromkeys(value for value in listed if value is not None))


def _named_by_all(filters: Sequence[Filter]) -> list[Any]:
    """The values that each of the filters names, in the order of the first."""
    first, *others = [dict.fromkeys(_values(one)) for one in filters]
    return [value for value in first if all(value in other for other in others)]


def _point(prefix: tuple[Any, ...], codec: KeyCodec) -> EncodedRange:
    return codec.encode_range(KeyRange.prefix(*prefix)) if prefix else ALL_KEYS


def _compared(prefix: tuple[Any, ...], filters: Sequence[Filter], codec: KeyCodec) -> EncodedRange:
    """The keys that begin with the prefix and whose next field passes the filters."""
    keys = _point(prefix, codec)
    for one in filters:
        keys = keys.intersect(_passing(prefix, one, codec))
    return keys


def _passing(prefix: tuple[Any, ...], one: Filter, codec: KeyCodec) -> EncodedRange:
    if isinstance(one, StringStartsWith):
        # Every text begins with the empty one.
        return codec.encode_range(KeyRange.starts_with(*prefix, one.value)) if one.value else ALL_KEYS
    at = codec.encode((*prefix, one.value))  # type: ignore[attr-defined]
    match one:
        case GreaterThanOrEqual():
            return EncodedRange(at, None)
        case GreaterThan():
            after = successor(at)
            return EncodedRange(b"", b"") if after is None else EncodedRange(after, None)
        case LessThan():
            return EncodedRange(b"", at)
        case LessThanOrEqual():
            return EncodedRange(b"", successor(at))
        case _:
            raise AssertionError(one)


def _passes(point: tuple[Any, ...], compared: Sequence[Filter], codec: KeyCodec) -> bool:
    """Whether the last value of the point passes every filter that compares its field."""
    *prefix, _ = point
    at = _point(point, codec)
    return not any(at.intersect(_passing(tuple(prefix), one, codec)).empty for one in compared)
