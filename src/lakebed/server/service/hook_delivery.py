"""Delivers the commits of tables to hooks: each event at least once, the events of a hook in version order.

A thread checks all hooks once a second; a pool of threads delivers pending events, one delivery at a time for each
hook. Events are read from the log, so nothing is lost while no service runs. After a failure the same events are
delivered again, after a wait that doubles up to :data:`WAIT_MAX_S`. A hook that fails affects no commit and no other
hook, unless :data:`THREADS` of them hang at a time. A hook whose table was dropped is removed after the last event.

The delivered version is stored at the end of a delivery, at most once in :data:`STORE_S` while there is more. A service
that stops in between delivers those events again after its restart.

A hook whose delivery state is lost or damaged begins again where it was added. One whose state is ahead of its table,
or follows an entry that is not in the log any more, fails with an error that says so: the log went back.

Several services of one instance deliver to the same hooks. A service that finds a newer stored version skips the hook
for :data:`YIELD_S`, so that usually only one of them delivers. A receiver may see an event of another service again.

Core types: :class:`HookDelivery`. Source: docs/hooks.md.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from lakebed import clock
from lakebed.errors import Code, DamagedError, Error, NotFoundError, StorageError
from lakebed.read.changes.events import Event, read_events
from lakebed.read.inspect.hooks import (
    DamagedHook,
    Delivered,
    Hook,
    begin_again,
    is_added,
    read_delivered,
    read_hooks,
    remove_hook,
    write_delivered,
)
from lakebed.server.service.hook_targets import HookTargets
from lakebed.server.service.status import HookStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.storage.contract import Version
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table

LOOK_S = 1.0
"""How often the tables with hooks are looked at: two requests a second and table, if nothing is new."""

LIST_S = 15.0
"""How often hooks are listed: one request."""

EVENTS_MAX, CHANGES_MAX = 100, 1000
"""In one delivery; an event is never divided."""

STORE_S = 1.0
YIELD_S = 30.0

WAIT_S, WAIT_MAX_S = 1.0, 300.0

THREADS = 16


@dataclass(slots=True)
class _State:
    """The state of a hook in this service. ``stored``: the version of the object of ``delivered``; None: not read."""

    hook: Hook
    delivered: Delivered = field(default_factory=lambda: Delivered(version=0))
    stored: Version | None = None
    stored_s: float = 0.0
    dirty: bool = False
    wait_until_s: float = 0.0
    next_at: datetime | None = None
    busy: bool = False


class HookDelivery:
    """Delivery to the hooks of an instance, from :meth:`start` to :meth:`stop`.

    Without ``commands`` no command is run. ``report`` takes sentences about failures, for a log.
    """

    def __init__(self, instance: Instance, *, commands: bool, report: Callable[[str], None]) -> None:
        self._instance = instance
        self._targets = HookTargets(commands=commands)
        self._report = report
        self._states: dict[str, _State] = {}
        self._damaged: dict[str, HookStatus] = {}
        self._listed_s: float | None = None
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(THREADS, "lakebed-hook")
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="lakebed-hooks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current deliveries."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._threads.shutdown()

    def status(self) -> tuple[HookStatus, ...]:
        """Return the hooks that are known, oldest first, from memory; then those whose objects are damaged."""
        known = [
            HookStatus(
                one.hook.id,
                one.hook.table,
                one.hook.target,
                one.delivered.version,
                one.delivered.failures,
                one.delivered.since,
                one.delivered.error,
                one.next_at,
            )
            for one in list(self._states.values())
        ]
        return (*known, *self._damaged.values())

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.look()
            self._stopping.wait(LOOK_S)

    def look(self) -> None:
        """Begin the deliveries to hooks that are not waiting."""
        now_s = clock.monotonic_s()
        if self._listed_s is None or now_s - self._listed_s >= LIST_S:
            self._listed_s = now_s
            try:
                self._list()
            except (Error, OSError) as error:
                self._report(f"hooks cannot be listed: {error}")
        for state in list(self._states.values()):
            if not state.busy and state.wait_until_s <= now_s:
                state.busy = True
                self._threads.submit(self._deliver, state)

    def _list(self) -> None:
        known = {name: state.hook for name, state in self._states.items()}
        found = list(read_hooks(self._instance.storage, known))
        self._states = {
            one.id: self._states.get(one.id) or _State(one) for one in found if not isinstance(one, DamagedHook)
        }
        damaged = {one.id: one for one in found if isinstance(one, DamagedHook)}
        for hook_id in damaged.keys() - self._damaged.keys():
            self._report(f"hook {hook_id} delivers nothing: {damaged[hook_id].error}")
        self._damaged = {hook_id: self._damaged.get(hook_id) or _status_of(one) for hook_id, one in damaged.items()}

    def _deliver(self, state: _State) -> None:
        """Deliver pending events, or wait longer."""
        try:
            self._deliver_all(state)
            # The service is ending: this is not a failure of the receiver.
            if state.delivered.failures and not self._stopping.is_set():
                self._report(f"hook {state.hook.id} takes events again, after {state.delivered.failures} failures")
                state.delivered = Delivered(version=state.delivered.version, entry_digest=state.delivered.entry_digest)
                state.dirty = True
            state.next_at = None
            self._store(state)
        except (Error, OSError) as error:
            self._failed(state, error)
        except Exception as error:
            self._failed(state, error)
            raise
        finally:
            state.busy = False

    def _deliver_all(self, state: _State) -> None:
        if state.stored is None and not self._read(state):
            return
        table = self._table(state.hook)
        present = table.state(max_staleness=LOOK_S)
        if state.delivered.version > present.version:
            # Another service may have delivered a commit of the last second.
            present = table.state()
        if state.delivered.version > present.version:
            raise _ahead(state, table, present.version)
        events = read_events(table.log, state.delivered.version, present.version, state.delivered.entry_digest)
        while not self._stopping.is_set() and (some := _next_events(events)):
            if wanted := _events_of_kinds([event for event, _ in some], state.hook.kinds):
                self._targets.deliver(state.hook, self._body(state.hook, table, wanted))
            event, digest = some[-1]
            state.delivered = structs.replace(state.delivered, version=event.version, entry_digest=digest)
            state.dirty = True
            if clock.monotonic_s() - state.stored_s >= STORE_S and not self._store(state):
                return
        if present.dropped and state.delivered.version == present.version:
            with suppress(NotFoundError):  # removed by another service
                remove_hook(self._instance.storage, state.hook.id)
            self._states.pop(state.hook.id, None)

    def _table(self, hook: Hook) -> Table:
        """Return the table of a hook. A dropped table has no name, but its log still exists."""
        try:
            return self._instance.named(hook.table)
        except NotFoundError:
            return self._instance.unnamed(hook.table)

    def _body(self, hook: Hook, table: Table, events: list[Event]) -> bytes:
        return msgspec.json.encode(
            {
                "hook": hook.id,
                "instance": self._instance.id,
                "table": table.name,
                "table_id": table.id,
                "events": events,
            }
        )

    def _read(self, state: _State) -> bool:
        """Read the delivered version, if it is newer than the known one; False if the hook was removed."""
        storage, hook = self._instance.storage, state.hook
        try:
            found = read_delivered(storage, hook.id)
        except DamagedError as error:
            found = self._begun_again(state, error.message)
        else:
            if found is None and is_added(storage, hook.id):
                found = self._begun_again(state, "it is lost")
        if found is None:
            self._states.pop(state.hook.id, None)
            return False
        if found[0].version >= state.delivered.version:
            state.delivered, state.dirty = found[0], False
        state.stored = found[1]
        return True

    def _begun_again(self, state: _State, reason: str) -> tuple[Delivered, Version] | None:
        """Begin a hook again whose delivery state is lost or damaged, and report it; None: it was removed meanwhile."""
        since = max(state.hook.since, state.delivered.version)
        self._report(
            f"the delivery state of hook {state.hook.id} cannot be used ({reason}): the events after version {since} "
            "are delivered again"
        )
        begin_again(self._instance.storage, state.hook)
        return read_delivered(self._instance.storage, state.hook.id)

    def _store(self, state: _State) -> bool:
        """Store the delivered version, if it changed; False: another service did so, and continues with the hook."""
        if not state.dirty or state.stored is None:
            return True
        known, state.stored = state.stored, None
        kept = write_delivered(self._instance.storage, state.hook.id, state.delivered, known)
        state.stored_s = clock.monotonic_s()
        if kept:
            # The version of what was written is read with it: another service may be faster even then.
            self._read(state)
        else:
            state.wait_until_s = clock.monotonic_s() + YIELD_S + clock.jitter_s(YIELD_S)
        return kept

    def _failed(self, state: _State, error: BaseException) -> None:
        failures = state.delivered.failures + 1
        message = str(error)[:500]
        if failures == 1:
            self._report(f"hook {state.hook.id} does not take events, and is tried again: {message}")
        wait_s = min(WAIT_MAX_S, WAIT_S * 2 ** min(failures - 1, 16))
        wait_s += clock.jitter_s(wait_s / 4)
        since = state.delivered.since or clock.now().isoformat(timespec="seconds")
        state.delivered = structs.replace(state.delivered, failures=failures, since=since, error=message)
        state.dirty = True
        state.wait_until_s = clock.monotonic_s() + wait_s
        state.next_at = clock.now() + timedelta(seconds=wait_s)
        try:
            self._store(state)
        except (StorageError, OSError):
            # It is stored with the next one.
            state.stored = None


def _status_of(damaged: DamagedHook) -> HookStatus:
    """Return the status of a hook whose object is damaged, since now."""
    since = clock.now().isoformat(timespec="seconds")
    return HookStatus(damaged.id, "", None, 0, 1, since, damaged.error, None)


def _ahead(state: _State, table: Table, version: int) -> Error:
    """Return the error for a hook that has the events of versions which its table does not have."""
    return Code.LOG_WENT_BACK(
        f"hook {state.hook.id} has the events up to version {state.delivered.version}, and table {table.name} is at "
        f"version {version}: its log went back (docs/operations.md). Remove the hook, and add it again with --since "
        "and the last version that its receiver still wants to keep",
        log=table.id,
        version=state.delivered.version,
    )


def _next_events(events: Iterator[tuple[Event, str]]) -> list[tuple[Event, str]]:
    """Return the next events, as many as one delivery takes, with the digests of their entries."""
    some: list[tuple[Event, str]] = []
    changes = 0
    for event, digest in events:
        some.append((event, digest))
        changes += len(event.changes)
        if len(some) >= EVENTS_MAX or changes >= CHANGES_MAX:
            break
    return some


def _events_of_kinds(events: list[Event], kinds: tuple[str, ...]) -> list[Event]:
    """Return the events with a transaction of these kinds, and of that the transactions; all without kinds."""
    if not kinds:
        return events
    found = [structs.replace(one, changes=[c for c in one.changes if c.kind in kinds]) for one in events]
    return [one for one in found if one.changes or one.missed_from is not None]
