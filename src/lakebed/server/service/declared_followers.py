"""Runs the followers that are declared in the instance, each in a process of its own, and watches them.

A thread looks every few seconds at the declarations and at the records of followers. A follower that is declared, not
paused, and that no other process follows is started (:mod:`lakebed.upkeep.follow.follow_worker`). It ends when its
declaration is gone, changed or paused, when another process follows after all, and with the service. After a failure it
waits, as operations do (:func:`~lakebed.server.service.plan.failed`); one that fails by its own fault too often is
parked until its declaration changes.

Several services of an instance have no leader here either. The record of a follower says which process follows, a slot
of PostgreSQL has one reader, and commits of a process that is behind are refused: whatever two services do in the same
second, each change is committed once.

Core types: :class:`DeclaredFollowers`. Errors: UsageError for an instance in memory. Source: docs/follow.md,
docs/decisions/0088.
"""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import Code, DamagedError, Error
from lakebed.model.table_summary import Record
from lakebed.server.service.plan import Retry, failed
from lakebed.server.service.status import FollowerState, FollowerStatus
from lakebed.storage.disk_space import scratch_prefix
from lakebed.upkeep.compaction.failed_partitions import is_fault
from lakebed.upkeep.follow.declared_follower import DamagedFollower, DeclaredFollower, declared_followers
from lakebed.upkeep.follow.follow_record import HELD_S, FollowRecord, read_record
from lakebed.upkeep.follow.follow_worker import FollowWorker

if TYPE_CHECKING:
    from lakebed.table.instance import Instance

LOOK_S = 5.0
"""How often declarations and records are read: one request, and one for each follower."""

END_S = 15.0
"""How long a follower that was asked to end may take to commit and record what it has."""

RETRY = Retry(faults_max=5)


