"""Delivers the commits of tables to hooks: to a URL by HTTP, or to a command on its standard input.

A hook is a subscriber of its table (:mod:`lakebed.server.service.subscriptions`): it gets each event at least once, in
version order. Its position is an object beside it (:mod:`lakebed.read.inspect.hooks`). It is tried again without limit.
A hook whose table was dropped is removed after the last event.

A hook whose delivery state is lost or damaged begins again where it was added. One whose state is ahead of its table,
or follows an entry that is not in the log any more, fails with an error that says so: the log went back.

Core types: :class:`Hooks`. Errors: ``hook_failed`` for a delivery that was not accepted. Source: docs/hooks.md.
"""

from __future__ import annotations

import hmac
import os
import shlex
import signal
import subprocess
import tempfile
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from lakebed import clock
from lakebed.errors import Code, DamagedError, Error, NotFoundError
from lakebed.model.foreign_errors import optional_imports
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
from lakebed.server.service.plan import Retry
from lakebed.server.service.status import HookStatus
from lakebed.server.service.subscriptions import DeliveryLimits, Subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import urllib3

    from lakebed.storage.contract import Version
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table

EVENTS_MAX, CHANGES_MAX = 100, 1000
"""In one delivery; an event is never divided."""

STALE_S = 1.0
"""An event of a commit of the last second may come with the next delivery."""

RETRY = Retry(wait_s=1.0, wait_max_s=300.0)

REQUEST_S = 10.0
"""For the connection, and again for the answer."""

SAID_BYTES_MAX = 500
"""Of the last words of a command that failed."""

SIGNATURE = "Lakebed-Signature"


