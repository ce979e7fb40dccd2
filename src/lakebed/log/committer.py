"""Following a log and committing to it: one object per log and process, safe for threads.

Entry n+1 is won by creating its object, if absent. The create proves that nothing came between the judging of a
transaction and its effect, so nothing void is ever logged and no lock is needed.

Group commit. Callers queue (:mod:`lakebed.log.queue`); whoever leads takes all that wait (at most GROUP_MAX), has them
validated (:mod:`lakebed.log.validation`), writes one entry and tells everyone their own outcome. A refusal spoils
nobody else's, and is told only once the state it was validated on is committed; it is validated again after a lost
race. Those whom the entry has no room for are in front of the line again.

A lost race: the entry that won was read when the log position was looked at. It is applied, all are validated again,
and the next version is tried after a short wait with full jitter, for at most LOSING_S. A log position that cannot be
settled (:mod:`lakebed.log.append`) is remembered, and nothing else is proposed by this process until it is.

A store that lost an entry would let a writer fill the gap, and part the log for good. Nobody lists the log to find one,
but before its first commit a process looks one entry past the end: what stands there shows that the end is none.

Entries are deleted behind a log start (:mod:`lakebed.log.tail`), so a number may be won twice by one who slept: an
entry is ours only once the log start, read after the put, is below it. Source: docs/decisions/0004 and 0011, the models
in tests/model/protocol and tests/model/truncation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic

from lakebed import clock
from lakebed.errors import Code, DamagedError, NotRetainedError, StorageError, UnsupportedFormatError
from lakebed.log import entry as entries
from lakebed.log.append import PendingEntry, append
from lakebed.log.backoff import CommitBackoff
from lakebed.log.checkpoint import Head
from lakebed.log.last_modified_times import EPOCH, from_us, gone, to_us
from lakebed.log.outcomes import Committed, Contended, Crowded, Outcome, Unknown
from lakebed.log.queue import Queue, Ticket
from lakebed.log.sidecars import SidecarStore
from lakebed.log.tail import LogTail, ReadAhead
from lakebed.log.validation import Validated, validate
from lakebed.log.writer import this_writer
from lakebed.state.machine import Change, Machine, Proposed, State
from lakebed.state.transactions import Repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from lakebed.log.backends.backend import LogBackend
    from lakebed.log.checkpoint import CheckpointLocation, Checkpoints
    from lakebed.log.retained import RetainedCheckpoints

LOSING_S = 15.0
"""How long a commit goes on losing races before it gives up."""

FRESH_S = 600.0
"""A writer that has not looked for longer looks before it puts. It would be right without: but who put where the log is
truncated by now learns nothing of his outcome, and that should take a sleep between look and put."""

LAST_MODIFIED_PAUSE_S = 0.1
"""An entry that follows another so fast carries no last-modified time that would cost a request: it would double a
commit's time."""


@dataclass(frozen=True, slots=True)
class _Put(Generic[State]):
    """An entry that is in the store and not proven yet, who is to be told, and the log start if it was told already."""

    reading: ReadAhead[State]
    validated: Validated[State]
    log_start: int | None


class _NoPut(Enum):
    """Why an attempt put no entry that has to be proven."""

    REPORTED = "every caller has its outcome"
    LOST = "the log has moved: validate again"


