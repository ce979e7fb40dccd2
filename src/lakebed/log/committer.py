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

Entries are never deleted yet, so a number can never be won twice. Source: docs/decisions/0004, the model in
tests/model/protocol.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from lakebed import clock
from lakebed.errors import DamagedError, StorageError
from lakebed.log import entry as entries
from lakebed.log.outcomes import Committed, Contended, Crowded, NotCommitted, Outcome, Unknown
from lakebed.log.queue import Queue, Ticket
from lakebed.log.replay import advance, onwards, replayed
from lakebed.log.slots import Slot, fill
from lakebed.log.snapshot import Head, SnapshotPlace, Snapshots
from lakebed.log.stamps import Stamps, from_us, gone, to_us
from lakebed.log.turns import Turns
from lakebed.log.writer import this_writer
from lakebed.state.machine import Change, Machine, Offered, State
from lakebed.state.transactions import Rejected, Repeated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from lakebed.log.backend import LogBackend

LOSING_S = 15.0
"""How long a commit goes on losing races before it gives up."""

STAMP_PAUSE_S = 0.1
"""An entry that follows another so fast carries no stamp that would cost a request: it would double a commit's time."""

LOOKS_MAX = 60
"""Looks past an end that moves on."""

SINCE_BYTES_MAX = 64 * 2**20
"""Entries kept in memory that come while a snapshot is written, for the state to be put on top of it."""

CATCH_UPS_MAX = 20
"""Rounds of that: each has what came in the one before."""


