"""The shape of a table: row key fields, sort key fields, value fields, and how foreign rows are made to fit.

Every field has an id, given out from day one and kept for life, which data files carry as the Parquet ``field_id``.
Rows are sorted by row key, then sort key. Keys are int32, int64, string, binary, date32 or timestamp and never null;
values are any Arrow type that Parquet holds.

:func:`conform` is the only way that rows come in. It allows what loses nothing (column order, another layout of the
same type, a wider number, a finer time unit) and refuses the rest, naming the column, both types and the source.
Pure: no I/O.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed import types
from lakebed.errors import BadKeyError, SchemaMismatchError, UsageError
from lakebed.keys import KEY_BYTES_MAX, KeyCodec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Field:
    """One column: its id (unique in the table, never reused), name, Arrow type, and whether values may be null."""

    id: int
    name: str
    type: pa.DataType
    nullable: bool = False

    @property
    def width(self) -> int:
        """Bytes of a fixed-width key encoding; 0 for text and bytes."""
        return types.KEY_WIDTHS.get(types.key_kind(self.type) or "", 0)

    @property
    def is_text(self) -> bool:
        """A string field."""
        return bool(pa.types.is_string(self.type))

    @property
    def arrow(self) -> pa.Field:
        """The Arrow field, with its id where Parquet writers look for it."""
        return pa.field(self.name, self.type, self.nullable, metadata={"PARQUET:field_id": str(self.id)})

    def to_integer(self, value: dt.date) -> int:
        """The column's integer for a date or datetime. Raises BadKeyError if the field cannot hold it exactly."""
        if pa.types.is_timestamp(self.type) and isinstance(value, dt.datetime):
            return self._timestamp_integer(value)
        if pa.types.is_date32(self.type) and not isinstance(value, dt.datetime):
            return (value - _EPOCH_DAY).days
        raise BadKeyError(
            f"key field {self.name} is {self.type}; {value!r} is {type(value).__name__}", column=self.name
        )

    def _timestamp_integer(self, value: dt.datetime) -> int:
        if (value.tzinfo is None) != (self.type.tz is None):
            wanted = "a datetime with a time zone" if self.type.tz else "a datetime without a time zone"
            raise BadKeyError(
                f"key field {self.name} is {self.type} and needs {wanted}, not {value!r}", column=self.name
            )
        since = value - (_EPOCH if value.tzinfo else _EPOCH.replace(tzinfo=None))
        microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        number, rest = divmod(microseconds * _PER_SECOND[self.type.unit], 1_000_000)
        if rest:
            raise BadKeyError(f"key field {self.name}: {value!r} is finer than {self.type}", column=self.name)
        return number

    def from_integer(self, value: int) -> Any:
        """What a user would write for the column's integer: a date, a datetime (in UTC if the type has a zone), or the
        integer itself, also where Python's types cannot hold it: finer than microseconds, or out of years 1 to 9999.
        """
        try:
            if pa.types.is_date32(self.type):
                return _EPOCH_DAY + dt.timedelta(days=value)
            if pa.types.is_timestamp(self.type):
                microseconds, rest = divmod(value * 1_000_000, _PER_SECOND[self.type.unit])
                epoch = _EPOCH if self.type.tz else _EPOCH.replace(tzinfo=None)
                return value if rest else epoch + dt.timedelta(microseconds=microseconds)
        except OverflowError:
            return value
        return value

    def parse(self, text: str) -> Any:
        """A key value from a command line: a number, text, hex digits for binary, or an ISO 8601 date or time."""
        try:
            match types.key_kind(self.type):
                case "int32" | "int64":
                    return int(text)
                case "date":
                    return dt.date.fromisoformat(text)
                case "timestamp":
                    moment = dt.datetime.fromisoformat(text)
                    return moment.replace(tzinfo=dt.UTC) if self.type.tz and moment.tzinfo is None else moment
                case "binary":
                    return bytes.fromhex(text)
                case _:
                    return text
        except ValueError as error:
            raise BadKeyError(
                f"key field {self.name} is {self.type}: cannot read {text!r}", column=self.name
            ) from error


