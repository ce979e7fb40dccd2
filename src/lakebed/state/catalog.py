"""The catalog: which tables an instance has, by name, and the defaults of their settings.

A log of its own, with the same rules as a table's. A table is addressed by id, so a rename moves nothing. A name is
won here: a table is created by writing entry 1 of its own log first, and the loser of the name leaves an orphan
log. Before such logs are deleted, a fence keeps out every creation that began earlier. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, assert_never

from lakebed.errors import Code
from lakebed.model.documents import reading
from lakebed.state import shapes
from lakebed.state.transactions import Rejected, Repeated


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table's name and whether maintenance runs on it (online)."""

    id: str
    name: str
    online: bool = True


@dataclass(frozen=True, slots=True)
class CatalogState:
    """All tables of an instance at one number of the catalog's log, by id, and the settings' defaults."""

    version: int = 0
    tables: Mapping[str, CatalogTable] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    creations_from: int = 0

    def named(self, name: str) -> CatalogTable | None:
        """The table of that name."""
        return next((table for table in self.tables.values() if table.name == name), None)


@dataclass(frozen=True, slots=True)
class RegisterTable:
    """Give a table, whose log has begun, its name. ``base_version``: the catalog's version when the creation began.

    ``online``: whether splitting and compaction run on it from the start.
    """

    table: str
    name: str
    base_version: int
    online: bool = True


@dataclass(frozen=True, slots=True)
class RenameTable:
    """Give a table another name."""

    table: str
    name: str


@dataclass(frozen=True, slots=True)
class PurgeTable:
    """Take a table out of the catalog; its log's last entry follows."""

    table: str


@dataclass(frozen=True, slots=True)
class SetOnline:
    """Whether splitting and compaction run on a table."""

    table: str
    online: bool


@dataclass(frozen=True, slots=True)
class SetDefaults:
    """Change the instance's defaults of settings; None takes one back."""

    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FenceCreations:
    """Refuse to name tables whose creation began before this entry: their logs may be deleted."""


CatalogChange = RegisterTable | RenameTable | PurgeTable | SetOnline | SetDefaults | FenceCreations

_TYPES: dict[str, type[CatalogChange]] = {
    "register_table": RegisterTable,
    "rename_table": RenameTable,
    "purge_table": PurgeTable,
    "set_online": SetOnline,
    "set_defaults": SetDefaults,
    "fence_creations": FenceCreations,
}


def resolve(change: CatalogChange, state: CatalogState) -> CatalogChange | Rejected | Repeated:
    """The change as it stands, or why it is refused."""
    match change:
        case RegisterTable() | RenameTable():
            holder = state.named(change.name)
            if holder is not None:
                return Rejected(f"a table named {change.name!r} exists already")
            if isinstance(change, RenameTable) and change.table not in state.tables:
                return Rejected("the table is gone")
            if isinstance(change, RegisterTable) and change.base_version < state.creations_from:
                return Rejected("logs of tables without a name were deleted meanwhile; create the table again")
        case PurgeTable() | SetOnline():
            if change.table not in state.tables:
                return Rejected("the table is gone")
        case SetDefaults() | FenceCreations():
            pass
        case _:
            assert_never(change)
    return change


def apply(state: CatalogState, change: CatalogChange, version: int) -> CatalogState:
    """The catalog after the change, which is part of entry ``version``. Raises DamagedError if it does not fit."""
    if isinstance(resolve(change, state), Rejected):
        raise Code.TRANSACTION_IMPOSSIBLE(
            f"catalog entry {version} does not fit the catalog: {change}", version=version
        )
    tables = dict(state.tables)
    defaults, creations_from = state.defaults, state.creations_from
    match change:
        case RegisterTable():
            tables[change.table] = CatalogTable(change.table, change.name, change.online)
        case RenameTable():
            tables[change.table] = replace(tables[change.table], name=change.name)
        case PurgeTable():
            del tables[change.table]
        case SetOnline():
            tables[change.table] = replace(tables[change.table], online=change.online)
        case SetDefaults():
            defaults = {k: v for k, v in {**defaults, **change.changes}.items() if v is not None}
        case FenceCreations():
            creations_from = version
        case _:
            assert_never(change)
    return CatalogState(version, tables, defaults, creations_from)


def encode_change(change: CatalogChange) -> dict[str, Any]:
    """The JSON document of a change. Raises UsageError for a value of a type or range that the format does not have."""
    kind = next(name for name, cls in _TYPES.items() if isinstance(change, cls))
    values = {field.name: getattr(change, field.name) for field in fields(change)}
    # What is left out has its default.
    given = {field.name: values[field.name] for field in fields(change) if values[field.name] is not field.default}
    document = {"type": kind} | given
    try:
        shapes.check(document, shapes.CATALOG_CHANGES[kind], f"a catalog change {kind}")
    except ValueError as error:
        raise Code.ARGUMENT_INVALID(f"{error}; nothing was written") from error
    return document


def decode_change(document: Mapping[str, Any]) -> CatalogChange:
    """The change of a JSON document. Raises UnsupportedFormatError for an unknown type, DamagedError for a bad one."""
    with reading("not a catalog change"):
        facts = dict(document)
        kind = facts.pop("type", None)
        if kind not in _TYPES:
            raise Code.FORMAT_TOO_NEW(
                f"a catalog change of type {kind!r}: written by a newer Lakebed; upgrade to read it"
            )
        shapes.check(facts, shapes.CATALOG_CHANGES[kind], f"a catalog change {kind}")
        return _TYPES[kind](**facts)


def encode_state(state: CatalogState) -> dict[str, Any]:
    """The JSON document of the whole catalog."""
    tables = [[t.id, t.name, t.online] for t in state.tables.values()]
    document = {"version": state.version, "tables": tables, "defaults": dict(state.defaults)}
    return document | ({"creations_from": state.creations_from} if state.creations_from else {})


def decode_state(document: Mapping[str, Any]) -> CatalogState:
    """The catalog of a JSON document. Raises DamagedError if it is none."""
    with reading("not the state of a catalog"):
        shapes.check(document, shapes.CATALOG_STATE, "a catalog")
        tables = {table: CatalogTable(table, name, online) for table, name, online in document["tables"]}
        return CatalogState(document["version"], tables, document["defaults"], document.get("creations_from", 0))
