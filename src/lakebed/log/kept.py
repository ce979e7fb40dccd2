"""Snapshots that are kept: whole states of older numbers, behind which a log is trimmed, and which tags rest on.

The newest snapshot is a short cut, overwritten again and again, and its parts are shared with the one before. These are
more: once the entries up to one are deleted, nothing else tells what the table was. So each lies in a folder of its own
and shares nothing, is read back and held against the state before it counts, and goes by its number alone, never by its
age: when the log is trimmed beyond it and no tag stands at it (:mod:`lakebed.collection.trimming`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from lakebed.errors import DamagedError, StorageError
from lakebed.files import parse_kept_number, snapshots_folder
from lakebed.log.snapshot import Head, SnapshotPlace, Snapshots
from lakebed.state.machine import State

if TYPE_CHECKING:
    from collections.abc import Container

    from lakebed.state.machine import Machine


class KeptSnapshots(Generic[State]):
    """The kept snapshots of one log, by number."""

    def __init__(self, place: SnapshotPlace, identity: str, machine: Machine[State, Any, Any]) -> None:
        self._place = place
        self._identity = identity
        self._machine = machine

    def numbers(self) -> list[int]:
        """The numbers of those that are there, ascending. One request, or one a thousand objects."""
        return sorted(number for name, number in self._listed() if name == replace(self._place, number=number).manifest)

    def keep(self, head: Head[State]) -> None:
        """Write a head's snapshot and read it back.

        Raises StorageError if it could not be written, or does not read back as it was written.
        """
        snapshots = self._of(head.number)
        snapshots.write_whole(head)
        try:
            sound = snapshots.read() == head
        except DamagedError:
            sound = False
        if not sound:
            raise StorageError(
                f"the snapshot of {self._identity} at number {head.number} does not read back as it was written",
                log=self._identity,
                number=head.number,
                transient=True,
            )

    def read(self, number: int) -> Head[State]:
        """One of them, all of it verified. Raises DamagedError if it is gone or cannot be trusted."""
        found = self._of(number).read()
        if found is None or found.number != number:
            raise DamagedError(
                f"the snapshot of {self._identity} at number {number} is gone; restore its objects from a copy",
                log=self._identity,
                number=number,
            )
        return found

    def newest(self, least: int) -> Head[State]:
        """The newest that can be trusted, of those not below a number. Raises DamagedError if there is none."""
        for number in reversed(self.numbers()):
            if number >= least:
                with suppress(DamagedError):
                    return self.read(number)
        raise DamagedError(
            f"the log of {self._identity} is trimmed up to {least}, and no snapshot from there on can be read; restore "
            "one from a copy",
            log=self._identity,
            number=least,
        )

    def delete(self, below: int, spared: Container[int]) -> int:
        """Delete those below a number, but for the spared; returns how many.

        A manifest goes before its parts, so that none is found that lacks some.
        """
        doomed = [(name, number) for name, number in self._listed() if number < below and number not in spared]
        manifests = {replace(self._place, number=number).manifest for _, number in doomed}
        self._place.storage.delete(sorted(manifests))
        self._place.storage.delete([name for name, _ in doomed if name not in manifests])
        return len(manifests)

    def _listed(self) -> list[tuple[str, int]]:
        prefix = self._place.prefix
        listing = self._place.storage.list(snapshots_folder(prefix))
        numbered = ((found.name, parse_kept_number(prefix, found.name)) for found in listing)
        return [(name, number) for name, number in numbered if number is not None]

    def _of(self, number: int) -> Snapshots[State]:
        return Snapshots(replace(self._place, number=number), self._identity, self._machine)
