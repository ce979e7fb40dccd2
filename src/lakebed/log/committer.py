"""Following a log and committing to it: one object per log and process, safe for threads.

Entry n+1 is won by creating its object, if absent. The create proves that nothing came between the judging of a
transaction and its effect, so nothing void is ever logged and no lock is needed.

Group commit. Callers queue (:mod:`lakebed.log.queue`); whoever leads takes all that wait (at most GROUP_MAX),
resolves each against the state as the ones before it leave it, writes one entry and tells everyone their own outcome. A
refusal spoils nobody else's, and is told only once the state it was judged on is committed; it is judged again after a
lost race.

A lost race: the entry that won was read when the slot was looked at. It is applied, all are judged again, and the next
number is tried after a short wait with full jitter, for at most LOSING_S. A slot that cannot be settled
(:mod:`lakebed.log.slots`) is remembered, and nothing else is offered by this process until it is.

A store that lost an entry would let a writer fill the gap, and part the log for good. Nobody lists the log to find one,
but before its first commit a process looks one entry past the end: what stands there shows that the end is none.

Entries are deleted behind a floor (:mod:`lakebed.log.tail`), so a number may be won twice by one who slept: an entry is
ours only once the floor, read after the put, is below it. Source: docs/decisions/0004 and 0011, the models in
tests/model/protocol and tests/model/trimming.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from lakebed import clock
from lakebed.errors import DamagedError, FormatTooNewError, NotRetainedError, StorageError
from lakebed.log import entry as entries
from lakebed.log.outcomes import Committed, Contended, Crowded, NotCommitted, Outcome, Unknown
from lakebed.log.queue import Queue, Ticket
from lakebed.log.slots import Slot, fill
from lakebed.log.snapshot import Head
from lakebed.log.stamps import EPOCH, from_us, gone, to_us
from lakebed.log.tail import Tail
from lakebed.log.turns import Turns
from lakebed.log.writer import this_writer
from lakebed.state.machine import Change, Machine, Offered, State
from lakebed.state.transactions import Rejected, Repeated, TooOld

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from lakebed.log.backend import LogBackend
    from lakebed.log.kept import KeptSnapshots
    from lakebed.log.snapshot import SnapshotPlace, Snapshots
    from lakebed.log.tail import Reading

LOSING_S = 15.0
"""How long a commit goes on losing races before it gives up."""

FRESH_S = 600.0
"""A writer that has not looked for longer looks before it puts. It would be right without: but who put where the log is
trimmed by now learns nothing of his outcome, and that should take a sleep between look and put."""

STAMP_PAUSE_S = 0.1
"""An entry that follows another so fast carries no stamp that would cost a request: it would double a commit's time."""

LOOKS_MAX = 60
"""Looks past an end that moves on."""