@dataclass(frozen=True)
class Schema:
    """The fields of a table; immutable. ``row_key`` and ``sort_key`` map names to types, ``values`` likewise.

    A type is an Arrow type or its name (``"int64"``, ``"timestamp[us, tz=UTC]"``); values are nullable unless given as
    an Arrow field. ``version`` counts the schemas of one table, from 1. Raises UsageError for a schema that cannot be
    kept.
    """

    row_key: tuple[Field, ...]
    sort_key: tuple[Field, ...]
    values: tuple[Field, ...]
    version: int

    def __init__(
        self,
        row_key: Mapping[str, Any] | Sequence[Field],
        sort_key: Mapping[str, Any] | Sequence[Field] = (),
        values: Mapping[str, Any] | Sequence[Field] = (),
        *,
        version: int = 1,
    ) -> None:
        object.__setattr__(self, "version", version)
        next_id = 1
        for name, group in (("row_key", row_key), ("sort_key", sort_key), ("values", values)):
            fields = _fields(group, next_id, nullable=name == "values")
            object.__setattr__(self, name, fields)
            next_id += len(fields)
        _check(self)

    @classmethod
    def from_arrow(cls, schema: pa.Schema, row_key: Sequence[str], sort_key: Sequence[str] = ()) -> Schema:
        """A schema from an Arrow schema; columns that are not keys become values, as nullable as they are there."""
        for name in (*row_key, *sort_key):
            if schema.get_field_index(name) < 0:
                raise UsageError(f"key column {name!r} is not in the data; its columns: {', '.join(schema.names)}")
        keys = {*row_key, *sort_key}
        plain = {name: types.canonical(schema.field(name).type) for name in keys}
        values = {f.name: f.with_type(types.canonical(f.type)) for f in schema if f.name not in keys}
        if len(values) + len(keys) != len(schema):
            raise UsageError("duplicate column names: " + ", ".join(sorted(_duplicates(schema.names))))
        return cls({n: plain[n] for n in row_key}, {n: plain[n] for n in sort_key}, values)

    @classmethod
    def from_json(cls, text: str | Mapping[str, Any]) -> Schema:
        """The inverse of :meth:`to_json`; also takes the short form ``{"row_key": {"k": "string"}, …}``."""
        try:
            document = json.loads(text) if isinstance(text, str) else text
            groups = {name: document.get(name, {}) for name in ("row_key", "sort_key", "values")}
        except (ValueError, AttributeError) as error:
            raise UsageError(f"not a schema: expected JSON with row_key, sort_key and values ({error})") from error
        strangers = set(document) - set(groups) - {"version"}
        if strangers:
            raise UsageError(f"not part of a schema: {', '.join(sorted(strangers))}; use row_key, sort_key, values")
        version = document.get("version", 1)
        if not isinstance(version, int) or version < 1:
            raise UsageError(f"version = {version!r}: the schemas of a table are counted from 1")
        return cls(*(_fields_from_json(group) for group in groups.values()), version=version)

    def to_json(self) -> dict[str, Any]:
        """A JSON document that holds everything, ids included."""
        return {"version": self.version} | {
            name: [{"id": f.id, "name": f.name, "type": types.to_json(f.type), "nullable": f.nullable} for f in group]
            for name, group in (("row_key", self.row_key), ("sort_key", self.sort_key), ("values", self.values))
        }

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """All fields in the order of the columns: row key, sort key, values."""
        return (*self.row_key, *self.sort_key, *self.values)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all columns in order."""
        return tuple(f.name for f in self.fields)

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """All fields by name."""
        return {f.name: f for f in self.fields}

    @cached_property
    def row_key_names(self) -> tuple[str, ...]:
        """Names of the row key columns."""
        return tuple(f.name for f in self.row_key)

    @cached_property
    def sort_names(self) -> tuple[str, ...]:
        """Names of the columns that rows are sorted by: row key, then sort key."""
        return tuple(f.name for f in (*self.row_key, *self.sort_key))

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of rows in this table."""
        return pa.schema([f.arrow for f in self.fields])

    @cached_property
    def codec(self) -> KeyCodec:
        """The key encoding of this schema."""
        return KeyCodec(self.row_key)

    def __reduce__(self) -> tuple[Any, ...]:
        """Cached parts do not travel."""
        return partial(Schema, version=self.version), (self.row_key, self.sort_key, self.values)

    def project(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        """The asked columns in the asked order; all if None. Raises UsageError for a stranger or none at all."""
        if columns is None:
            return self.names
        if isinstance(columns, str):
            raise UsageError(f"columns is a list of names, not the text {columns!r}")
        strangers = [name for name in columns if name not in self.names]
        if strangers or not columns:
            raise UsageError(f"no column {', '.join(map(repr, strangers))}; the columns are: {', '.join(self.names)}")
        return tuple(columns)


def _duplicates(names: Sequence[str]) -> set[str]:
    return {name for name in names if list(names).count(name) > 1}


def _fields(group: Mapping[str, Any] | Sequence[Field], next_id: int, *, nullable: bool) -> tuple[Field, ...]:
    if not hasattr(group, "items"):
        return tuple(group)
    fields = []
    for offset, (name, kind) in enumerate(group.items()):
        if isinstance(kind, pa.Field):
            fields.append(Field(next_id + offset, name, kind.type, kind.nullable))
        else:
            fields.append(Field(next_id + offset, name, types.parse(kind), nullable))
    return tuple(fields)


def _fields_from_json(group: Any) -> Any:
    if isinstance(group, dict):
        return {name: types.from_json(kind) for name, kind in group.items()}
    try:
        return [Field(f["id"], f["name"], types.from_json(f["type"]), f["nullable"]) for f in group]
    except (KeyError, TypeError) as error:
        raise UsageError(f"not a list of fields with id, name, type and nullable: {group!r}") from error


def _check(schema: Schema) -> None:
    if not schema.row_key:
        raise UsageError("a schema needs at least one row key field")
    repeated = _duplicates(schema.names) | {n for n in schema.names if not n}
    if repeated:
        raise UsageError(f"column names must be unique and not empty: {', '.join(map(repr, sorted(repeated)))}")
    if len({f.id for f in schema.fields}) != len(schema.fields):
        raise UsageError("field ids must be unique")
    for field in (*schema.row_key, *schema.sort_key):
        if types.key_kind(field.type) is None:
            raise UsageError(
                f"key field {field.name} is {field.type}; keys are int32, int64, string, binary, date32, timestamp"
            )
        if field.nullable:
            raise UsageError(f"key field {field.name} cannot be nullable")
    for field in schema.values:
        types.check_value_type(field.name, field.type)


def conform(batch: pa.RecordBatch, schema: Schema, source: str) -> pa.RecordBatch:
    """The same rows as ``schema.arrow`` has them; ``source`` names where they came from in errors.

    Raises SchemaMismatchError for a missing, extra or duplicate column, a type that would lose something, or a null
    where none is allowed; BadKeyError for a key that is too long.
    """
    check_columns(batch.schema, schema, source)
    columns = []
    for field in schema.fields:
        column = batch.column(field.name)
        if column.type != field.type:
            column = _cast(column, field, source)
        if column.null_count and not field.nullable:
            raise SchemaMismatchError(
                f"{source}: column {field.name} has {column.null_count} nulls; it is not nullable"
                + (" (keys never are)" if field.name in schema.sort_names else ""),
                column=field.name,
                source=source,
            )
        columns.append(column)
    rows = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    _check_key_lengths(rows, schema, source)
    return rows


def check_columns(found: pa.Schema, schema: Schema, source: str) -> None:
    """Raise SchemaMismatchError unless the columns can be made to fit, before any row is read."""
    missing = [name for name in schema.names if name not in found.names]
    extra = [name for name in found.names if name not in schema.names]
    twice = sorted(_duplicates(found.names))
    for what, names in (("missing", missing), ("extra", extra), ("duplicate", twice)):
        if names:
            raise SchemaMismatchError(
                f"{source}: {what} column{'s' if len(names) > 1 else ''} {', '.join(names)}; "
                f"the table has {', '.join(schema.names)}",
                columns=names,
                source=source,
            )
    for field in schema.fields:
        kind = found.field(field.name).type
        if not types.widens(kind, field.type):
            raise SchemaMismatchError(
                f"{source}: column {field.name} is {kind}; the table has {field.type}, which cannot keep every value",
                column=field.name,
                source=source,
                found=str(kind),
                expected=str(field.type),
            )


def fits(found: pa.Schema, schema: Schema) -> bool:
    """Whether :func:`check_columns` would let the columns pass."""
    try:
        check_columns(found, schema, "")
    except SchemaMismatchError:
        return False
    return True


def _cast(column: pa.Array, field: Field, source: str) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(
            f"{source}: column {field.name} is {column.type} and holds a value that {field.type} cannot ({error})",
            column=field.name,
            source=source,
        ) from error


def _check_key_lengths(rows: pa.RecordBatch, schema: Schema, source: str) -> None:
    import pyarrow.compute as pc

    texts = [f for f in schema.row_key if not f.width]
    # Escaping at most doubles a text, so most batches are cleared without encoding a key.
    longest = sum((pc.max(pc.binary_length(rows.column(f.name))).as_py() or 0) for f in texts)
    if 2 * longest + 12 * len(schema.row_key) <= KEY_BYTES_MAX:
        return
    lengths = pc.binary_length(schema.codec.encode_columns(rows))
    row = pc.index(pc.greater(lengths, KEY_BYTES_MAX), pa.scalar(value=True)).as_py()
    if row >= 0:
        raise BadKeyError(
            f"{source}: the key in row {row} of a batch is {lengths[row]} bytes when encoded; "
            f"at most {KEY_BYTES_MAX} are allowed. It begins {str(rows.column(texts[0].name)[row])[:40]!r}",
            source=source,
            row=row,
        )
