"""Translates Spark's filters into conditions on the key, and finds those that Spark need not evaluate. Pure: no I/O.

The filters come as a list, all of which must be true. Literals are taken in the type of their field, so a filter on a
key field is translated exactly or not at all.
"""

from __future__ import annotations

import datetime as dt
import math
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

from lakebed.errors import BadKeyError, Code
from lakebed.model.key_types import ends_of
from lakebed.model.type_names import UUID
from lakebed.read.rows.conditions import (
    UNKNOWN,
    And,
    Comparison,
    Condition,
    IsNull,
    Not,
    OneOf,
    Operator,
    StartsWith,
    keys_of,
)
from lakebed.read.rows.key_ranges import EVERY_KEY, KeySet, exact_fields, key_ranges

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from lakebed.model.keys import EncodedRange
    from lakebed.model.schema import Field, Schema

_COMPARED: dict[type[Any], Operator] = {
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}

_GAP = (dt.date(1582, 10, 5), dt.date(1582, 10, 15))
"""The days that the calendar of Java does not have, and the one as which they arrive."""

_SAME_RULES_YEAR = 1900


@dataclass(frozen=True, slots=True)
class Pushed:
    """Filters in the form of a plan: the ranges of the key, and the keys over all sort fields.

    ``done`` are the positions of the filters that are true for every row of the ranges.
    """

    ranges: tuple[EncodedRange, ...]
    keys: KeySet
    done: frozenset[int]


def push(filters: Sequence[Filter], schema: Schema) -> Pushed:
    """Derive key ranges from filters."""
    fields = {field.name: field for field in schema.order.fields}
    conditions = [_condition(one, fields) for one in filters]
    keys = keys_of(And(conditions), schema.order)
    exact = {field.name for field in schema.row_key[: exact_fields(keys, schema.codec)]}
    done = frozenset(
        position
        for position, (one, condition) in enumerate(zip(filters, conditions, strict=True))
        if condition is not UNKNOWN and (_name(one) in exact or keys_of(condition, schema.order) == EVERY_KEY)
    )
    return Pushed(key_ranges(keys, schema.codec), keys, done)


def _condition(one: Any, fields: dict[str, Field]) -> Condition:
    """Return a filter on a key field; UNKNOWN for another, or one with a value that no key has."""
    name = _name(one)
    field = None if name is None else fields.get(name)
    if name is None or field is None:
        return UNKNOWN
    try:
        match one:
            case IsNotNull():
                return Not(IsNull(name))
            case EqualTo() | EqualNullSafe():
                return OneOf(name, _literals(field, [one.value]))
            case In():
                return OneOf(name, _literals(field, one.value))
            case GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
                (literal,) = _literals(field, [one.value]) or [None]
                return UNKNOWN if literal is None else Comparison(name, _COMPARED[type(one)], literal)
            case StringStartsWith() if field.is_text and _literals(field, [one.value]):
                return StartsWith(name, one.value)
            case _:
                return UNKNOWN
    except BadKeyError:
        return UNKNOWN


def _name(one: Any) -> str | None:
    """Return the column that a filter is on; None if it is not on one column."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    return attribute[0] if len(attribute) == 1 else None


def _is_alike(field: Field, value: Any) -> bool:
    """Return whether Spark compares the value with the column as the table does.

    Not a NaN or a zero that may be negative, whose ranges are all keys; and a UUID, which is text there, only as
    the table gives it. Spark passes dates and times with a zone as those of a calendar without the days from 1582-10-05
    to 14: they arrive as the 15th. Of times before 1900 it also takes the local time of the machine's zone, by rules
    that differ.
    """
    if isinstance(value, dt.datetime):
        return field.type.tz is None or value.year >= _SAME_RULES_YEAR
    if isinstance(value, dt.date):
        return not _GAP[0] <= value <= _GAP[1]
    if isinstance(value, float):
        return bool(value) and not math.isnan(value)
    return field.type != UUID or bool(
        value == str(field.key_type.value_of(field.key_type.content_of(value, field.name)))
    )


def _literals(field: Field, values: Sequence[Any]) -> list[pa.Scalar]:
    """Return the values, each once; null equals nothing.

    Raises BadKeyError for one that the field's keys cannot have, or that Spark compares with them in another way.
    """
    found = list(dict.fromkeys(value for value in values if value is not None))
    if not all(_is_alike(field, value) for value in found):
        raise Code.KEY_NOT_REPRESENTABLE(f"key field {field.name}: left to Spark", column=field.name)
    contents = [field.key_type.content_of(value, field.name) for value in found]
    literals = list(field.key_type.array(contents)) if contents else []
    if any(ends_of(field.key_type, literal) is None for literal in literals):
        # Its condition would say nothing of the keys, and so seem to hold for all of them.
        raise Code.KEY_NOT_REPRESENTABLE(f"key field {field.name}: no key is like it", column=field.name)
    return literals
