"""Queries that a service runs in the background: they are submitted, waited for and fetched.

Core types: :class:`RemoteQuery`, :class:`RemoteQueries`. Errors: those of the service; the error of a query that
failed, when its rows are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from lakebed import clock
from lakebed.errors import Code, error_of_kind
from lakebed.model.checks import check_flag, check_seconds, check_text, check_whole_number
from lakebed.table.client.connection import ARROW, JSON, segment
from lakebed.table.client.remote_rows import RemoteRows
from lakebed.table.client.request_values import given, ranges_document
from lakebed.table.tracker.submitted_queries import UNDER_WAY, QueryState

if TYPE_CHECKING:
    from lakebed.model.keys import KeyRange
    from lakebed.table.client.connection import Connection

PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 5.0
"""Between two looks at a query that runs; each is half as long again as the one before."""


class RemoteQuery:
    """One submitted query. Any client with the same principal can get it by its id."""

    def __init__(self, connection: Connection, query_id: str) -> None:
        self.id = query_id
        self._connection = connection
        self._path = f"/v1/queries/{segment(query_id)}"

    def __repr__(self) -> str:
        return f"<lakebed query {self.id}>"

    def state(self) -> QueryState:
        """Return the query and its state. Raises NotFoundError if it expired."""
        return _state(self._connection.ask("GET", self._path, reads=True))

    def wait(self, timeout_s: float | None = None) -> QueryState:
        """Wait until the query has ended, or for the given time, and return its last state; it may have failed."""
        check_seconds("timeout_s", timeout_s)
        deadline_s = None if timeout_s is None else clock.monotonic_s() + timeout_s
        pause_s = PAUSE_MIN_S
        while (state := self.state()).state in UNDER_WAY:
            left_s = pause_s if deadline_s is None else deadline_s - clock.monotonic_s()
            if left_s <= 0:
                break
            clock.sleep(min(pause_s, left_s))
            pause_s = min(PAUSE_MAX_S, 1.5 * pause_s)
        return state

    def rows(self) -> RemoteRows:
        """Return the rows, in order, when the query has ended; a stream, which may be read repeatedly until the query
        expires.

        Raises the error with which the query failed, and UsageError if it was cancelled.
        """
        state = self.wait()
        if state.state == "failed" and state.error is not None:
            message = f"query {self.id} failed: {state.error.message}"
            try:
                raise Code(state.error.code)(message)
            except ValueError:
                # Of a newer service.
                raise error_of_kind(state.error.kind, message) from None
        path = f"{self._path}/rows"
        return RemoteRows(self._connection.send("GET", path, None, JSON, ARROW, reads=True, streamed=True))

    def cancel(self) -> QueryState:
        """Cancel the query, or delete it with its rows if it has ended."""
        return _state(self._connection.ask("DELETE", self._path, reads=False))


class RemoteQueries:
    """The submitted queries of a connected instance; a part of :class:`RemoteInstance`."""

    _connection: Connection

    def submit_scan(  # noqa: PLR0913 - as Table.scan, and where the rows go
        self,
        table: str,
        *ranges: KeyRange,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        raw: bool = False,
        at: str | int | None = None,
        url: str | None = None,
        format: str | None = None,
        query_id: str | None = None,
    ) -> RemoteQuery:
        """Submit a scan; the arguments are those of :meth:`lakebed.Table.scan`.

        ``at`` is a version, a tag or a time; by default the latest version. With ``url`` the rows are written to that
        empty folder, which the service must allow, as Parquet or in the ``format`` csv or json; otherwise they are kept
        to be fetched.

        ``query_id`` is a UUID: a repeat with the same one, from any process, returns the query that was submitted.
        Raises UsageError if another query has it.
        """
        check_text("table", table)
        check_whole_number("limit", limit)
        check_flag("reverse", reverse)
        check_flag("raw", raw)
        scan: dict[str, Any] = {"ranges": ranges_document(ranges), "where": where, "limit": limit}
        scan |= {"columns": None if columns is None else list(columns), "at": None if at is None else str(at)}
        scan |= {"reverse": reverse, "raw": raw}
        return self._submit({"table": table, "scan": given(scan), "url": url, "format": format, "id": query_id})

    def submit_sql(
        self, statement: str, *, url: str | None = None, format: str | None = None, query_id: str | None = None
    ) -> RemoteQuery:
        """Submit a statement; ``url``, ``format`` and ``query_id`` are as in :meth:`submit_scan`."""
        check_text("statement", statement)
        return self._submit({"statement": statement, "url": url, "format": format, "id": query_id})

    def submitted_queries(self) -> list[QueryState]:
        """Return the caller's queries, and those of tables that it administers; the newest first."""
        return [_state(one) for one in self._connection.ask("GET", "/v1/queries", reads=True)["queries"]]

    def submitted_query(self, query_id: str) -> RemoteQuery:
        """Return the query with this id; no request is made."""
        check_text("query_id", query_id)
        return RemoteQuery(self._connection, query_id)

    def _submit(self, document: dict[str, Any]) -> RemoteQuery:
        # With an id a repeated request is the same query.
        if document["id"] is None:
            document["id"] = clock.new_id()
        found = self._connection.ask("POST", "/v1/queries", given(document), reads=True)
        return RemoteQuery(self._connection, found["id"])


def _state(document: Any) -> QueryState:
    return msgspec.convert(document, QueryState)
