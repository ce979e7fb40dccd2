"""Creates and drops tables, and changes their schemas and settings. Pure.

A change affects metadata alone: no file is rewritten. Files contain the ids of their columns, and an id always means
the same field, so a reader finds each field of its schema in any file, whatever its name was. If a file lacks the
field, its rows are null (so an added field is nullable). If the file's type is narrower, a cast keeps every value
(:data:`lakebed.model.types.WIDENING` lists these casts). A name that was dropped and added again is another field.

Key fields may only be renamed: rows are sorted by them, and partitions are cut by their encoding. Fields from which key
fields are generated keep their name and type, so an expression means the same for all rows of a table.

Changes are resolved against the latest schema when they are committed. All schema versions are kept: a writer or a job
that began earlier may still add files of any of them. A field id that any version used is never used again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import Struct, structs

from lakebed.errors import Code
from lakebed.model import types
from lakebed.model.checks import shown
from lakebed.model.merge_modes import KEEP_ALL, MergeMode, mode_of
from lakebed.model.partitions import Partitions
from lakebed.model.published_types import unpublished
from lakebed.model.schema import FIRST_CHOSEN_ID, Field, Schema, check_field
from lakebed.model.settings import ICEBERG_FORMATS
from lakebed.model.state.fields import Hex, Id, SettingChanges, Settings, StoredAsIs
from lakebed.model.state.table_state import ViewSource
from lakebed.model.state.transactions.filter_changes import unfollowed
from lakebed.model.state.transactions.merge_changes import unfit
from lakebed.model.state.transactions.resolution import Description, Rejected, refused_change
from lakebed.model.type_names import words
from lakebed.model.wording import count_text, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.errors import Facts
    from lakebed.model.state.reference_lists import ReferenceCounts, SidecarData, Sidecars
    from lakebed.model.state.table_state import TableState


@dataclass(frozen=True, slots=True)
class AddField:
    """A new value field after the others; null in all existing rows. ``type`` is an Arrow type or its name. A table
    that aggregates rows needs the field's ``function`` (:class:`~lakebed.model.merge_modes.Aggregate`).
    """

    name: str
    type: Any
    function: str = ""

    def __post_init__(self) -> None:
        types.check_name(self.name)
        object.__setattr__(self, "type", types.parse(self.type))
        types.check_new_type(self.name, self.type)


@dataclass(frozen=True, slots=True)
class DropField:
    """Drop a value field: it is not read any more. Compactions drop its bytes when they rewrite files."""

    name: str

    def __post_init__(self) -> None:
        check_field(self.name)


@dataclass(frozen=True, slots=True)
class RenameField:
    """Rename a field, key or value."""

    name: str
    new_name: str

    def __post_init__(self) -> None:
        check_field(self.name)
        types.check_name(self.new_name)


@dataclass(frozen=True, slots=True)
class WidenField:
    """Widen the type of a value field, keeping every value (:func:`lakebed.model.types.can_become`)."""

    name: str
    type: Any

    def __post_init__(self) -> None:
        check_field(self.name)
        object.__setattr__(self, "type", types.parse(self.type))


@dataclass(frozen=True, slots=True)
class AllowNulls:
    """Make a value field nullable."""

    name: str

    def __post_init__(self) -> None:
        check_field(self.name)


SchemaChange = AddField | DropField | RenameField | WidenField | AllowNulls


def check_changes(changes: Sequence[Any]) -> tuple[SchemaChange, ...]:
    """Return the changes if they are schema changes and there is at least one. Raises UsageError."""
    others = [change for change in changes if not isinstance(change, SchemaChange)]
    if others or not changes:
        mention = f", not {shown(others[0])}" if others else ""
        raise Code.ARGUMENT_INVALID(
            "alter takes AddField, DropField, RenameField, WidenField and AllowNulls values, or one of SetMerge, "
            f"SetFilter and AgeOff{mention}"
        )
    return tuple(changes)


def describe(change: SchemaChange) -> str:
    """Describe the change in words."""
    match change:
        case AddField():
            return f"add {change.name}: {words(change.type)}"
        case DropField():
            return f"drop {change.name}"
        case RenameField():
            return f"rename {change.name} to {change.new_name}"
        case WidenField():
            return f"widen {change.name} to {words(change.type)}"
        case AllowNulls():
            return f"allow nulls in {change.name}"
        case _:
            assert_never(change)


class ProposeSchema(Struct, frozen=True):
    """Changes of the schema, made in order; all of them, or none."""

    changes: tuple[SchemaChange, ...]

    def resolve(self, state: TableState) -> AlterSchema | Rejected:
        """Return the next schema of the table, with all changes made in order."""
        if refused := refused_change(state):
            return refused
        newest = state.schemas[-1]
        used = {field.id for schema in state.schemas for field in schema.fields}
        # Ids that writers chose are ignored: they may be anywhere above.
        next_id = 1 + max(id_ for id_ in used if id_ < FIRST_CHOSEN_ID)
        schema = Schema(newest.row_key, newest.sort_key, newest.values, version=newest.version + 1)
        for change in self.changes:
            if refused := _refusal(schema, change):
                return refused
            schema = _changed(schema, change, next_id)
            next_id += isinstance(change, AddField)
        if schema.fields == newest.fields:
            return Rejected(Code.SCHEMA_CHANGE_REJECTED, "the changes leave the schema as it is")
        functions = {change.name: change.function for change in self.changes if isinstance(change, AddField)}
        merge = state.merge.with_fields(newest, schema, functions)
        refused = (
            unfit(merge, schema)
            or unfollowed(state.row_filter, newest, schema)
            or unpublishable(state, schema)
            or _reindexed(state, newest, schema)
        )
        return refused or AlterSchema(schema, tuple(map(describe, self.changes)), merge)


def unpublishable(state: TableState, schema: Schema) -> Rejected | None:
    """Return why a schema cannot be that of a table which is published; None if it can, or the table is not."""
    refused = unpublished(schema) if state.settings.get("publish") in ICEBERG_FORMATS else None
    if refused is None:
        return None
    return Rejected(Code.SCHEMA_CHANGE_REJECTED, f"the table is published as Iceberg: {refused}; or set publish=none")


def _reindexed(state: TableState, before: Schema, schema: Schema) -> Rejected | None:
    """Return why an indexed field cannot be dropped or widened; None if none is."""
    now = {field.id: field.type for field in schema.fields}
    for index in state.indexes:
        for field in before.fields:
            if field.id in index.fields and now.get(field.id) != field.type:
                text = f"an index is of {field.name}: drop the index first (`lakebed index list` names it)"
                return Rejected(Code.INDEX_UNFIT, text, {"column": field.name})
    return None


def _refusal(schema: Schema, change: SchemaChange) -> Rejected | None:
    """Return why the change cannot be made to this schema; None if it can."""
    if isinstance(change, AddField):
        return _taken(schema, change.name)
    facts: Facts = {"column": change.name}
    field = schema.by_name.get(change.name)
    if field is None:
        names = ", ".join(schema.names)
        text = f"there is no field {change.name!r}; the fields are: {names}{did_you_mean(change.name, schema.names)}"
        return Rejected(Code.SCHEMA_CHANGE_REJECTED, text, facts)
    used = [computed.name for computed in schema.generated if change.name in computed.inputs]
    if used and not isinstance(change, AllowNulls):
        text = f"field {used[0]} is generated from {change.name}, and rows that are there would no longer agree with it"
        return Rejected(Code.SCHEMA_CHANGE_REJECTED, text, facts)
    if isinstance(change, RenameField):
        return _taken(schema, change.new_name)
    if change.name in schema.sort_names:
        text = f"{change.name} is a key field, by which rows are sorted; key fields can only be renamed"
        return Rejected(Code.SCHEMA_CHANGE_REJECTED, text, facts)
    match change:
        case WidenField():
            if types.can_become(field.returned_type, change.type):
                return None
            wider = ", ".join(_wider(field.type))
            text = f"{change.name} is {words(field.returned_type)} and cannot become {words(change.type)}"
            text += f", only {wider}" if wider else f"; {field.type} cannot be widened"
            return Rejected(Code.SCHEMA_CHANGE_REJECTED, text, facts)
        case AllowNulls():
            text = f"{change.name} may be null already"
            return Rejected(Code.SCHEMA_CHANGE_REJECTED, text, facts) if field.nullable else None
        case DropField():
            return None
        case _:
            assert_never(change)


def _taken(schema: Schema, name: str) -> Rejected | None:
    if name not in schema.by_name:
        return None
    return Rejected(Code.SCHEMA_CHANGE_REJECTED, f"there is a field {name!r} already", {"column": name})


def _wider(kind: pa.DataType) -> list[str]:
    if (digits := types.wider_decimals(kind)) is not None:
        return [f"decimals of {digits} digits or more with the scale {kind.scale}"]
    return [name for ladder in types.WIDENING for name in ladder if types.can_become(kind, types.parse(name))]


def _changed(schema: Schema, change: SchemaChange, next_id: int) -> Schema:
    match change:
        case AddField():
            added = Field(next_id, change.name, change.type, nullable=True)
            return Schema(schema.row_key, schema.sort_key, (*schema.values, added), version=schema.version)
        case DropField():
            kept = tuple(field for field in schema.values if field.name != change.name)
            return Schema(schema.row_key, schema.sort_key, kept, version=schema.version)
        case RenameField():
            return _with(schema, replace(schema.by_name[change.name], name=change.new_name))
        case WidenField():
            return _with(schema, replace(schema.by_name[change.name], type=change.type, dictionary=False))
        case AllowNulls():
            return _with(schema, replace(schema.by_name[change.name], nullable=True))
        case _:
            assert_never(change)


def _with(schema: Schema, changed: Field) -> Schema:
    """Return the schema with the field replaced that has the same id."""
    groups = [
        tuple(changed if field.id == changed.id else field for field in group)
        for group in (schema.row_key, schema.sort_key, schema.values)
    ]
    return Schema(*groups, version=schema.version)


class AlterSchema(Struct, frozen=True):
    """The table's next schema. ``changes`` describe how it arose; ``merge`` is the mode with its field names."""

    schema: Schema
    changes: tuple[str, ...]
    merge: MergeMode = KEEP_ALL

    def apply(self, state: TableState) -> TableState:
        """Return the state with the schema as the latest; older ones are kept."""
        return structs.replace(state, schemas=append_schema(state.schemas, self.schema), merge=self.merge)

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the changes."""
        return Description(", ".join(self.changes))

    def document(self, _sidecars: Sidecars) -> AlterSchemaDocument:
        """Return the document that the log stores."""
        return AlterSchemaDocument(self.schema.to_json(), self.changes, self.merge.document())


class AlterSchemaDocument(Struct, frozen=True, tag_field="type", tag="alter_schema", omit_defaults=True):
    """The stored document; see docs/format.md. A schema validates itself (:mod:`lakebed.model.schema`)."""

    schema: dict[str, Any]
    changes: tuple[str, ...]
    merge: dict[str, Any] | None = None

    def transaction(self, _sidecars: SidecarData) -> AlterSchema:
        """Return the transaction of this document."""
        return AlterSchema(Schema.from_json(self.schema), self.changes, mode_of(self.merge))


def append_schema(schemas: tuple[Schema, ...], schema: Schema) -> tuple[Schema, ...]:
    """Return all schemas with the next one. Raises DamagedError if it could not read the files of an earlier one."""
    if schema.version != len(schemas) + 1:
        raise Code.TRANSACTION_IMPOSSIBLE(
            f"schema version {schema.version} follows version {len(schemas)}", version=schema.version
        )
    if schemas:
        before = {field.id: field for field in schemas[-1].fields}
        used = {field.id for earlier in schemas for field in earlier.fields}
        if _keys(schema) != _keys(schemas[-1]):
            raise Code.TRANSACTION_IMPOSSIBLE(
                f"schema version {schema.version} has other keys than before", version=schema.version
            )
        for field in schema.values:
            if not _follows(field, before.get(field.id), used):
                raise Code.TRANSACTION_IMPOSSIBLE(
                    f"schema version {schema.version}: files of earlier versions cannot be read as field {field.name}",
                    version=schema.version,
                )
    return (*schemas, schema)


def _keys(schema: Schema) -> list[list[tuple[Any, ...]]]:
    return [
        [(field.id, field.type, field.expression, field.inputs) for field in group]
        for group in (schema.row_key, schema.sort_key)
    ]


def _follows(field: Field, before: Field | None, used: set[int]) -> bool:
    if before is None:
        return field.nullable and field.id not in used
    same_or_wider = field.type == before.type or types.can_become(before.type, field.type)
    return same_or_wider and field.nullable >= before.nullable


# -- tables -----------------------------------------------------------------------------------------------------


class CreateTable(Struct, frozen=True):
    """Entry 1 of every table's log."""

    table: str
    schema: Schema
    settings: Mapping[str, Any]
    boundaries: tuple[bytes, ...]
    merge: MergeMode = KEEP_ALL
    view: ViewSource | None = None

    def resolve(self, state: TableState) -> CreateTable | Rejected:
        """Return self if the log is empty."""
        return Rejected(Code.PROPOSAL_INVALID, "the table exists already") if state.version else self

    def apply(self, state: TableState) -> TableState:
        """Return the state of an empty table."""
        return structs.replace(
            state,
            table=self.table,
            schemas=append_schema((), self.schema),
            settings=dict(self.settings),
            partitions=Partitions.at(self.boundaries),
            merge=self.merge,
            view=self.view,
        )

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the number of partitions."""
        return Description(count_text(len(self.boundaries) + 1, "partition"))

    def document(self, _sidecars: Sidecars) -> CreateTableDocument:
        """Return the document that the log stores."""
        boundaries = [boundary.hex() for boundary in self.boundaries]
        merge = self.merge.document()
        return CreateTableDocument(self.table, self.schema.to_json(), dict(self.settings), boundaries, merge, self.view)


class CreateTableDocument(Struct, frozen=True, tag_field="type", tag="create_table", omit_defaults=True):
    """The stored document; docs/format.md describes its fields."""

    table: Id
    schema: dict[str, Any]
    settings: Settings
    boundaries: list[Hex]
    merge: dict[str, Any] | None = None
    view: ViewSource | None = None

    def transaction(self, _sidecars: SidecarData) -> CreateTable:
        """Return the transaction of this document."""
        boundaries = tuple(map(bytes.fromhex, self.boundaries))
        schema, merge = Schema.from_json(self.schema), mode_of(self.merge)
        return CreateTable(self.table, schema, self.settings, boundaries, merge, self.view)


class AlterSettings(StoredAsIs, frozen=True, tag="alter_settings"):
    """Change the table's own settings; None resets one to the instance's default."""

    changes: SettingChanges

    def resolve(self, state: TableState) -> AlterSettings | Rejected:
        """Return self, unless the table has fields that cannot be published."""
        publish = self.changes.get("publish")
        refused = unpublished(state.created) if publish in ICEBERG_FORMATS else None
        return Rejected(Code.SETTING_REJECTED, f"publish={publish}: {refused}") if refused else self

    def apply(self, state: TableState) -> TableState:
        """Return the state with the changed settings."""
        merged = {**state.settings, **self.changes}
        return structs.replace(state, settings={name: value for name, value in merged.items() if value is not None})

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report the new values."""
        return Description(
            ", ".join(f"{name}={'' if value is None else value}" for name, value in self.changes.items())
        )


class DropTable(StoredAsIs, frozen=True, tag="drop_table"):
    """The table's last entry; every later proposal is rejected."""

    def resolve(self, _state: TableState) -> DropTable:
        """Return self."""
        return self

    def apply(self, state: TableState) -> TableState:
        """Return the state of a dropped table."""
        return structs.replace(state, dropped=True)

    def describe(self, _added: ReferenceCounts, _dropped: ReferenceCounts) -> Description:
        """Report nothing: the dropped references and their rows are not on record."""
        return Description(rows_removed=None, references_dropped=None)
