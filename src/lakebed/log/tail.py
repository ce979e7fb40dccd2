"""The newest state of a log that a process knows, and how it moves on: reading, proving, publishing, snapshots.

A log is trimmed behind a floor (docs/decisions/0011), so neither an entry nor a missing one proves anything by itself
to a process that may have slept: the number may have been deleted, and even filled again by another that slept. What
was read on from a published head is a :class:`Reading` until the floor has been read *after* it: if that is not above
the head, nothing beyond the head was ever deleted, every entry read is the log's, and the missing one has never been
there. Else the reading is dropped, and the log opened again from a snapshot that is not below the floor. Only what is
proven is published, and only of what is published a snapshot is written.

Snapshots are written in a thread of their own, because that of a large table takes seconds.
"""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from lakebed import clock
from lakebed.errors import DamagedError, FormatTooNewError, NotRetainedError, StorageError
from lakebed.log.entry import weight_bytes
from lakebed.log.kept import KeptSnapshots
from lakebed.log.replay import Past, ReadSides, advance
from lakebed.log.snapshot import Head, SnapshotPlace, Snapshots
from lakebed.log.stamps import Stamps, from_us, gone
from lakebed.state.machine import State

if TYPE_CHECKING:
    from lakebed.log.backend import LogBackend
    from lakebed.state.machine import Machine

OPENINGS_MAX = 20
"""How often a log is opened again because it was trimmed meanwhile: each takes a trimmer a snapshot."""

LOOKS_MAX = 60
"""Looks past an end that moves on."""

CAME_BYTES_MAX = 64 * 2**20
"""Entries kept in memory that are not published, to be put on a head that rests on a newer snapshot by then."""

Amiss = DamagedError | FormatTooNewError
"""What may end a reading: the log is damaged or too new, or it is trimmed and this the entry of one who slept."""


@dataclass(slots=True)
class Reading(Generic[State]):
    """Entries read on from number ``start``, which is published, to ``head``, and not proven yet.

    ``came`` has their bytes, ``size_bytes`` in all, and what each weighs for a snapshot; None: they are too many to
    keep, and weigh ``size_bytes``. The state rests on the snapshot of number ``base``; 0: on none.
    """

    start: int
    head: Head[State]
    base: int
    size_bytes: int = 0
    came: list[tuple[bytes, int]] | None = field(default_factory=list)

    def take(self, head: Head[State], data: bytes, weight_bytes: int) -> None:
        """The next entry is of these bytes, weighs so much with its side objects, and leads to this head."""
        self.head = head
        self.size_bytes += len(data)
        if self.came is not None:
            self.came.append((data, weight_bytes))
            if self.size_bytes > CAME_BYTES_MAX:
                self.came = None


