"""Following a log and committing to it: one object per log and process, safe for threads.

Entry n+1 is won by creating its object, if absent. The create proves that nothing came between the judging of a
transaction and its effect, so nothing void is ever logged and no lock is needed.

Group commit. Callers queue (:mod:`lakebed.log.queue`); whoever leads takes all that wait (at most GROUP_MAX), has them
judged (:mod:`lakebed.log.judging`), writes one entry and tells everyone their own outcome. A refusal spoils nobody
else's, and is told only once the state it was judged on is committed; it is judged again after a lost race. Those whom
the entry has no room for are in front of the line again.

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

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic

from lakebed import clock
from lakebed.errors import DamagedError, FormatTooNewError, NotRetainedError, StorageError
from lakebed.log import entry as entries
from lakebed.log.judging import Judged, judge
from lakebed.log.outcomes import Committed, Contended, Crowded, Outcome, Unknown
from lakebed.log.queue import Queue, Ticket
from lakebed.log.sides import SideObjects
from lakebed.log.slots import Slot, fill
from lakebed.log.snapshot import Head
from lakebed.log.stamps import EPOCH, from_us, gone, to_us
from lakebed.log.tail import Reading, Tail
from lakebed.log.turns import Turns
from lakebed.log.writer import this_writer
from lakebed.state.machine import Change, Machine, Offered, State
from lakebed.state.transactions import Repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from lakebed.log.backend import LogBackend
    from lakebed.log.kept import KeptSnapshots
    from lakebed.log.snapshot import SnapshotPlace, Snapshots

LOSING_S = 15.0
"""How long a commit goes on losing races before it gives up."""

FRESH_S = 600.0
"""A writer that has not looked for longer looks before it puts. It would be right without: but who put where the log is
trimmed by now learns nothing of his outcome, and that should take a sleep between look and put."""

STAMP_PAUSE_S = 0.1
"""An entry that follows another so fast carries no stamp that would cost a request: it would double a commit's time."""


@dataclass(frozen=True, slots=True)
class _Put(Generic[State]):
    """An entry that is in the store and not proven yet, who is to be told, and the floor if it was told already."""

    reading: Reading[State]
    judged: Judged[State]
    floor: int | None


