"""The options of the data source: names in any case, checked before anything is opened.

An unknown option is an error: a misspelt filter would be ignored otherwise.

*Translates Spark's filters into conditions on columns, and finds those that Spark need not evaluate. Pure: no I/O.*

The filters come as a list, all of which must be true. Literals are taken in the type of their field, so a filter on a
key field is translated exactly or not at all.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
from collections.abc import Mapping, Sequence
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
from lakebed.jobs.executor import Root
from lakebed.model.documents import load
from lakebed.model.key_types import ends_of, key_type
from lakebed.model.keys import EncodedRange, KeyRange
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
from lakebed.read.rows.key_ranges import EVERY_KEY, exact_fields
from lakebed.write.row_encoder import DELETE, Action, Operation

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from lakebed.model.schema import Field, Schema
    from lakebed.read.snapshot.snapshot import Snapshot
    from lakebed.table.table import Table

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
    """Filters as a condition; ``done`` are the positions of those that are true for every row of its key ranges."""

    condition: Condition
    done: frozenset[int]


def push(filters: Sequence[Filter], schema: Schema) -> Pushed:
    """Translate filters, and find those that are done by the key ranges of their condition."""
    ordered = (field for field in schema.values if key_type(field.type) is not None)
    fields = {field.name: field for field in (*schema.order.fields, *ordered)}
    conditions = [_condition(one, fields) for one in filters]
    keys = keys_of(And(conditions), schema.order)
    keyed = set(schema.sort_names)
    exact = {field.name for field in schema.row_key[: exact_fields(keys, schema.codec)]}
    done = frozenset(
        position
        for position, (one, condition) in enumerate(zip(filters, conditions, strict=True))
        if condition is not UNKNOWN
        and _name(one) in keyed
        and (_name(one) in exact or keys_of(condition, schema.order) == EVERY_KEY)
    )
    return Pushed(And(conditions), done)


def _condition(one: Any, fields: dict[str, Field]) -> Condition:
    """Return a filter on one of the fields; UNKNOWN for another, or one with a value that no key of its type has."""
    name = _name(one)
    field = None if name is None else fields.get(name)
    if name is None or field is None:
        return UNKNOWN
    try:
        match one:
            case IsNotNull():
                return Not(IsNull(name))
            case EqualNullSafe() if one.value is None:
                return IsNull(name)
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


STORAGE = "storage."
"""The prefix of options of the store: credentials, a region, an endpoint."""

INSTANCE_VARIABLE = "LAKEBED_INSTANCE"
COMMIT_VIA_VARIABLE = "LAKEBED_COMMIT_VIA"
TOKEN_VARIABLE = "LAKEBED_TOKEN"  # noqa: S105 - its name

READ = ("columns", "ranges", "at", "partition_bytes", "push_filters")
STREAM_READ = ("columns", "since", "partition_bytes", "maxfilespertrigger", "maxrowspertrigger", "changes")
_ROWS = ("operation", "partial", "row_kind")
WRITE = ("commit_id", *_ROWS)
STREAM_WRITE = ("checkpointlocation", *_ROWS)
_PLACE = ("instance", "table")
_HOW = ("log_url", "commit_via", "token")
_SPELLED = {
    "maxfilespertrigger": "maxFilesPerTrigger",
    "maxrowspertrigger": "maxRowsPerTrigger",
    "checkpointlocation": "checkpointLocation",
}

_OF_CATALOG = frozenset({"owner", "provider"})
"""Options that Spark adds for a table of its catalog."""


_AT = "set the option at to a version, a time or a tag"
_REMOVE = "remove the rows first with Table.remove, then append"

HABITS = {
    "as-of-timestamp": _AT,
    "branch": "read a tag with the option at: there are no branches",
    "endingversion": "set since, and stop with Trigger.AvailableNow",
    "mergeschema": "set the setting schema_growth of the table to add",
    "overwriteschema": "alter the table (`lakebed table alter`)",
    "partitionoverwritemode": _REMOVE,
    "path": "set the options instance and table: load() and save() take no path",
    "readchangedata": "set changes=true on readStream",
    "readchangefeed": "set changes=true on readStream",
    "replacewhere": _REMOVE,
    "snapshot-id": _AT,
    "startingversion": "set since on readStream",
    "tag": _AT,
    "timestampasof": _AT,
    "txnappid": "set commit_id: a repeat with the same one adds nothing",
    "txnversion": "set commit_id: a repeat with the same one adds nothing",
    "versionasof": _AT,
}
"""Options of Delta and Iceberg, in lower case, and what to write instead."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options as given, keys in lower case. Has no repr, because some are credentials."""

    given: Mapping[str, str]

    def __repr__(self) -> str:
        return f"Options({', '.join(sorted(self.given))})"

    def check(self, *known: str) -> None:
        """Raise UsageError for an option that is not ``known``, of a place or of the store."""
        if self.given.keys() >= _OF_CATALOG:
            raise Code.SPARK_MODE_UNSUPPORTED(
                "Spark's catalog holds no table of Lakebed. Create it with create_table of the instance, or `lakebed "
                "table create`. In SQL it is CREATE TEMPORARY VIEW name USING lakebed OPTIONS (instance '…', table "
                "'…'), to read it and insert into it"
            )
        unknown = sorted(
            name for name in self.given if name not in (*known, *_PLACE, *_HOW) and not name.startswith(STORAGE)
        )
        if unknown:
            names = ", ".join(_SPELLED.get(name, name) for name in dict.fromkeys((*_PLACE, *known, *_HOW)))
            wrong = ", ".join(map(repr, unknown))
            wrong += "".join(f"; for {name} {HABITS[name]}" for name in unknown if name in HABITS)
            raise Code.OPTION_UNKNOWN(
                f"unknown option {wrong}; options: {names}, and {STORAGE}* for the store",
                options=unknown,
            )

    @property
    def place(self) -> Root:
        """The location of the instance. Raises UsageError if neither the option nor the variable is set."""
        url = self.given.get("instance") or os.environ.get(INSTANCE_VARIABLE)
        if not url:
            raise Code.ARGUMENT_MISSING(
                f"no instance was given: set the option instance to its URL, or the variable {INSTANCE_VARIABLE}"
            )
        options = {name[len(STORAGE) :]: text for name, text in self.given.items() if name.startswith(STORAGE)}
        return Root(url, options, self.given.get("log_url"))

    def open_table(self, table_id: str | None = None) -> Table:
        """Return the table that is meant, whose commits go through a service if one is named: for the driver.

        With an id it is the table that had the name before. Raises UsageError; NotFoundError if it was dropped.
        """
        name = self.given.get("table")
        if not name:
            raise Code.ARGUMENT_MISSING(
                "no table was given: set the option table to the name of one that exists. Spark does not make one: "
                "instead of saveAsTable and CREATE TABLE … AS, create it with create_table of the instance, and "
                "save(). A name that saveAsTable left in Spark's catalog has no options: DROP TABLE it, which takes no "
                "rows from the table"
            )
        via = self.given.get("commit_via") or os.environ.get(COMMIT_VIA_VARIABLE) or None
        # Of other clients of a service as well, so the variable may be set without.
        token = self.given.get("token") or ((os.environ.get(TOKEN_VARIABLE) or None) if via else None)
        instance = self.place.open(commit_via=via, token=token)
        return instance.table(name) if table_id is None else instance.named(table_id)

    def columns(self, schema: Schema) -> tuple[str, ...]:
        """Return the columns to read: names separated by commas, or a JSON list of them; all by default."""
        text = self.given.get("columns")
        if text is None:
            return schema.names
        names = _json(text, "columns") if text.lstrip().startswith("[") else [part.strip() for part in text.split(",")]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise Code.ARGUMENT_INVALID(
                f"columns = {text!r}: must be names separated by commas, or a JSON list of texts"
            )
        return schema.project(names)

    def ranges(self, schema: Schema) -> tuple[EncodedRange, ...]:
        """Return the key ranges to read, encoded; empty for all keys.

        A JSON list of objects: ``{"key": […]}``, ``{"prefix": […]}``, ``{"starts_with": […]}``, or ``{"min": […],
        "max": […]}`` with either left out. A value alone may stand for a list of one.
        """
        text = self.given.get("ranges")
        if text is None:
            return ()
        listed = _json(text, "ranges")
        if not isinstance(listed, list) or not listed:
            raise Code.ARGUMENT_INVALID(f'ranges = {text!r}: a JSON list such as [{{"min": ["a"], "max": ["b"]}}]')
        return tuple(_encoded(one, schema) for one in listed)

    def locate(self, table: Table, version: int | None = None) -> Snapshot:
        """Return the snapshot of the option ``at``: a version, a time (ISO 8601 with an offset) or a tag.

        By default that of ``version``, or the latest.
        """
        text = self.given.get("at")
        if text is None:
            return table.at(version=table.state().version if version is None else version)
        return table.at(text)

    def operation(self) -> Operation:
        """Return what a write does with its rows: the options ``operation``, ``partial`` and ``row_kind``."""
        text, row_kind = self.given.get("operation", "upsert"), self.given.get("row_kind")
        partial = self.flag("partial")
        if text not in (Action.UPSERT, Action.DELETE):
            raise Code.ARGUMENT_INVALID(f"operation = {text!r}: must be upsert or delete")
        if text == Action.UPSERT:
            return Operation.of(partial, row_kind)
        if partial or row_kind is not None:
            raise Code.ARGUMENTS_CONFLICT("operation = 'delete' excludes partial and row_kind: every row is a delete")
        return DELETE

    def flag(self, name: str) -> bool:
        """Return whether it is ``true``; by default it is not."""
        text = self.given.get(name, "false").lower()
        if text not in ("true", "false"):
            raise Code.ARGUMENT_INVALID(f"{name} = {text!r}: must be true or false")
        return text == "true"

    def count(self, name: str) -> int | None:
        """Return a whole number above 0; None if it is not given."""
        text = self.given.get(name)
        if text is None:
            return None
        if not text.isdigit() or not int(text):
            raise Code.ARGUMENT_INVALID(f"{_SPELLED.get(name, name)} = {text!r}: must be a whole number, 1 or more")
        return int(text)


