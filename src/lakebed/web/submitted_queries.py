"""Queries that are submitted, run in the background, and fetched later: scans, and statements in SQL.

A query's state is the object ``queries/ID/state.json`` of the instance, so that any service can show it; its rows are
Parquet objects beside it, or below a URL that the request names, in the order of the rows. The service that runs a
query writes the state every ten seconds. A query that says it runs, but was not written for a minute, is *lost*: its
service died. It is not taken over; submit it again.

A scan reads one version in key order, partition after partition. Rows are written to a local file of about
:data:`PART_BYTES`, which is then sent.

Core types: :class:`SubmittedQueries`, :class:`QueryState`. Errors: NotFoundError for an id that is not known.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.model.checks import is_id
from lakebed.storage import connect
from lakebed.storage.external import options_for

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage
    from lakebed.table.instance import Instance
    from lakebed.web.row_answers import RowReader

_LOG = logging.getLogger("lakebed.web")

FOLDER = "queries"
STATE = "state.json"
CANCEL = "cancel"
"""An object that asks the service that runs the query to end it."""

PART_BYTES = 128 * 1024 * 1024
BEAT_S = 10.0
LOST_S = 60.0

RUNNING = ("queued", "running")

OpenRows = Callable[[threading.Event], "RowReader"]
"""Opens the rows of a query; they end when the event is set."""


class QueryState(msgspec.Struct, frozen=True):
    """A query: what was asked by whom, and how far it is. ``parts`` are the files of its rows, in order.

    ``state`` is queued, running, completed, failed, cancelled or lost.
    """

    id: str
    submitted_by: str
    query: dict[str, object]
    state: str
    created_at: datetime
    written_at: datetime
    expires_at: datetime
    url: str | None = None
    ended_at: datetime | None = None
    rows: int = 0
    size_bytes: int = 0
    parts: tuple[str, ...] = ()
    error: dict[str, str] | None = None


class SubmittedQueries:
    """The queries of an instance; those that are submitted here run here. Safe to use from many threads."""

    def __init__(self, instance: Instance, *, threads: int, kept_s: float) -> None:
        self._instance = instance
        self._storage = instance.storage
        self._kept_s = kept_s
        self._threads = ThreadPoolExecutor(threads, "lakebed-query")
        self._running: dict[str, tuple[QueryState, threading.Event]] = {}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._beat: threading.Thread | None = None

    # -- what callers do ------------------------------------------------------------------------------------------

    def submit(self, query: dict[str, object], by: str, open_rows: OpenRows, url: str | None = None) -> QueryState:
        """Record the query and run it as soon as a thread is free."""
        now = clock.now()
        expires_at = now + timedelta(seconds=self._kept_s)
        state = QueryState(clock.new_id(), by, query, "queued", now, now, expires_at, url)
        target, prefix = self._target(state)
        cancelled = threading.Event()
        self._write(state)
        with self._lock:
            self._running[state.id] = state, cancelled
            if self._beat is None:
                self._beat = threading.Thread(target=self._beats, name="lakebed-query-beat", daemon=True)
                self._beat.start()
        self._threads.submit(self._run, state.id, open_rows, target, prefix)
        return state

    def get(self, query_id: str) -> QueryState:
        """The state of a query, as it was last written. Raises NotFoundError."""
        found = self._read(query_id) if is_id(query_id) else None
        if found is None:
            raise Code.QUERY_NOT_FOUND(f"no query {query_id[:100]!r}: it expired, or never was", query=query_id[:100])
        return found

    def states(self) -> list[QueryState]:
        """All queries, the newest first."""
        ids = sorted({one.name.split("/")[1] for one in self._storage.list(FOLDER)}, reverse=True)
        return [state for state in map(self._read, ids) if state is not None]

    def cancel(self, query_id: str) -> QueryState:
        """End a query that runs, wherever that is; delete one that has ended, with its rows if they are kept here."""
        state = self.get(query_id)
        if state.state in RUNNING:
            self._storage.replace(f"{FOLDER}/{query_id}/{CANCEL}", b"{}")
            with self._lock:
                if query_id in self._running:
                    self._running[query_id][1].set()
            return self.get(query_id)
        self._delete(state)
        return state

    def rows(self, state: QueryState) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The rows of a completed query. Raises UsageError for one that is not completed."""
        if state.state != "completed":
            raise Code.ARGUMENT_INVALID(f"query {state.id} is {state.state}; its rows are there once it is completed")
        storage, prefix = self._target(state)
        with storage.fetch(f"{prefix}{state.parts[0]}") as first:
            schema = pq.read_schema(first)
        return schema, self._batches(storage, [f"{prefix}{part}" for part in state.parts])

    def sweep(self) -> int:
        """Delete the queries whose time is over; returns how many."""
        over = [state for state in self.states() if state.expires_at < clock.now() and state.state not in RUNNING]
        for state in over:
            self._delete(state)
        return len(over)

    def close(self) -> None:
        """Cancel the queries that run here, and wait until they have ended."""
        self._stopped.set()
        with self._lock:
            for _, cancelled in self._running.values():
                cancelled.set()
        self._threads.shutdown(cancel_futures=False)

    # -- running --------------------------------------------------------------------------------------------------

    def _run(self, query_id: str, open_rows: OpenRows, target: Storage, prefix: str) -> None:
        cancelled = self._running[query_id][1]
        try:
            if not cancelled.is_set():
                self._note(query_id, state="running")
                self._write_parts(query_id, open_rows(cancelled), target, prefix, cancelled)
            self._note(query_id, state="cancelled" if cancelled.is_set() else "completed")
        except Exception as error:  # noqa: BLE001 - a query may fail in any way, and says so
            if cancelled.is_set():
                self._note(query_id, state="cancelled")
            else:
                if not isinstance(error, Error):
                    _LOG.error("query %s failed", query_id, exc_info=error)
                self._note(query_id, state="failed", error=_error_of(error))
        finally:
            with self._lock:
                ended, _ = self._running.pop(query_id)
            with suppress(Error):
                self._write(msgspec.structs.replace(ended, ended_at=clock.now()))
            with suppress(Error):
                self._storage.delete([f"{FOLDER}/{query_id}/{CANCEL}"])

    def _write_parts(
        self, query_id: str, rows: RowReader, target: Storage, prefix: str, cancelled: threading.Event
    ) -> None:
        with tempfile.TemporaryDirectory(prefix="lakebed-query-") as folder:
            try:
                batches = iter(rows)
                batch = next(batches, None)
                while not cancelled.is_set():
                    path = Path(folder) / "part.parquet"
                    with pq.ParquetWriter(path, rows.schema, compression="zstd") as writer:
                        while batch is not None and not cancelled.is_set():
                            writer.write_batch(batch)
                            self._count(query_id, batch.num_rows)
                            full = path.stat().st_size >= PART_BYTES
                            batch = next(batches, None)
                            if full:
                                break
                    self._send(query_id, path, target, prefix)
                    if batch is None:
                        return
            finally:
                rows.close()

    def _send(self, query_id: str, path: Path, target: Storage, prefix: str) -> None:
        state = self._running[query_id][0]
        name = f"part-{len(state.parts):05}.parquet"
        size_bytes = path.stat().st_size
        target.send(f"{prefix}{name}", path)
        path.unlink(missing_ok=True)
        self._note(query_id, parts=(*state.parts, name), size_bytes=state.size_bytes + size_bytes)

    def _count(self, query_id: str, rows: int) -> None:
        self._note(query_id, rows=self._running[query_id][0].rows + rows)

    def _note(self, query_id: str, **changes: object) -> None:
        with self._lock:
            state, cancelled = self._running[query_id]
            self._running[query_id] = msgspec.structs.replace(state, **changes), cancelled

    def _beats(self) -> None:
        """Write the states of what runs here, heed requests to cancel, and sweep now and then."""
        while not self._stopped.wait(BEAT_S):
            try:
                with self._lock:
                    running = dict(self._running)
                for query_id, (state, cancelled) in running.items():
                    if self._storage.get(f"{FOLDER}/{query_id}/{CANCEL}") is not None:
                        cancelled.set()
                    self._write(state)
                self.sweep()
            except Error as error:
                _LOG.warning("the states of queries could not be written: %s", error)

    # -- storage --------------------------------------------------------------------------------------------------

    def _target(self, state: QueryState) -> tuple[Storage, str]:
        if state.url is None:
            return self._storage, f"{FOLDER}/{state.id}/"
        return connect(state.url, options_for(state.url, self._instance.url, self._instance.storage_options)), ""

    def _write(self, state: QueryState) -> None:
        document = msgspec.json.encode(msgspec.structs.replace(state, written_at=clock.now()))
        self._storage.replace(f"{FOLDER}/{state.id}/{STATE}", document)

    def _read(self, query_id: str) -> QueryState | None:
        with self._lock:
            if query_id in self._running:
                return self._running[query_id][0]
        data = self._storage.get(f"{FOLDER}/{query_id}/{STATE}")
        if data is None:
            return None
        try:
            state = msgspec.json.decode(data, type=QueryState)
        except msgspec.MsgspecError as error:
            raise Code.DOCUMENT_DAMAGED(f"the state of query {query_id} cannot be read: {error}") from error
        if state.state in RUNNING and clock.now() - state.written_at > timedelta(seconds=LOST_S):
            return msgspec.structs.replace(state, state="lost")
        return state

    def _delete(self, state: QueryState) -> None:
        names = sorted((one.name for one in self._storage.list(f"{FOLDER}/{state.id}")), reverse=True)
        # The state goes last ("state.json" after the parts): what is listed can always be deleted again.
        self._storage.delete([name for name in names if not name.endswith(STATE)])
        self._storage.delete([f"{FOLDER}/{state.id}/{STATE}"])

    @staticmethod
    def _batches(storage: Storage, names: list[str]) -> Iterator[pa.RecordBatch]:
        for name in names:
            with storage.fetch(name) as path, pq.ParquetFile(path) as file:
                yield from file.iter_batches()


def _error_of(error: Exception) -> dict[str, str]:
    if isinstance(error, Error):
        return {"kind": error.kind, "code": error.code.value, "message": error.message}
    return {"kind": "bug", "code": "bug", "message": "the service failed; its log says why"}
