"""Row filters: the visible rows of a table.

A table may have a predicate, and an *age-off*: a time field and an age. Rows for which the predicate is not true, and
rows whose time is before the table's *cut*, are hidden from every read, and compaction drops them. The cut is a time in
the table's state that only rises (:class:`~lakebed.model.state.transactions.filter_changes.ProposeCut`), so that all
readers of a version see the same rows, whatever their clocks. A row without a time is not hidden by its age.

A filter applies to the merged row of a key. It is allowed only where it gives the same answer when it is applied before
a merge (:func:`forbidden`), so that readers may filter first, and a compaction may drop hidden rows
(:func:`lakebed.model.state.visibility.kept_by_jobs` says which compactions do).

Core types: :class:`SetFilter` and :class:`AgeOff`, the changes of a user; :class:`RowFilter`, part of a state. Pure.
Errors: UsageError.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict

from lakebed.errors import Code
from lakebed.model.checks import is_text, is_whole, shown
from lakebed.model.wording import did_you_mean, duration_text

if TYPE_CHECKING:
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Field, Schema

_DAY_S = 86_400
_US = 1_000_000
AGE_DAYS_MAX = 18_262
"""Maximum age, fifty years: a cut is a time after 1970."""

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_ARROW_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}


@dataclass(frozen=True, slots=True)
class SetFilter:
    """Show only rows for which a predicate in SQL is true; ``SetFilter(None)`` shows all rows again.

    The predicate is over a single row, as ``where`` of :meth:`Table.scan`. Raises UsageError for another value.
    """

    predicate: str | None

    def __post_init__(self) -> None:
        if self.predicate is not None and not (is_text(self.predicate) and self.predicate.strip()):
            raise Code.PREDICATE_INVALID(
                f'SetFilter({shown(self.predicate)}): give a predicate in SQL, such as "n > 3 AND s IS NULL", or None'
            )


@dataclass(frozen=True, slots=True, init=False)
class AgeOff:
    """Hide rows when the time in ``field`` is older than an age, given in days, hours or seconds, which are added.

    The field is a timestamp, a date (whose rows stay until the whole day is past, in UTC) or an integer that counts
    seconds, milliseconds, microseconds or nanoseconds since 1970: its ``unit`` is then ``"s"``, ``"ms"``, ``"us"`` or
    ``"ns"``. A timestamp without a time zone is read as UTC. ``AgeOff(None)`` ends the age-off. Raises UsageError for
    an age that is not between one second and fifty years, or an unknown unit.
    """

    field: str | None
    age_s: int
    unit: str

    def __init__(self, field: str | None, *, days: int = 0, hours: int = 0, seconds: int = 0, unit: str = "") -> None:
        if field is not None and not is_text(field):
            raise Code.FILTER_INVALID(f"AgeOff({shown(field)}): the first argument is the name of a field, or None")
        for name, value in (("days", days), ("hours", hours), ("seconds", seconds)):
            if not is_whole(value):
                raise Code.FILTER_INVALID(f"AgeOff({name}={shown(value)}): must be a whole number, 0 or more")
        age_s = days * _DAY_S + hours * 3_600 + seconds
        if field is None and (age_s or unit):
            raise Code.FILTER_INVALID("AgeOff(None) ends the age-off and has no age and no unit")
        if field is not None and not 1 <= age_s <= AGE_DAYS_MAX * _DAY_S:
            raise Code.FILTER_INVALID(
                f"AgeOff({field!r}) of {age_s:,} seconds: give an age of at least a second and at most fifty years, "
                "such as days=30"
            )
        if unit not in ("", *PER_SECOND):
            raise Code.FILTER_INVALID(f"AgeOff(unit={shown(unit)}): the unit is one of {', '.join(PER_SECOND)}")
        object.__setattr__(self, "field", field)
        object.__setattr__(self, "age_s", age_s)
        object.__setattr__(self, "unit", unit)


FilterChange = SetFilter | AgeOff


class RowFilter(Struct, frozen=True):
    """The filter of a table. ``columns`` are the ids of the fields that ``predicate`` names.

    ``age_field`` is the id of the time field, 0 without an age-off; ``unit`` is that of an integer field.
    """

    predicate: str = ""
    columns: tuple[int, ...] = ()
    age_field: int = 0
    age_s: int = 0
    unit: str = ""

    def describe(self) -> str:
        """Describe the filter in words."""
        parts = [f"only {self.predicate}"] if self.predicate else []
        if self.age_field:
            parts.append(f"age-off after {duration_text(self.age_s)} by field {self.age_field}")
        return ", ".join(parts) or "none"


NO_FILTER = RowFilter()


def age_field(found: RowFilter, schema: Schema) -> Field | None:
    """Return the time field of an age-off; None without one."""
    return next((field for field in schema.fields if field.id == found.age_field), None) if found.age_field else None


def ages_by_sort_key(found: RowFilter, mode: MergeMode, schema: Schema) -> bool:
    """Return whether rows are merged by the greatest sort key, and age off by it.

    Such a table does not accept partial rows: a recent one would have values of an old row until a compaction drops
    that.
    """
    return mode.by_sort_key and found.age_field == schema.sort_key[0].id


def check_age_field(change: AgeOff, schema: Schema) -> Field:
    """Return the time field of an age-off. Raises UsageError if no field has that name, or it is not a time."""
    field = schema.by_name.get(change.field or "")
    if field is None:
        raise Code.FILTER_INVALID(
            f"AgeOff: there is no field {change.field!r}; the fields are: {', '.join(schema.names)}"
            f"{did_you_mean(change.field or '', schema.names)}"
        )
    is_integer = pa.types.is_integer(field.type)
    if not (is_integer or pa.types.is_timestamp(field.type) or pa.types.is_date32(field.type)):
        raise Code.FILTER_INVALID(
            f"AgeOff: {field.name} is {field.type}; the field of an age-off is a timestamp, a date or an integer",
            column=field.name,
        )
    if is_integer != bool(change.unit):
        remedy = "give its unit, such as unit='ms'" if is_integer else "only an integer field takes a unit"
        raise Code.FILTER_INVALID(f"AgeOff: {field.name} is {field.type}; {remedy}", column=field.name)
    return field


def cut_in(field: Field, unit: str, cut_us: int) -> int:
    """Return the least value of a time field, as the integer in its column, that is not before a cut.

    ``cut_us`` is in microseconds since 1970.
    """
    if pa.types.is_date32(field.type):
        return cut_us // (_DAY_S * _US)
    per_second = PER_SECOND[unit or field.type.unit]
    return -(-cut_us * per_second // _US)


def filter_sql(found: RowFilter, schema: Schema, cut_us: int) -> str:
    """Return the predicate of all visible rows, in SQL; empty if every row is visible. A cut of 0 means none."""
    parts = [f"({found.predicate}\n)"] if found.predicate else []
    field = age_field(found, schema)
    if field is not None and cut_us:
        name, value = '"' + field.name.replace('"', '""') + '"', cut_in(field, found.unit, cut_us)
        is_young = f"{name} >= {_time_literal(field.type, value)}"
        parts.append(f"({is_young} OR {name} IS NULL)" if field.nullable else is_young)
    return " AND ".join(parts)


def _time_literal(kind: pa.DataType, value: int) -> str:
    if pa.types.is_date32(kind):
        return f"DATE '{pa.scalar(value, pa.int32()).cast(kind).as_py().isoformat()}'"
    if pa.types.is_timestamp(kind):
        zone = "None" if kind.tz is None else f'Some("{kind.tz}")'
        return f"arrow_cast({value}, 'Timestamp({_ARROW_UNITS[kind.unit]}, {zone})')"
    return str(value)


def forbidden(found: RowFilter, mode: MergeMode, schema: Schema) -> str | None:
    """Return why a table with this merge mode cannot have the filter; None if it can.

    A filter must give the same result before and after a merge. So all rows that are merged have the same values in its
    fields; or, if merged by the greatest sort key, a hidden row hides only rows that are hidden as well.
    """
    by_id = {field.id: field.name for field in schema.fields}
    age_name = by_id.get(found.age_field)
    used = [by_id[id_] for id_ in found.columns if id_ in by_id]
    if mode.keeps_all:
        return None
    allowed = mode.merge_key(schema)
    where = "row key fields" if allowed == schema.row_key_names else "key fields"
    for name in used:
        if name not in allowed:
            return (
                f"the filter names {name!r}, and on a table that merges rows by {mode} it may name {where} only "
                f"({', '.join(allowed)}): compaction would change what it hides"
            )
    if age_name is None or age_name in allowed:
        return None
    if ages_by_sort_key(found, mode, schema):
        return None
    return (
        f"rows cannot age off by {age_name!r} on a table that merges rows by {mode}: the field must be one of the "
        f'{where} ({", ".join(allowed)}), or the first sort key field by Latest(by="sort_key")'
    )


def stored_filter(found: RowFilter) -> dict[str, Any] | None:
    """Return the JSON form of a filter, None for none; :func:`filter_of` is the inverse."""
    return None if found == NO_FILTER else {**asdict(found), "columns": list(found.columns)}


def filter_of(document: Any) -> RowFilter:
    """Return the filter of a JSON form. Raises UsageError if it is malformed."""
    match document:
        case None:
            return NO_FILTER
        case {
            "predicate": str(predicate),
            "columns": list(columns),
            "age_field": age_field,
            "age_s": age_s,
            "unit": unit,
        }:
            numbers = all(map(is_whole, [*columns, age_field, age_s]))
            if numbers and unit in ("", *PER_SECOND) and (age_field > 0) == (age_s > 0) and (predicate or age_field):
                return RowFilter(predicate, tuple(columns), age_field, age_s, unit)
        case _:
            pass
    raise Code.FILTER_INVALID(f"not a filter: {shown(document)}")
