"""Versions of a table: history, tags, changes between versions, and restores.

The history needs permission on all rows; changes are those of the visible rows. Errors: AccessError; those of the
library. Source: docs/http.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from litestar import Response, delete, get, post, put
from litestar.params import JSONBody, QueryParameter

from lakebed.model.json_values import plain
from lakebed.server.security.principal import Permission
from lakebed.server.web.api.descriptions import ERRORS, post_rows
from lakebed.server.web.api.reads import accepted
from lakebed.server.web.provided import AnyRequest, PathText, TheLimits, TheTable
from lakebed.server.web.request_bodies import ChangesBody, RestoreBody, TagBody
from lakebed.server.web.row_answers import answer_rows
from lakebed.server.web.selections import key_ranges
from lakebed.server.web.threads import threaded

if TYPE_CHECKING:
    from lakebed.read.rows.row_stream import RowStream

HISTORY_MAX = 10_000
"""Transactions in one answer."""


@get("/v1/tables/{table:str}/history", tags=["versions"], responses=ERRORS)
@threaded
def history(requested: TheTable, limit: Annotated[int, QueryParameter(ge=0, le=HISTORY_MAX)] = 100) -> dict[str, Any]:
    """The last transactions, newest first: who wrote what and when."""
    found = requested.whole()
    return {"table": requested.name, "transactions": [plain(row) for row in found.history_rows(limit)]}


@get("/v1/tables/{table:str}/tags", tags=["versions"], responses=ERRORS)
@threaded
def tags(requested: TheTable) -> dict[str, Any]:
    """The tags of a table and their versions."""
    return {"table": requested.name, "tags": requested.table(Permission.READ).tags()}


@put("/v1/tables/{table:str}/tags/{tag:str}", tags=["versions"], responses=ERRORS)
@threaded
def set_tag(requested: TheTable, tag: PathText, data: JSONBody[TagBody]) -> dict[str, Any]:
    """Name a version, which stays readable as long as the tag exists."""
    version = requested.table(Permission.WRITE).tag(tag, data.version)
    return {"table": requested.name, "tag": tag, "version": version}


@delete("/v1/tables/{table:str}/tags/{tag:str}", tags=["versions"], responses=ERRORS, status_code=200)
@threaded
def remove_tag(requested: TheTable, tag: PathText) -> dict[str, Any]:
    """Remove a tag."""
    version = requested.table(Permission.WRITE).untag(tag)
    return {"table": requested.name, "tag": tag, "version": version}


@post("/v1/tables/{table:str}/restore", tags=["versions"], responses=ERRORS, status_code=200)
@threaded
def restore(requested: TheTable, data: JSONBody[RestoreBody]) -> dict[str, Any]:
    """Restore the rows of a version, a tag or a time, in one commit."""
    version = requested.table(Permission.WRITE).restore(data.at)
    return {"table": requested.name, "version": version}


@post_rows("/v1/tables/{table:str}/changes", tags=["versions"])
async def changes(
    *, request: AnyRequest, requested: TheTable, limits: TheLimits, data: JSONBody[ChangesBody]
) -> Response[bytes]:
    """The changes after a version, as rows with the version and the kind of change."""

    def opened() -> RowStream:
        found = requested.principal.readable(requested.table(Permission.READ))
        ranges = key_ranges(found.snapshot().schema, data.ranges)
        return found.changes(data.since, data.until, ranges=ranges, columns=data.columns, where=data.where)

    return await answer_rows(request, opened, accepted(request), limits)


@get("/v1/tables/{table:str}/outcomes/{request_key:str}", tags=["versions"], responses=ERRORS)
@threaded
def outcome(requested: TheTable, request_key: PathText) -> dict[str, Any]:
    """The version at which a commit id or job id was committed; null if it was not, or has expired."""
    found = requested.whole()
    return {"table": requested.name, "request_key": request_key, "version": found.outcome(request_key)}
