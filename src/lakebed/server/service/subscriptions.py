"""Delivers the versions of tables to subscribers: each version at least once, in order.

A subscriber has a position, the version up to which it has everything, and stores it. The service, which follows the
logs of all tables, calls :meth:`Subscriptions.look` with the versions that it knows. Each subscriber that is behind
gets a delivery in a thread of a pool, one at a time. Deliveries are read from the log, so nothing is lost while no
service runs.

Rules. The position is stored after a delivery, at most once in ``store_s`` while there is more: a service that is
killed in between delivers those versions again after its restart. After a failure the same versions are delivered
again after a wait, as those of operations (:func:`~lakebed.server.service.plan.failed`); a subscriber that is parked
gets them once a retry is asked for. A subscriber that fails affects no commit and no other subscriber, unless
:data:`THREADS` of them hang at a time.

Several services of one instance deliver to the same subscribers. A service that finds that another has stored a
position leaves the subscriber to it for ``yield_s``, so that usually only one of them delivers.

Core types: :class:`Subscriber`, :class:`Subscriptions`; :class:`Subscription`, also for views, whose deliveries are
operations of their tables (:mod:`lakebed.server.service.plan`), with their position in the view's own log.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from lakebed import clock
from lakebed.errors import Error, StorageError
from lakebed.model.table_summary import Record
from lakebed.read.inspect.hooks import Delivered
from lakebed.server.service.plan import failed
from lakebed.upkeep.compaction.failed_partitions import is_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lakebed.server.service.plan import Retry

THREADS = 16

ERROR_CHARACTERS_MAX = 500
"""Of the message of a failure that is stored."""


class Subscriber(Protocol):
    """Gets the versions of one table. Used by one thread at a time."""

    @property
    def id(self) -> str:
        """Its id, unique among the subscribers of an instance."""

    @property
    def title(self) -> str:
        """What it is and its id, for messages."""

    @property
    def table(self) -> str:
        """The id of its table."""

    @property
    def retry(self) -> Retry:
        """When it is tried again after a failure."""

    @property
    def ended(self) -> bool:
        """Whether it has removed itself."""

    def read(self, known: Delivered) -> Delivered | None:
        """Return the stored position, or ``known`` if that is later; None: the subscriber was removed.

        Raises StorageError.
        """

    def write(self, delivered: Delivered) -> bool:
        """Store the position in place of the one that was read or written last; False: another process did so.

        Raises StorageError if that is not clear: read it again.
        """

    def deliver(self, delivered: Delivered, stopping: Callable[[], bool]) -> Iterator[tuple[int, str]]:
        """Deliver the versions after a position in order, as many as there are, or until ``stopping``.

        Returns, after each delivery, the last version of it and the digest of that entry. A subscriber whose table was
        dropped removes itself after the last one, and has ``ended``. Raises any error if a delivery fails: those before
        it are made.
        """


@dataclass(frozen=True, slots=True)
class Subscription:
    """How far a subscriber is: the ``version`` of the ``table`` up to which it has everything.

    It failed ``failures`` times in a row, ``since`` when and why; it is tried again at ``next_at``, unless ``parked``.
    """

    id: str
    table: str
    version: int
    failures: int = 0
    since: str | None = None
    error: str | None = None
    next_at: datetime | None = None
    parked: bool = False

    def lag(self, heads: Mapping[str, int]) -> int:
        """Return the number of versions that it has not got, given the latest of each table; 0 if that is unknown."""
        return max(0, heads.get(self.table, 0) - self.version)


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """Subscribers are listed every ``list_s`` (one request), and positions stored every ``store_s``."""

    list_s: float = 15.0
    store_s: float = 1.0
    yield_s: float = 30.0
    command_s: float = 60.0
    """After this time the command of a hook is killed, with all that it started."""


@dataclass(slots=True)
class _State:
    """A subscriber in this service. ``known``: its stored position is read; ``dirty``: that is not ``delivered``."""

    subscriber: Subscriber
    delivered: Delivered = field(default_factory=lambda: Delivered(version=0))
    known: bool = False
    dirty: bool = False
    stored_s: float = 0.0
    record: Record = field(default_factory=Record)
    next_at: datetime | None = None
    busy: bool = False

    def is_due(self, heads: Mapping[str, int], now_s: float) -> bool:
        """Return whether to begin a delivery: there are other versions, or it is not known, or the last one failed."""
        if self.busy or self.record.parked or self.record.next_s > now_s:
            return False
        is_level = self.delivered.version == heads.get(self.subscriber.table)
        return not (is_level and self.known and not self.dirty and not self.delivered.failures)

    def subscription(self) -> Subscription:
        one, done = self.subscriber, self.delivered
        return Subscription(
            one.id, one.table, done.version, done.failures, done.since, done.error, self.next_at, self.record.parked
        )


class Subscriptions:
    """The subscribers of an instance that a service delivers to, until :meth:`stop`.

    ``find`` lists them, and does not raise errors; of each id the first one is kept while it is listed. ``report``
    takes sentences about failures.
    """

    def __init__(
        self,
        find: Callable[[], Iterable[Subscriber]],
        report: Callable[[str], None],
        limits: DeliveryLimits | None = None,
    ) -> None:
        self._find = find
        self._report = report
        self._limits = limits or DeliveryLimits()
        self._states: dict[str, _State] = {}
        self._listed_s: float | None = None
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(THREADS, "lakebed-deliver")

    def stop(self) -> None:
        """Stop after the current deliveries."""
        self._stopping.set()
        self._threads.shutdown()

    def finish(self) -> None:
        """Deliver once what every subscriber lacks that is neither parked nor waits, and stop."""
        self.look({})
        self._threads.shutdown()
        self._stopping.set()

    def look(self, heads: Mapping[str, int]) -> None:
        """Begin the deliveries to subscribers that are behind ``heads``, the known versions of tables by their ids.

        Those of tables whose version is not known look for themselves.
        """
        if self._stopping.is_set():
            return
        now_s = clock.monotonic_s()
        if self._listed_s is None or now_s - self._listed_s >= self._limits.list_s:
            self._listed_s = now_s
            self._states = {one.id: self._states.get(one.id) or _State(one) for one in self._find()}
        for state in list(self._states.values()):
            if state.is_due(heads, now_s):
                state.busy = True
                self._threads.submit(self._deliver, state)

    def retry(self, subscriber_id: str) -> None:
        """Try a subscriber again that is parked or waits after failures, at the next look."""
        state = self._states.get(subscriber_id)
        if state is not None:
            state.record = Record()

    def tables(self) -> frozenset[str]:
        """Return the ids of the tables that have subscribers."""
        return frozenset(state.subscriber.table for state in list(self._states.values()))

    def all(self) -> list[Subscription]:
        """Return how far each subscriber is, in the order in which they are listed; from memory."""
        return [state.subscription() for state in list(self._states.values())]

    # -- one delivery, in a thread of the pool ------------------------------------------------------------------

    def _deliver(self, state: _State) -> None:
        """Deliver what there is, or wait longer."""
        try:
            if not self._deliver_all(state):
                return
            if state.subscriber.ended:
                self._states.pop(state.subscriber.id, None)
                return
            if state.delivered.failures and not self._stopping.is_set():
                # While the service ends, nothing was sent.
                title, failures = state.subscriber.title, state.delivered.failures
                self._report(f"{title} takes events again, after {failures} failures")
                done = state.delivered
                state.delivered = Delivered(version=done.version, entry_digest=done.entry_digest)
                state.dirty = True
            state.next_at, state.record = None, Record()
            self._store(state)
        except (Error, OSError) as error:
            self._failed(state, error)
        except Exception as error:
            self._failed(state, error)
            raise
        finally:
            state.busy = False

    def _deliver_all(self, state: _State) -> bool:
        """Return whether everything is delivered; False: the subscriber was removed, or another service goes on."""
        if not state.known and not self._read(state):
            return False
        for version, digest in state.subscriber.deliver(state.delivered, self._stopping.is_set):
            state.delivered = structs.replace(state.delivered, version=version, entry_digest=digest)
            state.dirty = True
            if clock.monotonic_s() - state.stored_s >= self._limits.store_s and not self._store(state):
                return False
        return True

    def _read(self, state: _State) -> bool:
        """Read the stored position, if it is later than the known one; False: the subscriber was removed."""
        found = state.subscriber.read(state.delivered)
        if found is None:
            self._states.pop(state.subscriber.id, None)
            return False
        if found is not state.delivered:
            state.delivered, state.dirty = found, False
        state.known = True
        return True

    def _store(self, state: _State) -> bool:
        """Store the position, if it changed; False: another service did so, and goes on with the subscriber."""
        if not state.dirty or not state.known:
            return True
        state.known = False
        kept = state.subscriber.write(state.delivered)
        state.stored_s = clock.monotonic_s()
        # It is read again, because another service may be faster even then.
        if self._read(state) and not kept:
            state.known = False
            wait_s = self._limits.yield_s + clock.jitter_s(self._limits.yield_s)
            state.record = Record(next_s=clock.monotonic_s() + wait_s)
        return kept

    def _failed(self, state: _State, error: BaseException) -> None:
        title, now_s = state.subscriber.title, clock.monotonic_s()
        # Those before a restart of the service count too.
        record = replace(state.record, failures=state.delivered.failures)
        record = failed(record, now_s, state.subscriber.retry, clock.jitter_s(1.0), fault=is_fault(error))
        message = str(error)[:ERROR_CHARACTERS_MAX]
        if record.parked:
            self._report(
                f"{title} is parked after {record.faults} failures: {message}; "
                "it is tried again when a retry is asked for"
            )
        elif record.failures == 1:
            self._report(f"{title} does not take events, and is tried again: {message}")
        since = state.delivered.since or clock.now().isoformat(timespec="seconds")
        state.delivered = structs.replace(state.delivered, failures=record.failures, since=since, error=message)
        state.dirty, state.record = True, record
        state.next_at = None if record.parked else clock.now() + timedelta(seconds=record.next_s - now_s)
        try:
            self._store(state)
        except (StorageError, OSError):
            # It is stored with the next one.
            state.known = False