class Log(Generic[State, Offered, Change]):
    """One log and its snapshots; ``identity`` is written into every entry, so that no other log's entry passes."""

    def __init__(
        self, backend: LogBackend, snapshots: SnapshotPlace, identity: str, machine: Machine[State, Offered, Change]
    ) -> None:
        self._backend = backend
        self.identity = identity
        self.machine = machine
        self._tail = Tail(backend, snapshots, identity, machine)
        self._queue: Queue[Offered] = Queue()
        self._turns = Turns()
        self._unsettled: Slot | None = None
        self._looked_past_end = False

    @property
    def head(self) -> Head[State]:
        """The newest state this process knows; no request."""
        return self._tail.head

    def follow(self) -> State:
        """The newest state: reads forward until an entry is not there (two requests when nothing is new)."""
        return self._tail.follow().state

    def commit(self, offer: Offered) -> Outcome:
        """Offer one change; returns what became of it. Bounded in time; see the module's rules."""
        ticket = Ticket(offer)
        if not self._queue.enter(ticket):
            return Crowded(len(self._queue))
        if self._queue.leads(ticket):
            group = [ticket]
            try:
                if (wait_s := self._turns.before_putting_s()) > 0:
                    clock.sleep(wait_s)
                group = self._queue.take()
                self._commit_group(group)
            finally:
                self._queue.hand_on(group)
        assert ticket.outcome is not None
        return ticket.outcome

    # -- entries ------------------------------------------------------------------------------------------------

    def entry_stamp(self, number: int) -> datetime:
        """The store's stamp of an entry: from the header of the next if that was read.

        Raises NotRetainedError if the log is trimmed beyond it, DamagedError if it is gone.
        """
        return self._tail.stamps.of(number)

    def stamp_or_epoch(self, number: int) -> datetime:
        """The same; of an entry that was trimmed, 1970: it is older than what collectors compare it with."""
        try:
            return self.entry_stamp(number)
        except NotRetainedError:
            return EPOCH

    def now(self) -> datetime:
        """The clock that stamps the entries: what an entry's age is reckoned by."""
        return self._backend.now()

    def entry(self, number: int) -> bytes | None:
        """The bytes of an entry as they are stored; None if there is none yet, or none any more."""
        return self._backend.get(number)

    def read(self, number: int) -> entries.StoredEntry | None:
        """One entry, whose place in the chain is not checked; None if there is none. Raises DamagedError."""
        data = self._backend.get(number)
        if data is None:
            return None
        entry = entries.decode(data, self.identity, number, None)
        return entries.StoredEntry(entry, self.entry_stamp(number), len(data))

    def newest_first(self) -> Iterator[entries.StoredEntry]:
        """All entries from the newest to the oldest that is kept, each read as it is asked for, the chain checked.

        The newest one's stamp is asked of the store, and any that the entry after it does not tell.
        """
        head = self._tail.follow()
        digest = head.digest
        for number in range(head.number, 0, -1):
            try:
                found = self.read(number)
            except NotRetainedError:
                return
            if found is None or found.entry.digest != digest:
                if self._backend.floor() >= number:
                    return
                if found is None:
                    raise gone(self.identity, number)
                raise DamagedError(
                    f"entry {number} of {self.identity} is not the one that the entry after it was written behind; "
                    "restore the object from a copy",
                    log=self.identity,
                    number=number,
                )
            if found.entry.stamp_us is not None:
                self._tail.stamps.note(number - 1, from_us(found.entry.stamp_us))
            digest = found.entry.previous
            yield found

    def numbers(self) -> Iterator[int]:
        """The numbers of all entries that the place lists, in any order."""
        return self._backend.numbers()

    def foreign(self) -> Iterator[str]:
        """What the place lists among the entries that is none."""
        return self._backend.foreign()

    # -- snapshots and trimming ---------------------------------------------------------------------------------

    @property
    def snapshots(self) -> Snapshots[State]:
        """The newest snapshot."""
        return self._tail.snapshots

    @property
    def kept(self) -> KeptSnapshots[State]:
        """The snapshots that are kept."""
        return self._tail.kept

    def wait_for_snapshot(self) -> None:
        """Return when no snapshot is being written by this process."""
        self._tail.wait_for_snapshot()

    def keep(self) -> int:
        """Keep a snapshot of the head; returns its number. Raises StorageError if it does not read back."""
        head = self._tail.follow()
        self.kept.keep(head)
        # The newest must not fall behind those that are kept, or each reader would look for them.
        self._tail.start_snapshot()
        return head.number

    def floor(self) -> int:
        """The number up to which entries may be gone; one request."""
        return self._backend.floor()

    def keeps_floor(self) -> bool:
        """Whether the log can be trimmed where it lies; tried out there, which takes some requests."""
        return self._backend.keeps_floor()

    def trim(self, to: int) -> int:
        """Raise the floor and delete the entries up to it; returns how many were there.

        Requires two kept snapshots, at ``to`` and above, that were read back; see :mod:`lakebed.collection.trimming`.
        Raises UnsafeStoreError if the store cannot keep a floor.
        """
        while (floor := self._backend.floor()) < to:
            self._backend.raise_floor(floor, to)
        # In ascending order, so that the last one there tells whether a round before this one came to its end.
        doomed = sorted(number for number in self._backend.numbers() if number <= floor)
        self._backend.remove(doomed)
        return len(doomed)

    # -- committing ---------------------------------------------------------------------------------------------

    def _commit_group(self, group: Sequence[Ticket[Offered]]) -> None:
        if clock.monotonic_s() - self._tail.proven_s > FRESH_S:
            self.follow()
        if self._unsettled is not None and not self._settle_old():
            _tell_all(group, Contended(0))
            return
        if not self._looked_past_end:
            self._look_past_end()
        give_up_at, lost = clock.monotonic_s() + LOSING_S, 0
        reading = self._tail.reading()
        while not self._try(group, reading, lost):
            lost += 1
            if clock.monotonic_s() >= give_up_at:
                _tell_all(group, Contended(lost))
                return
            clock.sleep(self._turns.after_losing_s(lost))
            if lost > 1 or reading.head.number < self.head.number:
                # Whoever won twice may have won more by now. After the first loss a look would mostly find nothing.
                self.follow()
                reading = self._tail.reading()

    def _try(self, group: Sequence[Ticket[Offered]], reading: Reading[State], lost: int) -> bool:
        """Offer the group for the next number; True: everyone was told. False: the log has moved, judge again."""
        judged, changes, state = self._judge(group, reading.head)
        if not changes:
            self.follow()
            if self.head.number != reading.head.number:
                return False
            _tell(judged)
            return True
        slot = self._slot(reading.head, changes, lost)
        begin_s = clock.monotonic_s()
        found = self._fill_told(slot, group)
        if found is None:
            return True
        if found != slot.data:
            self._turns.lost()
            self._lose_to(reading, found)
            return False
        self._turns.won(clock.monotonic_s() - begin_s)
        reading.take(Head(slot.number, entries.digest_of(found), state), found)
        self._tell_proven(reading, judged)
        if self.snapshots.due():
            self._tail.start_snapshot()
        return True

    def _lose_to(self, reading: Reading[State], found: bytes) -> None:
        """Read on over the entry that won."""
        try:
            self._tail.read_on(reading, found)
        except (DamagedError, FormatTooNewError) as error:
            self._tail.prove(reading, error)

    def _tell_proven(self, reading: Reading[State], judged: Sequence[tuple[Ticket[Offered], Outcome]]) -> None:
        """Tell everyone their outcome if the floor proves the entry that was put; else all that is known.

        Where this process slept until the log was trimmed beyond it, to have filled the slot proves nothing, and an
        earlier put of the same bytes may have been in the log: the state tells of those with a request key.
        """
        number = reading.head.number
        try:
            if self._tail.prove(reading):
                _tell(judged)
                return
            state = self.follow()
            for ticket, _ in judged:
                resolved = self.machine.resolve(ticket.offer, state)
                ticket.outcome = Committed(resolved.number) if isinstance(resolved, Repeated) else None
        except StorageError:
            # The entry is there, and most likely the log's. It is not known, and nothing rests on it yet.
            pass
        finally:
            _tell_all([ticket for ticket, _ in judged if ticket.outcome is None], Unknown(number))

    def _look_past_end(self) -> None:
        """Raise DamagedError if the entry after the next one is there and the next is not, however often one looks."""
        for _ in range(LOOKS_MAX):
            end = self.head.number
            if self._backend.get(end + 2) is None:
                break
            self.follow()
            if self.head.number == end:
                raise gone(self.identity, end + 1)
        self._looked_past_end = True

    def _judge(
        self, group: Sequence[Ticket[Offered]], head: Head[State]
    ) -> tuple[list[tuple[Ticket[Offered], Outcome]], list[dict[str, Any]], State]:
        """What each offer would become if the next number is won, the documents to write, and the state after them."""
        number = head.number + 1
        state = head.state
        judged: list[tuple[Ticket[Offered], Outcome]] = []
        changes: list[dict[str, Any]] = []
        for ticket in group:
            resolved = self.machine.resolve(ticket.offer, state)
            match resolved:
                case Rejected(reason):
                    judged.append((ticket, NotCommitted(reason)))
                case Repeated(first):
                    judged.append((ticket, Committed(first, repeated=True)))
                case TooOld():
                    judged.append((ticket, resolved))
                case _:
                    state = self.machine.apply(state, resolved, number)
                    changes.append(self.machine.encode(resolved))
                    judged.append((ticket, Committed(number)))
        return judged, changes, state

    def _slot(self, head: Head[State], changes: Sequence[dict[str, Any]], lost: int) -> Slot:
        number, token, time = head.number + 1, clock.random_token(), clock.now().isoformat()
        body = entries.encode_body(changes)
        entry = entries.Entry(number, token, time, this_writer(), None, "", head.digest, tuple(changes))
        data = entries.encode(self.identity, entry, body)
        # A request for the stamp is worth it, but not beside that for a snapshot, nor in haste: while others wait, hard
        # behind another entry, or between a lost race and the next try, where a wait loses more of them.
        hasty = lost > 0 or len(self._queue) > 0 or clock.monotonic_s() - self._tail.moved_s < STAMP_PAUSE_S
        spared = hasty or self.snapshots.due(len(data) + entries.STAMP_BYTES)
        stamp_us = self._stamp_us(head.number, spared=spared)
        if stamp_us is not None:
            data = entries.encode(self.identity, replace(entry, stamp_us=stamp_us), body)
        return Slot(number, data)

    def _stamp_us(self, number: int, *, spared: bool) -> int | None:
        """The stamp of the head, for the entry after it; None if it is not known, and cannot be had or is not asked."""
        if number == 0:
            return None
        try:
            stamp = self._tail.stamps.known(number) if spared else self._tail.stamps.of(number)
        except StorageError:
            # It spares others a request, and is not worth failing for.
            return None
        return None if stamp is None else to_us(stamp)

    def _fill_told(self, slot: Slot, group: Sequence[Ticket[Offered]]) -> bytes | None:
        """As :func:`fill`; what stays open, by silence or by an interrupt, is told as unknown and remembered."""
        found: bytes | None = None
        refused = False
        try:
            found = fill(self._backend, slot)
        except StorageError:
            refused = True
            raise
        finally:
            if found is None and not refused:
                self._unsettled = slot
                _tell_all(group, Unknown(slot.number))
        return found

    def _settle_old(self) -> bool:
        """Settle what an earlier unknown outcome left under way; False if the store still does not answer."""
        assert self._unsettled is not None
        if fill(self._backend, self._unsettled) is None:
            return False
        self._unsettled = None
        self.follow()
        return True


def _tell(judged: Sequence[tuple[Ticket[Any], Outcome]]) -> None:
    for ticket, outcome in judged:
        ticket.outcome = outcome


def _tell_all(group: Sequence[Ticket[Any]], outcome: Outcome) -> None:
    for ticket in group:
        ticket.outcome = outcome