class Hooks:
    """The hooks of an instance, to which a service delivers. Without ``commands`` no command is run.

    ``report`` takes sentences about failures, for a log.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        commands: bool,
        report: Callable[[str], None],
        limits: DeliveryLimits | None = None,
        retry: Retry = RETRY,
    ) -> None:
        self.subscriptions = Subscriptions(self._find, report, limits)
        self._instance = instance
        self._targets = HookTargets(commands=commands, command_s=(limits or DeliveryLimits()).command_s)
        self._report = report
        self._retry = retry
        self._known: dict[str, HookSubscriber] = {}
        self._damaged: dict[str, HookStatus] = {}

    def status(self) -> tuple[HookStatus, ...]:
        """Return the hooks that are known, oldest first, from memory; then those whose objects are damaged."""
        hooks = self._known
        known = [
            HookStatus(
                one.id,
                one.table,
                hooks[one.id].hook.target,
                one.version,
                one.failures,
                one.since,
                one.error,
                one.next_at,
            )
            for one in self.subscriptions.all()
            if one.id in hooks
        ]
        return (*known, *self._damaged.values())

    def _find(self) -> Sequence[HookSubscriber]:
        try:
            found = list(read_hooks(self._instance.storage, {name: one.hook for name, one in self._known.items()}))
        except (Error, OSError) as error:
            self._report(f"hooks cannot be listed: {error}")
            return list(self._known.values())
        hooks = [one for one in found if not isinstance(one, DamagedHook)]
        self._known = {one.id: self._known.get(one.id) or self._subscriber(one) for one in hooks}
        damaged = {one.id: one for one in found if isinstance(one, DamagedHook)}
        for hook_id in damaged.keys() - self._damaged.keys():
            self._report(f"hook {hook_id} delivers nothing: {damaged[hook_id].error}")
        self._damaged = {hook_id: self._damaged.get(hook_id) or _status_of(one) for hook_id, one in damaged.items()}
        return list(self._known.values())

    def _subscriber(self, hook: Hook) -> HookSubscriber:
        return HookSubscriber(self._instance, hook, self._targets, self._retry, self._report)


class HookSubscriber:
    """A hook as a :class:`~lakebed.server.service.subscriptions.Subscriber`."""

    def __init__(
        self, instance: Instance, hook: Hook, targets: HookTargets, retry: Retry, report: Callable[[str], None]
    ) -> None:
        self.hook = hook
        self.id, self.table, self.title = hook.id, hook.table, f"hook {hook.id}"
        self.retry = retry
        self.ended = False
        self._instance = instance
        self._targets = targets
        self._report = report
        self._stored: Version | None = None

    def read(self, known: Delivered) -> Delivered | None:
        """Return the delivery state, if it is not older than the known one."""
        storage = self._instance.storage
        try:
            found = read_delivered(storage, self.id)
        except DamagedError as error:
            found = self._begun_again(known, error.message)
        else:
            if found is None and is_added(storage, self.id):
                found = self._begun_again(known, "it is lost")
        if found is None:
            return None
        delivered, self._stored = found
        return delivered if delivered.version >= known.version else known

    def write(self, delivered: Delivered) -> bool:
        """Replace the delivery state that was read."""
        assert self._stored is not None
        return write_delivered(self._instance.storage, self.id, delivered, self._stored)

    def deliver(self, delivered: Delivered, stopping: Callable[[], bool]) -> Iterator[tuple[int, str]]:
        """Deliver events of the kinds that the hook wants; remove the hook behind the last event of a dropped table."""
        table, version = self._table(), delivered.version
        present = table.state(max_staleness=STALE_S)
        if version > present.version:
            # Another service may have delivered a commit of the last second.
            present = table.state()
        if version > present.version:
            raise _ahead(self.hook, version, table, present.version)
        events = read_events(table.log, version, present.version, delivered.entry_digest)
        while not stopping() and (some := _next_events(events)):
            if wanted := _events_of_kinds([event for event, _ in some], self.hook.kinds):
                self._targets.deliver(self.hook, self._body(table, wanted))
            event, digest = some[-1]
            version = event.version
            yield version, digest
        if present.dropped and version == present.version:
            with suppress(NotFoundError):  # removed by another service
                remove_hook(self._instance.storage, self.id)
            self.ended = True

    def _table(self) -> Table:
        """Return the table of the hook. A dropped table has no name, but its log still exists."""
        try:
            return self._instance.named(self.table)
        except NotFoundError:
            return self._instance.unnamed(self.table)

    def _body(self, table: Table, events: list[Event]) -> bytes:
        return msgspec.json.encode(
            {
                "hook": self.id,
                "instance": self._instance.id,
                "table": table.name,
                "table_id": table.id,
                "events": events,
            }
        )

    def _begun_again(self, known: Delivered, reason: str) -> tuple[Delivered, Version] | None:
        """Begin again where the delivery state is lost or damaged, and report it; None: it was removed meanwhile."""
        since = max(self.hook.since, known.version)
        self._report(
            f"the delivery state of {self.title} cannot be used ({reason}): the events after version {since} "
            "are delivered again"
        )
        begin_again(self._instance.storage, self.hook)
        return read_delivered(self._instance.storage, self.id)


def _status_of(damaged: DamagedHook) -> HookStatus:
    """Return the status of a hook whose object is damaged, since now."""
    since = clock.now().isoformat(timespec="seconds")
    return HookStatus(damaged.id, "", None, 0, 1, since, damaged.error, None)


def _ahead(hook: Hook, delivered: int, table: Table, version: int) -> Error:
    """Return the error for a hook that has the events of versions which its table does not have."""
    return Code.LOG_WENT_BACK(
        f"hook {hook.id} has the events up to version {delivered}, and table {table.name} is at "
        f"version {version}: its log went back (`lakebed docs operations`). Remove the hook, and add it again with "
        "--since and the last version that its receiver still wants to keep",
        log=table.id,
        version=delivered,
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


def signature_of(body: bytes, secret: str) -> str:
    """Return the value of the header by which a receiver verifies that a request is genuine."""
    return "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()


class HookTargets:
    """Connections to all URLs. Safe to use from many threads."""

    def __init__(self, *, commands: bool, command_s: float) -> None:
        self._commands = commands
        self._command_s = command_s

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        """Made for the first webhook: maintenance without one needs no client of HTTP."""
        with optional_imports():
            import urllib3

        timeout = urllib3.Timeout(connect=REQUEST_S, read=REQUEST_S)
        return urllib3.PoolManager(timeout=timeout, retries=False, maxsize=4)

    def deliver(self, hook: Hook, body: bytes) -> None:
        """Deliver; returns when the receiver has accepted it. Raises Error."""
        if hook.url is not None:
            self._post(hook, hook.url, body)
        elif self._commands:
            _run_program(hook, body, self._command_s)
        else:
            raise Code.HOOK_FAILED("this service runs no commands; start it with --hook-commands", name=hook.id)

    def _post(self, hook: Hook, url: str, body: bytes) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "lakebed", "Lakebed-Hook": hook.id}
        if hook.secret is not None:
            headers[SIGNATURE] = signature_of(body, hook.secret)
        pool = self._pool
        from urllib3.exceptions import HTTPError

        try:
            # The body of the response is not read, because it may be endless.
            answer = pool.request("POST", url, body=body, headers=headers, redirect=False, preload_content=False)
        except (HTTPError, ValueError, OSError) as error:
            raise Code.HOOK_FAILED(f"{url} does not answer: {type(error).__name__}", name=hook.id, url=url) from error
        answer.close()
        if not 200 <= answer.status < 300:
            raise Code.HOOK_FAILED(f"{url} answers {answer.status}", name=hook.id, url=url, status=answer.status)


def _run_program(hook: Hook, body: bytes, command_s: float) -> None:
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as given:
        given.write(body)
        given.seek(0)
        try:
            process = subprocess.Popen(  # noqa: S603 - allowed by the option --hook-commands of the service
                shlex.split(hook.command or ""),
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=os.environ | {"LAKEBED_HOOK": hook.id},
                start_new_session=True,
            )
        except OSError as error:
            raise Code.HOOK_FAILED(f"cannot run {hook.command}: {error}", name=hook.id) from error
        try:
            code = process.wait(command_s)
        except subprocess.TimeoutExpired:
            raise Code.HOOK_FAILED(f"{hook.command} took longer than {command_s:.0f} s", name=hook.id) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code != 0:
            said.seek(max(0, said.seek(0, os.SEEK_END) - SAID_BYTES_MAX))
            text = said.read().decode("utf-8", "replace").strip()
            raise Code.HOOK_FAILED(f"{hook.command} ended with {code}: {text}", name=hook.id, exit_code=code)
