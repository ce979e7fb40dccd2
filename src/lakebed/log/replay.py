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
    from collections.abc import Callable, Mapping

    from lakebed.log.committer import Log
    from lakebed.state.machine import Machine


def advance(
    head: Head[State],
    data: bytes,
    identity: str,
    machine: Machine[State, Any, Any],
    read_sides: Callable[[entries.Entry], Mapping[str, bytes]],
) -> tuple[Head[State], entries.Entry]:
    """The head after the next entry, whose bytes these are, and the entry. ``read_sides`` is asked if it names any.

    Raises FormatTooNewError, DamagedError for bytes that are not the next entry or do not fit the state, or as
    ``read_sides`` does.
    """
    entry = entries.decode(data, identity, head.number + 1, head.digest)
    sides = read_sides(entry) if entry.sides else {}
    state = head.state
    for document in entry.documents:
        with entries.naming(identity, entry.number):
            change = machine.decode(document, sides)
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
        head = Head(0, "", machine.empty)
    while head.number < number:
        data = log.entry(head.number + 1)
        if data is None:
            raise gone(identity, head.number + 1)
        head, _ = advance(head, data, identity, machine, log.read_sides)
    return head.state
