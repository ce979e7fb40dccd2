"""One log: its entries, its checkpoints and its truncation; one object per log and process, safe for threads.

The latest state is read by its tail (:mod:`lakebed.log.tail`), changes are proposed to its committer
(:mod:`lakebed.log.committer`), and older states come from checkpoints and the entries after them
(:mod:`lakebed.log.replay`).

Core type. :class:`Log`. Errors: NotRetainedError for what was truncated, DamagedError, StorageError.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Generic

from lakebed.errors import Code, DamagedError, NotRetainedError
from lakebed.log import entry as entries
from lakebed.log.committer import LocalCommitter
from lakebed.log.entry import entry_missing
from lakebed.log.last_modified_times import EPOCH, from_us
from lakebed.log.sidecars import SidecarStore
from lakebed.log.tail import LogTail
from lakebed.model.state.machine import Change, Machine, Proposed, State
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from lakebed.log.backends.backend import LogBackend
    from lakebed.log.checkpoint import CheckpointLocation, Head
    from lakebed.log.committer import Committer
    from lakebed.log.log_limits import LogLimits
    from lakebed.log.outcomes import Outcome


class Log(Generic[State, Proposed, Change]):
    """One log and its checkpoints; ``identity`` is in every entry, and an entry of another log is refused.

    ``commits`` returns the committer, which may leave to the given one what it does not take; None: that one commits.
    """

    def __init__(
        self,
        backend: LogBackend,
        checkpoints: CheckpointLocation,
        identity: str,
        machine: Machine[State, Proposed, Change],
        commits: Callable[[LocalCommitter[State, Proposed, Change]], Committer[Proposed]] | None = None,
    ) -> None:
        self.backend = backend
        self.identity = identity
        self.machine = machine
        self._sidecars = SidecarStore(checkpoints, identity)
        self.tail = LogTail(backend, checkpoints, identity, machine, self._sidecars.read)
        self.past, self.retained, self.checkpoints = self.tail.past, self.tail.retained, self.tail.checkpoints
        self.local = LocalCommitter(backend, identity, machine, self._sidecars, self.tail)
        self._committer = self.local if commits is None else commits(self.local)

    @property
    def limits(self) -> LogLimits:
        """The limits of this log, which its parts share."""
        return self.tail.limits

    @limits.setter
    def limits(self, limits: LogLimits) -> None:
        self.tail.limits = self.checkpoints.limits = limits

    @property
    def head(self) -> Head[State]:
        """The latest entry that this process has read, and its state; no request."""
        return self.tail.head

    @property
    def committed(self) -> int:
        """The lower bound for reads: as :attr:`Committer.committed`."""
        return self._committer.committed

    def likely(self) -> Head[State]:
        """As :meth:`LogTail.likely`."""
        return self.tail.likely()

    def follow(self) -> State:
        """Return the latest state: reads forward to the end of the log (two requests if there is nothing new)."""
        return self.tail.follow().state

    def commit(self, proposal: Proposed) -> Outcome:
        """As :meth:`Committer.commit`."""
        with telemetry.span("commit", table=self.identity, outcome="error") as span:
            outcome = self._committer.commit(proposal)
            span.labels["outcome"] = type(outcome).__name__.lower()
            return outcome

    # -- entries ------------------------------------------------------------------------------------------------

    def entry_last_modified(self, version: int) -> datetime:
        """Return the store's last-modified time of an entry: from the header of the next if that was read.

        Raises NotRetainedError if the entry was truncated, DamagedError if it is missing.
        """
        return self.tail.last_modified_times.of(version)

    def last_modified_or_epoch(self, version: int) -> datetime:
        """As :meth:`entry_last_modified`; 1970 for a truncated entry, which is older than any limit of a collector."""
        try:
            return self.entry_last_modified(version)
        except NotRetainedError:
            return EPOCH

    def now(self) -> datetime:
        """Return the time by the clock of the log backend, for the age of entries."""
        return self.backend.now()

    def read(self, version: int) -> entries.StoredEntry | None:
        """Return one entry, its link to the previous one unchecked; None if there is none. Raises DamagedError."""
        data = self.backend.get(version)
        if data is None:
            return None
        entry = entries.decode(data, self.identity, version, None)
        return entries.StoredEntry(entry, self.entry_last_modified(version), len(data))

    def at(self, version: int) -> Head[State]:
        """Return the head after an older entry: from the newest checkpoint if not beyond it, else as :meth:`Past.at`.

        Raises NotRetainedError, DamagedError.
        """
        log_start = self.backend.log_start()
        latest: Head[State] | None = None
        with suppress(DamagedError):
            latest = self.checkpoints.read()
        if latest is not None and log_start <= latest.version <= version:
            return self.past.onwards(latest, version)
        return self.past.at(version)

    def newest_first(self) -> Iterator[entries.StoredEntry]:
        """Return all retained entries from the latest to the oldest, read one by one, with the chain checked."""
        head = self.tail.follow()
        digest = head.digest
        for version in range(head.version, 0, -1):
            try:
                stored = self.read(version)
            except NotRetainedError:
                return
            if stored is None or stored.entry.digest != digest:
                if self.backend.log_start() >= version:
                    return
                if stored is None:
                    raise entry_missing(self.identity, version)
                raise Code.ENTRY_DAMAGED(
                    f"entry {version} of {self.identity} was replaced: its digest differs from the one in the next "
                    "entry; restore the object from a copy",
                    log=self.identity,
                    version=version,
                )
            if stored.entry.last_modified_us is not None:
                self.tail.last_modified_times.note(version - 1, from_us(stored.entry.last_modified_us))
            digest = stored.entry.previous
            yield stored

    def read_sidecars(self, entry: entries.Entry) -> Mapping[str, bytes]:
        """Return the sidecars of an entry, by digest. Raises DamagedError if one is missing or was changed."""
        return self._sidecars.read(entry)

    # -- checkpoints and truncation ---------------------------------------------------------------------------------

    def wait_for_checkpoint(self) -> None:
        """Wait until this process writes no checkpoint."""
        self.tail.wait_for_checkpoint()

    def retain_checkpoint(self) -> int:
        """Write a retained checkpoint of the head; return its version. Raises StorageError if it is not readable."""
        head = self.tail.follow()
        self.retained.retain(head)
        # If the latest checkpoint were older than a retained one, each reader would look for the retained one.
        self.tail.start_checkpoint()
        return head.version

    def log_start(self) -> int:
        """Return the version up to which entries may be deleted; one request."""
        return self.backend.log_start()

    def truncate(self, to: int) -> int:
        """Raise the log start and delete the entries up to it; return how many there were.

        Requires two retained checkpoints, at ``to`` and above, that were read back
        (:mod:`lakebed.upkeep.retention.run`). Raises UnsafeStoreError if the store cannot keep a log start.
        """
        while (log_start := self.backend.log_start()) < to:
            self.backend.advance_log_start(log_start, to)
        # In ascending order, so that the last one shows whether an earlier truncation was completed.
        doomed = sorted(version for version in self.backend.versions() if version <= log_start)
        self.backend.remove(doomed)
        return len(doomed)

    def delete_orphan_sidecars(self) -> int:
        """Delete sidecars that no entry names or will ever name; return how many.

        Raises DamagedError, StorageError.
        """
        return self._sidecars.delete_unnamed(self.backend.log_start(), self.head.version, self._verified)

    def _verified(self, version: int) -> bytes:
        data = self.backend.get(version)
        if data is not None:
            entries.decode(data, self.identity, version, None)
        elif self.backend.log_start() < version:
            raise entry_missing(self.identity, version)
        return data or b""
