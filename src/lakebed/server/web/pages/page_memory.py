"""What pages keep between requests, so that most read nothing: key spaces, sizes of tables, and recent commits.

*Sizes* that a page reads are recorded. Earlier versions are replayed once from the log, in the background, on the first
visit. A version never changes, so nothing is read twice.

*Copies* of a table are recorded beside its log; the last records are read again after :data:`COPIES_S`.

*Commits* are read from the logs of tables in the background while pages are viewed. A page waits briefly for the newest
ones, then shows the known ones. A round reads the entries that tables have by the status of the service and that were
not read before, newest first: at most :data:`ENTRIES_MAX` of a table, and none older than :data:`WINDOW_S`. Entries
beyond these limits are not counted, which pages indicate. No state is read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from lakebed import clock
from lakebed.errors import Error
from lakebed.model.state.sums import partition_sums
from lakebed.model.state.table_state import TableState
from lakebed.read.drawing.key_space import KeySpace
from lakebed.read.inspect.history import CopyRecord, HistoryRow, read_copies, rows_of
from lakebed.server.service.status import TableStatus
from lakebed.table.instance import Instance
from lakebed.table.table import Table

WINDOW_S = 86_400

ENTRIES_MAX = 200

ROWS_KEPT = 50
"""Of each table: some 20 MB for a thousand tables."""

THREADS = 4
"""That wait for a remote store at once. On a local disk there is nothing to wait for, and one thread is faster."""


@dataclass(slots=True)
class Minute:
    """The commits of a table in one minute."""

    commits: int = 0
    rows: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class RecentCommits:
    """The commits of one table up to ``version``, by the minute since 1970, the time of the last one, and the
    last :data:`ROWS_KEPT` of them, newest first.

    ``cut``: there were more than were read. Tables that begin to be watched are read newest first.
    """

    table: Table
    version: int = 0
    committed_at: datetime | None = None
    cut: bool = False
    minutes: dict[int, Minute] = field(default_factory=dict)
    rows: tuple[HistoryRow, ...] = ()

    def read_on(self, version: int, now: datetime) -> None:
        """Count the commits up to ``version`` that are new. Requests: one for each entry. Raises as reading a log."""
        first = int((now.timestamp() - WINDOW_S) // 60)
        found: dict[int, Minute] = {}
        rows: list[HistoryRow] = []
        newest: datetime | None = None
        for number in range(version, self.version, -1):
            if version - number >= ENTRIES_MAX:
                self.cut = True
                break
            stored = self.table.log.read(number)
            if stored is None:
                break
            newest = newest or stored.stored_at
            minute = int(stored.stored_at.timestamp() // 60)
            if minute < first:
                break
            counted = found.setdefault(minute, Minute())
            for row in rows_of(stored, self.table.id):
                rows.append(row)
                counted.commits += 1
                if not row.rewrites:
                    counted.rows += row.rows_added
                    counted.size_bytes += row.bytes_added
        kept = {minute: one for minute, one in self.minutes.items() if minute >= first}
        for minute, one in found.items():
            before = kept.get(minute, Minute())
            kept[minute] = Minute(
                before.commits + one.commits, before.rows + one.rows, before.size_bytes + one.size_bytes
            )
        self.rows = (*rows, *self.rows)[:ROWS_KEPT]
        self.minutes, self.version, self.committed_at = kept, version, newest or self.committed_at


class Activity:
    """The recent commits of all tables of an instance. Safe to use from many threads."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._recent: dict[str, RecentCommits] = {}
        self._ended = threading.Condition()
        self._round: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def has_begun(self) -> bool:
        """Whether any commits are known."""
        return bool(self._recent)

    def close(self) -> None:
        """End the current round, and start no other."""
        self._closed.set()
        running = self._round
        if running is not None:
            running.join()

    def recent(self, tables: Sequence[TableStatus], wait_s: float) -> dict[str, RecentCommits]:
        """Return the recent commits of these tables by their ids, after at most ``wait_s`` for newer ones."""
        deadline_s = clock.monotonic_s() + wait_s
        with self._ended:
            self._begin(tables)
            while self._round is not None and (left_s := deadline_s - clock.monotonic_s()) > 0:
                self._ended.wait(left_s)
        return {table.id: self._recent[table.id] for table in tables if table.id in self._recent}

    def _begin(self, tables: Sequence[TableStatus]) -> None:
        """Begin a round if a table has new commits, and none is under way."""
        behind = [table for table in tables if table.version > self._version_of(table)]
        if behind and self._round is None and not self._closed.is_set():
            self._round = threading.Thread(target=self._go_round, args=(behind,), name="lakebed-activity", daemon=True)
            self._round.start()

    def _version_of(self, table: TableStatus) -> int:
        known = self._recent.get(table.id)
        return 0 if known is None else known.version

    def _go_round(self, tables: Sequence[TableStatus]) -> None:
        try:
            if self._instance.storage.locality.near:
                for table in tables:
                    self._read(table)
            else:
                with ThreadPoolExecutor(THREADS, "lakebed-activity") as pool:
                    list(pool.map(self._read, tables))
        finally:
            with self._ended:
                self._round = None
                self._ended.notify_all()

    def _read(self, table: TableStatus) -> None:
        if self._closed.is_set():
            return
        known = self._recent.get(table.id) or RecentCommits(self._instance.unnamed(table.id))
        try:
            known.read_on(table.version, clock.now())
        except Error:
            # The status of the service says why the log cannot be read; a later round tries again.
            return
        self._recent[table.id] = known


