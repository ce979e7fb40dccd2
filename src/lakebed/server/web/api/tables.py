"""Tables: listing, schemas and settings; creation, changes and drops for admins.

Rule: the permission is checked before the instance is accessed. Errors: AccessError; those of the library. Source:
docs/http.md.
"""

from __future__ import annotations

from typing import Any

from litestar import delete, get, patch, post
from litestar.params import FromQuery, JSONBody

from lakebed.errors import Code
from lakebed.model.merge_modes import mode_of
from lakebed.model.schema import Schema
from lakebed.server.security.principal import Permission
from lakebed.server.web.api.descriptions import ERRORS
from lakebed.server.web.provided import ThePrincipal, TheService, TheTable, TheTables
from lakebed.server.web.request_bodies import AlterBody, ChangeTableBody, CreateTableBody, CreateViewBody
from lakebed.server.web.selections import When
from lakebed.server.web.threads import threaded
from lakebed.table.description import table_document


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
    points = [schema.codec.parse(key) for key in data.split_points]
    table = service.instance.create_table(
        data.name, schema, split_points=points, settings=data.settings, online=data.online, merge=mode_of(data.merge)
    )
    return {"table": table.name, "id": table.id, "version": table.version, "partitions": len(points) + 1}


@post("/v1/views", tags=["tables"], responses=ERRORS)
@threaded
def create_view(
    service: TheService, tables: TheTables, principal: ThePrincipal, data: JSONBody[CreateViewBody]
) -> dict[str, Any]:
    """Create a view: a table computed from another by a query; the service refreshes it."""
    principal.require(Permission.ADMIN, data.name)
    tables.table(principal, Permission.READ, data.source)
    # Its rows would be those of the source for everyone who may read the view.
    principal.require_all_rows(data.source)
    made = service.instance.create_view_table(
        data.name,
        source=data.source,
        select=data.select,
        row_key=data.row_key,
        sort_key=data.sort_key,
        split_points=[tuple(key) for key in data.split_points],
        settings=data.settings,
        merge=mode_of(data.merge),
    )
    return {"table": made.name, "id": made.id, "version": made.version, "partitions": len(data.split_points) + 1}


@get("/v1/tables/{table:str}", tags=["tables"], responses=ERRORS)
@threaded
def show_table(service: TheService, requested: TheTable) -> dict[str, Any]:
    """A table's schema, size, merge mode and filter."""
    found = requested.whole()
    instance = service.instance
    return table_document(found, online=instance.is_online(requested.name), paused=instance.paused(requested.name))


@patch("/v1/tables/{table:str}", tags=["tables"], responses=ERRORS)
@threaded
def change_table(service: TheService, requested: TheTable, data: JSONBody[ChangeTableBody]) -> dict[str, Any]:
    """Rename a table, switch its maintenance on or off, or pause and resume operations."""
    requested.table(Permission.ADMIN)
    if data.name is not None:
        requested.principal.require(Permission.ADMIN, data.name)
    instance, name = service.instance, requested.name
    if data.online is not None:
        instance.set_online(name, data.online)
    if data.pause:
        instance.pause(name, *data.pause)
    if data.resume:
        instance.resume(name, *data.resume)
    if data.name is not None:
        instance.rename_table(name, data.name)
        requested.tables.forget(name)
        name = data.name
    return {"table": name, "online": instance.is_online(name), "paused": sorted(map(str, instance.paused(name)))}


@delete("/v1/tables/{table:str}", tags=["tables"], responses=ERRORS, status_code=200)
@threaded
def drop_table(service: TheService, requested: TheTable) -> dict[str, str]:
    """Drop a table with all its rows."""
    requested.table(Permission.ADMIN)
    service.instance.drop_table(requested.name)
    requested.tables.forget(requested.name)
    return {"dropped": requested.name}


@get("/v1/tables/{table:str}/schema", tags=["tables"], responses=ERRORS)
@threaded
def show_schema(requested: TheTable, at: FromQuery[When | None] = None) -> dict[str, Any]:
    """The fields of a table, as the principal may read them."""
    return {"table": requested.name, "schema": requested.readable(at).snapshot().schema.to_json()}


@post("/v1/tables/{table:str}/alter", tags=["tables"], responses=ERRORS, status_code=200)
@threaded
def alter_table(requested: TheTable, data: JSONBody[AlterBody]) -> dict[str, Any]:
    """Change the schema, the merge mode, or which rows are visible; all of the changes in order, or none."""
    found = requested.table(Permission.ADMIN)
    found.state()
    version = found.alter(*(change.value() for change in data.changes))
    return {"table": requested.name, "version": version, "schema": found.schema.to_json()}


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
    """Change defaults; null restores Lakebed's default."""
    principal.require(Permission.ADMIN)
    service.instance.set(**_checked_names(data))
    return service.instance.settings()


@get("/v1/tables/{table:str}/settings", tags=["settings"], responses=ERRORS)
@threaded
def table_settings(requested: TheTable) -> dict[str, Any]:
    """The settings in force for a table."""
    return requested.table(Permission.READ).settings()


@patch("/v1/tables/{table:str}/settings", tags=["settings"], responses=ERRORS)
@threaded
def set_table_settings(requested: TheTable, data: JSONBody[dict[str, Any]]) -> dict[str, Any]:
    """Change settings of a table; null restores the instance's default."""
    found = requested.table(Permission.ADMIN)
    found.set(**_checked_names(data))
    return found.settings()


def _checked_names(changes: dict[str, Any]) -> dict[str, Any]:
    if not changes:
        raise Code.ARGUMENT_MISSING('no setting is named; give a JSON object such as {"history_s": 3600}')
    if "self" in changes:
        raise Code.SETTING_UNKNOWN("unknown setting 'self'", setting="self")
    return changes
