"""How a process reads one table: it follows the log, and keeps what it opened from one read to the next.

What is read is always a :class:`~lakebed.snapshot.snapshot.Snapshot`; here is decided of which version: the newest, one
that must not be older than some other, or one of the past.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.errors import NotFoundError, StorageError
from lakebed.model.checks import check_seconds, check_whole_number
from lakebed.state.time_travel import check_time, locate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakebed.log.committer import Log
    from lakebed.model.files import DataFile
    from lakebed.read.reader import Reader
    from lakebed.settings import Settings
    from lakebed.snapshot.snapshot import Snapshot
    from lakebed.state.table_state import TableState
    from lakebed.state.transactions import Proposal, Transaction
    from lakebed.storage.contract import Storage

WAIT_S = 10.0
"""For a version that another process reported: its entry exists by then, so this is for slow stores
that show it late, and for a number that is about to be written."""

_LOOK_FIRST_S, _LOOK_S = 0.01, 0.25

_NO_TIME = timedelta(0)

_NEAR = ("file://", "memory://")


class TableReads:
    """The reads of one table in this process. Safe to use from many threads."""

    def __init__(
        self,
        storage: Storage,
        log: Log[TableState, Proposal, Transaction],
        table_id: str,
        settings: Callable[[], Settings],
    ) -> None:
        self._storage = storage
        self._log = log
        self._table_id = table_id
        self._settings = settings
        self._is_near = storage.url.startswith(_NEAR)
        self._probed_s: float | None = None
        self._clock_read: tuple[datetime, float] | None = None

    def state(self, max_staleness: float | None = None, at_least: int | None = None) -> TableState:
        """The newest state, or with ``max_staleness`` (seconds) one that was the newest at most so long ago.

        With ``at_least`` it waits until the log has that version. Raises UsageError if it is none, NotFoundError if it
        does not come within ten seconds.
        """
        if at_least is None:
            return self._newest(max_staleness)
        check_whole_number("at_least", at_least)
        began, pause = clock.monotonic_s(), _LOOK_FIRST_S
        state = self._newest(max_staleness)
        while state.version < at_least:
            if clock.monotonic_s() - began >= WAIT_S:
                raise NotFoundError(
                    f"the table has the versions up to {state.version}, and {at_least} did not come within "
                    f"{WAIT_S:.0f} s; is it a number of this table?",
                    version=at_least,
                )
            clock.sleep(pause)
            pause = min(2 * pause, _LOOK_S)
            state = self._newest(None)
        return state

    def get(
        self, key: Sequence[Any], columns: Sequence[str] | None, max_staleness: float | None, at_least: int | None
    ) -> pa.Table:
        """As :meth:`lakebed.table.table.Table.get`.

        On a remote store the lookup runs in the latest state known (at first that of the latest checkpoint) while the
        log is probed. Usually there is no newer state, which saves a round trip or two. Otherwise it runs again.
        """
        known = None
        if not self._is_near and at_least is None and not self._is_fresh(max_staleness):
            known = self._log.open()
        if known is None or not known.version:
            return self.reader.points.get(self.state(max_staleness, at_least), key, columns)
        from concurrent.futures import ThreadPoolExecutor

        thread = ThreadPoolExecutor(1, "lakebed-read")
        try:
            reading = thread.submit(self.reader.points.get, known, key, columns)
            state = self.state()
            if state.version == known.version:
                return reading.result()
            return self.reader.points.get(state, key, columns)
        finally:
            # What was read of an older state is not waited for.
            thread.shutdown(wait=False, cancel_futures=True)

    def snapshot(self, state: TableState) -> Snapshot:
        """What can be read at a state."""
        from lakebed.snapshot.snapshot import Snapshot

        return Snapshot(state, self.reader, self._storage)

    @cached_property
    def reader(self) -> Reader:
        """What reads the files, made at first use: whoever only writes need not import it."""
        from lakebed.read.reader import Reader

        return Reader(self._storage, self._table_id, self._keeps, lambda: self._settings().memory_limit_bytes)

    def at(self, version: int | None, time: datetime | str | None, tag: str | None) -> Snapshot:
        """As :meth:`lakebed.table.table.Table.at`."""
        state = self.state()
        if time is not None:
            state = self._at_least_of(check_time(time), state)
        found = locate(state, self._log.entry_last_modified, version=version, time=time, tag=tag)
        return self.snapshot(self._state_at(found, state))

    def keep(self, tag: str, version: int | None) -> tuple[int, bool]:
        """The version that a tag is to stand at, by default the newest, and whether it does already.

        If not, the checkpoint of that version is kept from now on: once the tag is there, nothing but the tag keeps the
        version.
        """
        state = self.state()
        found = locate(state, self._log.entry_last_modified, version=state.version if version is None else version)
        stands = state.tags.get(tag) == found
        if not stands:
            from lakebed.log.replay import replay

            self._log.retained.retain(replay(self._log, found))
        return found, stands

    @contextmanager
    def pin(self, version: int | None) -> Iterator[Snapshot]:
        """As :meth:`lakebed.table.table.Table.pin`."""
        from lakebed.snapshot.pins import Pin

        state = self.state()
        if version is not None:
            locate(state, self._log.entry_last_modified, version=version)
        with Pin(self._storage, self._table_id) as pin:
            if version is None:
                state = pin.hold(state, self.state)
            else:
                pin.put(version)
                newest = self.state()
                state = self._state_at(locate(newest, self._log.entry_last_modified, version=version), newest)
            yield self.snapshot(state)

    def _at_least_of(self, moment: datetime, state: TableState) -> TableState:
        """The given state if it has an entry after the moment; else the newest, once the store's clock has passed it.

        Raises NotFoundError if the moment is more than ten seconds ahead of that clock.
        """
        if not state.version or self._log.entry_last_modified(state.version) > moment:
            return state
        ahead = moment - self._store_now(anew=False)
        if ahead > _NO_TIME:
            # The machine may have slept since, which its monotonic clock does not count.
            ahead = moment - self._store_now(anew=True)
        if ahead > timedelta(seconds=WAIT_S):
            raise NotFoundError(
                f"time = {moment.isoformat()} is not there yet: it is {ahead} ahead of the store's clock, "
                "and entries before it may still come; for the newest version leave the time out"
            )
        if ahead > _NO_TIME:
            # A clock of the caller's that is a little fast is no mistake of his.
            clock.sleep(ahead.total_seconds())
        return self.state()

    def _store_now(self, *, anew: bool) -> datetime:
        """The clock that last-modified times entries, or a little less: asked once, and reckoned from then on.

        Where the store cannot be written its clock cannot be asked; this machine's takes its place then.
        """
        if anew or self._clock_read is None:
            try:
                self._clock_read = self._log.now(), clock.monotonic_s()
            except StorageError as error:
                if error.facts.get("transient"):
                    raise
                return clock.now()
        last_modified, read_s = self._clock_read
        return last_modified + timedelta(seconds=clock.monotonic_s() - read_s)

    def _newest(self, max_staleness: float | None) -> TableState:
        if max_staleness is not None and self._is_fresh(max_staleness):
            return self._log.head.state
        before = clock.monotonic_s()
        state = self._log.tail.follow().state
        self._probed_s = before
        return state

    def _is_fresh(self, max_staleness: float | None) -> bool:
        """Whether the log was asked so many seconds ago, or later. Raises UsageError for no number of seconds."""
        check_seconds("max_staleness", max_staleness)
        if max_staleness is None or self._probed_s is None:
            return False
        return clock.monotonic_s() - self._probed_s <= max_staleness

    def _state_at(self, version: int, newest: TableState) -> TableState:
        from lakebed.log.replay import replay

        return newest if version == newest.version else replay(self._log, version).state

    def _keeps(self, file: DataFile) -> bool:
        """Whether the file's object must be there: the newest state has it, and did not give it up for deletion."""
        known = self.state().files.get(file.id)
        return known is not None and not known.retired
