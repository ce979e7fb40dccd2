"""What requests select: keys, key ranges, columns, and which version, from JSON and from the words of a URL.

Core types: :class:`RangeSelection`, :class:`ReadSelection`. Key values have the types of the schema: whole numbers as
numbers or text, dates and times in ISO 8601, binary in hex digits. Errors: BadKeyError, UsageError.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from lakebed.errors import Code
from lakebed.model.checks import shown
from lakebed.model.keys import KeyRange

if TYPE_CHECKING:
    from lakebed.model.schema import Schema

KeyValue = Annotated[
    bool | int | float | str,
    Meta(
        description="A value of a key field: a number, a boolean, text (also of a date, a time, a UUID) or hex digits."
    ),
]
Key = Annotated[list[KeyValue], Meta(description="A value for each row key field, in order.")]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Version = Annotated[int, Meta(ge=0, le=2**62)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
When = Annotated[
    str,
    Meta(
        description="A version, a tag, a date (UTC), or a time such as 2026-01-31T12:00:00Z. "
        "Default: the latest version."
    ),
]
Columns = Annotated[list[str], Meta(description="Only these columns, in this order.")]
Where = Annotated[str, Meta(description="A predicate in SQL over the columns, such as n > 3 AND s IS NULL.")]


class RangeSelection(Struct, forbid_unknown_fields=True):
    """Keys from one bound up to another, those that begin with some values, or those that begin with a text."""

    from_: Key | None = msgspec.field(default=None, name="from")
    to: Key | None = None
    to_inclusive: bool = False
    prefix: Key | None = None
    starts_with: Key | None = None

    def of(self, schema: Schema) -> KeyRange:
        """Return the range in a table of this schema."""
        given = [name for name in ("prefix", "starts_with") if getattr(self, name) is not None]
        if len(given) + (self.from_ is not None or self.to is not None or self.to_inclusive) > 1:
            raise Code.ARGUMENTS_CONFLICT("a range has from and to, or prefix, or starts_with")
        if self.prefix is not None:
            return KeyRange.prefix(*schema.codec.parse(self.prefix))
        if self.starts_with is not None:
            return KeyRange.starts_with(*_stem_values(schema, self.starts_with))
        low, high = (None if b is None else schema.codec.parse(b) for b in (self.from_, self.to))
        return KeyRange(low, high, max_inclusive=self.to_inclusive)


def key_ranges(schema: Schema, ranges: Sequence[RangeSelection]) -> list[KeyRange]:
    """Return the ranges in a table of this schema."""
    return [one.of(schema) for one in ranges]


def _stem_values(schema: Schema, values: Sequence[Any]) -> tuple[Any, ...]:
    if values and len(values) <= len(schema.row_key):
        last = schema.row_key[len(values) - 1]
        if last.width:
            raise Code.KEY_RANGE_INVALID(
                f"starts_with ends with a value of a text or binary field, and {last.name} is {last.type}; use prefix"
            )
    return schema.codec.parse(values)


def column_names(texts: Sequence[str] | None) -> list[str] | None:
    """Return column names of a URL, with commas between them; one that has a comma stands in double quotes."""
    if not texts:
        return None
    try:
        return [name for row in csv.reader(texts, skipinitialspace=True) for name in row if name]
    except csv.Error as error:
        raise Code.ARGUMENT_INVALID(f"columns = {shown(list(texts))}: not names with commas between them") from error
