"""Older versions of a log: the retained checkpoints, and replay of the entries behind them.

The newest checkpoint is derived: it is overwritten repeatedly and shares segments with the previous one. A retained
checkpoint replaces truncated entries, or belongs to a tag; after the entries up to it are deleted, it is the only copy
of that state. Each is therefore in a separate folder and shares nothing, is read back and compared with the state
before it is used, and is deleted by its version, never by its age: when the log is truncated beyond it and it has no
tag (:mod:`lakebed.upkeep.retention.run`).

Core types. :class:`RetainedCheckpoints`, :class:`Past`. :func:`advance` is the one step of replay, for readers and for
verification; :meth:`Past.after` gives each step with its changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct
from msgspec.structs import replace

from lakebed.errors import Code, DamagedError, Error
from lakebed.log import entry as entries
from lakebed.log.checkpoint import CheckpointLocation, Checkpoints, Head
from lakebed.log.entry import entry_missing
from lakebed.log.log_limits import LogLimits
from lakebed.model.files import checkpoints_folder, parse_retained_version
from lakebed.model.state.machine import Change, State

if TYPE_CHECKING:
    from collections.abc import Container

    from lakebed.log.backends.backend import LogBackend
    from lakebed.model.state.machine import Machine

ReadSidecars = Callable[[entries.Entry], Mapping[str, bytes]]
"""Returns the sidecars that an entry names, by digest."""


class Advanced(Struct, Generic[State, Change], frozen=True):
    """The head after an entry, the entry, and its changes, each with the state after it."""

    head: Head[State]
    entry: entries.Entry
    changes: list[tuple[Change, State]]


def advance(
    head: Head[State],
    data: bytes,
    identity: str,
    machine: Machine[State, Any, Change],
    read_sidecars: ReadSidecars,
) -> Advanced[State, Change]:
    """Apply the next entry, whose bytes these are, to a head. ``read_sidecars`` is called if the entry names any.

    Raises UnsupportedFormatError, DamagedError for bytes that are not the next entry or do not fit the state, or as
    ``read_sidecars`` does.
    """
    entry = entries.decode(data, identity, head.version + 1, head.digest)
    sidecars = read_sidecars(entry) if entry.sidecars else {}
    state, changes = head.state, []
    for document in entry.documents:
        with entries.naming(identity, entry.version):
            change = machine.decode(document, sidecars)
        state = machine.apply(state, change, entry.version)
        changes.append((change, state))
    return Advanced(Head(entry.version, entry.digest, state), entry, changes)


class RetainedCheckpoints(Struct, Generic[State], frozen=True):
    """The retained checkpoints of one log, by version; ``replayed`` as of :class:`Checkpoints`."""

    location: CheckpointLocation
    identity: str
    machine: Machine[State, Any, Any]
    replayed: Callable[[int], State]
    limits: Callable[[], LogLimits]

    def versions(self) -> list[int]:
        """Their versions, ascending. One request, or one per thousand objects."""
        return sorted(
            version for name, version in self._listed() if name == replace(self.location, version=version).manifest
        )

    def retain(self, head: Head[State]) -> None:
        """Write a head's checkpoint and read it back.

        Raises StorageError if it could not be written, or does not read back as it was written.
        """
        checkpoints = self._of(head.version)
        checkpoints.write_whole(head)
        try:
            sound = checkpoints.read_whole() == head
        except DamagedError:
            sound = False
        if not sound:
            raise Code.CHECKPOINT_NOT_WRITTEN(
                f"the checkpoint of {self.identity} at version {head.version} does not read back as it was written",
                log=self.identity,
                version=head.version,
                transient=True,
            )

    def read(self, version: int) -> Head[State]:
        """Return one of them, completely verified. Raises DamagedError if it is missing or damaged."""
        head = self._of(version).read_whole()
        if head is None or head.version != version:
            raise Code.CHECKPOINT_DAMAGED(
                f"the checkpoint of {self.identity} at version {version} is missing; restore its objects from a copy",
                log=self.identity,
                version=version,
            )
        return head

    def latest(self, least: int) -> Head[State]:
        """Return the newest undamaged one that is not below a version. Raises DamagedError if there is none."""
        for version in reversed(self.versions()):
            if version >= least:
                with suppress(DamagedError):
                    return self.read(version)
        raise Code.CHECKPOINT_DAMAGED(
            f"the log of {self.identity} is truncated up to {least}, and no later checkpoint can be read; "
            "restore one from a copy",
            log=self.identity,
            version=least,
        )

    def delete(self, below: int, kept: Container[int]) -> int:
        """Delete those below a version, except those in ``kept``; returns how many.

        A manifest is deleted before its segments, so that no incomplete checkpoint is found.
        """
        doomed = [(name, version) for name, version in self._listed() if version < below and version not in kept]
        manifests = {replace(self.location, version=version).manifest for _, version in doomed}
        self.location.storage.delete(sorted(manifests))
        self.location.storage.delete([name for name, _ in doomed if name not in manifests])
        return len(manifests)

    def _listed(self) -> list[tuple[str, int]]:
        prefix = self.location.prefix
        listing = self.location.storage.list(checkpoints_folder(prefix))
        numbered = ((entry.name, parse_retained_version(prefix, entry.name)) for entry in listing)
        return [(name, version) for name, version in numbered if version is not None]

    def _of(self, version: int) -> Checkpoints[State]:
        one = Checkpoints(replace(self.location, version=version), self.identity, self.machine, self.replayed)
        one.limits = self.limits()
        return one


class Past(Struct, Generic[State], frozen=True):
    """The older versions of a log: from its entries, and below the log start from the retained checkpoints."""

    backend: LogBackend
    retained: RetainedCheckpoints[State]
    identity: str
    machine: Machine[State, Any, Any]
    read_sidecars: ReadSidecars

    def at(self, version: int) -> Head[State]:
        """Return the head after an entry: from the nearest retained checkpoint that is not beyond it, else from the
        first entry.

        Raises NotRetainedError if the log is truncated beyond it, DamagedError if an entry is gone or not the one that
        was written.
        """
        log_start = self.backend.log_start()
        for retained in reversed(self.retained.versions()):
            if retained == version or log_start <= retained < version:
                with suppress(DamagedError):
                    return self.onwards(self.retained.read(retained), version)
        if log_start:
            raise self._truncated(version)
        return self.onwards(Head(0, "", self.machine.empty), version)

    def onwards(self, head: Head[State], version: int) -> Head[State]:
        """Return the head with all entries up to a number applied; raises as :meth:`at`."""
        for following, _ in self.after(head, version):
            head = following
        return head

    def after(self, head: Head[State], version: int) -> Iterator[tuple[Head[State], list[tuple[Any, State]]]]:
        """Return the heads after a head, up to a version, each with the changes of its entry and the state after each
        change.

        An entry is read when the iterator reaches it. Raises as :meth:`at`.
        """
        while head.version < version:
            data = self._next(head, version)
            after = advance(head, data, self.identity, self.machine, self.read_sidecars)
            head = after.head
            yield head, after.changes

    def _next(self, head: Head[State], version: int) -> bytes:
        """Return the bytes of the entry after a head, on the way to a version."""
        data = self.backend.get(head.version + 1)
        if data is None:
            log_start = self.backend.log_start()
            raise (
                self._truncated(version) if log_start > head.version else entry_missing(self.identity, head.version + 1)
            )
        return data

    def _truncated(self, version: int) -> Error:
        return Code.VERSION_NOT_RETAINED(
            f"version {version} of {self.identity} is no longer retained: the log is truncated, and no "
            "checkpoint of it is kept",
            log=self.identity,
            version=version,
        )
