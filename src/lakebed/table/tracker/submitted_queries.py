"""Submitted queries as objects, so that any service of an instance can run, show and end a query.

A query is a folder of objects. Each is put create-if-absent, which decides every race; only an attempt is rewritten,
by the process that made it.

====================  ==================================================================================
``query.json``        the request, its submitter and the version to read; never changed
``attempt-NNN.json``  the process that runs it and its progress, rewritten every few seconds as a sign of life
``released-NNN.json`` the attempt was released, and the next one may begin
``end.json``          the outcome of the query: only the first put takes effect
``rows/``             the rows that are kept, as an export (docs/format.md 11)
====================  ==================================================================================

An attempt is *lost* when it shows no sign of life for :data:`LOST_S` by the store's clock. Two attempts may run at the
same time without harm: each writes files of its own, and the first published result wins.

Core types: :class:`QueryObjects`, :class:`SubmittedQuery`, :class:`QueryState`. Errors: StorageError; DamagedError for
an object that was altered; NotFoundError. Source: docs/format.md 12.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.model.checks import is_id
from lakebed.model.documents import SQL_DIALECT, decode_document, encode_document, reading
from lakebed.model.files import QUERIES_FOLDER, query_object, query_of
from lakebed.storage.retries import is_stored
from lakebed.table.tracker.runs import RunError, RunPlace

if TYPE_CHECKING:
    from lakebed.storage.contract import Listed, Storage

LOST_S = 60.0

QUERY, END, ROWS = "query.json", "end.json", "rows"

UNDER_WAY = ("queued", "running", "lost")
"""The states of a query that has not ended."""


class AskedScan(Struct, frozen=True, kw_only=True):
    """A scan of one version of a table; ``ranges`` are encoded keys in hex: inclusive start, exclusive end."""

    table: str
    table_id: str
    version: int
    ranges: tuple[tuple[str, str | None], ...]
    columns: tuple[str, ...] | None = None
    where: str | None = None
    limit: int | None = None
    reverse: bool = False
    raw: bool = False


class SubmittedQuery(Struct, frozen=True, kw_only=True):
    """A submitted scan or statement. It runs with the roles that ``principal`` had at submission.

    ``asked`` is the original request. Rows are written to ``url`` in a format of exports, or are kept beside the query.
    The query and its kept rows are deleted ``kept_s`` after its end.
    """

    id: str
    submitted_by: str
    principal: dict[str, Any]
    asked: dict[str, Any]
    created_at: datetime
    kept_s: float
    scan: AskedScan | None = None
    statement: str | None = None
    url: str | None = None
    file_format: str = "parquet"


class QueryAttempt(Struct, frozen=True, kw_only=True):
    """One attempt to run a query, which waits until it has ``started``; ``token`` identifies its process."""

    number: int
    token: str
    where: RunPlace
    updated_at: datetime
    started_at: datetime | None = None
    rows: int = 0
    rows_total: int = 0


class QueryEnd(Struct, frozen=True, kw_only=True):
    """The outcome of a query: ``completed``, ``failed`` or ``cancelled``."""

    state: str
    ended_at: datetime
    rows: int = 0
    size_bytes: int = 0
    files: int = 0
    error: RunError | None = None


class QueryState(Struct, frozen=True, kw_only=True):
    """A query as it is shown: the request, its submitter and its progress.

    ``state`` is queued, running, completed, failed, cancelled, or lost: the service that ran it died, and another takes
    it over. ``rows_total`` is about the number of rows to read, 0 if unknown.
    """

    id: str
    submitted_by: str
    query: dict[str, Any]
    state: str
    created_at: datetime
    url: str | None
    version: int | None
    attempt: int
    started_at: datetime | None = None
    ended_at: datetime | None = None
    expires_at: datetime | None = None
    rows: int = 0
    rows_total: int = 0
    size_bytes: int = 0
    files: int = 0
    error: RunError | None = None


class FoundQuery(Struct, frozen=True):
    """A query in a listing: when its objects were last modified, by the store's clock."""

    id: str
    objects: dict[str, datetime]

    @property
    def attempt(self) -> int:
        """The number of the last attempt; 0 if there was none."""
        return max((int(name[8:11]) for name in self.objects if name.startswith("attempt-")), default=0)

    @property
    def lost_attempts(self) -> int:
        """The number of attempts that began and were not released, including the last one."""
        released = sum(name.startswith("released-") for name in self.objects)
        return sum(name.startswith("attempt-") for name in self.objects) - released

    @property
    def ended(self) -> datetime | None:
        """When it ended; None if it has not."""
        return self.objects.get(END)

    @property
    def active(self) -> datetime:
        """When one of its objects was last written."""
        return max(self.objects.values())

    def is_waiting(self, now: datetime) -> bool:
        """Return whether an attempt may begin: no other one is known to run."""
        if self.ended is not None or QUERY not in self.objects:
            return False
        number = self.attempt
        if number == 0 or f"released-{number:03d}.json" in self.objects:
            return True
        return now - self.objects[_attempt_name(number)] > timedelta(seconds=LOST_S)


Document = TypeVar("Document", SubmittedQuery, QueryAttempt, QueryEnd)


