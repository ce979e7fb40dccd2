"""Partitions, files, failures and verification of a table; only for principals that may read all of its rows.

Key ranges and counts of files would reveal hidden rows, so a restricted principal gets AccessError. Errors: those of
the library. Source: docs/http.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litestar import Response, post
from litestar.params import FromQuery, JSONBody

from lakebed.model.json_values import plain
from lakebed.server.security.principal import Permission
from lakebed.server.web.api.descriptions import ERRORS, get_rows, post_rows
from lakebed.server.web.api.reads import accepted
from lakebed.server.web.provided import AnyRequest, TheTable
from lakebed.server.web.request_bodies import FilesBody, VerifyBody
from lakebed.server.web.row_answers import answer_table
from lakebed.server.web.selections import When, key_ranges
from lakebed.server.web.threads import threaded

if TYPE_CHECKING:
    from lakebed.read.rows.row_stream import RowStream
    from lakebed.read.snapshot.handles import TableHandle
    from lakebed.server.web.access import RequestedTable


def _whole(requested: RequestedTable, at: str | None) -> TableHandle[RowStream]:
    """Return the table at a version, to a principal that may read all of it. Raises AccessError."""
    found = requested.readable(at)
    requested.principal.require_all_rows(requested.name)
    return found.snapshot()


@get_rows("/v1/tables/{table:str}/partitions", tags=["inspection"])
@threaded
def partitions(request: AnyRequest, requested: TheTable, at: FromQuery[When | None] = None) -> Response[bytes]:
    """A row for each partition, in key order: its range, and the rows, bytes, files and runs in it."""
    form = accepted(request)
    return answer_table(_whole(requested, at).partitions(), form)


@post_rows("/v1/tables/{table:str}/files", tags=["inspection"])
@threaded
def files(request: AnyRequest, requested: TheTable, data: JSONBody[FilesBody]) -> Response[bytes]:
    """A row for each file reference of some key ranges, by default of all: its URL, partition, and live keys."""
    form = accepted(request)
    found = _whole(requested, data.at)
    return answer_table(found.files(*key_ranges(found.schema, data.ranges)), form)


@get_rows("/v1/tables/{table:str}/failures", tags=["inspection"])
@threaded
def failures(request: AnyRequest, requested: TheTable) -> Response[bytes]:
    """A row for each call of a pipeline or service on the table that failed, newest first, with the reason."""
    form = accepted(request)
    found = requested.whole()
    return answer_table(found.failures(), form)


@post("/v1/tables/{table:str}/verify", tags=["inspection"], responses=ERRORS, status_code=200)
@threaded
def verify(requested: TheTable, data: JSONBody[VerifyBody]) -> dict[str, Any]:
    """Check that the log is complete and matches its checkpoint and, with ``files``, that every file exists."""
    found = requested.table(Permission.ADMIN)
    return dict(plain(found.verify(files=data.files)))
