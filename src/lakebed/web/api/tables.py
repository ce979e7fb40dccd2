"""Tables: which there are, their schemas, settings, tags and histories; creation, renames and drops for admins."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from litestar import delete, get, patch, post, put
from litestar.params import JSONBody, QueryParameter

from lakebed.errors import Code
from lakebed.model.json_values import plain
from lakebed.model.merge_modes import mode_of
from lakebed.model.schema import Schema
from lakebed.security.principal import Permission
from lakebed.table.description import table_document
from lakebed.web.api.descriptions import ERRORS
from lakebed.web.provided import PathText, ThePrincipal, TheService, TheTables
from lakebed.web.request_bodies import ChangeTableBody, CreateTableBody, TagBody
from lakebed.web.selections import key_values
from lakebed.web.threads import threaded

HISTORY_MAX = 10_000
"""Transactions in one answer."""


@get("/v1/tables", tags=["tables"], responses=ERRORS)
@threaded
def list_tables(service: TheService, principal: ThePrincipal) -> dict[str, list[str]]:
    """The names of the tables that the principal may read, sorted."""
    return {"tables": principal.visible(service.instance.tables())}


@post("/v1/tables", tags=["tables"], responses=ERRORS)
@threaded
def create_table(service: TheService, principal: ThePrincipal, data: JSONBody[CreateTableBody]) -> dict[str, Any]:
    """Make an empty table."""
    principal.require(Permission.ADMIN, data.name)
    schema = Schema.from_json(data.schema)
    points = [key_values(schema, key) for key in data.split_points]
    table = service.instance.create_table(
        data.name, schema, split_points=points, settings=data.settings, online=data.online, merge=mode_of(data.merge)
    )
    return {"table": table.name, "id": table.id, "version": table.version, "partitions": len(points) + 1}


@get("/v1/tables/{table:str}", tags=["tables"], responses=ERRORS)
@threaded
def show_table(
    service: TheService,
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
) -> dict[str, Any]:
    """A table's schema, size, merge mode and filter."""
    found = tables.table(principal, Permission.READ, table)
    principal.require_all_rows(table)
    instance = service.instance
    return table_document(found, online=instance.is_online(table), paused=instance.paused(table))


@patch("/v1/tables/{table:str}", tags=["tables"], responses=ERRORS)
@threaded
def change_table(
    service: TheService,
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
    data: JSONBody[ChangeTableBody],
) -> dict[str, Any]:
    """Rename a table, or take its maintenance out of service and back."""
    tables.table(principal, Permission.ADMIN, table)
    if data.online is not None:
        service.instance.set_online(table, data.online)
    if data.name is not None:
        principal.require(Permission.ADMIN, data.name)
        service.instance.rename_table(table, data.name)
        tables.forget(table)
    name = data.name or table
    return {"table": name, "online": service.instance.is_online(name)}


@delete("/v1/tables/{table:str}", tags=["tables"], responses=ERRORS, status_code=200)
@threaded
def drop_table(
    service: TheService,
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
) -> dict[str, str]:
    """Drop a table with all its rows."""
    tables.table(principal, Permission.ADMIN, table)
    service.instance.drop_table(table)
    tables.forget(table)
    return {"dropped": table}


@get("/v1/tables/{table:str}/schema", tags=["tables"], responses=ERRORS)
@threaded
def show_schema(tables: TheTables, principal: ThePrincipal, table: PathText) -> dict[str, Any]:
    """The fields of a table, as the principal may read them."""
    return {"table": table, "schema": tables.readable(principal, table).snapshot().schema.to_json()}


# -- settings --------------------------------------------------------------------------------------------------------


@get("/v1/settings", tags=["settings"], responses=ERRORS)
@threaded
def instance_settings(service: TheService, principal: ThePrincipal) -> dict[str, Any]:
    """The defaults of all settings."""
    principal.require(Permission.READ)
    return service.instance.settings()


@patch("/v1/settings", tags=["settings"], responses=ERRORS)
@threaded
def set_instance_settings(
    service: TheService, principal: ThePrincipal, data: JSONBody[dict[str, Any]]
) -> dict[str, Any]:
    """Change defaults; null takes Lakebed's own again."""
    principal.require(Permission.ADMIN)
    service.instance.set(**_checked_names(data))
    return service.instance.settings()


@get("/v1/tables/{table:str}/settings", tags=["settings"], responses=ERRORS)
@threaded
def table_settings(tables: TheTables, principal: ThePrincipal, table: PathText) -> dict[str, Any]:
    """The settings in force for a table."""
    return tables.table(principal, Permission.READ, table).settings()


@patch("/v1/tables/{table:str}/settings", tags=["settings"], responses=ERRORS)
@threaded
def set_table_settings(
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
    data: JSONBody[dict[str, Any]],
) -> dict[str, Any]:
    """Change settings of a table; null takes the instance's default again."""
    found = tables.table(principal, Permission.ADMIN, table)
    found.set(**_checked_names(data))
    return found.settings()


def _checked_names(changes: dict[str, Any]) -> dict[str, Any]:
    if not changes:
        raise Code.ARGUMENT_MISSING('no setting is named; give a JSON object such as {"history_s": 3600}')
    if "self" in changes:
        raise Code.SETTING_UNKNOWN("unknown setting 'self'", setting="self")
    return changes


# -- versions --------------------------------------------------------------------------------------------------------


@get("/v1/tables/{table:str}/history", tags=["versions"], responses=ERRORS)
@threaded
def history(
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
    limit: Annotated[int, QueryParameter(ge=0, le=HISTORY_MAX)] = 100,
) -> dict[str, Any]:
    """The last transactions, newest first: who wrote what and when."""
    found = tables.table(principal, Permission.READ, table)
    principal.require_all_rows(table)
    return {"table": table, "transactions": [plain(asdict(row)) for row in found.history_rows(limit)]}


@get("/v1/tables/{table:str}/tags", tags=["versions"], responses=ERRORS)
@threaded
def tags(tables: TheTables, principal: ThePrincipal, table: PathText) -> dict[str, Any]:
    """The tags of a table, and the versions they stand at."""
    return {"table": table, "tags": tables.table(principal, Permission.READ, table).tags()}


@put("/v1/tables/{table:str}/tags/{tag:str}", tags=["versions"], responses=ERRORS)
@threaded
def set_tag(
    tables: TheTables,
    principal: ThePrincipal,
    table: PathText,
    tag: PathText,
    data: JSONBody[TagBody],
) -> dict[str, Any]:
    """Name a version, which stays readable as long as the tag exists."""
    version = tables.table(principal, Permission.WRITE, table).tag(tag, data.version)
    return {"table": table, "tag": tag, "version": version}


@delete("/v1/tables/{table:str}/tags/{tag:str}", tags=["versions"], responses=ERRORS, status_code=200)
@threaded
def remove_tag(tables: TheTables, principal: ThePrincipal, table: PathText, tag: PathText) -> dict[str, Any]:
    """Take a tag away."""
    version = tables.table(principal, Permission.WRITE, table).untag(tag)
    return {"table": table, "tag": tag, "version": version}


ROUTES = (
    list_tables,
    create_table,
    show_table,
    change_table,
    drop_table,
    show_schema,
    instance_settings,
    set_instance_settings,
    table_settings,
    set_table_settings,
    history,
    tags,
    set_tag,
    remove_tag,
)
