"""The versions of one table as a process reads them: it follows the log, and keeps open files from read to read.

Every read is one of a :class:`~lakebed.read.snapshot.snapshot.Snapshot`. Core type: :class:`TableVersions`, which
chooses its version: the latest, one at least as new as another, or a past one. Errors: NotFoundError, NotRetainedError.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakebed import clock
from lakebed.errors import Code, Error, StorageError
from lakebed.model.checks import check_seconds, check_whole_number
from lakebed.model.extension_values import returned
from lakebed.model.state.time_travel import argument_of, check_time, given_moment, locate
from lakebed.read.snapshot.snapshot import Snapshot
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lakebed.log.checkpoint import Head
    from lakebed.log.log import Log
    from lakebed.model.files import DataFile
    from lakebed.model.state.table_state import TableState
    from lakebed.model.state.transactions import Proposal, Transaction
    from lakebed.read.rows.reader import Reader
    from lakebed.read.snapshot.handles import TableAddress
    from lakebed.storage.contract import Storage

WAIT_S = 10.0
"""The maximum wait for a version that another process reported: its entry exists, so this is for stores that list it
late, and for a version that is about to be written."""

BASE_AGE_S = 60.0
"""A write without a commit id reads the log if the last read is older, so that its base version is recent."""

LOOK_FIRST_S, LOOK_S = 0.01, 0.25
"""The pauses between looks for a version that is waited for: the first, and the longest."""

_NO_TIME = timedelta(0)
_CLOCKS_APART = timedelta(minutes=1)
"""A time that is longer past by this machine's clock is past by the store's, or is read like one that is."""


def version_missing(latest: int, version: int, waited_s: float) -> Error:
    """Return the error of a read that waited for a version in vain."""
    return Code.VERSION_NOT_FOUND(
        f"the table has versions up to {latest}, and version {version} did not appear within {waited_s:g} s; check "
        "that it is a version of this table",
        version=version,
    )


class TableVersions:
    """The versions of one table in one process. Safe to use from many threads."""

    def __init__(  # noqa: PLR0913 - what the versions of a table are read with
        self,
        table_id: str,
        storage: Storage,
        log: Log[TableState, Proposal, Transaction],
        memory_limit_bytes: Callable[[], int],
        reopening: TableAddress | None = None,
        *,
        related: Callable[[str], TableVersions] | None = None,
    ) -> None:
        """``reopening`` is where the table can be opened again; None: nowhere.

        ``related`` opens other tables by their ids.
        """
        self.id = table_id
        self.storage = storage
        self.log = log
        self.reopening = reopening
        self._open = related
        self._related: dict[str, TableVersions] = {}
        self._memory_limit_bytes = memory_limit_bytes
        self._is_near = storage.locality.near
        self._probed_s: float | None = None
        self._clock_read: tuple[datetime, float] | None = None

    def snapshot(self, max_staleness: float | None = None, at_least: int | None = None) -> Snapshot:
        """As :meth:`lakebed.table.table.Table.snapshot`."""
        return self._snapshot_of(self._present_state(max_staleness, at_least))

    def state(self, max_staleness: float | None = None, at_least: int | None = None) -> TableState:
        """As :meth:`lakebed.table.table.Table.state`."""
        if at_least is None:
            return self._newest(max_staleness)
        check_whole_number("at_least", at_least)
        began, pause = clock.monotonic_s(), LOOK_FIRST_S
        state = self._newest(max_staleness)
        while state.version < at_least:
            if clock.monotonic_s() - began >= WAIT_S:
                raise version_missing(state.version, at_least, WAIT_S)
            clock.sleep(pause)
            pause = min(2 * pause, LOOK_S)
            state = self._newest(None)
        return state

    def _present_state(self, max_staleness: float | None = None, at_least: int | None = None) -> TableState:
        """As :meth:`state`.

        Also raises NotFoundError for a dropped table, whose files may still exist, and for an index.
        """
        state = self._newest(max_staleness) if at_least is None else self.state(max_staleness, at_least)
        if state.dropped:
            raise Code.TABLE_NOT_FOUND(f"the table was dropped at version {state.version}", table=state.table)
        if state.view is not None and state.view.index is not None:
            raise Code.INDEX_NOT_READ(
                "an index has entries of rows that changed since, so it is not read itself: read its table with by, as "
                "in get(by={'tailnum': 'N14228'})",
                table=state.table,
            )
        return state

    def base_state(self) -> TableState:
        """As :meth:`lakebed.table.table.Table.base_state`."""
        return self.log.head.state if self._is_fresh(BASE_AGE_S) else self._newest(None)

    def get(
        self, key: Sequence[Any], columns: Sequence[str] | None, max_staleness: float | None, at_least: int | None
    ) -> pa.Table:
        """As :meth:`lakebed.table.table.Table.get`.

        On a remote store the lookup runs in the latest state known (at first the one that the cache on local disk
        remembers, or that of the latest checkpoint) while the log is probed. Usually there is no newer state, which
        saves a round trip or two. Otherwise it runs again.
        """
        known = None
        if not self._is_near and at_least is None and not self._is_fresh(max_staleness):
            known = self.log.likely()
        if known is None or not known.version:
            # A call of span would be one more for each lookup, so it is made only if something is measured.
            with telemetry.UNMEASURED if telemetry.sink is None else telemetry.span("read", kind="get", table=self.id):
                state = self._present_state(max_staleness, at_least)
                rows = self.reader.get(state, key, columns)
        else:
            with telemetry.span("read", kind="get", table=self.id):
                rows, state = self._get_beside_probe(known, key, columns)
        return returned(rows, state.created) if state.created.dictionaries else rows

    def _get_beside_probe(
        self, known: Head[TableState], key: Sequence[Any], columns: Sequence[str] | None
    ) -> tuple[pa.Table, TableState]:
        """Return the rows of a key in the latest state, read in a known one while the log is probed for a newer."""
        from concurrent.futures import ThreadPoolExecutor

        thread = ThreadPoolExecutor(1, "lakebed-read")
        try:
            reading = thread.submit(telemetry.carry(self.reader.get), known.state, key, columns)
            state = self._present_state()
            now = self.log.head
            # A remembered state may have the same version in a log that was restored since.
            if state.version == known.version == now.version and known.digest == now.digest:
                return reading.result(), state
            return self.reader.get(state, key, columns), state
        finally:
            # Do not wait for a read of an older state.
            thread.shutdown(wait=False, cancel_futures=True)

    @cached_property
    def reader(self) -> Reader:
        """Return the reader of data files, made at first use, since a process that only writes need not import it."""
        from lakebed.read.rows.reader import Reader

        return Reader(self.storage, self.id, self._keeps, self._memory_limit_bytes)

    def at(
        self,
        moment: int | datetime | str | None = None,
        /,
        *,
        version: int | None = None,
        time: datetime | str | None = None,
        tag: str | None = None,
    ) -> Snapshot:
        """As :meth:`lakebed.table.table.Table.at`."""
        given_moment(moment, version=version, time=time, tag=tag)
        state = self._present_state()
        given = argument_of(state, moment, version=version, time=time, tag=tag)
        if "time" in given:
            state = self._at_least_of(check_time(given["time"]), state)
        target_version = locate(state, self.log.entry_last_modified, **given)
        return self._snapshot_of(self._state_at(target_version, state))

    def taggable(self, tag: str, version: int | None) -> tuple[int, bool]:
        """Return the version to tag, by default the latest, and whether it has the tag already.

        If not, the checkpoint of that version is retained from now on: the tag may later be its only use.
        """
        state = self.state()
        target = locate(state, self.log.entry_last_modified, version=state.version if version is None else version)
        stands = state.tags.get(tag) == target
        if not stands:
            self.log.retained.retain(self.log.at(target))
        return target, stands

    @contextmanager
    def pin(self, version: int | None = None) -> Iterator[Snapshot]:
        """As :meth:`lakebed.table.table.Table.pin`."""
        from lakebed.read.snapshot.pins import Pin

        state = self._present_state()
        if version is not None:
            locate(state, self.log.entry_last_modified, version=version)
        with Pin(self.storage, self.id) as pin:
            if version is None:
                state = pin.hold(state, self.state)
            else:
                pin.put(version)
                newest = self.state()
                state = self._state_at(locate(newest, self.log.entry_last_modified, version=version), newest)
            yield self._snapshot_of(state)

    def seconds_until(self, moment: Any) -> float:
        """Return how long :meth:`at` would wait for a moment to come; 0 if it would not.

        Asks the store for its clock if the moment may be to come. Raises UsageError for a time that is none.
        """
        given = argument_of(self.log.head.state, moment)
        if "time" not in given:
            return 0.0
        time = check_time(given["time"])
        if time < clock.now() - _CLOCKS_APART:
            return 0.0
        ahead = time - self._store_now(anew=False)
        return ahead.total_seconds() if _NO_TIME < ahead <= timedelta(seconds=WAIT_S) else 0.0

    def _at_least_of(self, moment: datetime, state: TableState) -> TableState:
        """Return the given state if it has an entry after the moment; else the latest, once the store's clock has
        passed it.

        Raises NotFoundError if the moment is more than ten seconds ahead of that clock.
        """
        if not state.version or self.log.entry_last_modified(state.version) > moment:
            return state
        ahead = moment - self._store_now(anew=False)
        if ahead > _NO_TIME:
            # The machine may have slept since, which its monotonic clock does not count.
            ahead = moment - self._store_now(anew=True)
        if ahead > timedelta(seconds=WAIT_S):
            raise Code.TIME_NOT_REACHED(
                f"time = {moment.isoformat()} is {ahead} ahead of the store's clock, so more entries may precede "
                "it; to read the latest version, leave the time out"
            )
        if ahead > _NO_TIME:
            # The caller's clock may be slightly fast.
            clock.sleep(ahead.total_seconds())
        return self.state()

    def _store_now(self, *, anew: bool) -> datetime:
        """Return the time of the store's clock, or slightly less: read once, and extrapolated from then on.

        A store that cannot be written does not expose its clock; this machine's is used then.
        """
        if anew or self._clock_read is None:
            try:
                self._clock_read = self.log.now(), clock.monotonic_s()
            except StorageError as error:
                if error.facts.get("transient"):
                    raise
                return clock.now()
        last_modified, read_s = self._clock_read
        return last_modified + timedelta(seconds=clock.monotonic_s() - read_s)

    def _newest(self, max_staleness: float | None) -> TableState:
        fresh = max_staleness is not None and self._is_fresh(max_staleness)
        if fresh and self.log.head.version >= self.log.committed:
            return self.log.head.state
        before = clock.monotonic_s()
        state = self.log.tail.follow().state
        self._probed_s = before
        return state

    def _is_fresh(self, max_staleness: float | None) -> bool:
        """Return whether the log was probed within the last ``max_staleness`` seconds. Raises UsageError."""
        check_seconds("max_staleness", max_staleness)
        if max_staleness is None or self._probed_s is None:
            return False
        return clock.monotonic_s() - self._probed_s <= max_staleness

    def _snapshot_of(self, state: TableState) -> Snapshot:
        return Snapshot(state, self.reader, self.storage, self.reopening, None if self._open is None else self.related)

    def related(self, table_id: str) -> TableVersions:
        """Return the versions of another table of the instance, which are kept from read to read."""
        found = self._related.get(table_id)
        if found is None:
            assert self._open is not None
            found = self._related[table_id] = self._open(table_id)
        return found

    def _state_at(self, version: int, newest: TableState) -> TableState:
        return newest if version == newest.version else self.log.at(version).state

    def _keeps(self, file: DataFile) -> bool:
        """Return whether the file's object must exist: the latest state has the file, and it is not retired."""
        known = self.state().files.get(file.id)
        return known is not None and not known.retired