class Log(Generic[State, Offered, Change]):
    """One log and its snapshots; ``identity`` is written into every entry, so that no other log's entry passes."""

    def __init__(
        self, backend: LogBackend, snapshots: SnapshotPlace, identity: str, machine: Machine[State, Offered, Change]
    ) -> None:
        self.backend = backend
        self.identity = identity
        self.machine = machine
        self._sides = SideObjects(snapshots, identity)
        self._tail = Tail(backend, snapshots, identity, machine, self._sides.read)
        self.past = self._tail.past
        self._queue = self.waiting = Queue[Offered]()
        self._turns = Turns()
        self._unsettled: Slot | None = None

    @property
    def head(self) -> Head[State]:
        """The newest state this process knows; no request."""
        return self._tail.head

    def open(self) -> State:
        """A state to begin with: the one that is known, or that of the newest snapshot; with neither the empty one."""
        return self._tail.open().state

    def follow(self) -> State:
        """The newest state: reads forward until an entry is not there (two requests when nothing is new)."""
        return self._tail.follow().state

    def commit(self, offer: Offered) -> Outcome:
        """Offer one change; returns what became of it. Bounded in time; see the module's rules.

        Raises StorageError if the store refuses what comes before the entry, or the entry outright: then nothing of the
        offer is in the log, nor will be.
        """
        ticket = Ticket(offer)
        if not self._queue.enter(ticket):
            return Crowded(len(self._queue))
        if self._queue.leads(ticket):
            self._lead(ticket)
        assert ticket.outcome is not None
        return ticket.outcome

    def _lead(self, ticket: Ticket[Offered]) -> None:
        """Commit for those that wait. While the entry is proven, the next leader puts one behind it."""
        group, put = [ticket], None
        try:
            try:
                if (wait_s := self._turns.before_putting_s()) > 0:
                    clock.sleep(wait_s)
                group = self._queue.take()
                put = self._commit_group(group)
            finally:
                self._queue.hand_on(group, put.judged.outcomes if put else ())
            if put:
                self._tell_proven(put)
        finally:
            if put:
                # Whatever ended it, nobody sleeps for ever.
                _tell_all([t for t in put.judged.outcomes if t.outcome is None], Unknown(put.reading.head.number))
                self._queue.wake(t for t in put.judged.outcomes if t is not ticket)

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
        return self.backend.now()

    def entry(self, number: int) -> bytes | None:
        """The bytes of an entry as they are stored; None if there is none yet, or none any more."""
        return self.backend.get(number)

    def read(self, number: int) -> entries.StoredEntry | None:
        """One entry, whose place in the chain is not checked; None if there is none. Raises DamagedError."""
        data = self.backend.get(number)
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
                if self.backend.floor() >= number:
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

    def read_sides(self, entry: entries.Entry) -> Mapping[str, bytes]:
        """The side objects that an entry names, by digest. Raises DamagedError if one is not as it was put."""
        return self._sides.read(entry)

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
        return self.backend.floor()

    def keeps_floor(self) -> bool:
        """Whether the log can be trimmed where it lies; tried out there, which takes some requests."""
        return self.backend.keeps_floor()

    def trim(self, to: int) -> int:
        """Raise the floor and delete the entries up to it; returns how many were there.

        Requires two kept snapshots, at ``to`` and above, that were read back; see :mod:`lakebed.collection.trimming`.
        Raises UnsafeStoreError if the store cannot keep a floor.
        """
        while (floor := self.backend.floor()) < to:
            self.backend.raise_floor(floor, to)
        # In ascending order, so that the last one there tells whether a round before this one came to its end.
        doomed = sorted(number for number in self.backend.numbers() if number <= floor)
        self.backend.remove(doomed)
        return len(doomed)

    def sweep_sides(self) -> int:
        """Delete side objects that no entry will ever name, going by the newest number known; returns how many.

        Raises DamagedError, StorageError.
        """
        return self._sides.sweep(self.backend.floor(), self.head.number, self._believed)

    def _believed(self, number: int) -> bytes:
        data = self.backend.get(number)
        if data is not None:
            entries.decode(data, self.identity, number, None)
        elif self.backend.floor() < number:
            raise gone(self.identity, number)
        return data or b""

    # -- committing ---------------------------------------------------------------------------------------------

    def _commit_group(self, group: Sequence[Ticket[Offered]]) -> _Put[State] | None:
        """Put an entry for a group; None: there is none to prove, and everyone was told."""
        if clock.monotonic_s() - self._tail.proven_s > FRESH_S:
            self.follow()
        if self._unsettled is not None and not self._settle_old():
            _tell_all(group, Contended(0))
            return None
        self._tail.look_past_end()
        give_up_at, lost = clock.monotonic_s() + LOSING_S, 0
        reading = self._tail.reading()
        while (done := self._try(group, reading, lost)) is False:
            lost += 1
            if clock.monotonic_s() >= give_up_at:
                _tell_all(group, Contended(lost))
                return None
            clock.sleep(self._turns.after_losing_s(lost))
            if lost > 1 or reading.head.number < self.head.number:
                # Whoever won twice may have won more by now. After the first loss a look would mostly find nothing.
                self.follow()
                reading = self._tail.reading()
        return done if isinstance(done, _Put) else None

    def _try(self, group: Sequence[Ticket[Offered]], reading: Reading[State], lost: int) -> _Put[State] | bool:
        """Offer the group for the next number. True: everyone was told. False: the log has moved, judge again."""
        judged = judge(group, reading.head, self.machine)
        if not judged.documents:
            self.follow()
            if self.head.number != reading.head.number:
                return False
            judged.tell()
            return True
        sides = self._sides.put(judged.sides, reading.head.number + 1)
        slot = self._slot(reading.head, judged, sides, hasty=lost > 0)
        begin_s = clock.monotonic_s()
        found = self._fill_told(slot, judged)
        if found is None:
            return True
        if found != slot.data:
            self._turns.lost()
            self._lose_to(reading, found)
            return False
        self._turns.won(clock.monotonic_s() - begin_s)
        head = Head(slot.number, entries.digest_of(found), judged.state)
        reading.take(head, found, entries.weight_bytes(found, sides))
        self._tail.go_on_from(reading)
        return _Put(reading, judged, self.backend.known_floor(slot.number))

    def _lose_to(self, reading: Reading[State], found: bytes) -> None:
        """Read on over the entry that won."""
        try:
            self._tail.read_on(reading, found)
        except (DamagedError, FormatTooNewError) as error:
            self._tail.prove(reading, error)

    def _tell_proven(self, put: _Put[State]) -> None:
        """Tell everyone their outcome if the floor proves the entry that was put; else those of whom it is known.

        Where this process slept until the log was trimmed beyond it, to have filled the slot proves nothing, and an
        earlier put of the same bytes may have been in the log: the state tells of those with a request key.
        """
        try:
            if self._tail.prove(put.reading, floor=put.floor):
                put.judged.tell()
                if self.snapshots.due():
                    self._tail.start_snapshot()
                return
            state = self.follow()
        except StorageError:
            # The entry is there, and most likely the log's. It is not known, and nothing rests on it yet.
            return
        for ticket in put.judged.outcomes:
            resolved = self.machine.resolve(ticket.offer, state)
            if isinstance(resolved, Repeated):
                ticket.outcome = Committed(resolved.number)

    def _slot(
        self, head: Head[State], judged: Judged[State], sides: tuple[entries.SideObject, ...], *, hasty: bool
    ) -> Slot:
        number, token, time = head.number + 1, clock.random_token(), clock.now().isoformat()
        documents = tuple(judged.documents)
        stamp_us = self._stamp_us(head.number, self._tail.stamps.known)
        entry = entries.Entry(number, token, time, this_writer(), stamp_us, "", head.digest, documents, sides)
        data = entries.encode(self.identity, entry, judged.body)
        if stamp_us is not None:
            return Slot(number, data)
        # A request for the stamp is worth it, but not beside that for a snapshot, nor in haste: while others wait, hard
        # behind another entry, or between a lost race and the next try, where a wait loses more of them.
        hasty = hasty or len(self._queue) > 0 or clock.monotonic_s() - self._tail.moved_s < STAMP_PAUSE_S
        if not hasty and not self.snapshots.due(entries.weight_bytes(data, sides) + entries.STAMP_BYTES):
            asked = replace(entry, stamp_us=self._stamp_us(head.number, self._tail.stamps.of))
            data = entries.encode(self.identity, asked, judged.body)
        return Slot(number, data)

    def _stamp_us(self, number: int, of: Callable[[int], datetime | None]) -> int | None:
        """The stamp of the head, for the entry after it; None if there is none, or it cannot be had."""
        try:
            stamp = of(number) if number else None
        except StorageError:
            # It spares others a request, and is not worth failing for.
            return None
        return None if stamp is None else to_us(stamp)

    def _fill_told(self, slot: Slot, judged: Judged[State]) -> bytes | None:
        """As :func:`fill`; what stays open, by silence or by an interrupt, is told as unknown and remembered."""
        # Before the put: an interrupt after it must leave nobody to be offered again.
        _tell_all(judged.outcomes, Unknown(slot.number))
        try:
            found = fill(self.backend, slot)
        except StorageError:
            _tell_all(judged.outcomes, None)
            raise
        except BaseException:
            self._unsettled = slot
            raise
        if found is None:
            self._unsettled = slot
        elif found != slot.data:
            _tell_all(judged.outcomes, None)
        return found

    def _settle_old(self) -> bool:
        """Settle what an earlier unknown outcome left under way; False if the store still does not answer."""
        assert self._unsettled is not None
        if fill(self.backend, self._unsettled) is None:
            return False
        self._unsettled = None
        self.follow()
        return True


def _tell_all(tickets: Iterable[Ticket[Any]], outcome: Outcome | None) -> None:
    for ticket in tickets:
        ticket.outcome = outcome
