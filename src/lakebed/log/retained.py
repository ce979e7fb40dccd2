"""Checkpoints that are kept: whole states of older versions, behind which a log is truncated, and which tags rest on.

The newest checkpoint is a short cut, overwritten again and again, and its parts are shared with the one before. These
are more: once the entries up to one are deleted, nothing else tells what the table was. So each lies in a folder of its
own and shares nothing, is read back and held against the state before it counts, and goes by its version alone, never
by its age: when the log is truncated beyond it and no tag stands at it (:mod:`lakebed.retention.truncation`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from lakebed.errors import Code, DamagedError
from lakebed.log.checkpoint import CheckpointLocation, Checkpoints, Head
from lakebed.model.files import checkpoints_folder, parse_retained_version
from lakebed.state.machine import State

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from lakebed.state.machine import Machine


class RetainedCheckpoints(Generic[State]):
    """The retained checkpoints of one log, by version."""

    def __init__(
        self,
        location: CheckpointLocation,
        identity: str,
        machine: Machine[State, Any, Any],
        replayed: Callable[[int], State] | None = None,
    ) -> None:
        """``replayed`` as of :class:`Checkpoints`."""
        self._replayed = replayed
        self._location = location
        self._identity = identity
        self._machine = machine

    def versions(self) -> list[int]:
        """The numbers of those that are there, ascending. One request, or one a thousand objects."""
        return sorted(
            version for name, version in self._listed() if name == replace(self._location, version=version).manifest
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
                f"the checkpoint of {self._identity} at version {head.version} does not read back as it was written",
                log=self._identity,
                version=head.version,
                transient=True,
            )

    def read(self, version: int) -> Head[State]:
        """One of them, all of it verified. Raises DamagedError if it is gone or cannot be trusted."""
        found = self._of(version).read_whole()
        if found is None or found.version != version:
            raise Code.CHECKPOINT_DAMAGED(
                f"the checkpoint of {self._identity} at version {version} is missing; restore its objects from a copy",
                log=self._identity,
                version=version,
            )
        return found

    def latest(self, least: int) -> Head[State]:
        """The newest that can be trusted, of those not below a number. Raises DamagedError if there is none."""
        for version in reversed(self.versions()):
            if version >= least:
                with suppress(DamagedError):
                    return self.read(version)
        raise Code.CHECKPOINT_DAMAGED(
            f"the log of {self._identity} is truncated up to {least}, and no later checkpoint can be read; "
            "restore one from a copy",
            log=self._identity,
            version=least,
        )

    def delete(self, below: int, spared: Container[int]) -> int:
        """Delete those below a number, but for the spared; returns how many.

        A manifest goes before its parts, so that none is found that lacks some.
        """
        doomed = [(name, version) for name, version in self._listed() if version < below and version not in spared]
        manifests = {replace(self._location, version=version).manifest for _, version in doomed}
        self._location.storage.delete(sorted(manifests))
        self._location.storage.delete([name for name, _ in doomed if name not in manifests])
        return len(manifests)

    def _listed(self) -> list[tuple[str, int]]:
        prefix = self._location.prefix
        listing = self._location.storage.list(checkpoints_folder(prefix))
        numbered = ((found.name, parse_retained_version(prefix, found.name)) for found in listing)
        return [(name, version) for name, version in numbered if version is not None]

    def _of(self, version: int) -> Checkpoints[State]:
        return Checkpoints(replace(self._location, version=version), self._identity, self._machine, self._replayed)
