"""Reading a log forward: one step, the same for whoever follows it and whoever verifies it, and all up to a number."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from lakebed.errors import DamagedError
from lakebed.log import entry as entries
from lakebed.log.snapshot import Head
from lakebed.log.stamps import gone
from lakebed.state.machine import State

if TYPE_CHECKING:
    from collections.abc import Callable

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


def replay(log: Log[State, Any, Any], identity: str, machine: Machine[State, Any, Any], number: int) -> State:
    """The state after an older entry: from the snapshot if that is not beyond it, else from the first entry.

    Raises DamagedError if an entry is gone or not the one that was written.
    """
    head: Head[State] | None = None
    with contextlib.suppress(DamagedError):
        head = log.snapshot()
    if head is None or head.number > number:
        return replayed(log.entry, identity, machine, number)
    return onwards(head, log.entry, identity, machine, number).state


def replayed(
    entry: Callable[[int], bytes | None], identity: str, machine: Machine[State, Any, Any], number: int
) -> State:
    """The state after an entry from all entries up to it; raises as :func:`replay`."""
    return onwards(Head(0, "", machine.empty), entry, identity, machine, number).state


def onwards(
    head: Head[State],
    entry: Callable[[int], bytes | None],
    identity: str,
    machine: Machine[State, Any, Any],
    number: int,
) -> Head[State]:
    """The head with all entries up to a number applied; raises as :func:`replay`."""
    while head.number < number:
        data = entry(head.number + 1)
        if data is None:
            raise gone(identity, head.number + 1)
        head, _ = advance(head, data, identity, machine)
    return head