class Tail(Generic[State]):
    """The head of one log. Safe to use from many threads."""

    def __init__(
        self,
        backend: LogBackend,
        place: SnapshotPlace,
        identity: str,
        machine: Machine[State, Any, Any],
        read_sides: ReadSides,
    ) -> None:
        self.snapshots = Snapshots(place, identity, machine, self._replayed)
        self.kept = KeptSnapshots(place, identity, machine, self._replayed)
        self.past = Past(backend, self.kept, identity, machine, read_sides)
        self.stamps = Stamps(backend, identity)
        self.opened = self.looked_past_end = False
        self.moved_s = self.proven_s = -math.inf
        self._backend = backend
        self._identity = identity
        self._machine = machine
        self._read_sides = read_sides
        self._head: Head[State] = Head(0, "", machine.empty)
        self._base = 0
        self._floor = 0
        self._advancing = threading.Lock()
        self._ahead: Reading[State] | None = None
        self._writing: threading.Thread | None = None

    @property
    def head(self) -> Head[State]:
        """The newest state this process knows; no request."""
        return self._head

    # -- following ----------------------------------------------------------------------------------------------

    def follow(self) -> Head[State]:
        """The newest head: reads on until an entry is not there, then the floor; two requests when nothing is new.

        Raises DamagedError, FormatTooNewError.
        """
        self.open()
        for _ in range(OPENINGS_MAX):
            with self._advancing:
                reading = self._nothing_read()
            amiss: Amiss | None = None
            try:
                while (data := self._backend.get(reading.head.number + 1)) is not None:
                    self.read_on(reading, data)
            except (DamagedError, FormatTooNewError) as error:
                amiss = error
            if self.prove(reading, amiss):
                self._move_on()
                return self._head
        raise StorageError(
            f"{self._identity} is trimmed faster than it can be opened", log=self._identity, transient=True
        )

    def look_past_end(self) -> None:
        """Raise DamagedError if the entry after the next one is there and the next is not, however often one looks.

        One look that finds none is enough for a process.
        """
        if self.looked_past_end:
            return
        for _ in range(LOOKS_MAX):
            end = self._head.number
            if self._backend.get(end + 2) is None:
                break
            if self.follow().number == end:
                raise gone(self._identity, end + 1)
        self.looked_past_end = True

    def reading(self) -> Reading[State]:
        """All that is known and not proven: what this process has put since, if it has put anything."""
        with self._advancing:
            published, ahead = self._nothing_read(), self._ahead
        if ahead is None or ahead.head.number <= published.start or ahead.came is None:
            return published
        if ahead.base < published.base and (rested := self._on_base(ahead, published)):
            return rested
        came = ahead.came[published.start - ahead.head.number :]
        return Reading(published.start, ahead.head, ahead.base, sum(len(data) for data, _ in came), came)

    def _nothing_read(self) -> Reading[State]:
        return Reading(self._head.number, self._head, self._base)

    def _on_base(self, reading: Reading[State], published: Reading[State]) -> Reading[State] | None:
        """What was read, put on a published head that rests on a newer snapshot; None: that cannot be.

        Behind a busy writer there is always an entry under way, and each would put the older state back.
        """
        assert reading.came is not None
        try:
            for data, _ in reading.came[published.start - reading.head.number :]:
                self.read_on(published, data)
        except (DamagedError, NotRetainedError, StorageError):
            # A side object, or a part, cannot be read just now.
            return None
        return published

    def go_on_from(self, reading: Reading[State]) -> None:
        """The next reading begins where this one is now, before it is proven: whatever proves that one proves both."""
        came = None if reading.came is None else list(reading.came)
        self._ahead = Reading(reading.start, reading.head, reading.base, reading.size_bytes, came)

    def read_on(self, reading: Reading[State], data: bytes) -> None:
        """Take the next entry, of these bytes. Raises DamagedError, FormatTooNewError."""
        number = reading.head.number
        after, entry = advance(reading.head, data, self._identity, self._machine, self._read_sides)
        if entry.stamp_us is not None:
            self.stamps.note(number, from_us(entry.stamp_us))
        reading.take(after, data, weight_bytes(data, entry.sides))

    def prove(self, reading: Reading[State], amiss: Amiss | None = None, *, floor: int | None = None) -> bool:
        """Publish what was read if the floor proves it; False: the log was trimmed beyond, and opened again.

        ``amiss`` is what ended the reading; it is raised if it ended in the log. ``floor`` is for whoever knows it, as
        it was after the last request of the reading; else it is asked for, if such logs are ever trimmed.
        """
        if floor is None:
            floor = self._backend.floor() if self._machine.trimmed else 0
        self.proven_s = clock.monotonic_s()
        self._floor = floor
        if floor > reading.start:
            self._open_above(floor)
            return False
        self._publish(reading)
        if amiss is not None:
            raise amiss
        return True

    def open(self) -> Head[State]:
        """The newest head this process knows, and be it that of the newest snapshot: it need not be proven."""
        with self._advancing:
            if not self.opened:
                self._head = self.snapshots.newest() or self._head
                self._base = self._head.number
                self.opened = True
            return self._head

    def _open_above(self, floor: int) -> None:
        """Go on from a snapshot that is not below the floor."""
        found = self.snapshots.newest()
        if found is None or found.number < floor:
            found = self.kept.newest(floor)
        with self._advancing:
            self._ahead = None
            if found.number > self._head.number:
                self._head, self._base = found, found.number

    def _move_on(self) -> None:
        """Let the state rest on a snapshot that another process wrote, where one must have been written by now.

        What is read for that needs no floor: it counts only if it leads to the digest of the head, which is proven.
        """
        # The state is as right without, so whatever fails may.
        with suppress(StorageError, DamagedError, NotRetainedError):
            if base := self.snapshots.newer(self._floor):
                newer = self.past.onwards(base, self._head.number)
                with self._advancing:
                    if (newer.number, newer.digest) == (self._head.number, self._head.digest):
                        self._head, self._base = newer, base.number

    def _replayed(self, number: int) -> State:
        return self.past.at(number).state

    def _publish(self, reading: Reading[State]) -> None:
        """Make what was read the head, unless another thread was further already."""
        with self._advancing:
            published = self._nothing_read()
        if reading.base < published.base and published.start < reading.head.number and reading.came is not None:
            reading = self._on_base(reading, published) or reading
        with self._advancing:
            new = reading.head.number - self._head.number
            if new <= 0:
                return
            self._head, self._base = reading.head, reading.base
            self.moved_s = clock.monotonic_s()
            if reading.came is None:
                self.snapshots.noted(reading.size_bytes)
            else:
                self.snapshots.noted(sum(weight for _, weight in reading.came[-new:]))

    # -- snapshots ----------------------------------------------------------------------------------------------

    def start_snapshot(self) -> None:
        """Write a snapshot of the head, unless one is being written."""
        with self._advancing:
            if self._writing is None or not self._writing.is_alive():
                self._writing = threading.Thread(
                    target=self._write_snapshot, args=(self._head,), name="lakebed-snapshot"
                )
                self._writing.start()

    def wait_for_snapshot(self) -> None:
        """Return when no snapshot is being written."""
        with self._advancing:
            writing = self._writing
        if writing is not None:
            writing.join()

    def _write_snapshot(self, head: Head[State]) -> None:
        rested = self.snapshots.write(head)
        if rested is None:
            return
        # From now on the state rests on what was written: it then takes less memory, and the next snapshot what changed
        # since.
        with self._advancing:
            if self._base < rested.number:
                now = self._head
                state = self._machine.rest(now.state, head.state, rested.state)
                self._head, self._base = Head(now.number, now.digest, state), rested.number
