"""Following a log and committing to it: one object per log and process, safe for threads.

Entry n+1 is won by creating its object, if absent. The create proves that nothing came between the judging of a
transaction and its effect, so nothing void is ever logged and no lock is needed.

Group commit. Callers queue; whoever gets the lock takes all that wait (at most GROUP_MAX), resolves each against the
state as the ones before it leave it, writes one entry and tells everyone their own outcome. A refusal spoils nobody
else's, and is told only once the state it was judged on is committed; it is judged again after a lost race.

Three answers to a create:

* created: ours.
* exists: look whose it is. Clients retry silently and report "exists" for our own write. Another's: read forward to
  the head, judge again, try the next number, after a wait with full jitter.
* unclear (time-out, reset, 5xx, 409): the request may still be under way, so "not there" proves nothing. The same
  bytes go to the same number again until the slot is seen filled. If that takes too long the outcome is *unknown*; the
  slot is remembered, and nothing else is offered by this process until it is settled.

A store that lost an entry would let a writer fill the gap, and part the log for good. Nobody lists the log to find one,
but before its first commit a process looks one entry past the end: what stands there shows that the end is none.

Entries are never deleted yet, so a number can never be won twice. Source: docs/decisions/0004, the model in
tests/model/protocol.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic

from lakebed import clock
from lakebed.errors import DamagedError, Error, StorageError
from lakebed.log import entry as entries
from lakebed.log.outcomes import Committed, Contended, NotCommitted, Outcome, Unknown
from lakebed.log.replay import advance
from lakebed.log.snapshot import Head, SnapshotPlace, Snapshots
from lakebed.log.stamps import Stamps, from_us, gone, to_us
from lakebed.log.writer import this_writer
from lakebed.state.machine import Change, Machine, Offered, State
from lakebed.state.transactions import Rejected, Repeated
from lakebed.storage.contract import PutOutcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from lakebed.log.backend import LogBackend

GROUP_MAX = 256
"""Transactions in one entry; bounds its size and the time that the first of a group waits."""

ATTEMPTS_MAX = 60
"""Lost races before a commit gives up. Waits grow from 5 ms to 0.5 s, so this is about ten seconds of losing."""

SETTLE_MAX = 12
"""Puts of the same bytes before an unclear outcome is called unknown: about 15 seconds with the waits between."""


FOLLOWED_MAX = 10_000
"""Entries that may come while a snapshot is written for the state to be put on top of it."""


@dataclass(slots=True, eq=False)
class _Ticket(Generic[Offered]):
    """One waiting caller: what it offers, whether a leader took it off the queue, and what became of it."""

    offer: Offered
    taken: bool = False
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class _Slot:
    """An entry on its way to a number."""

    number: int
    id: str
    data: bytes


class Log(Generic[State, Offered, Change]):
    """One log and its snapshots; ``identity`` is written into every entry, so that no other log's entry passes."""

    def __init__(
        self, backend: LogBackend, snapshots: SnapshotPlace, identity: str, machine: Machine[State, Offered, Change]
    ) -> None:
        self._backend = backend
        self._identity = identity
        self._machine = machine
        self._snapshots = Snapshots(snapshots, identity, machine)
        self._stamps = Stamps(backend, identity)
        self._head: Head[State] = Head(0, "", machine.empty)
        self._opened = False
        self._advancing = threading.Lock()
        self._committing = threading.Lock()
        self._queue: deque[_Ticket[Offered]] = deque()
        self._unsettled: _Slot | None = None
        self._writing: threading.Thread | None = None
        self._looked_past_end = False

    @property
    def head(self) -> Head[State]:
        """The newest state this process knows; no request."""
        return self._head

    def follow(self) -> State:
        """The newest state: reads forward until an entry is not there (one request when nothing is new)."""
        if not self._opened:
            self._open()
        head = self._head
        while (data := self._backend.get(head.number + 1)) is not None:
            self._snapshots.noted(len(data))
            head = self._advance(head, data)
        return self._head.state

    def commit(self, offer: Offered) -> Outcome:
        """Offer one change; returns what became of it. Bounded in time; see the module's rules."""
        ticket = _Ticket(offer)
        self._queue.append(ticket)
        while ticket.outcome is None:
            with self._committing:
                # Told by another leader meanwhile, as a rule; not if that leader failed: an error (a damaged log, a
                # store that refuses) is everyone's own to see.
                if ticket.outcome is None:
                    self._commit_group(self._take(ticket))
        return ticket.outcome

    def _take(self, leader: _Ticket[Offered]) -> list[_Ticket[Offered]]:
        """The leader's ticket and those that wait with it."""
        group = [leader]
        leader.taken = True
        while self._queue and len(group) < GROUP_MAX:
            ticket = self._queue.popleft()
            if not ticket.taken:
                ticket.taken = True
                group.append(ticket)
        return group

    def entry_stamp(self, number: int) -> datetime:
        """The store's stamp of an entry: from the header of the next if that was read. Raises DamagedError if gone."""
        return self._stamps.of(number)

    def now(self) -> datetime:
        """The clock that stamps the entries: what an entry's age is reckoned by."""
        return self._backend.now()

    def entry(self, number: int) -> bytes | None:
        """The bytes of an entry as they are stored; None if there is none yet."""
        return self._backend.get(number)

    def read(self, number: int) -> entries.StoredEntry | None:
        """One entry, whose place in the chain is not checked; None if there is none. Raises DamagedError."""
        data = self._backend.get(number)
        if data is None:
            return None
        entry = entries.decode(data, self._identity, number, None)
        return entries.StoredEntry(entry, self._stamps.of(number), len(data))

    def newest_first(self) -> Iterator[entries.StoredEntry]:
        """All entries from the newest to the first, each read as it is asked for, the chain checked backwards.

        The newest one's stamp is asked of the store, and any that the entry after it does not tell.
        """
        self.follow()
        digest = self._head.digest
        for number in range(self._head.number, 0, -1):
            found = self.read(number)
            if found is None:
                raise gone(self._identity, number)
            if found.entry.digest != digest:
                raise DamagedError(
                    f"entry {number} of {self._identity} is not the one that the entry after it was written behind; "
                    "restore the object from a copy",
                    log=self._identity,
                    number=number,
                )
            if found.entry.stamp_us is not None:
                self._stamps.note(number - 1, from_us(found.entry.stamp_us))
            digest = found.entry.previous
            yield found

    # -- for verification ---------------------------------------------------------------------------------------

    def numbers(self) -> Iterator[int]:
        """The numbers of all entries that the place lists, in any order."""
        return self._backend.numbers()

    def foreign(self) -> Iterator[str]:
        """What the place lists among the entries that is none."""
        return self._backend.foreign()

    def snapshot(self) -> Head[State] | None:
        """The stored snapshot; None if there is none. Raises DamagedError if it cannot be trusted."""
        return self._snapshots.read()

    # -- following ----------------------------------------------------------------------------------------------

    def _open(self) -> None:
        with self._advancing:
            if not self._opened:
                self._head = self._snapshots.newest() or self._head
                self._opened = True

    def _advance(self, head: Head[State], data: bytes) -> Head[State]:
        """The head after an entry; published unless another thread was further already."""
        after, entry = advance(head, data, self._identity, self._machine)
        if entry.stamp_us is not None:
            self._stamps.note(head.number, from_us(entry.stamp_us))
        return self._publish(after)

    def _publish(self, head: Head[State]) -> Head[State]:
        """The newest head; this one unless another thread was further already."""
        with self._advancing:
            if head.number > self._head.number:
                self._head = head
            return self._head

    # -- snapshots ----------------------------------------------------------------------------------------------

    def wait_for_snapshot(self) -> None:
        """Return when no snapshot is being written by this process."""
        if self._writing is not None:
            self._writing.join()

    def sweep_snapshots(self) -> int:
        """Delete what old snapshots left behind; returns how many objects. Raises DamagedError, StorageError."""
        return self._snapshots.sweep()

    def _start_snapshot(self) -> None:
        """Write a snapshot of the head in a thread of its own: that of a large table takes seconds."""
        if self._writing is None or not self._writing.is_alive():
            self._writing = threading.Thread(target=self._write_snapshot, args=(self._head,), name="lakebed-snapshot")
            self._writing.start()

    def _write_snapshot(self, head: Head[State]) -> None:
        rested = self._snapshots.write(head)
        # From now on the state rests on what was written: it then takes less memory, and the next snapshot what changed
        # since. If that fails, or others commit faster than this thread follows, it is as right as before.
        with contextlib.suppress(Error):
            for _ in range(FOLLOWED_MAX if rested is not None else 0):
                assert rested is not None
                with self._advancing:
                    if self._head.number == rested.number:
                        self._head = rested
                        return
                data = self._backend.get(rested.number + 1)
                if data is None:
                    return
                rested, _ = advance(rested, data, self._identity, self._machine)

    # -- committing ---------------------------------------------------------------------------------------------

    def _commit_group(self, group: Sequence[_Ticket[Offered]]) -> None:
        if not self._opened:
            self.follow()
        if self._unsettled is not None and not self._settle_old():
            for ticket in group:
                ticket.outcome = Contended(0)
            return
        if not self._looked_past_end:
            self._look_past_end()
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                clock.sleep(clock.jitter_s(min(0.5, 0.005 * 2**attempt)))
            head = self._head
            judged, changes, state = self._judge(group, head)
            if not changes:
                self.follow()
                if self._head.number != head.number:
                    continue
                _tell(judged)
                return
            slot = self._slot(head, changes, attempt)
            won = self._put_told(slot, group)
            if won is None:
                return
            if won:
                self._publish(Head(slot.number, entries.digest_of(slot.data), state))
                _tell(judged)
                self._snapshots.noted(len(slot.data))
                if self._snapshots.due():
                    self._start_snapshot()
                return
            self.follow()
        for ticket in group:
            ticket.outcome = Contended(ATTEMPTS_MAX)

    def _look_past_end(self) -> None:
        """Raise DamagedError if the entry after the next one is there and the next is not, however often one looks."""
        for _ in range(ATTEMPTS_MAX):
            end = self._head.number
            if self._backend.get(end + 2) is None:
                break
            self.follow()
            if self._head.number == end:
                raise gone(self._identity, end + 1)
        self._looked_past_end = True

    def _judge(
        self, group: Sequence[_Ticket[Offered]], head: Head[State]
    ) -> tuple[list[tuple[_Ticket[Offered], Outcome]], list[dict[str, Any]], State]:
        """What each offer would become if the next number is won, the documents to write, and the state after them."""
        number = head.number + 1
        state = head.state
        judged: list[tuple[_Ticket[Offered], Outcome]] = []
        changes: list[dict[str, Any]] = []
        for ticket in group:
            resolved = self._machine.resolve(ticket.offer, state)
            match resolved:
                case Rejected(reason):
                    judged.append((ticket, NotCommitted(reason)))
                case Repeated(first):
                    judged.append((ticket, Committed(first, repeated=True)))
                case _:
                    state = self._machine.apply(state, resolved, number)
                    changes.append(self._machine.encode(resolved))
                    judged.append((ticket, Committed(number)))
        return judged, changes, state

    def _slot(self, head: Head[State], changes: Sequence[dict[str, Any]], attempt: int) -> _Slot:
        number, token, time = head.number + 1, clock.random_token(), clock.now().isoformat()
        body = entries.encode_body(changes)
        entry = entries.Entry(number, token, time, this_writer(), None, "", head.digest, tuple(changes))
        data = entries.encode(self._identity, entry, body)
        # A request for the stamp is worth it, but not beside that for a snapshot, nor between a lost race and the next
        # try, where a wait loses more of them.
        spared = attempt > 0 or self._snapshots.due(len(data) + entries.STAMP_BYTES)
        stamp_us = self._stamp_us(head.number, spared=spared)
        if stamp_us is not None:
            data = entries.encode(self._identity, replace(entry, stamp_us=stamp_us), body)
        return _Slot(number, token, data)

    def _stamp_us(self, number: int, *, spared: bool) -> int | None:
        """The stamp of the head, for the entry after it; None if it is not known, and cannot be had or is not asked."""
        if number == 0:
            return None
        try:
            stamp = self._stamps.known(number) if spared else self._stamps.of(number)
        except StorageError:
            # It spares others a request, and is not worth failing for.
            return None
        return None if stamp is None else to_us(stamp)

    def _put_told(self, slot: _Slot, group: Sequence[_Ticket[Offered]]) -> bool | None:
        """As :meth:`_put`; what stays open, by silence or by an interrupt, is told as unknown and remembered."""
        won: bool | None = None
        refused = False
        try:
            won = self._put(slot)
        except StorageError:
            refused = True
            raise
        finally:
            if won is None and not refused:
                self._unsettled = slot
                for ticket in group:
                    ticket.outcome = Unknown(slot.number)
        return won

    def _put(self, slot: _Slot) -> bool | None:
        """True: the slot is ours. False: another's. None: not settled within the bound."""
        for attempt in range(SETTLE_MAX):
            if attempt:
                clock.sleep(clock.jitter_s(min(3.0, 0.02 * 2**attempt)))
            try:
                outcome = self._backend.create(slot.number, slot.data)
            except StorageError:
                # The first put was refused outright: nothing is under way. A later one leaves the first unclear.
                if attempt == 0:
                    raise
                continue
            if outcome is PutOutcome.CREATED:
                return True
            if outcome is PutOutcome.EXISTS and (found := self._read_back(slot.number)) is not None:
                return found == slot.data
        return None

    def _read_back(self, number: int) -> bytes | None:
        """What fills the slot; None if it cannot be read just now, or "exists" was about a racing delete."""
        try:
            return self._backend.get(number)
        except StorageError:
            return None

    def _settle_old(self) -> bool:
        """Settle what an earlier unknown outcome left under way; False if the store still does not answer."""
        assert self._unsettled is not None
        if self._put(self._unsettled) is None:
            return False
        self._unsettled = None
        self.follow()
        return True


def _tell(judged: Sequence[tuple[_Ticket[Any], Outcome]]) -> None:
    for ticket, outcome in judged:
        ticket.outcome = outcome