class QueryObjects:
    """The submitted queries on the storage of an instance. Safe to use from many threads."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    # -- what services write --------------------------------------------------------------------------------------

    def submit(self, query: SubmittedQuery) -> bool:
        """Record a query; False if there is one with its id."""
        has_sql = query.statement is not None or bool(query.scan and query.scan.where)
        return self._create(query.id, QUERY, query, [SQL_DIALECT] if has_sql else [])

    def claim(self, query: str, attempt: QueryAttempt) -> bool:
        """Begin an attempt; False if another process has begun it."""
        return self._create(query, _attempt_name(attempt.number), attempt)

    def beat(self, query: str, attempt: QueryAttempt) -> None:
        """Record that the attempt is alive, and its progress."""
        self.storage.replace(query_object(query, _attempt_name(attempt.number)), _encoded(attempt))

    def release(self, query: str, attempt: QueryAttempt) -> None:
        """Let another attempt begin at once."""
        self._create(query, f"released-{attempt.number:03d}.json", attempt)

    def end(self, query: str, end: QueryEnd) -> bool:
        """Record the outcome of the query; False if it had ended before."""
        return self._create(query, END, end)

    def has_ended(self, query: str) -> bool:
        """Return whether the query ended, or was deleted."""
        return self._read(query, END, QueryEnd) is not None or self._read(query, QUERY, SubmittedQuery) is None

    def delete(self, query: str) -> None:
        """Delete a query, its request last, so that an interrupted deletion can be completed."""
        names = [one.name for one in self.storage.list(f"{QUERIES_FOLDER}/{query}")]
        last = query_object(query, QUERY)
        self.storage.delete([name for name in names if name != last])
        self.storage.delete([last])

    # -- what is there --------------------------------------------------------------------------------------------

    def found(self) -> list[FoundQuery]:
        """Return all queries, newest first; one request for a thousand objects."""
        return _grouped(self.storage.list(QUERIES_FOLDER))

    def find(self, query_id: str) -> SubmittedQuery | None:
        """Return the request; None if no query has the id."""
        return self._read(query_id, QUERY, SubmittedQuery) if is_id(query_id) else None

    def query(self, query_id: str) -> SubmittedQuery:
        """Return the request. Raises NotFoundError."""
        found = self.find(query_id)
        if found is None:
            raise not_there(query_id)
        return found

    def state(self, query: SubmittedQuery) -> QueryState:
        """Return the state and progress of a query."""
        found = _grouped(self.storage.list(f"{QUERIES_FOLDER}/{query.id}"))
        number = found[0].attempt if found else 0
        end = self._read(query.id, END, QueryEnd)
        attempt = self._read(query.id, _attempt_name(number), QueryAttempt) if number else None
        return shown_state(query, attempt, end)

    def expire(self) -> int:
        """Delete the queries that ended, or were abandoned, longer ago than they are kept; return their number."""
        found = self.found()
        if not found:
            return 0
        now, deleted = self.storage.now(), 0
        for one in found:
            query = self._read(one.id, QUERY, SubmittedQuery)
            # Objects that a process wrote after the query was deleted are deleted once too old to belong to an attempt.
            kept_s = 10 * LOST_S if query is None else query.kept_s
            if now - (one.ended or one.active) > timedelta(seconds=kept_s):
                self.delete(one.id)
                deleted += 1
        return deleted

    # -- within ---------------------------------------------------------------------------------------------------

    def _create(self, query: str, name: str, document: Struct, features: Sequence[str] = ()) -> bool:
        return is_stored(self.storage, query_object(query, name), _encoded(document, features))

    def _read(self, query: str, name: str, kind: type[Document]) -> Document | None:
        target = query_object(query, name)
        data = self.storage.get(target)
        if data is None:
            return None
        with reading(f"{self.storage.object_url(target)} is no document of a submitted query", name=target):
            return msgspec.convert(decode_document(data, self.storage.object_url(target)), kind)


def _encoded(document: Struct, features: Sequence[str] = ()) -> bytes:
    return encode_document(msgspec.to_builtins(document), features=features)


def shown_state(query: SubmittedQuery, attempt: QueryAttempt | None, end: QueryEnd | None) -> QueryState:
    """Return the state of a query from its documents."""
    state, started = "queued", None
    rows = rows_total = 0
    if attempt is not None:
        started, rows, rows_total = attempt.started_at, attempt.rows, attempt.rows_total
        if clock.now() - attempt.updated_at > timedelta(seconds=LOST_S):
            state = "lost"
        elif started is not None:
            state = "running"
    shown = QueryState(
        id=query.id,
        submitted_by=query.submitted_by,
        query=query.asked,
        state=state,
        created_at=query.created_at,
        url=query.url,
        version=None if query.scan is None else query.scan.version,
        attempt=0 if attempt is None else attempt.number,
        started_at=started,
        rows=rows,
        rows_total=rows_total,
    )
    if end is None:
        return shown
    return msgspec.structs.replace(
        shown,
        state=end.state,
        ended_at=end.ended_at,
        expires_at=end.ended_at + timedelta(seconds=query.kept_s),
        rows=end.rows,
        size_bytes=end.size_bytes,
        files=end.files,
        error=end.error,
    )


def may_read(query: SubmittedQuery, table_id: str, table: str) -> bool:
    """Return whether a query may read a table: it scans the table, or its statement contains the name."""
    if query.scan is not None:
        return query.scan.table_id == table_id
    return table.casefold() in (query.statement or "").casefold()


def not_there(query_id: str) -> Error:
    """Return the error for an id that does not exist, or that the caller may not see."""
    return Code.QUERY_NOT_FOUND(f"no query {query_id[:100]!r}: it expired, or never was", query=query_id[:100])


def _attempt_name(number: int) -> str:
    return f"attempt-{number:03d}.json"


def _grouped(listed: Iterator[Listed]) -> list[FoundQuery]:
    found: dict[str, dict[str, datetime]] = {}
    for one in listed:
        if (parts := query_of(one.name)) is not None:
            found.setdefault(parts[0], {})[parts[1]] = one.last_modified
    return [FoundQuery(query, found[query]) for query in sorted(found, reverse=True)]
