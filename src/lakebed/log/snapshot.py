"""Snapshots: the whole state after one entry, so that opening a log need not read all of it.

Derived and never authoritative: the object is overwritten in place by whoever finds one due, may be older than the
newest, and one that is missing, damaged or another log's only costs reading the entries. Written when the entries
since the last one outgrow half its size, so that the work of writing stays a constant share of the log's, and a
reader never has to follow more than that much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from lakebed.errors import DamagedError, StorageError
from lakebed.files import snapshot_name
from lakebed.log import entry as entries
from lakebed.state.machine import State

if TYPE_CHECKING:
    from lakebed.state.machine import Machine
    from lakebed.storage.contract import Storage


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """Where one log's snapshots lie: always beside the data, wherever the entries are kept."""

    storage: Storage
    prefix: str


@dataclass(frozen=True, slots=True)
class Head(Generic[State]):
    """The newest entry known: its number, its digest (the next one's ``previous``), and the state after it."""

    number: int
    digest: str
    state: State


class Snapshots(Generic[State]):
    """The snapshot object of one log, and when the next is due."""

    def __init__(self, place: SnapshotPlace, identity: str, machine: Machine[State, Any, Any]) -> None:
        self._storage = place.storage
        self._name = snapshot_name(place.prefix)
        self._identity = identity
        self._machine = machine
        self._size_bytes = 0
        self._since_bytes = 0

    def newest(self) -> Head[State] | None:
        """The state of the stored snapshot; None if there is none that can be trusted: then read the log."""
        try:
            return self.read()
        except DamagedError:
            return None

    def read(self) -> Head[State] | None:
        """The stored snapshot; None if there is none. Raises DamagedError if it cannot be trusted."""
        data = self._storage.get(self._name)
        if data is None:
            return None
        try:
            number, digest, document = entries.decode_snapshot(data, self._identity)
            state = self._machine.decode_state(document)  # type: ignore[arg-type]
        except (ValueError, KeyError) as error:
            raise DamagedError(f"the snapshot of {self._identity} holds no state", name=self._name) from error
        self._size_bytes = len(data)
        return Head(number, digest, state)

    def due(self, entry_bytes: int) -> bool:
        """Whether the commit of an entry of that size will be followed by a snapshot."""
        return self._since_bytes + entry_bytes > self._size_bytes // 2

    def written(self, head: Head[State], entry_bytes: int) -> None:
        """Take note of a commit, and write a snapshot if one is due."""
        due = self.due(entry_bytes)
        self._since_bytes += entry_bytes
        if not due:
            return
        document = self._machine.encode_state(head.state)
        data = entries.encode_snapshot(self._identity, head.number, head.digest, document)
        try:
            self._storage.replace(self._name, data)
        except StorageError:
            # The commit stands, and must not look failed for want of a short cut; the next one tries again.
            return
        self._size_bytes, self._since_bytes = len(data), 0