@dataclass(slots=True)
class _Watched:
    """A declared follower, and its process if it runs here. ``stored`` is its record as it was read last."""

    declared: DeclaredFollower
    stored: FollowRecord | None = None
    worker: FollowWorker | None = None
    kill_at_s: float = math.inf
    record: Record = field(default_factory=Record)
    error: str | None = None
    since: datetime | None = None
    next_at: datetime | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether another process follows."""
        stored = self.stored
        holder = "" if self.worker is None else self.worker.holder
        return stored is not None and stored.in_use and stored.holder != holder

    @property
    def is_here(self) -> bool:
        """Whether the process of this service follows, and has recorded it."""
        stored, worker = self.stored, self.worker
        return stored is not None and worker is not None and stored.holder == worker.holder != ""

    @property
    def has_recovered(self) -> bool:
        """Whether it failed, and follows now without an error, wherever that is."""
        if self.stored is None or self.stored.error is not None or not self.record.failures:
            return False
        return self.is_here or self.is_elsewhere


class DeclaredFollowers:
    """The declared followers of an instance. Without ``runs`` none is run, and nothing is read.

    ``report`` takes sentences, for a log. Raises UsageError for an instance in memory, if they are to run.
    """

    def __init__(self, instance: Instance, report: Callable[[str], None], *, runs: bool, retry: Retry = RETRY) -> None:
        if runs and not instance.storage.locality.shared:
            raise Code.INSTANCE_IN_MEMORY(
                f"{instance.url} is in the memory of this process, and followers, which are other processes, cannot "
                "see it; use a folder or an object store",
                url=instance.url,
            )
        self.runs = runs
        self._instance = instance
        self._report = report
        self._retry = retry
        self._watched: dict[str, _Watched] = {}
        self._damaged: dict[str, str] = {}
        self._unread: str | None = None
        self._changing = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to look for followers."""
        if self.runs:
            self._thread = threading.Thread(target=self._serve, name="lakebed-followers", daemon=True)
            self._thread.start()

    def stop(self, timeout_s: float = 2 * END_S) -> None:
        """End all followers; returns when they have ended, or after ``timeout_s``."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def status(self) -> tuple[FollowerStatus, ...]:
        """Return how far each declared follower is, by name; from memory."""
        with self._changing:
            found = [_status(watched, name) for name, watched in self._watched.items()]
            damaged = [
                FollowerStatus(name, "", FollowerState.DAMAGED, error=why) for name, why in self._damaged.items()
            ]
        return tuple(sorted([*found, *damaged], key=lambda one: one.name))

    # -- the thread ----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        with tempfile.TemporaryDirectory(prefix=scratch_prefix("followers"), ignore_cleanup_errors=True) as scratch:
            while not self._stopping.is_set():
                self._wake.clear()
                self.look(scratch)
                self._wake.wait(self._pause_s())
            self._end_all()

    def _pause_s(self) -> float:
        """Return when to look again: earlier if a follower has to be killed then, or tried again."""
        with self._changing:
            times = [min(one.kill_at_s, one.record.next_s) for one in self._watched.values()]
        now_s = clock.monotonic_s()
        return min([LOOK_S, *(max(0.05, one - now_s) for one in times if one > now_s)])

    def look(self, scratch: str) -> None:
        """Read declarations and records, and start and end processes. Without an answer of the store all stay."""
        try:
            found = list(declared_followers(self._instance.storage))
            stored = {one.name: self._record_of(one.name) for one in found}
        except (Error, OSError) as error:
            if self._unread is None:
                self._report(f"followers cannot be listed: {error}")
            self._unread = str(error)
            return
        self._unread = None
        damaged = {one.name: one.error for one in found if isinstance(one, DamagedFollower)}
        for name in damaged.keys() - self._damaged.keys():
            self._report(f"follower {name} does not run: {damaged[name]}")
        declared = {one.name: one for one in found if isinstance(one, DeclaredFollower)}
        with self._changing:
            self._damaged = damaged
            for name in self._watched.keys() | declared.keys():
                self._take_turn(name, declared.get(name), stored.get(name), scratch)

    def _record_of(self, name: str) -> FollowRecord | None:
        try:
            return read_record(self._instance.storage, name)
        except DamagedError:
            # It is the error of the follower, which reads it too.
            return None

    def _take_turn(
        self, name: str, declared: DeclaredFollower | None, stored: FollowRecord | None, scratch: str
    ) -> None:
        """Start or end the process of one follower, if it is time."""
        watched = self._watched.get(name)
        if declared is None:
            assert watched is not None
            if watched.worker is None:
                del self._watched[name]
            else:
                _end(watched)
            return
        if watched is None:
            watched = self._watched[name] = _Watched(declared)
        if watched.declared != declared:
            if watched.worker is not None:
                # With what it was started for, until it has ended.
                _end(watched)
                return
            watched.declared = declared
            _begin_again(watched)
        watched.stored = stored
        if watched.has_recovered:
            self._report(f"follower {name} follows again, after {watched.record.failures} failures")
            _begin_again(watched)
        if watched.worker is not None:
            if watched.is_elsewhere or not math.isinf(watched.kill_at_s):
                _end(watched)
        elif self._may_start(watched):
            self._start(watched, scratch)

    def _may_start(self, watched: _Watched) -> bool:
        if watched.declared.paused or watched.record.parked or watched.is_elsewhere or self._stopping.is_set():
            return False
        return clock.monotonic_s() >= watched.record.next_s

    # -- processes -----------------------------------------------------------------------------------------------

    def _start(self, watched: _Watched, scratch: str) -> None:
        try:
            worker = FollowWorker(self._instance.location, watched.declared, scratch)
        except Error as error:
            self._note_failure(watched, error)
            return
        watched.worker, watched.kill_at_s = worker, math.inf
        watched.record = replace(watched.record, begun_s=clock.monotonic_s())
        name = f"lakebed-follower-{watched.declared.name}"
        threading.Thread(target=self._await_end, args=(watched, worker), name=name, daemon=True).start()

    def _await_end(self, watched: _Watched, worker: FollowWorker) -> None:
        """Wait for the end of a process, in a thread of its own."""
        name = watched.declared.name
        error = worker.wait(lambda text: self._report(f"follower {name}: {text}"))
        with self._changing:
            was_asked = not math.isinf(watched.kill_at_s)
            watched.worker, watched.kill_at_s = None, math.inf
            if error is not None and not was_asked:
                self._note_failure(watched, error)
        self._wake.set()

    def _note_failure(self, watched: _Watched, error: Error) -> None:
        name, now_s = watched.declared.name, clock.monotonic_s()
        record = failed(watched.record, now_s, self._retry, clock.jitter_s(1.0), fault=is_fault(error))
        watched.record, watched.error = record, error.message
        watched.since = watched.since or clock.now()
        wait_s = record.next_s - now_s
        watched.next_at = None if record.parked else clock.now() + timedelta(seconds=wait_s)
        if record.parked:
            self._report(
                f"follower {name} is parked after {record.faults} failures: {error.message}; `lakebed follow resume "
                f"{name}` has it tried again"
            )
        elif record.failures == 1:
            self._report(f"follower {name} failed: {error.message}; tried again in {wait_s:.1f} s, and so on")

    def _end_all(self) -> None:
        end_s = clock.monotonic_s() + END_S
        while True:
            with self._changing:
                running = [one for one in self._watched.values() if one.worker is not None]
                for one in running:
                    _end(one, end_s)
            if not running:
                return
            self._wake.clear()
            self._wake.wait(0.5)


def _end(watched: _Watched, at_s: float | None = None) -> None:
    """Ask the process to end, the first time, and kill it when its time is over."""
    worker, now_s = watched.worker, clock.monotonic_s()
    assert worker is not None
    if math.isinf(watched.kill_at_s):
        watched.kill_at_s = now_s + END_S if at_s is None else at_s
        worker.ask_to_end()
    elif now_s >= watched.kill_at_s:
        worker.kill()


def _begin_again(watched: _Watched) -> None:
    """Forget failures."""
    watched.record = Record(watched.record.begun_s)
    watched.error = watched.since = watched.next_at = None


def _status(watched: _Watched, name: str) -> FollowerStatus:
    declared, stored, record = watched.declared, watched.stored, watched.record
    status = FollowerStatus(
        name,
        declared.url,
        _state(watched),
        failures=record.failures,
        since=watched.since,
        next_at=watched.next_at,
        error=watched.error,
    )
    if stored is None:
        return status
    age_s = (clock.now() - datetime.fromisoformat(stored.at)).total_seconds() if stored.at else 0.0
    return replace(
        status,
        tables=tuple(sorted(stored.targets)),
        place=stored.place,
        behind=stored.behind,
        behind_unit=stored.behind_unit,
        # What the source has gained since the last record is not known.
        lag_s=stored.lag_s + (age_s if age_s > HELD_S else 0.0),
        changes=stored.changes,
        dead_letters=stored.dead_letters,
        recorded_at=stored.at,
        error=watched.error or stored.error,
    )


def _state(watched: _Watched) -> FollowerState:
    if watched.declared.paused:
        return FollowerState.PAUSED
    if watched.is_elsewhere:
        return FollowerState.ELSEWHERE
    if watched.worker is not None:
        return FollowerState.FOLLOWING if watched.is_here else FollowerState.STARTING
    return FollowerState.PARKED if watched.record.parked else FollowerState.WAITING