def _json(text: str, name: str) -> Any:
    try:
        return load(text)
    except ValueError as error:
        raise Code.ARGUMENT_INVALID(f"{name} = {text!r}: not JSON ({error})") from error


def _encoded(given: Any, schema: Schema) -> EncodedRange:
    match given:
        case {"encoded": [low, high], **rest} if not rest:
            # As :func:`read_options` writes it.
            return EncodedRange(bytes.fromhex(low), None if high is None else bytes.fromhex(high))
        case _:
            return schema.codec.encode_range(_range(given, schema.row_key))


def _range(given: Any, fields: tuple[Field, ...]) -> KeyRange:
    match given:
        case {"key": key, **rest} if not rest:
            values = _key_values(key, fields)
            if len(values) != len(fields):
                raise Code.ARGUMENT_INVALID(
                    f"a key has {len(fields)} values ({', '.join(f.name for f in fields)}): {key!r}"
                )
            return KeyRange.prefix(*values)
        case {"prefix": values, **rest} if not rest:
            return KeyRange.prefix(*_key_values(values, fields))
        case {"starts_with": values, **rest} if not rest:
            return KeyRange.starts_with(*_key_values(values, fields))
        case {**bounds} if bounds and not set(bounds) - {"min", "max"}:
            low, high = (
                None if bounds.get(name) is None else _key_values(bounds[name], fields) for name in ("min", "max")
            )
            return KeyRange(low, high)
    raise Code.ARGUMENT_INVALID(f"not a range: {given!r}; an object with key, prefix, starts_with, or min and max")


