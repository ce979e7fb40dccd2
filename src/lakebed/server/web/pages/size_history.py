"""The rows, bytes and files of a table at some of its versions, oldest first.

Sizes that a page reads are recorded. Earlier versions are replayed once from the log, in the background, on the first
visit: at most :data:`ENTRIES_MAX` entries, for at most :data:`REPLAY_S`. A version never changes, so nothing is read
twice.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime

from lakebed import clock
from lakebed.errors import Error
from lakebed.model.state.sums import partition_sums
from lakebed.model.state.table_state import TableState
from lakebed.table.table import Table

ENTRIES_MAX = 200

REPLAY_S = 5.0

PARTITIONS_MAX = 20_000
"""Older states of larger tables are not replayed: it would hold a second state in memory, while pages wait."""

SIZES_MAX = 400
"""That are kept of a table."""

SAMPLES = 50


@dataclass(frozen=True, slots=True)
class SizeAt:
    """The size of a table after a version, which was committed at a time."""

    version: int
    at: datetime
    rows: int
    size_bytes: int
    files: int
    partitions: int


def size_of(table: Table, state: TableState) -> SizeAt:
    """Return the size of a state. Requests: one, for the time of its entry."""
    sums = partition_sums(state).values()
    return SizeAt(
        version=state.version,
        at=table.log.last_modified_or_epoch(state.version),
        rows=sum(one.rows for one in sums),
        size_bytes=sum(one.size_bytes for one in sums),
        files=sum(one.files for one in sums),
        partitions=len(state.partitions),
    )


class SizeHistory:
    """The sizes of one table. Safe to use from many threads."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._sizes: dict[int, SizeAt] = {}
        self._lock = threading.Lock()
        self._replay: threading.Thread | None = None
        self._closed = threading.Event()

    def close(self) -> None:
        """End a replay."""
        self._closed.set()
        if self._replay is not None:
            self._replay.join()

    def upto(self, size: SizeAt, wait_s: float) -> list[SizeAt]:
        """Return all sizes that are known, after a wait of at most ``wait_s`` for the replay of the earlier ones."""
        with self._lock:
            self._note(size)
            if self._replay is None and size.partitions <= PARTITIONS_MAX and not self._closed.is_set():
                self._replay = threading.Thread(
                    target=self._replay_before, args=(size.version,), name="lakebed-sizes", daemon=True
                )
                self._replay.start()
            replaying = self._replay
        if replaying is not None:
            replaying.join(wait_s)
        with self._lock:
            return [self._sizes[version] for version in sorted(self._sizes)]

    def _note(self, size: SizeAt) -> None:
        self._sizes[size.version] = size
        if len(self._sizes) > SIZES_MAX:
            # Every second of the older half: they are spread over more time than the newer ones.
            for version in sorted(self._sizes)[1 : SIZES_MAX // 2 : 2]:
                del self._sizes[version]

    def _replay_before(self, version: int) -> None:
        log, began_s = self._table.log, clock.monotonic_s()
        try:
            first = max(1, log.log_start() + 1, version - ENTRIES_MAX)
            every = max(1, (version - first) // SAMPLES)
            head = log.at(first)
            self._take(head.state)
            for following, _ in log.past.after(head, version - 1):
                if self._closed.is_set() or clock.monotonic_s() - began_s > REPLAY_S:
                    return
                if (following.version - first) % every == 0:
                    self._take(following.state)
        except Error:
            # Truncated, or the store is unavailable: the history begins with the recorded sizes.
            return

    def _take(self, state: TableState) -> None:
        size = size_of(self._table, state)
        with self._lock:
            self._note(size)
