"""Writes to a table: rows, deletes, and files to be ingested later.

Rule: a body is received whole before a row of it is written. Errors: AccessError for a source that the operator has not
allowed; those of writes. Source: docs/http.md.
"""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
from litestar import get, post
from litestar.params import FromQuery, JSONBody, QueryParameter

from lakebed.model.json_values import plain
from lakebed.server.security.principal import Permission
from lakebed.server.web.allowed_places import check_source
from lakebed.server.web.api.descriptions import ERRORS, BodyOperation
from lakebed.server.web.provided import AnyRequest, TheLimits, TheTable, TheWriters
from lakebed.server.web.request_bodies import DeleteBody, RemoveBody, SubmitBody, WithdrawBody
from lakebed.server.web.selections import Version, key_ranges
from lakebed.server.web.threads import threaded
from lakebed.server.web.uploads import Upload, receive, refuse_empty
from lakebed.write.run import LOSSLESS, TEXT

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