def _key_values(given: Any, fields: tuple[Field, ...]) -> tuple[Any, ...]:
    """Key values as JSON has them: dates, times and bytes (hex digits) are texts there."""
    listed = given if isinstance(given, list) else [given]
    if len(listed) > len(fields) or not listed:
        raise Code.ARGUMENT_INVALID(
            f"{given!r}: one to {len(fields)} values ({', '.join(field.name for field in fields)})"
        )
    return tuple(
        field.parse(value) if isinstance(value, str) and not field.is_text else value
        for field, value in zip(fields, listed, strict=False)
    )


def parse(given: Mapping[str, str]) -> Options:
    """Return the options that Spark hands over."""
    return Options({name.lower(): text for name, text in given.items()})


def read_options(place: Root, table: str, schema: Schema, ranges: Sequence[KeyRange]) -> dict[str, str]:
    """Return the options by which these ranges of a table are read.

    Raises BadKeyError for a range that does not fit.
    """
    given = {"instance": place.url, "table": table} | {STORAGE + name: text for name, text in place.options.items()}
    if place.log_url is not None:
        given["log_url"] = place.log_url
    if ranges:
        encoded = [schema.codec.encode_range(one) for one in ranges]
        bounds = [[keys.min.hex(), None if keys.max is None else keys.max.hex()] for keys in encoded]
        given["ranges"] = json.dumps([{"encoded": pair} for pair in bounds])
    return given
