"""Reading a log forward: one step, the same for whoever follows it and whoever verifies it, and all up to a number."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from lakebed.errors import DamagedError, NotRetainedError
from lakebed.log import entry as entries
from lakebed.log.snapshot import Head
from lakebed.log.stamps import gone
from lakebed.state.machine import State

if TYPE_CHECKING:
    from lakebed.log.committer import Log
    from lakebed.state.machine import Machine


def advance(
    head: Head[State], data: bytes, identity: str, machine: Machine[State, Any, Any]
) -> tuple[Head[State], entries.Entry]:
    """The head after the next entry, whose bytes these are, and the entry.

    Raises FormatTooNewError, or DamagedError for bytes that are not the next entry or do not fit the state.
    """
    entry = entries.decode(data, identity, head.number + 1, head.digest)
    state = head.state
    for document in entry.documents:
        with entries.naming(identity, entry.number):
            change = machine.decode(document)
        state = machine.apply(state, change, entry.number)
    return Head(entry.number, entry.digest, state), entry


def replay(log: Log[State, Any, Any], number: int) -> Head[State]:
    """The head after an older entry: from the nearest snapshot that is not beyond it, else from the first entry.

    Raises NotRetainedError if the log is trimmed beyond it, DamagedError if an entry is gone or not the one that was
    written.
    """
    head = _nearest(log, number)
    while head.number < number:
        data = log.entry(head.number + 1)
        if data is None:
            raise _trimmed(log, number) if log.floor() > head.number else gone(log.identity, head.number + 1)
        head, _ = advance(head, data, log.identity, log.machine)
    return head


def _nearest(log: Log[State, Any, Any], number: int) -> Head[State]:
    floor = log.floor()
    latest = log.snapshots.newest()
    if latest is not None and floor <= latest.number <= number:
        return latest
    for kept in reversed(log.kept.numbers()):
        if kept == number or floor <= kept < number:
            with contextlib.suppress(DamagedError):
                return log.kept.read(kept)
    if floor:
        raise _trimmed(log, number)
    return Head(0, "", log.machine.empty)


def _trimmed(log: Log[Any, Any, Any], number: int) -> NotRetainedError:
    return NotRetainedError(
        f"number {number} of {log.identity} cannot be read any more: the log is trimmed, and no snapshot of it is kept",
        log=log.identity,
        number=number,
    )
