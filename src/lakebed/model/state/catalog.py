"""The catalog: the tables of an instance by name, and the instance's defaults of settings.

The catalog is a log of its own, with the same rules as a table's log. A table is addressed by id, so a rename moves
nothing. A table is created by writing entry 1 of its own log, and then registering its name here. If another creation
took the name first, the new log is an orphan. Before orphan logs are deleted, a fence refuses the registration of every
table whose creation began earlier. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, assert_never

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from lakebed.errors import Code
from lakebed.model.documents import UNREADABLE, reading
from lakebed.model.features import READERS, RequiredFeatures, require_features
from lakebed.model.operations import operations_named
from lakebed.model.state.fields import (
    FeatureName,
    Id,
    OperationName,
    SettingChanges,
    Settings,
    TableName,
    Whole,
    checked,
    decode,
)
from lakebed.model.state.transactions.required_features import RequireFeatures
from lakebed.model.state.transactions.resolution import Rejected, Repeated


class CatalogTable(Struct, frozen=True):
    """A table's name, whether maintenance runs on it (online), and its operations that are paused."""

    id: str
    name: str
    online: bool = True
    paused: frozenset[str] = frozenset()


class CatalogState(Struct, frozen=True, dict=True):
    """All tables of an instance by id, the defaults of settings, and the features that the instance requires, at one
    version of the catalog's log.
    """

    version: int = 0
    tables: Mapping[str, CatalogTable] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    creations_from: int = 0
    features: RequiredFeatures = field(default_factory=dict)

    def named(self, name: str) -> CatalogTable | None:
        """Return the table with the name; None if there is none."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> Mapping[str, CatalogTable]:
        return {table.name: table for table in self.tables.values()}


class RegisterTable(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="register_table"):
    """Register the name of a table whose log exists. ``base_version`` is the catalog's version when the creation began.

    ``online``: whether splitting and compaction run on the table from the start.
    """

    table: Id
    name: TableName
    base_version: Whole
    online: bool = True


class RenameTable(Struct, frozen=True, tag_field="type", tag="rename_table"):
    """Rename a table."""

    table: Id
    name: TableName


class PurgeTable(Struct, frozen=True, tag_field="type", tag="purge_table"):
    """Remove a table from the catalog, before the last entry of its log is written."""

    table: Id


class SetOnline(Struct, frozen=True, tag_field="type", tag="set_online"):
    """Switch splitting and compaction of a table on or off."""

    table: Id
    online: bool


class PauseOperations(Struct, frozen=True, tag_field="type", tag="pause_operations"):
    """Pause or resume operations of a table; other operations are unchanged."""

    table: Id
    operations: Annotated[tuple[OperationName, ...], Meta(min_length=1)]
    paused: bool


class SetDefaults(Struct, frozen=True, tag_field="type", tag="set_defaults"):
    """Change the instance's defaults of settings; None resets one."""

    changes: SettingChanges


class FenceCreations(Struct, frozen=True, tag_field="type", tag="fence_creations"):
    """Refuse to register tables whose creation began before this entry, so that their logs may be deleted."""


CatalogChange = (
    RegisterTable | RenameTable | PurgeTable | SetOnline | PauseOperations | SetDefaults | FenceCreations
    | RequireFeatures
)  # fmt: skip
"""Changes as the log stores them, a tagged union: the field ``type`` names the change."""


class ReplaceTable(Struct, frozen=True, tag_field="type", tag="replace_table"):
    """Give a table the name of another, which leaves the catalog in the same entry; only proposed, never stored.

    It is logged as a purge and a rename.
    """

    table: Id
    name: TableName
    replaced: Id


CatalogProposal = CatalogChange | ReplaceTable
"""What may be proposed."""


def resolve(
    change: CatalogProposal, state: CatalogState
) -> CatalogChange | tuple[CatalogChange, ...] | Rejected | Repeated:
    """Return the change to log, or several for one entry, or why it is refused."""
    match change:
        case ReplaceTable():
            return _replacement(change, state)
        case RegisterTable() | RenameTable():
            holder = state.named(change.name)
            if holder is not None:
                return Rejected(Code.TABLE_EXISTS, f"a table named {change.name!r} exists already")
            if isinstance(change, RenameTable) and change.table not in state.tables:
                return Rejected(Code.TABLE_DROPPED, "the table is gone")
            if isinstance(change, RegisterTable) and change.base_version < state.creations_from:
                text = "logs of tables without a name were deleted meanwhile; create the table again"
                return Rejected(Code.PROPOSAL_OUTDATED, text)
        case PurgeTable() | SetOnline() | PauseOperations():
            if change.table not in state.tables:
                return Rejected(Code.TABLE_DROPPED, "the table is gone")
        case RequireFeatures():
            return change.refused() or change
        case SetDefaults() | FenceCreations():
            pass
        case _:
            assert_never(change)
    return change


