"""Reading a log forward: one step, the same for whoever follows it and whoever verifies it, and all up to a number."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from lakebed.errors import DamagedError, NotRetainedError
from lakebed.log import entry as entries
from lakebed.log.snapshot import Head
from lakebed.log.stamps import gone
from lakebed.state.machine import State

if TYPE_CHECKING:
    from lakebed.log.backend import LogBackend
    from lakebed.log.committer import Log
    from lakebed.log.kept import KeptSnapshots
    from lakebed.state.machine import Machine

ReadSides = Callable[[entries.Entry], Mapping[str, bytes]]
"""Gives the side objects that an entry names, by digest."""


def advance(
    head: Head[State],
    data: bytes,
    identity: str,
    machine: Machine[State, Any, Any],
    read_sides: ReadSides,
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


@dataclass(frozen=True, slots=True)
class Past(Generic[State]):
    """What tells of the older numbers of a log: the entries, and behind the floor the snapshots that are kept."""

    backend: LogBackend
    kept: KeptSnapshots[State]
    identity: str
    machine: Machine[State, Any, Any]
    read_sides: ReadSides

    def at(self, number: int) -> Head[State]:
        """The head after an entry: from the nearest kept snapshot that is not beyond it, else from the first entry.

        Raises NotRetainedError if the log is trimmed beyond it, DamagedError if an entry is gone or not the one that
        was written.
        """
        floor = self.backend.floor()
        for kept in reversed(self.kept.numbers()):
            if kept == number or floor <= kept < number:
                with contextlib.suppress(DamagedError):
                    return self.onwards(self.kept.read(kept), number)
        if floor:
            raise self._trimmed(number)
        return self.onwards(Head(0, "", self.machine.empty), number)

    def onwards(self, head: Head[State], number: int) -> Head[State]:
        """The head with all entries up to a number applied; raises as :meth:`at`."""
        while head.number < number:
            data = self.backend.get(head.number + 1)
            if data is None:
                floor = self.backend.floor()
                raise self._trimmed(number) if floor > head.number else gone(self.identity, head.number + 1)
            head, _ = advance(head, data, self.identity, self.machine, self.read_sides)
        return head

    def _trimmed(self, number: int) -> NotRetainedError:
        return NotRetainedError(
            f"number {number} of {self.identity} cannot be read any more: the log is trimmed, and no snapshot of it is "
            "kept",
            log=self.identity,
            number=number,
        )


def replay(log: Log[State, Any, Any], number: int) -> Head[State]:
    """The head after an older entry: from the newest snapshot if that is not beyond it, else as :meth:`Past.at`."""
    floor = log.floor()
    latest: Head[State] | None = None
    with contextlib.suppress(DamagedError):
        latest = log.snapshots.read()
    if latest is not None and floor <= latest.number <= number:
        return log.past.onwards(latest, number)
    return log.past.at(number)
