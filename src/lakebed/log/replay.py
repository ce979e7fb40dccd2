"""Reading a log forward: one step, the same for whoever follows it and whoever verifies it, and all up to a number."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from lakebed.errors import Code, DamagedError, Error
from lakebed.log import entry as entries
from lakebed.log.checkpoint import Head
from lakebed.log.last_modified_times import gone
from lakebed.state.machine import State

if TYPE_CHECKING:
    from lakebed.log.backends.backend import LogBackend
    from lakebed.log.committer import Log
    from lakebed.log.retained import RetainedCheckpoints
    from lakebed.state.machine import Machine

ReadSidecars = Callable[[entries.Entry], Mapping[str, bytes]]
"""Gives the sidecars that an entry names, by digest."""


def advance(
    head: Head[State],
    data: bytes,
    identity: str,
    machine: Machine[State, Any, Any],
    read_sidecars: ReadSidecars,
) -> tuple[Head[State], entries.Entry]:
    """The head after the next entry, whose bytes these are, and the entry. ``read_sidecars`` is asked if it names any.

    Raises UnsupportedFormatError, DamagedError for bytes that are not the next entry or do not fit the state, or as
    ``read_sidecars`` does.
    """
    entry = entries.decode(data, identity, head.version + 1, head.digest)
    sidecars = read_sidecars(entry) if entry.sidecars else {}
    state = head.state
    for document in entry.documents:
        with entries.naming(identity, entry.version):
            change = machine.decode(document, sidecars)
        state = machine.apply(state, change, entry.version)
    return Head(entry.version, entry.digest, state), entry


@dataclass(frozen=True, slots=True)
class Past(Generic[State]):
    """What tells of the older numbers of a log: the entries, and behind the log start the checkpoints that are kept."""

    backend: LogBackend
    retained: RetainedCheckpoints[State]
    identity: str
    machine: Machine[State, Any, Any]
    read_sidecars: ReadSidecars

    def at(self, version: int) -> Head[State]:
        """The head after an entry: from the nearest retained checkpoint that is not beyond it, else from the first
        entry.

        Raises NotRetainedError if the log is truncated beyond it, DamagedError if an entry is gone or not the one that
        was written.
        """
        log_start = self.backend.log_start()
        for retained in reversed(self.retained.versions()):
            if retained == version or log_start <= retained < version:
                with contextlib.suppress(DamagedError):
                    return self.onwards(self.retained.read(retained), version)
        if log_start:
            raise self._truncated(version)
        return self.onwards(Head(0, "", self.machine.empty), version)

    def onwards(self, head: Head[State], version: int) -> Head[State]:
        """The head with all entries up to a number applied; raises as :meth:`at`."""
        while head.version < version:
            data = self.backend.get(head.version + 1)
            if data is None:
                log_start = self.backend.log_start()
                raise self._truncated(version) if log_start > head.version else gone(self.identity, head.version + 1)
            head, _ = advance(head, data, self.identity, self.machine, self.read_sidecars)
        return head

    def _truncated(self, version: int) -> Error:
        return Code.VERSION_NOT_RETAINED(
            f"version {version} of {self.identity} is no longer retained: the log is truncated, and no "
            "checkpoint of it is kept",
            log=self.identity,
            version=version,
        )


def replay(log: Log[State, Any, Any], version: int) -> Head[State]:
    """The head after an older entry: from the newest checkpoint if that is not beyond it, else as :meth:`Past.at`."""
    log_start = log.log_start()
    latest: Head[State] | None = None
    with contextlib.suppress(DamagedError):
        latest = log.checkpoints.read()
    if latest is not None and log_start <= latest.version <= version:
        return log.past.onwards(latest, version)
    return log.past.at(version)