def _replacement(change: ReplaceTable, state: CatalogState) -> tuple[CatalogChange, ...] | Rejected:
    """Return the changes that replace a table."""
    if change.table not in state.tables:
        return Rejected(Code.TABLE_DROPPED, "the table is gone")
    holder = state.named(change.name)
    if holder is not None and (holder.id != change.replaced or holder.id == change.table):
        return Rejected(Code.TABLE_EXISTS, f"another table is named {change.name!r} now")
    renamed = RenameTable(change.table, change.name)
    return (renamed,) if holder is None else (PurgeTable(holder.id), renamed)


def apply(state: CatalogState, change: CatalogChange, version: int) -> CatalogState:
    """Return the catalog after the change, part of entry ``version``. Raises DamagedError for a misfit."""
    # An entry may require features that are unknown here: of writers, of which a reader is none.
    if not isinstance(change, RequireFeatures) and isinstance(resolve(change, state), Rejected):
        raise Code.TRANSACTION_IMPOSSIBLE(
            f"catalog entry {version} does not fit the catalog: {change}", version=version
        )
    tables = dict(state.tables)
    defaults, creations_from, features = state.defaults, state.creations_from, state.features
    match change:
        case RegisterTable():
            tables[change.table] = CatalogTable(change.table, change.name, change.online)
        case RenameTable():
            tables[change.table] = replace(tables[change.table], name=change.name)
        case PurgeTable():
            del tables[change.table]
        case SetOnline():
            tables[change.table] = replace(tables[change.table], online=change.online)
        case PauseOperations():
            before, named = tables[change.table].paused, frozenset(change.operations)
            paused = before | named if change.paused else before - named
            tables[change.table] = replace(tables[change.table], paused=paused)
        case SetDefaults():
            defaults = {k: v for k, v in {**defaults, **change.changes}.items() if v is not None}
        case FenceCreations():
            creations_from = version
        case RequireFeatures():
            features = change.required(features, f"entry {version} of the catalog")
        case _:
            assert_never(change)
    return CatalogState(version, tables, defaults, creations_from, features)


def violations_of(state: CatalogState) -> Iterator[str]:
    """Yield the invariants that the catalog violates, as text: each table has an id and a name of its own."""
    names = {table.name for table in state.tables.values()}
    if len(names) != len(state.tables):
        yield f"tables have names of their own: {len(state.tables)} tables have {len(names)} names"
    for key, table in state.tables.items():
        if table.id != key:
            yield f"tables are found by their ids: {key} finds {table.id}"
    if not 0 <= state.creations_from <= state.version:
        yield f"fences are of past versions: creations from {state.creations_from} at {state.version}"


_DECODER: msgspec.json.Decoder[CatalogChange] = msgspec.json.Decoder(CatalogChange)


def decode_change(document: bytes) -> CatalogChange:
    """Decode a change from JSON. Raises UnsupportedFormatError for an unknown type, DamagedError for a bad one."""
    with reading("not a catalog change"):
        return decode(document, _DECODER, "a catalog change")


_PROPOSED: dict[str, msgspec.msgpack.Decoder[CatalogProposal] | msgspec.json.Decoder[CatalogProposal]] = {
    "msgpack": msgspec.msgpack.Decoder(CatalogProposal),
    "json": msgspec.json.Decoder(CatalogProposal),
}


def decode_proposed(data: bytes | msgspec.Raw, format: str) -> CatalogProposal:
    """Decode a change sent as ``msgpack`` or ``json``. Raises UsageError if it is malformed."""
    try:
        change = _PROPOSED[format].decode(data)
    except UNREADABLE as error:
        raise Code.REQUEST_INVALID(f"not a change of the catalog: {str(error)[:300]}") from error
    if isinstance(change, PauseOperations):
        operations_named(change.operations)
    return change


class CatalogDocument(Struct, frozen=True, omit_defaults=True):
    """The whole catalog as it is stored."""

    version: Whole
    tables: list[tuple[Id, TableName, bool]]
    defaults: Settings
    creations_from: Whole = 0
    paused: dict[Id, list[OperationName]] = {}
    features: dict[FeatureName, str] = {}


def encode_state(state: CatalogState) -> dict[str, Any]:
    """Return the JSON document of the whole catalog."""
    tables = [(table.id, table.name, table.online) for table in state.tables.values()]
    paused = {table.id: sorted(table.paused) for table in state.tables.values() if table.paused}
    facts = (state.version, tables, dict(state.defaults), state.creations_from, paused, dict(state.features))
    return checked(CatalogDocument(*facts))


def decode_state(document: Mapping[str, Any]) -> CatalogState:
    """Decode the catalog from its JSON document. Raises DamagedError if it is malformed."""
    with reading("not the state of a catalog"):
        stored = msgspec.convert(document, CatalogDocument)
        require_features(stored.features, READERS, "the catalog")
        tables = {
            table: CatalogTable(table, name, online, frozenset(stored.paused.get(table, ())))
            for table, name, online in stored.tables
        }
        return CatalogState(stored.version, tables, stored.defaults, stored.creations_from, stored.features)
