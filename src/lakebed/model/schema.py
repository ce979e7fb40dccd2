"""The schema of a table: row key fields, sort key fields, value fields. Pure.

Every field has an id that never changes and is never reused; data files have it as the Parquet ``field_id``. Rows are
sorted by row key, then sort key. Keys have one of the types of :mod:`lakebed.model.key_types` and are never null;
values are of any Arrow type that Parquet can store. A key field may be *generated*, that is computed from other fields
of its row whenever rows are added (:mod:`lakebed.write.conformer`).

As JSON a schema has a stored form, with ids, and one that people write. Stored: ``{"version": 1, "row_key": [{"id": 1,
"name": "k", "type": "string", "nullable": false}], …}``; a generated field has ``"generated": {"expression": SQL,
"inputs": [names]}`` as well. Written: ``{"row_key": {"k": "string"}, …}``, where a field is a type, ``{"type": …,
"nullable": …}`` or ``{"type": …, "generated": SQL}``. Each group of fields may have either form. Types are those of
:mod:`lakebed.model.types`.

Core types. :class:`Schema`, :class:`Field`, :class:`Generated`.

Errors. UsageError for an invalid schema, ExistsError for a table that differs from the one to be created.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import Code, UsageError
from lakebed.model import types
from lakebed.model.checks import check_flag, is_text, is_whole, repeated_names, shown
from lakebed.model.documents import UNREADABLE, load
from lakebed.model.foreign_errors import error_text
from lakebed.model.key_type import KEY_BYTES_MAX
from lakebed.model.key_types import KEY_TYPES, key_type
from lakebed.model.keys import KeyCodec
from lakebed.model.type_names import name_of
from lakebed.model.wording import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.model.key_type import KeyType

FIELD_ID_MAX = 2**31 - 1
"""Parquet field ids have 32 bits."""

FIRST_CHOSEN_ID = 2**29
"""Ids from here up to 2^30 were chosen by writers (:mod:`lakebed.model.state.transactions.schema_growth`)."""

HIDDEN_ID_MIN = 2**30
"""Ids from here on belong to hidden columns (:mod:`lakebed.model.row_kinds`)."""


@dataclass(frozen=True, slots=True)
class Generated:
    """A key field that is computed from other fields of its row: ``type`` is an Arrow type or its name, ``expression``
    is SQL, such as ``cast(ts as date)`` or ``user_id || day``.
    """

    type: Any
    expression: str

    def __post_init__(self) -> None:
        if not is_text(self.expression) or not self.expression.strip():
            raise Code.GENERATED_FIELD_INVALID(
                f"a generated field needs an SQL expression, not {shown(self.expression)}"
            )
        object.__setattr__(self, "type", types.parse(self.type))


@dataclass(frozen=True)
class Field:
    """One column: its id (unique in the table, never reused), name, Arrow type, and whether values may be null.

    ``expression`` computes a generated field from the fields named in ``inputs``; it is empty for other fields.
    ``dictionary``: whether reads return the values as a dictionary; ``type`` is the stored type of the values. A
    dictionary type passed as ``type`` sets both.
    """

    id: int
    name: str
    type: pa.DataType
    nullable: bool = False
    expression: str = ""
    inputs: tuple[str, ...] = ()
    dictionary: bool = False
    if TYPE_CHECKING:
        # Computed from the type, and no fields: they are neither stored nor sent.
        key_type: KeyType = dataclasses.field(init=False)
        """How values are encoded in keys; None for a type that key fields cannot have."""
        width: int = dataclasses.field(init=False)
        """Bytes of a fixed-width key encoding; 0 for text and binary."""
        is_text: bool = dataclasses.field(init=False)
        """Whether the type is a string."""
        stored_type: pa.DataType = dataclasses.field(init=False)
        """The type of arrays and files: ``type`` with nullable struct members (:func:`types.nullable_members`)."""

    def __post_init__(self) -> None:
        check_field(self.name)
        if not is_whole(self.id, 1, FIELD_ID_MAX):
            raise Code.SCHEMA_INVALID(f"field {self.name}: id = {shown(self.id)} must be a whole number above 0")
        if not isinstance(self.type, pa.DataType):
            raise Code.SCHEMA_INVALID(f"field {self.name}: {shown(self.type)} is not an Arrow type")
        check_flag("nullable", self.nullable)
        check_flag("dictionary", self.dictionary)
        if self.dictionary or pa.types.is_dictionary(self.type):
            plain = types.canonical(self.type)
            kept = pa.types.is_dictionary(types.of_field(pa.dictionary(types.INDEX, plain)))
            object.__setattr__(self, "dictionary", kept)
            object.__setattr__(self, "type", plain)
        if not is_text(self.expression) or not all(map(is_text, self.inputs)):
            raise Code.GENERATED_FIELD_INVALID(
                f"field {self.name}: {shown(self.expression)} is not an SQL expression over named fields"
            )
        # Computed once, because the encoding of every key uses them, and Arrow compares types by their names.
        found = key_type(self.type)
        object.__setattr__(self, "key_type", found)
        object.__setattr__(self, "width", found.width if found is not None else 0)
        object.__setattr__(self, "is_text", pa.types.is_string(self.type))
        object.__setattr__(self, "stored_type", types.nullable_members(self.type))

    @property
    def has_required_members(self) -> bool:
        """Whether structs among the values have members that are not nullable."""
        return bool(self.stored_type != self.type)

    @property
    def returned_type(self) -> pa.DataType:
        """The type as schemas and messages show it: that of the field, or a dictionary of it."""
        return pa.dictionary(types.INDEX, self.type) if self.dictionary else self.type

    @property
    def arrow(self) -> pa.Field:
        """The Arrow field as it is stored, with its id in the metadata that Parquet writers use."""
        return pa.field(self.name, self.stored_type, self.nullable, metadata={"PARQUET:field_id": str(self.id)})

    def parse(self, text: str) -> Any:
        """Parse a key value from a command line; see :meth:`lakebed.model.key_type.KeyType.parse`."""
        return self.key_type.parse(text, self.name)


@dataclass(frozen=True)
class Schema:
    """The fields of a table; immutable. ``row_key`` and ``sort_key`` map names to types, ``values`` likewise.

    A type is an Arrow type or its name (``"int64"``, ``"timestamp[us, tz=UTC]"``); values are nullable unless given as
    an Arrow field. ``version`` counts the schemas of one table, from 1. Raises UsageError for an invalid schema.
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
        if not is_whole(version, 1):
            raise Code.ARGUMENT_INVALID(f"version = {shown(version)}: the schemas of a table are counted from 1")
        object.__setattr__(self, "version", version)
        next_id = 1
        for name, group in (("row_key", row_key), ("sort_key", sort_key), ("values", values)):
            fields = _fields(group, next_id, nullable=name == "values")
            if name != "values":
                # Keys are compared and sorted as values.
                fields = tuple(dataclasses.replace(one, dictionary=False) if one.dictionary else one for one in fields)
            object.__setattr__(self, name, fields)
            next_id += len(fields)
        _check(self)

    @classmethod
    def from_arrow(cls, schema: pa.Schema, row_key: Sequence[str], sort_key: Sequence[str] = ()) -> Schema:
        """Make a schema from an Arrow schema; columns other than keys become values, and keep their nullability."""
        if not isinstance(schema, pa.Schema):
            raise Code.SCHEMA_INVALID(f"not an Arrow schema: {shown(schema)}")
        return cls.of(schema, key=row_key, sort_key=sort_key)

    @classmethod
    def of(cls, source: Any, *, key: str | Sequence[str], sort_key: str | Sequence[str] = ()) -> Schema:
        """Make a schema from a description of rows; ``key`` and ``sort_key`` name the key fields, all others become
        values.

        ``source`` is a dict of names and types, a class with annotations (a dataclass, a pydantic model, a NamedTuple,
        a TypedDict), an Arrow schema, or data that has one. A type is an Arrow type, its name, or one of Python's:
        ``int``, ``str``, ``datetime``, ``list[float]`` (docs/schemas.md). Values of a class are nullable if they are
        annotated ``T | None``, those of a dict in any case.

        Raises UsageError for a field whose type a table cannot have, or a missing key field.
        """
        from lakebed.model.schema_sources import groups_of

        return cls(*groups_of(source, key, sort_key))

    @classmethod
    def from_json(cls, text: str | Mapping[str, Any]) -> Schema:
        """Make a schema from a document, or its text: the inverse of :meth:`to_json` and :meth:`declaration`."""
        groups, version = _groups_from_json(text)
        return cls(*groups, version=version)

    def to_json(self) -> dict[str, Any]:
        """Return the schema as a JSON document, with ids."""
        return {"version": self.version} | _groups_to_json(self)

    def declaration(self) -> dict[str, Any]:
        """Return the schema as people write it, without ids: ``{"row_key": {"k": "string"}, "values": {"v":
        "double"}}``.

        A field is a type, or ``{"type": …, "nullable": false}`` for a value that is never null, or ``{"type": …,
        "generated": SQL}``. Groups without fields are left out.
        """
        return _declared_groups(self)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """All fields in the order of the columns: row key, sort key, values."""
        return (*self.row_key, *self.sort_key, *self.values)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all columns in order."""
        return tuple(f.name for f in self.fields)

    @cached_property
    def generated(self) -> tuple[Field, ...]:
        """The fields that are computed from others."""
        return tuple(f for f in self.fields if f.expression)

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
        """The Arrow schema of rows in this table, as they are stored; reads return :attr:`returned`."""
        return pa.schema([f.arrow for f in self.fields])

    @cached_property
    def dictionaries(self) -> frozenset[str]:
        """Names of the fields that reads return as dictionaries."""
        return frozenset(f.name for f in self.fields if f.dictionary)

    @cached_property
    def returned(self) -> pa.Schema:
        """The Arrow schema of the rows that reads return: that of the stored rows, with dictionaries."""
        return pa.schema([f.arrow.with_type(f.returned_type) if f.dictionary else f.arrow for f in self.fields])

    def arrow_of(self, columns: Iterable[str]) -> pa.Schema:
        """Return the Arrow schema of rows with these columns alone, in this order; a column may be repeated."""
        names = tuple(columns)
        return self.arrow if names == self.names else pa.schema([self.arrow.field(name) for name in names])

    @cached_property
    def codec(self) -> KeyCodec:
        """The key encoding of this schema."""
        return KeyCodec(self.row_key)

    @cached_property
    def order(self) -> KeyCodec:
        """The encoding of the sort order: row key and sort key fields together."""
        return KeyCodec((*self.row_key, *self.sort_key))

    def _repr_html_(self) -> str:
        from lakebed.model.html_tables import view

        return view(f"Schema, version {self.version}", self.html())

    def html(self) -> str:
        """Return an HTML table for notebooks, one row per field."""
        from lakebed.model.html_tables import grid

        roles = dict.fromkeys(self.row_key_names, "row key") | {f.name: "sort key" for f in self.sort_key}
        rows = [
            (f.name, name_of(f.returned_type), roles.get(f.name), "" if f.nullable else "not null", f.expression)
            for f in self.fields
        ]
        return grid(("field", "type", "key", "null", "generated"), rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the cached properties."""
        return partial(Schema, version=self.version), (self.row_key, self.sort_key, self.values)

    def project(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        """Return the given columns in the given order; all if None. Raises UsageError for unknown or no columns."""
        if columns is None:
            return self.names
        if isinstance(columns, str | bytes) or not isinstance(columns, Iterable):
            raise Code.ARGUMENT_INVALID(f"columns is a list of names, not {shown(columns)}")
        columns = tuple(columns)
        if not all(isinstance(name, str) for name in columns):
            raise Code.ARGUMENT_INVALID(f"columns is a list of names, not {shown(columns)}")
        unknown = [name for name in columns if name not in self.names]
        if unknown or not columns:
            wrong = f"unknown column {', '.join(map(repr, unknown))}" if unknown else "no column is named"
            meant = did_you_mean(unknown[0], self.names) if unknown else ""
            raise Code.COLUMN_UNKNOWN(f"{wrong}; columns: {', '.join(self.names)}{meant}")
        return columns


def check_field(name: Any) -> None:
    """Raise UsageError for an invalid name of a field. New fields must also pass :func:`types.check_name`."""
    if not is_text(name) or not name:
        raise Code.SCHEMA_INVALID(f"not a name for a field: {shown(name)}; give a text that is not empty")


def _fields(group: Mapping[str, Any] | Sequence[Field], next_id: int, *, nullable: bool) -> tuple[Field, ...]:
    if not isinstance(group, Mapping):
        if not isinstance(group, list | tuple) or not all(isinstance(field, Field) for field in group):
            raise Code.SCHEMA_INVALID(f"fields are names with types, such as {{'k': 'int64'}}, not {shown(group)}")
        return tuple(group)
    fields = []
    for offset, (name, kind) in enumerate(group.items()):
        if isinstance(kind, Generated):
            fields.append(Field(next_id + offset, name, kind.type, expression=kind.expression))
        elif isinstance(kind, pa.Field):
            fields.append(Field(next_id + offset, name, types.parse(kind.type), kind.nullable))
        elif isinstance(kind, str | pa.DataType):
            fields.append(Field(next_id + offset, name, types.parse(kind), nullable))
        else:
            from lakebed.model.schema_sources import resolved

            found, optional = resolved(kind, name)
            fields.append(Field(next_id + offset, name, types.parse(found), nullable or bool(optional)))
    return tuple(fields)


def _check(schema: Schema) -> None:
    if not schema.row_key:
        raise Code.SCHEMA_INVALID('a schema needs at least one row key field, such as row_key={"id": "int64"}')
    if repeated := repeated_names(schema.names):
        raise Code.SCHEMA_INVALID(f"column names must be unique: {', '.join(map(shown, repeated))}")
    if len({f.id for f in schema.fields}) != len(schema.fields):
        raise Code.SCHEMA_INVALID("field ids must be unique")
    for field in (*schema.row_key, *schema.sort_key):
        if key_type(field.type) is None:
            *names, last = [one.names for one in KEY_TYPES]
            raise Code.SCHEMA_INVALID(
                f"key field {field.name} is {name_of(field.type)}; keys are {', '.join(names)} and {last}"
            )
        if field.width > KEY_BYTES_MAX:
            raise Code.SCHEMA_INVALID(
                f"key field {field.name} is {field.type}; a key has at most {KEY_BYTES_MAX} bytes"
            )
        if field.nullable:
            raise Code.SCHEMA_INVALID(f"key field {field.name} cannot be nullable")
    for field in schema.values:
        types.check_value_type(field.name, field.type)
        if field.expression:
            raise Code.GENERATED_FIELD_INVALID(f"field {field.name} is a value; only key fields are generated")
    plain = {field.name for field in schema.fields if not field.expression}
    for field in schema.generated:
        unknown = [name for name in field.inputs if name not in plain]
        if unknown:
            raise Code.GENERATED_FIELD_INVALID(
                f"field {field.name} is generated from {', '.join(unknown)}, which is not a field"
            )


# -- documents ---------------------------------------------------------------------------------------------------------


_GROUPS = ("row_key", "sort_key", "values")


def _groups_from_json(text: str | Mapping[str, Any]) -> tuple[tuple[Any, Any, Any], Any]:
    """Return row key, sort key and values as for :class:`Schema`, and the version, from a document or its text."""
    try:
        document = load(text) if isinstance(text, str) else text
        row_key, sort_key, values = (document.get(name, {}) for name in _GROUPS)
        # People mistype names; a stored schema, which has its version, may have what a later Lakebed added.
        unknown = set() if "version" in document else set(document) - {*_GROUPS}
    except UNREADABLE as error:
        raise Code.SCHEMA_INVALID(
            f"not a schema: expected JSON with row_key, sort_key and values ({error_text(error)})"
        ) from error
    if unknown:
        names = ", ".join(sorted(map(shown, unknown)))
        raise Code.SCHEMA_INVALID(f"not part of a schema: {names}; use row_key, sort_key, values")
    return (_document_fields(row_key), _document_fields(sort_key), _document_fields(values)), document.get("version", 1)


def _groups_to_json(schema: Schema) -> dict[str, Any]:
    """Return the fields of a schema by group, with ids."""
    groups = (schema.row_key, schema.sort_key, schema.values)
    return {name: [_field_to_json(field) for field in group] for name, group in zip(_GROUPS, groups, strict=True)}


def _declared_groups(schema: Schema) -> dict[str, Any]:
    """Return the fields of a schema by group, as people write them, without empty groups."""
    groups = {
        "row_key": {f.name: _declared(f, nullable=False) for f in schema.row_key},
        "sort_key": {f.name: _declared(f, nullable=False) for f in schema.sort_key},
        "values": {f.name: _declared(f, nullable=True) for f in schema.values},
    }
    return {name: group for name, group in groups.items() if group}


def _field_from_json(document: Any) -> Field:
    """Return the field of a JSON document. A malformed document raises any exception
    (:func:`lakebed.model.documents.reading`).
    """
    computed = document.get("generated", {"expression": "", "inputs": ()})
    return Field(
        document["id"],
        document["name"],
        types.from_json(document["type"]),
        document["nullable"],
        computed["expression"],
        tuple(computed["inputs"]),
    )


def _field_to_json(field: Field) -> dict[str, Any]:
    """Return the JSON document of a field, with its id."""
    document = {
        "id": field.id,
        "name": field.name,
        "type": types.to_json(field.returned_type),
        "nullable": field.nullable,
    }
    computed = {"generated": {"expression": field.expression, "inputs": list(field.inputs)}} if field.expression else {}
    return document | computed


def _document_fields(group: Any) -> Any:
    try:
        if isinstance(group, dict):
            return {name: _declared_type(kind) for name, kind in group.items()}
        return [_field_from_json(document) for document in group]
    except UsageError:
        raise
    except UNREADABLE as error:
        raise Code.SCHEMA_INVALID(f"not a list of fields with id, name, type and nullable: {shown(group)}") from error


def _declared_type(document: Any) -> Any:
    match document:
        case {"type": kind, "generated": str(expression)}:
            return Generated(types.from_json(kind), expression)
        case {"type": kind, "nullable": bool(nullable)}:
            return pa.field("", types.from_json(kind), nullable)
        case {"type": kind, **others} if not others:
            return types.from_json(kind)
        case _:
            return types.from_json(document)


def _declared(field: Field, *, nullable: bool) -> Any:
    """Return the declared type of a field in a group whose fields are nullable, or not, by default."""
    kind = name_of(field.returned_type)
    if field.expression:
        return {"type": kind, "generated": field.expression}
    return kind if field.nullable is nullable else {"type": kind, "nullable": field.nullable}


# -- differences ------------------------------------------------------------------------------------------------------
# Of names, types, order and nullability. Ids and versions are not compared: a schema written by a user has others than
# that of a table.


def check_same(name: str, found: Schema, wanted: Schema, *others: str) -> None:
    """Raise ExistsError if the schema of a table differs from the wanted one, or there are other differences."""
    clauses = [*differences(found, wanted), *others]
    if clauses:
        raise Code.TABLE_EXISTS(
            f"a table named {name!r} exists already, and it differs: {'; '.join(clauses)}. Change it (Table.alter, "
            "`lakebed table alter`), or choose another name",
            table=name,
        )


def differences(found: Schema, wanted: Schema) -> list[str]:
    """Return each difference as a clause about ``found``, such as ``value v is double, not int64``; empty if none."""
    return [
        *_of_keys("row key", found.row_key, wanted.row_key),
        *_of_keys("sort key", found.sort_key, wanted.sort_key),
        *_of_values(found, wanted),
    ]


def _of_keys(role: str, found: Sequence[Field], wanted: Sequence[Field]) -> list[str]:
    names, wanted_names = ([field.name for field in group] for group in (found, wanted))
    if names != wanted_names:
        return [f"the {role} is ({', '.join(names)}), not ({', '.join(wanted_names)})"]
    return [clause for pair in zip(found, wanted, strict=True) for clause in _of_fields(f"{role} field", *pair)]


def _of_values(found: Schema, wanted: Schema) -> list[str]:
    there, asked = ({field.name: field for field in one.values} for one in (found, wanted))
    clauses = [f"there is no value {name}" for name in asked if name not in there]
    clauses += [f"there is a value {name} as well" for name in there if name not in asked]
    both = [name for name in asked if name in there]
    return clauses + [clause for name in both for clause in _of_fields("value", there[name], asked[name])]


def _of_fields(role: str, found: Field, wanted: Field) -> list[str]:
    clauses = []
    if found.returned_type != wanted.returned_type:
        clauses.append(f"{role} {found.name} is {name_of(found.returned_type)}, not {name_of(wanted.returned_type)}")
    if found.nullable != wanted.nullable:
        clauses.append(f"{role} {found.name} may {'' if found.nullable else 'not '}be null")
    if found.expression != wanted.expression:
        clauses.append(f"{role} {found.name} is {_how(found)}, not {_how(wanted)}")
    return clauses


def _how(field: Field) -> str:
    return f"generated by {field.expression!r}" if field.expression else "written"