@dataclass(frozen=True, slots=True)
class Throughput:
    """Commits, rows and bytes in equal periods of ``period_s``, oldest first; the last one is not over yet.

    ``begin_s`` is that of the first period in seconds since 1970. ``cut``: tables had more commits than were read.
    """

    period_s: int
    begin_s: int
    commits: tuple[int, ...]
    rows: tuple[int, ...]
    size_bytes: tuple[int, ...]
    cut: bool


def throughput(recent: Iterable[RecentCommits], now: datetime, *, minutes: int, periods: int) -> Throughput:
    """Return the commits of all tables in the last ``periods``, each of ``minutes``."""
    last = int(now.timestamp() // 60) // minutes
    first = last - periods + 1
    commits, rows, size_bytes = [0] * periods, [0] * periods, [0] * periods
    cut = False
    for one in recent:
        cut = cut or one.cut
        for minute, counted in one.minutes.items():
            place = minute // minutes - first
            if 0 <= place < periods:
                commits[place] += counted.commits
                rows[place] += counted.rows
                size_bytes[place] += counted.size_bytes
    return Throughput(60 * minutes, first * minutes * 60, tuple(commits), tuple(rows), tuple(size_bytes), cut)


REPLAYED_MAX = 200

REPLAY_S = 5.0

PARTITIONS_MAX = 20_000
"""Older states of larger tables are not replayed: it would hold a second state in memory, while pages wait."""

SIZES_MAX = 400
"""That are kept of a table."""

SAMPLES = 50

COPIES_MAX = 20


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
            first = max(1, log.log_start() + 1, version - REPLAYED_MAX)
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


KEY_SPACES_MAX = 8
"""40 bytes a partition: 5 MB for a table of 132,000."""

HISTORIES_MAX = 64

COPIES_S = 60.0
"""Pages are fetched every few seconds, and a look for copies is a request to list."""


class PageMemory:
    """One for an application. Safe to use from many threads."""

    def __init__(self, instance: Instance) -> None:
        self.activity = Activity(instance)
        self._key_spaces: OrderedDict[str, KeySpace] = OrderedDict()
        self._histories: OrderedDict[str, SizeHistory] = OrderedDict()
        self._copies: OrderedDict[str, tuple[float, tuple[CopyRecord, ...]]] = OrderedDict()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Stop the background work."""
        self.activity.close()
        for one in self._histories.values():
            one.close()

    def key_space(self, state: TableState) -> KeySpace:
        """Return the key space of a state of a table."""
        with self._lock:
            known = self._key_spaces.get(state.table)
            if known is not None and known.version == state.version:
                self._key_spaces.move_to_end(state.table)
                return known
        found = KeySpace.of(state)
        with self._lock:
            self._key_spaces[state.table] = found
            if len(self._key_spaces) > KEY_SPACES_MAX:
                self._key_spaces.popitem(last=False)
        return found

    def copies(self, table: Table) -> tuple[CopyRecord, ...]:
        """Return the last :data:`COPIES_MAX` records of copies of a table, newest first. Raises StorageError."""
        now_s = clock.monotonic_s()
        with self._lock:
            read_s, known = self._copies.get(table.id, (-COPIES_S, ()))
        if now_s - read_s < COPIES_S:
            return known
        found = tuple(islice(read_copies(table.storage, table.id, newest_first=True), COPIES_MAX))
        with self._lock:
            self._copies[table.id] = now_s, found
            self._copies.move_to_end(table.id)
            if len(self._copies) > HISTORIES_MAX:
                self._copies.popitem(last=False)
        return found

    def sizes(self, table: Table) -> SizeHistory:
        """Return the sizes of a table."""
        with self._lock:
            found = self._histories.setdefault(table.id, SizeHistory(table))
            self._histories.move_to_end(table.id)
            dropped = self._histories.popitem(last=False)[1] if len(self._histories) > HISTORIES_MAX else None
        if dropped is not None:
            dropped.close()
        return found