class Log(Generic[State, Proposed, Change]):
    """One log and its checkpoints; ``identity`` is written into every entry, so that no other log's entry passes."""

    def __init__(
        self,
        backend: LogBackend,
        checkpoints: CheckpointLocation,
        identity: str,
        machine: Machine[State, Proposed, Change],
    ) -> None:
        self.backend = backend
        self.identity = identity
        self.machine = machine
        self._sidecars = SidecarStore(checkpoints, identity)
        self.tail = LogTail(backend, checkpoints, identity, machine, self._sidecars.read)
        self.past = self.tail.past
        self._queue = self.waiting = Queue[Proposed]()
        self._backoff = CommitBackoff()
        self._unsettled: PendingEntry | None = None

    @property
    def head(self) -> Head[State]:
        """The newest state this process knows; no request."""
        return self.tail.head

    def open(self) -> State:
        """A state to begin with: the one that is known, or that of the newest checkpoint; with neither the empty
        one.
        """
        return self.tail.open().state

    def follow(self) -> State:
        """The newest state: reads forward until an entry is not there (two requests when nothing is new)."""
        return self.tail.follow().state

    def commit(self, proposal: Proposed) -> Outcome:
        """Proposal one change; returns what became of it. Bounded in time; see the module's rules.

        Raises StorageError if the store refuses what comes before the entry, or the entry outright: then nothing of the
        proposal is in the log, nor will be.
        """
        ticket = Ticket(proposal)
        if not self._queue.enter(ticket):
            return Crowded(len(self._queue))
        if self._queue.leads(ticket):
            self._lead(ticket)
        assert ticket.outcome is not None
        return ticket.outcome

    def _lead(self, ticket: Ticket[Proposed]) -> None:
        """Commit for those that wait. While the entry is proven, the next leader puts one behind it."""
        group, put = [ticket], None
        try:
            try:
                if (wait_s := self._backoff.before_putting_s()) > 0:
                    clock.sleep(wait_s)
                group = self._queue.take()
                put = self._commit_group(group)
            finally:
                self._queue.hand_on(group, put.validated.outcomes if put else ())
            if put:
                self._report_proven(put)
        finally:
            if put:
                # Whatever ended it, nobody sleeps for ever.
                _report_all([t for t in put.validated.outcomes if t.outcome is None], Unknown(put.reading.head.version))
                self._queue.wake(t for t in put.validated.outcomes if t is not ticket)

    # -- entries ------------------------------------------------------------------------------------------------

    def entry_last_modified(self, version: int) -> datetime:
        """The store's last-modified time of an entry: from the header of the next if that was read.

        Raises NotRetainedError if the log is truncated beyond it, DamagedError if it is gone.
        """
        return self.tail.last_modified_times.of(version)

    def last_modified_or_epoch(self, version: int) -> datetime:
        """The same; of an entry that was truncated, 1970: it is older than what collectors compare it with."""
        try:
            return self.entry_last_modified(version)
        except NotRetainedError:
            return EPOCH

    def now(self) -> datetime:
        """The clock that last-modified times the entries: what an entry's age is reckoned by."""
        return self.backend.now()

    def entry(self, version: int) -> bytes | None:
        """The bytes of an entry as they are stored; None if there is none yet, or none any more."""
        return self.backend.get(version)

    def read(self, version: int) -> entries.StoredEntry | None:
        """One entry, whose place in the chain is not checked; None if there is none. Raises DamagedError."""
        data = self.backend.get(version)
        if data is None:
            return None
        entry = entries.decode(data, self.identity, version, None)
        return entries.StoredEntry(entry, self.entry_last_modified(version), len(data))

    def newest_first(self) -> Iterator[entries.StoredEntry]:
        """All entries from the newest to the oldest that is kept, each read as it is asked for, the chain checked.

        The newest one's last-modified time is asked of the store, and any that the entry after it does not tell.
        """
        head = self.tail.follow()
        digest = head.digest
        for version in range(head.version, 0, -1):
            try:
                found = self.read(version)
            except NotRetainedError:
                return
            if found is None or found.entry.digest != digest:
                if self.backend.log_start() >= version:
                    return
                if found is None:
                    raise gone(self.identity, version)
                raise Code.ENTRY_DAMAGED(
                    f"entry {version} of {self.identity} was replaced: its digest differs from the one in the next "
                    "entry; restore the object from a copy",
                    log=self.identity,
                    version=version,
                )
            if found.entry.last_modified_us is not None:
                self.tail.last_modified_times.note(version - 1, from_us(found.entry.last_modified_us))
            digest = found.entry.previous
            yield found

    def read_sidecars(self, entry: entries.Entry) -> Mapping[str, bytes]:
        """The sidecars that an entry names, by digest. Raises DamagedError if one is not as it was put."""
        return self._sidecars.read(entry)

    # -- checkpoints and truncation ---------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Checkpoints[State]:
        """The newest checkpoint."""
        return self.tail.checkpoints

    @property
    def retained(self) -> RetainedCheckpoints[State]:
        """The checkpoints that are kept."""
        return self.tail.retained

    def wait_for_checkpoint(self) -> None:
        """Return when no checkpoint is being written by this process."""
        self.tail.wait_for_checkpoint()

    def retain_checkpoint(self) -> int:
        """Keep a checkpoint of the head; returns its version. Raises StorageError if it does not read back."""
        head = self.tail.follow()
        self.retained.retain(head)
        # The newest must not fall behind those that are kept, or each reader would look for them.
        self.tail.start_checkpoint()
        return head.version

    def log_start(self) -> int:
        """The version up to which entries may be gone; one request."""
        return self.backend.log_start()

    def supports_truncation(self) -> bool:
        """Whether the log can be truncated where it lies; tried out there, which takes some requests."""
        return self.backend.supports_truncation()

    def truncate(self, to: int) -> int:
        """Raise the log start and delete the entries up to it; returns how many were there.

        Requires two retained checkpoints, at ``to`` and above, that were read back; see
        :mod:`lakebed.retention.truncation`.
        Raises UnsafeStoreError if the store cannot keep a log start.
        """
        while (log_start := self.backend.log_start()) < to:
            self.backend.advance_log_start(log_start, to)
        # In ascending order, so that the last one there tells whether a round before this one came to its end.
        doomed = sorted(version for version in self.backend.versions() if version <= log_start)
        self.backend.remove(doomed)
        return len(doomed)

    def delete_orphan_sidecars(self) -> int:
        """Delete sidecars that no entry will ever name, going by the newest version known; returns how many.

        Raises DamagedError, StorageError.
        """
        return self._sidecars.sweep(self.backend.log_start(), self.head.version, self._believed)

    def _believed(self, version: int) -> bytes:
        data = self.backend.get(version)
        if data is not None:
            entries.decode(data, self.identity, version, None)
        elif self.backend.log_start() < version:
            raise gone(self.identity, version)
        return data or b""

    # -- committing ---------------------------------------------------------------------------------------------

    def _commit_group(self, group: Sequence[Ticket[Proposed]]) -> _Put[State] | None:
        """Put an entry for a group; None: there is none to prove, and every caller has its outcome."""
        if clock.monotonic_s() - self.tail.proven_s > FRESH_S:
            self.follow()
        if self._unsettled is not None and not self._settle_old():
            _report_all(group, Contended(0))
            return None
        self.tail.look_past_end()
        give_up_at, lost = clock.monotonic_s() + LOSING_S, 0
        reading = self.tail.reading()
        while (done := self._try(group, reading, lost)) is _NoPut.LOST:
            lost += 1
            if clock.monotonic_s() >= give_up_at:
                _report_all(group, Contended(lost))
                return None
            clock.sleep(self._backoff.after_losing_s(lost))
            if lost > 1 or reading.head.version < self.head.version:
                # Whoever won twice may have won more by now. After the first loss a look would mostly find nothing.
                self.follow()
                reading = self.tail.reading()
        return None if done is _NoPut.REPORTED else done

    def _try(self, group: Sequence[Ticket[Proposed]], reading: ReadAhead[State], lost: int) -> _Put[State] | _NoPut:
        """Propose the group for the next version, once."""
        validated = validate(group, reading.head, self.machine)
        if not validated.documents:
            self.follow()
            if self.head.version != reading.head.version:
                return _NoPut.LOST
            validated.tell()
            return _NoPut.REPORTED
        sidecars = self._sidecars.put(validated.sidecars, reading.head.version + 1)
        pending = self._pending(reading.head, validated, sidecars, hasty=lost > 0)
        begin_s = clock.monotonic_s()
        found = self._append_or_report(pending, validated)
        if found is None:
            return _NoPut.REPORTED
        if found != pending.data:
            self._backoff.lost()
            self._lose_to(reading, found)
            return _NoPut.LOST
        self._backoff.won(clock.monotonic_s() - begin_s)
        head = Head(pending.version, entries.digest_of(found), validated.state)
        reading.take(head, found, entries.weight_bytes(found, sidecars))
        self.tail.go_on_from(reading)
        return _Put(reading, validated, self.backend.known_log_start(pending.version))

    def _lose_to(self, reading: ReadAhead[State], found: bytes) -> None:
        """Read on over the entry that won."""
        try:
            self.tail.read_on(reading, found)
        except (DamagedError, UnsupportedFormatError) as error:
            self.tail.prove(reading, error)

    def _report_proven(self, put: _Put[State]) -> None:
        """Tell everyone their outcome if the log start proves the entry that was put; else those of whom it is known.

        Where this process slept until the log was truncated beyond it, to have filled the log position proves nothing,
        and an earlier put of the same bytes may have been in the log: the state tells of those with a request key.
        """
        try:
            if self.tail.prove(put.reading, log_start=put.log_start):
                put.validated.tell()
                if self.checkpoints.due():
                    self.tail.start_checkpoint()
                return
            state = self.follow()
        except StorageError:
            # The entry is there, and most likely the log's. It is not known, and nothing rests on it yet.
            return
        for ticket in put.validated.outcomes:
            resolved = self.machine.resolve(ticket.proposal, state)
            if isinstance(resolved, Repeated):
                ticket.outcome = Committed(resolved.version)

    def _pending(
        self,
        head: Head[State],
        validated: Validated[State],
        sidecars: tuple[entries.SidecarReference, ...],
        *,
        hasty: bool,
    ) -> PendingEntry:
        version, token, time = head.version + 1, clock.random_token(), clock.now().isoformat()
        documents = tuple(validated.documents)
        last_modified_us = self._last_modified_us(head.version, self.tail.last_modified_times.known)
        entry = entries.Entry(
            version, token, time, this_writer(), last_modified_us, "", head.digest, documents, sidecars
        )
        data = entries.encode(self.identity, entry, validated.body)
        if last_modified_us is not None:
            return PendingEntry(version, data)
        # A request for the last-modified time is worth it, but not beside that for a checkpoint, nor in haste: while
        # others wait, hard behind another entry, or between a lost race and the next try, where a wait loses more of
        # them.
        hasty = hasty or len(self._queue) > 0 or clock.monotonic_s() - self.tail.moved_s < LAST_MODIFIED_PAUSE_S
        if not hasty and not self.checkpoints.due(entries.weight_bytes(data, sidecars) + entries.LAST_MODIFIED_BYTES):
            asked = replace(
                entry, last_modified_us=self._last_modified_us(head.version, self.tail.last_modified_times.of)
            )
            data = entries.encode(self.identity, asked, validated.body)
        return PendingEntry(version, data)

    def _last_modified_us(self, version: int, of: Callable[[int], datetime | None]) -> int | None:
        """The last-modified time of the head, for the entry after it; None if there is none, or it cannot be had."""
        try:
            last_modified = of(version) if version else None
        except StorageError:
            # It spares others a request, and is not worth failing for.
            return None
        return None if last_modified is None else to_us(last_modified)

    def _append_or_report(self, pending: PendingEntry, validated: Validated[State]) -> bytes | None:
        """As :func:`fill`; what stays open, by silence or by an interrupt, is told as unknown and remembered."""
        # Before the put: an interrupt after it must leave nobody to be proposed again.
        _report_all(validated.outcomes, Unknown(pending.version))
        try:
            found = append(self.backend, pending)
        except StorageError:
            _report_all(validated.outcomes, None)
            raise
        except BaseException:
            self._unsettled = pending
            raise
        if found is None:
            self._unsettled = pending
        elif found != pending.data:
            _report_all(validated.outcomes, None)
        return found

    def _settle_old(self) -> bool:
        """Settle what an earlier unknown outcome left under way; False if the store still does not answer."""
        assert self._unsettled is not None
        if append(self.backend, self._unsettled) is None:
            return False
        self._unsettled = None
        self.follow()
        return True


def _report_all(tickets: Iterable[Ticket[Any]], outcome: Outcome | None) -> None:
    for ticket in tickets:
        ticket.outcome = outcome
