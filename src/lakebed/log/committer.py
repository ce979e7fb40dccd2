"""Committing to a log: one object per log and process, safe for threads.

Entry n+1 is created, if absent. The create proves that nothing was committed between the validation of a transaction
and its effect, so only valid transactions are logged and no lock is needed.

Group commit. Callers queue (:mod:`lakebed.log.queue`); the leader takes all that wait (at most GROUP_MAX), validates
them and appends one entry (:mod:`lakebed.log.group_commit`), and sets the outcome of each. A rejection affects no other
proposal, and is reported only once the state it was validated on is committed; it is validated again after a lost race.
Those that do not fit into the entry return to the front of the queue.

Turns. On a local disk, where a create takes as long as a turn of a lock, a process that has met other writers waits for
its turn before it reads on and appends. This only avoids races: without a turn it continues.

A lost race. The append has read the winning entry. It is applied, all proposals are validated again, and the next
version is tried after a short wait with full jitter, for at most ``losing_s``. After an unclear append this process
proposes nothing else until the outcome of that version is known.

A gap. A store that lost an entry would let a writer fill the gap, and fork the log for good. So a process looks past
the end of the log when it first reads it, and before its first commit (:mod:`lakebed.log.tail`). A database that forgot
the entry before, or has another one there, refuses the append in the same request: it is *unlinked*, and the log is
read again. A local disk also refuses an entry below a later one.

Truncation. Entries are deleted behind a log start (:mod:`lakebed.log.tail`), so a process that slept may create a
version that others created before: an entry is in the log only once the log start, read after the put, is below it.

Core types. :class:`Committer`, the port, and :class:`LocalCommitter`. A committer through a service is in
:mod:`lakebed.log.through_service`. Source: docs/decisions/0004 and 0011; models: tests/model/protocol and
tests/model/truncation.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from lakebed import clock
from lakebed.errors import DamagedError, NotRetainedError, StorageError, UnsupportedFormatError
from lakebed.log import entry as entries
from lakebed.log.checkpoint import Head
from lakebed.log.group_commit import NotAppended, PendingEntry, Validated, append, validate
from lakebed.log.last_modified_times import to_us
from lakebed.log.outcomes import Committed, Contended, Outcome, Unknown
from lakebed.log.queue import CommitBackoff, Queue, Ticket, share
from lakebed.log.sidecars import SidecarStore
from lakebed.log.tail import LogTail, ReadAhead
from lakebed.model.state.machine import Change, Machine, Proposed, State
from lakebed.model.state.transactions import Repeated
from lakebed.model.version import this_writer
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from lakebed.log.backends.backend import LogBackend

Proposed_contra = TypeVar("Proposed_contra", contravariant=True)


class _Put(Struct, Generic[State], frozen=True):
    """An entry that is in the store and not proven yet, its proposals, and the log start if it came with the create."""

    reading: ReadAhead[State]
    validated: Validated[State]
    log_start: int | None


class _NoPut(Enum):
    """Why an attempt put no entry that must be proven."""

    REPORTED = "every caller has its outcome"
    LOST = "the log has moved: validate again"
    UNLINKED = "the log is not the one that was read: read it again"


class Committer(Protocol[Proposed_contra]):
    """How the proposals of this process come into one log. Safe to use from many threads.

    Rules, which :class:`lakebed.testing.logs.CommitterConformance` checks. A proposal is in the log at most once, and
    the outcome says whether it is: *committed* means that it is in a durable entry of that version, validated on the
    state before it; anything but *committed* and *unknown* that it is not there, and never will be. A proposal that
    the state refuses affects no other.
    """

    @property
    def committed(self) -> int:
        """The newest version that this process knows of, whether it has read it or not: no read may be below it."""

    def commit(self, proposal: Proposed_contra) -> Outcome:
        """Propose one change; return its outcome, in bounded time.

        Raises StorageError if the store refuses the entry, or a request before it: then the proposal is not in the log,
        and never will be.
        """


class LocalCommitter(Generic[State, Proposed, Change]):
    """A :class:`Committer` that appends entries itself, from what the ``tail`` has read; ``queue`` has its callers."""

    committed = 0
    """The tail has read whatever is committed here."""

    def __init__(
        self,
        backend: LogBackend,
        identity: str,
        machine: Machine[State, Proposed, Change],
        sidecars: SidecarStore,
        tail: LogTail[State],
    ) -> None:
        self.tail = tail
        self.queue = Queue[Proposed](lambda: tail.limits.queue_max)
        self._backend = backend
        self._identity = identity
        self._machine = machine
        self._sidecars = sidecars
        self._backoff = CommitBackoff()
        self._unsettled: PendingEntry | None = None

    def commit(self, proposal: Proposed) -> Outcome:
        """Propose one change, together with those of other callers that wait."""
        return self.queue.commit(proposal, self.lead)

    def lead(self, ticket: Ticket[Proposed]) -> None:
        """Commit for all waiting callers. While the entry is proven, the next leader appends the next one."""
        put = None
        try:
            try:
                with self._turn():
                    put = self._commit_group(self.queue.take(ticket))
            except StorageError as error:
                share([ticket, *ticket.followers], error)
                raise
            finally:
                self.queue.hand_on(ticket, put.validated.outcomes if put else ())
            if put:
                self._report_proven(put)
        finally:
            if put:
                # Every caller is woken in any case.
                _report_all([t for t in put.validated.outcomes if t.outcome is None], Unknown(put.reading.head.version))
                self.queue.wake(t for t in put.validated.outcomes if t is not ticket)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for the turn of this process, and read what others have appended; without turns, wait by the backoff."""
        backoff, known = self._backoff, self.tail.head.version
        if (wait_s := backoff.before_putting_s()) > 0:
            clock.sleep(wait_s)
        if not backoff.wants_turn():
            yield
            return
        with self._backend.turn(self.tail.limits.turn_wait_s, backoff.look_s) as has_turn:
            backoff.had_turn(has_turn=has_turn, others=has_turn and self.tail.follow().version > known)
            yield

    def _commit_group(self, group: Sequence[Ticket[Proposed]]) -> _Put[State] | None:
        """Append an entry for a group; None if there is none to prove, and every caller has its outcome."""
        begin_s = clock.monotonic_s()
        if begin_s - self.tail.proven_s > self.tail.limits.fresh_s:
            self.tail.follow()
        if self._unsettled is not None and not self._settle_old():
            _report_all(group, Contended(0))
            return None
        self.tail.look_past_end(begin_s)
        give_up_at, lost = clock.monotonic_s() + self.tail.limits.losing_s, 0
        reading = self.tail.reading()
        while isinstance(done := self._try(group, reading, lost), _NoPut) and done is not _NoPut.REPORTED:
            lost += 1
            if clock.monotonic_s() >= give_up_at:
                _report_all(group, Contended(lost))
                return None
            clock.sleep(self._backoff.after_losing_s(lost))
            # Other writers may have won more by now. After the first loss that is unlikely, so not worth a request.
            # The log start is read after the put, which proves what is read here as well.
            if lost > 1 and (error := self.tail.read_to_end(reading)):
                self.tail.prove(reading, error)
            if done is _NoPut.UNLINKED or reading.head.version < self.tail.head.version:
                self.tail.follow()
                reading = self.tail.reading()
        return None if done is _NoPut.REPORTED else done

    def _try(self, group: Sequence[Ticket[Proposed]], reading: ReadAhead[State], lost: int) -> _Put[State] | _NoPut:
        """Propose the group for the next version, once."""
        validated = validate(group, reading.head, self._machine, self.tail.limits)
        if not validated.documents:
            self.tail.follow()
            if self.tail.head.version != reading.head.version:
                return _NoPut.LOST
            validated.report()
            return _NoPut.REPORTED
        sidecars = self._sidecars.put(validated.sidecars, reading.head.version + 1)
        try:
            pending = self._pending(reading.head, validated, sidecars, hasty=lost > 0)
        except NotRetainedError:
            # The log was truncated beyond the entry before.
            self.tail.follow()
            return _NoPut.LOST
        begin_s = clock.monotonic_s()
        stored = self._append_or_report(pending, validated)
        if stored is NotAppended.UNLINKED:
            # The reading raises an error if the log lost entries. Otherwise it was truncated, and goes on elsewhere.
            self.tail.forget_ahead()
            self.tail.follow()
            return _NoPut.UNLINKED
        if isinstance(stored, NotAppended):
            if stored is NotAppended.OVERTAKEN:
                self._report_by_state(validated)
            return _NoPut.REPORTED
        if stored != pending.data:
            self._backoff.lost()
            telemetry.measure("commit_conflicts_total", 1, table=self._identity)
            self._lose_to(reading, stored)
            return _NoPut.LOST
        self._backoff.won(clock.monotonic_s() - begin_s)
        telemetry.measure("commit_group_size", len(validated.documents))
        head = Head(pending.version, entries.digest_of(stored), validated.state)
        reading.take(head, stored, entries.weight_bytes(stored, sidecars), self.tail.limits.ahead_bytes)
        self.tail.go_on_from(reading)
        return _Put(reading, validated, self._backend.known_log_start(pending.version))

    def _lose_to(self, reading: ReadAhead[State], stored: bytes) -> None:
        """Apply the entry that won."""
        try:
            self.tail.read_on(reading, stored)
        except (DamagedError, UnsupportedFormatError) as error:
            self.tail.prove(reading, error)

    def _report_proven(self, put: _Put[State]) -> None:
        """Report the outcomes if the log start proves the entry, else those whose request keys the state has.

        If this process stopped until the log was truncated beyond the entry, the create proves nothing, and an earlier
        put of the same bytes may have been in the log.
        """
        try:
            if self.tail.prove(put.reading, log_start=put.log_start):
                put.validated.report()
                if self.tail.checkpoints.due():
                    self.tail.start_checkpoint()
                return
            self._report_by_state(put.validated)
        except StorageError:
            # The entry is stored and probably in the log: the outcome stays unknown.
            return

    def _report_by_state(self, validated: Validated[State]) -> None:
        """Report the outcomes of those whose request keys the state has; the others stay unknown."""
        state = self.tail.follow().state
        for ticket in validated.outcomes:
            resolved = self._machine.resolve(ticket.proposal, state)
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
        facts = (version, token, time, this_writer(), last_modified_us, "", head.digest)
        entry = entries.Entry(*facts, documents, sidecars, tuple(validated.features))
        data = entries.encode(self._identity, entry, validated.body)
        if last_modified_us is not None:
            return PendingEntry(version, data, head.digest)
        # The last-modified time is worth a request, unless a checkpoint is due or the commit is urgent: other callers
        # wait, another entry was just appended, or a race was lost.
        since_s = clock.monotonic_s() - self.tail.moved_s
        hasty = hasty or len(self.queue) > 0 or since_s < self.tail.limits.last_modified_pause_s
        if not hasty and not self.tail.checkpoints.due(
            entries.weight_bytes(data, sidecars) + entries.LAST_MODIFIED_BYTES
        ):
            asked = replace(
                entry, last_modified_us=self._last_modified_us(head.version, self.tail.last_modified_times.of)
            )
            data = entries.encode(self._identity, asked, validated.body)
        return PendingEntry(version, data, head.digest)

    def _last_modified_us(self, version: int, of: Callable[[int], datetime | None]) -> int | None:
        """Return the last-modified time of the head, for the next entry; None: there is none, or it cannot be read."""
        try:
            last_modified = of(version) if version else None
        except StorageError:
            # Best effort: it only saves other processes a request.
            return None
        return None if last_modified is None else to_us(last_modified)

    def _append_or_report(self, pending: PendingEntry, validated: Validated[State]) -> bytes | NotAppended:
        """As :func:`append`; if the outcome is unclear, report it as unknown and keep the entry as unsettled."""
        # Before the put, because after an interrupt its proposals must not be proposed again.
        _report_all(validated.outcomes, Unknown(pending.version))
        try:
            stored = append(self._backend, pending, self.tail.limits.settle_puts)
        except StorageError:
            _report_all(validated.outcomes, None)
            raise
        except BaseException:
            self._unsettled = pending
            raise
        if stored in (NotAppended.UNCLEAR, NotAppended.OVERTAKEN):
            self._unsettled = pending
        elif stored != pending.data:
            _report_all(validated.outcomes, None)
        return stored

    def _settle_old(self) -> bool:
        """Settle the entry of an earlier unknown outcome; False if the store still does not answer."""
        assert self._unsettled is not None
        if append(self._backend, self._unsettled, self.tail.limits.settle_puts) is NotAppended.UNCLEAR:
            return False
        self._unsettled = None
        self.tail.follow()
        return True


def _report_all(tickets: Iterable[Ticket[Any]], outcome: Outcome | None) -> None:
    for ticket in tickets:
        ticket.outcome = outcome
