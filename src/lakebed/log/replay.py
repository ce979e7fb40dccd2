"""One step of reading a log forward: the same for whoever follows it and whoever verifies it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.log import entry as entries
from lakebed.log.snapshot import Head
from lakebed.state.machine import State

if TYPE_CHECKING:
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
