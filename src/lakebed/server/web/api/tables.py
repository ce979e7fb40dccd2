"""Tables: listing, schemas, settings, creation, changes and drops; rows in, deletes, and files to be ingested later.

Rules: the permission is checked before the instance is accessed. A body with rows is kept in a temporary file until it
is complete, then read batch by batch: a request that is cut changes nothing. Core type: :class:`Upload`. Errors:
AccessError, also for a source that the operator has not allowed; SchemaMismatchError and DamagedError for bytes that
are not of the content type; an HTTPException for a content type that is not known here; those of the library. Source:
docs/http.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import anyio.to_thread
from litestar import delete, get, patch, post
from litestar.exceptions import HTTPException
from litestar.params import FromQuery, JSONBody, QueryParameter

from lakebed.errors import Code, Error
from lakebed.model.json_values import plain
from lakebed.model.merge_modes import mode_of
from lakebed.model.schema import Schema
from lakebed.server.security.principal import Permission
from lakebed.server.web.access import AnyRequest, TheLimits, ThePrincipal, TheService, TheTable, TheTables, TheWriters
from lakebed.server.web.api.descriptions import ERRORS, BodyOperation
from lakebed.server.web.middleware import note
from lakebed.server.web.request_bodies import (
    AlterBody,
    ChangeTableBody,
    CreateIndexBody,
    CreateTableBody,
    CreateViewBody,
    DeleteBody,
    RefreshBody,
    RemoveBody,
    SubmitBody,
    Version,
    When,
    WithdrawBody,
    check_source,
    key_ranges,
)
from lakebed.server.web.waiting import threaded
from lakebed.storage.disk_space import scratch_prefix
from lakebed.table.description import index_document, table_document
from lakebed.write.run import LOSSLESS, TEXT

if TYPE_CHECKING:
    from litestar import Request


@get("/v1/tables", tags=["tables"], responses=ERRORS)
@threaded
def list_tables(service: TheService, principal: ThePrincipal) -> dict[str, list[str]]:
    """The names of the tables that the principal may read, sorted."""
    return {"tables": principal.visible(service.instance.tables())}


@post("/v1/tables", tags=["tables"], responses=ERRORS)
@threaded
def create_table(
    request: AnyRequest, service: TheService, principal: ThePrincipal, data: JSONBody[CreateTableBody]
) -> dict[str, Any]:
    """Make an empty table."""
    note(request, table=data.name)
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
    request: AnyRequest,
    service: TheService,
    tables: TheTables,
    principal: ThePrincipal,
    data: JSONBody[CreateViewBody],
) -> dict[str, Any]:
    """Create a view: a table computed from another by a query; the service refreshes it."""
    note(request, table=data.name, statement=data.select)
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


@post("/v1/indexes", tags=["tables"], responses=ERRORS)
@threaded
def create_index(
    request: AnyRequest,
    service: TheService,
    tables: TheTables,
    principal: ThePrincipal,
    data: JSONBody[CreateIndexBody],
) -> dict[str, Any]:
    """Make an index of fields of a table, by which reads find rows; the service builds and refreshes it."""
    note(request, table=data.name)
    principal.require(Permission.ADMIN, data.name)
    tables.table(principal, Permission.ADMIN, data.table)
    # Its entries are of all rows, also for those who may verify it, or read its figures.
    principal.require_all_rows(data.table)
    made = service.instance.create_index(data.name, table=data.table, on=data.on, settings=data.settings)
    return {"index": made.name, "id": made.id, "version": made.version, "table": data.table}


@delete("/v1/indexes/{table:str}", tags=["tables"], responses=ERRORS, status_code=200)
@threaded
def drop_index(service: TheService, requested: TheTable) -> dict[str, str]:
    """Drop an index; its table keeps its rows."""
    requested.principal.require_drop(service.instance, requested.name)
    service.instance.drop_index(requested.name)
    requested.tables.forget(requested.name)
    return {"dropped": requested.name}


@get("/v1/tables/{table:str}/indexes", tags=["tables"], responses=ERRORS)
@threaded
def list_indexes(service: TheService, requested: TheTable) -> dict[str, Any]:
    """The indexes of a table, their fields, and the version of the table that each has."""
    return index_document(service.instance, requested.whole())


@post("/v1/tables/{table:str}/refresh", tags=["tables"], responses=ERRORS, status_code=200)
async def refresh_table(
    service: TheService, requested: TheTable, writers: TheWriters, data: JSONBody[RefreshBody]
) -> dict[str, Any]:
    """Bring a view or an index up to date now, which the service does every few seconds; in its worker processes."""

    def refresh() -> dict[str, Any]:
        found = requested.table(Permission.WRITE)
        return dict(plain(service.refresh(found, anew=data.anew)))

    return await anyio.to_thread.run_sync(refresh, limiter=writers)


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
    elif data.replace:
        raise Code.ARGUMENTS_CONFLICT("replace is about the table that has the new name: give name as well")
    instance, name = service.instance, requested.name
    if data.online is not None:
        instance.set_online(name, data.online)
    if data.pause:
        instance.pause(name, *data.pause)
    if data.resume:
        instance.resume(name, *data.resume)
    if data.name is not None:
        instance.rename_table(name, data.name, replace=data.replace)
        requested.tables.forget(name)
        requested.tables.forget(data.name)
        name = data.name
    return {"table": name, "online": instance.is_online(name), "paused": sorted(map(str, instance.paused(name)))}


@delete("/v1/tables/{table:str}", tags=["tables"], responses=ERRORS, status_code=200)
@threaded
def drop_table(service: TheService, requested: TheTable) -> dict[str, str]:
    """Drop a table with all its rows."""
    requested.principal.require_drop(service.instance, requested.name)
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


CommitId = Annotated[str | None, QueryParameter(description="Repeating the request with the same id adds nothing.")]


@post("/v1/tables/{table:str}/rows", tags=["writes"], operation_class=BodyOperation, responses=ERRORS, status_code=200)
async def write_rows(
    *,
    request: AnyRequest,
    requested: TheTable,
    writers: TheWriters,
    commit_id: CommitId = None,
    base_version: FromQuery[Version | None] = None,
    partial: FromQuery[bool] = False,
    row_kind: Annotated[str | None, QueryParameter(description="The column that says what each row does.")] = None,
    casts: Annotated[
        list[str] | None, QueryParameter(description="lossless, text, or the fields that may be read from text.")
    ] = None,
    ignore_extra: Annotated[bool, QueryParameter(description="Leave out columns that the table lacks.")] = False,
) -> dict[str, Any]:
    """Add rows in one commit; the version from which on they are visible. All or none of them."""

    def write(upload: Upload) -> int:
        refuse_empty(upload)
        found = requested.table(Permission.WRITE)
        found.state()
        with upload.rows(found.schema) as rows:
            return found.write(
                rows,
                commit_id=commit_id,
                base_version=base_version,
                partial=partial,
                row_kind=row_kind,
                casts=_casts(casts),
                ignore_extra=ignore_extra,
            )

    # Before the body is received, which may be refused.
    await anyio.to_thread.run_sync(requested.table, Permission.WRITE)
    upload = await receive(request)
    try:
        version = await anyio.to_thread.run_sync(write, upload, limiter=writers)
    finally:
        await anyio.to_thread.run_sync(upload.close)
    return {"table": requested.name, "version": version}


def _casts(given: list[str] | None) -> str | list[str]:
    """Return the casts of a write: one of two words, or fields."""
    if given is None or given in ([LOSSLESS], [TEXT]):
        return given[0] if given else LOSSLESS
    return given


@post("/v1/tables/{table:str}/delete", tags=["writes"], responses=ERRORS, status_code=200)
async def delete_rows(requested: TheTable, writers: TheWriters, data: JSONBody[DeleteBody]) -> dict[str, Any]:
    """Delete the rows of keys, or those for which a predicate is true; for tables that merge by latest."""

    def delete() -> dict[str, Any]:
        found = requested.table(Permission.WRITE)
        keys = None if data.keys is None else [found.schema.codec.parse(key) for key in data.keys]
        report = found.delete(keys, where=data.where, commit_id=data.commit_id, base_version=data.base_version)
        return dict(plain(report))

    return await anyio.to_thread.run_sync(delete, limiter=writers)


@post("/v1/tables/{table:str}/remove", tags=["writes"], responses=ERRORS, status_code=200)
@threaded
def remove_rows(requested: TheTable, data: JSONBody[RemoveBody]) -> dict[str, Any]:
    """Remove all rows with a key in any of the ranges, or with any of the prefixes, in one commit."""
    found = requested.table(Permission.WRITE)
    schema = found.schema
    prefixes = None if data.prefixes is None else [schema.codec.parse(one) for one in data.prefixes]
    version = found.remove(*key_ranges(schema, data.ranges), prefix=prefixes, fence=data.fence)
    return {"table": requested.name, "version": version}


@post("/v1/tables/{table:str}/requests", tags=["writes"], responses=ERRORS, status_code=202)
@threaded
def submit_files(requested: TheTable, limits: TheLimits, data: JSONBody[SubmitBody]) -> dict[str, Any]:
    """Record Parquet files, folders or globs as requests, which the service ingests later."""
    found = requested.table(Permission.WRITE)
    for url in data.files:
        check_source(url, limits.sources)
    return dict(plain(found.submit(data.files, again=data.again)))


@get("/v1/tables/{table:str}/requests", tags=["writes"], responses=ERRORS)
@threaded
def list_requests(requested: TheTable) -> dict[str, Any]:
    """The open requests, then the last that were rejected, with their reasons."""
    found = requested.whole()
    return {"table": requested.name, "requests": [plain(row) for row in found.requests().to_pylist()]}


@post("/v1/tables/{table:str}/requests/withdraw", tags=["writes"], responses=ERRORS, status_code=200)
@threaded
def withdraw_requests(requested: TheTable, data: JSONBody[WithdrawBody]) -> dict[str, Any]:
    """Withdraw open requests; their files may be submitted again."""
    return dict(plain(requested.table(Permission.WRITE).withdraw(*data.requests)))


SUFFIXES = {
    "application/vnd.apache.arrow.stream": ".arrows",
    "application/vnd.apache.parquet": ".parquet",
    "application/x-ndjson": ".jsonl",
    "application/jsonl": ".jsonl",
    "application/json": ".json",
    "text/csv": ".csv",
}
"""The content types of rows, and the names of such files."""

_HELD_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Upload:
    """A complete body in a file that is deleted when it is closed."""

    folder: tempfile.TemporaryDirectory[str]
    path: Path

    def close(self) -> None:
        """Delete the file."""
        self.folder.cleanup()

    @contextmanager
    def rows(self, schema: Schema) -> Iterator[Any]:
        """The rows, as Arrow data that a table of this schema can write. Raises SchemaMismatchError, DamagedError."""
        from lakebed.write.input_files import open_files

        try:
            yield open_files(self.path, schema)
        except Error as error:
            message = error.message.replace(str(self.path), "the body")
            if error.code in (Code.SOURCE_DAMAGED, Code.SOURCE_UNSUPPORTED):
                # A reader of a file calls it damaged. A body was never complete.
                raise Code.SOURCE_UNPARSABLE(message) from error
            raise error.restated(message) from error.__cause__


def content_type(request: Request[Any, Any, Any]) -> str:
    """Return the media type of the body. Raises HTTPException with 415 for one that has no rows."""
    name = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if name not in SUFFIXES:
        given = name[:100] or "none"
        raise HTTPException(detail=f"the content type is {given}; send rows as {', '.join(SUFFIXES)}", status_code=415)
    return name


async def receive(request: Request[Any, Any, Any]) -> Upload:
    """Return the body, once all of it is there."""
    name = content_type(request)
    folder = await anyio.to_thread.run_sync(lambda: tempfile.TemporaryDirectory(prefix=scratch_prefix("upload")))
    upload = Upload(folder, Path(folder.name) / f"rows{SUFFIXES[name]}")
    try:
        file = await anyio.to_thread.run_sync(upload.path.open, "wb")
        try:
            await _spool(request, file)
        finally:
            await anyio.to_thread.run_sync(file.close)
    except BaseException:
        upload.close()
        raise
    return upload


async def _spool(request: Request[Any, Any, Any], file: IO[bytes]) -> None:
    held: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        held.append(chunk)
        size += len(chunk)
        if size >= _HELD_BYTES:
            await anyio.to_thread.run_sync(file.writelines, held)
            held, size = [], 0
    await anyio.to_thread.run_sync(file.writelines, held)


def refuse_empty(upload: Upload) -> None:
    """Raise UsageError for a body without a byte: an empty Arrow stream has a schema."""
    if upload.path.stat().st_size == 0:
        raise Code.ARGUMENT_MISSING("the request has no body; send rows")