class Log(Generic[State, Offered, Change]):
    """One log and its snapshots; ``identity`` is written into every entry, so that no other log's entry passes."""

    def __init__(
        self, backend: LogBackend, snapshots: SnapshotPlace, identity: str, machine: Machine[State, Offered, Change]
    ) -> None:
        self._backend = backend
        self._identity = identity
        self._machine = machine
        self._snapshots = Snapshots(
            snapshots, identity, machine, lambda number: replayed(backend.get, identity, machine, number)
        )
        self._stamps = Stamps(backend, identity)
        self._head: Head[State] = Head(0, "", machine.empty)
        self._opened = False
        self._advancing = threading.Lock()
        self._queue: Queue[Offered] = Queue()
        self._turns = Turns()
        self._unsettled: Slot | None = None
        self._since: list[bytes] | None = None
        self._since_bytes = 0
        self._moved_s = -STAMP_PAUSE_S
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
        self._move_on()
        return self._head.state

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
        """The stored snapshot; None if there is none. Raises DamagedError if its manifest cannot be trusted."""
        return self._snapshots.read()

    def whole_snapshot(self) -> Head[State] | None:
        """The same with every part read and verified. Raises DamagedError if one cannot be trusted."""
        return self._snapshots.read_whole()

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
        return self._publish(after, data)

    def _publish(self, head: Head[State], data: bytes) -> Head[State]:
        """The newest head; this one, after an entry of these bytes, unless another thread was further already."""
        with self._advancing:
            if head.number > self._head.number:
                self._head = head
                self._moved_s = clock.monotonic_s()
                if self._since is not None:
                    self._since.append(data)
                    self._since_bytes += len(data)
                    if self._since_bytes > SINCE_BYTES_MAX:
                        self._since = None
            return self._head

    # -- snapshots ----------------------------------------------------------------------------------------------

    def wait_for_snapshot(self) -> None:
        """Return when no snapshot is being written by this process."""
        if self._writing is not None:
            self._writing.join()

    def sweep_snapshots(self) -> int:
        """Delete what old snapshots left behind; returns how many objects. Raises DamagedError, StorageError."""
        return self._snapshots.sweep()

    def _move_on(self) -> None:
        """Let the state rest on a snapshot that another process wrote, where one must have been written by now."""
        # The state is as right without, so whatever fails may.
        with suppress(StorageError, DamagedError):
            if newer := self._snapshots.newer():
                newer = onwards(newer, self._backend.get, self._identity, self._machine, self._head.number)
                with self._advancing:
                    if (newer.number, newer.digest) == (self._head.number, self._head.digest):
                        self._head = newer

    def _start_snapshot(self) -> None:
        """Write a snapshot of the head in a thread of its own: that of a large table takes seconds."""
        if self._writing is None or not self._writing.is_alive():
            with self._advancing:
                head, self._since, self._since_bytes = self._head, [], 0
            self._writing = threading.Thread(target=self._write_snapshot, args=(head,), name="lakebed-snapshot")
            self._writing.start()

    def _write_snapshot(self, head: Head[State]) -> None:
        rested = self._snapshots.write(head)
        # From now on the state rests on what was written: it then takes less memory, and the next snapshot what changed
        # since. If that fails, or commits come faster than this thread follows, it is as right as before. What came
        # meanwhile was kept: to read it back would take a request for each, and never end behind a busy writer.
        try:
            if rested is not None:
                self._rest_on(rested)
        finally:
            self._since = None

    def _rest_on(self, rested: Head[State]) -> None:
        for _ in range(CATCH_UPS_MAX):
            with self._advancing:
                if self._head.number == rested.number:
                    self._head = rested
                    return
                came, self._since, self._since_bytes = self._since, [], 0
            if came is None:
                return
            for data in came:
                rested, _ = advance(rested, data, self._identity, self._machine)

    # -- committing ---------------------------------------------------------------------------------------------

    def _commit_group(self, group: Sequence[Ticket[Offered]]) -> None:
        if not self._opened:
            self.follow()
        if self._unsettled is not None and not self._settle_old():
            for ticket in group:
                ticket.outcome = Contended(0)
            return
        if not self._looked_past_end:
            self._look_past_end()
        give_up_at, lost = clock.monotonic_s() + LOSING_S, 0
        while not self._try(group, lost):
            lost += 1
            if clock.monotonic_s() >= give_up_at:
                for ticket in group:
                    ticket.outcome = Contended(lost)
                return
            clock.sleep(self._turns.after_losing_s(lost))
            if lost > 1:
                # Whoever won twice may have won more by now. After the first loss a look would mostly find nothing.
                self.follow()

    def _try(self, group: Sequence[Ticket[Offered]], lost: int) -> bool:
        """Offer the group for the next number; True: everyone was told. False: the log has moved, judge again."""
        head = self._head
        judged, changes, state = self._judge(group, head)
        if not changes:
            self.follow()
            if self._head.number != head.number:
                return False
            _tell(judged)
            return True
        slot = self._slot(head, changes, lost)
        begin_s = clock.monotonic_s()
        found = self._fill_told(slot, group)
        if found is None:
            return True
        self._snapshots.noted(len(found))
        if found != slot.data:
            self._turns.lost()
            self._advance(head, found)
            return False
        self._turns.won(clock.monotonic_s() - begin_s)
        self._publish(Head(slot.number, entries.digest_of(found), state), found)
        _tell(judged)
        if self._snapshots.due():
            self._start_snapshot()
        return True

    def _look_past_end(self) -> None:
        """Raise DamagedError if the entry after the next one is there and the next is not, however often one looks."""
        for _ in range(LOOKS_MAX):
            end = self._head.number
            if self._backend.get(end + 2) is None:
                break
            self.follow()
            if self._head.number == end:
                raise gone(self._identity, end + 1)
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

    def _slot(self, head: Head[State], changes: Sequence[dict[str, Any]], lost: int) -> Slot:
        number, token, time = head.number + 1, clock.random_token(), clock.now().isoformat()
        body = entries.encode_body(changes)
        entry = entries.Entry(number, token, time, this_writer(), None, "", head.digest, tuple(changes))
        data = entries.encode(self._identity, entry, body)
        # A request for the stamp is worth it, but not beside that for a snapshot, nor in haste: while others wait, hard
        # behind another entry, or between a lost race and the next try, where a wait loses more of them.
        hasty = lost > 0 or len(self._queue) > 0 or clock.monotonic_s() - self._moved_s < STAMP_PAUSE_S
        spared = hasty or self._snapshots.due(len(data) + entries.STAMP_BYTES)
        stamp_us = self._stamp_us(head.number, spared=spared)
        if stamp_us is not None:
            data = entries.encode(self._identity, replace(entry, stamp_us=stamp_us), body)
        return Slot(number, data)

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
                for ticket in group:
                    ticket.outcome = Unknown(slot.number)
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
