"""The latest state of a log that a process has read, and following the log: read, prove, publish, write checkpoints.

A log is truncated up to a log start (docs/decisions/0011). For a process that was stopped for a while, neither an entry
nor a missing one proves anything by itself: the version may have been deleted, and even created again by another such
process. So entries that were read after the published head are a :class:`ReadAhead` until the log start is read *after*
them. If the log start is not above the head, no entry after the head was ever deleted: every entry read is in the log,
and the missing one never existed. Otherwise the entries are dropped, and the log is opened again from a checkpoint that
is not below the log start.

A log can lose entries: one from its middle, or the last ones, when a database forgets commits or a backup is restored.
Then the entry before a gap looks like the end. So the first read of a process looks at what is around the end (one
request for a process and log): the last entry must be the one that was read, or that the checkpoint is after, and no
later one may exist beyond the next. A database shows this with each log start; other stores are asked again after
``look_s``. The first append of a process looks again, because its view may be old. An entry that does not follow the
head is compared with it, to say which of the two is not in the log.

On a store the first look comes first: a listing from the head on shows all entries that follow, which are read at the
same time, and proves that the last one is the newest; the log start, read after them, proves that they are those that
were listed. Only if it does not are the entries read one by one.

A process with a cache on local disk begins with the head that one before it has proven (:mod:`.remembered`). The
listing then starts there, and the entry of that head is read beside it: it must have the digest that is remembered. If
not, or if the entries that follow are enough for a newer checkpoint, the log is opened as without a cache.

Rules. Only proven entries are published. Checkpoints are written of published heads only, in a separate thread, because
that of a large table takes seconds. Core types. :class:`LogTail`, :class:`ReadAhead`.
"""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct, field

from lakebed import clock
from lakebed.errors import Code, DamagedError, NotRetainedError, StorageError, UnsupportedFormatError
from lakebed.log.checkpoint import CheckpointLocation, Checkpoints, Head, in_parallel
from lakebed.log.entry import digest_of, entry_missing, log_went_back, weight_bytes
from lakebed.log.last_modified_times import LastModifiedTimes, from_us
from lakebed.log.log_limits import LIMITS
from lakebed.log.replay import Past, ReadSidecars, RetainedCheckpoints, advance
from lakebed.model.state.machine import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebed.log.backends.backend import Around, LogBackend
    from lakebed.model.state.machine import Machine

_READ_AT_ONCE = 32
"""Entries that are requested together, once a listing has shown them."""

OPENINGS_MAX = 20
"""Attempts to open a log that is truncated meanwhile; each truncation takes two checkpoints."""

ReadingError = DamagedError | UnsupportedFormatError
"""Errors that end a reading: the log is damaged or too new, or it is truncated and a late process wrote the entry."""


class ReadAhead(Struct, Generic[State]):
    """Entries from the published version ``start`` to ``head`` that are read and not proven yet.

    ``kept`` has their bytes, ``size_bytes`` in total, and the weight of each for a checkpoint; None if they are too
    many to keep. The state is based on the checkpoint of version ``base``; 0: on none.
    """

    start: int
    head: Head[State]
    base: int
    size_bytes: int = 0
    kept: list[tuple[bytes, int]] | None = field(default_factory=list)

    def take(self, head: Head[State], data: bytes, weight_bytes: int, size_max: int) -> None:
        """Add the next entry: the head after it, its bytes, and its weight with its sidecars.

        More than ``size_max`` bytes are not kept.
        """
        self.head = head
        self.size_bytes += len(data)
        if self.kept is not None:
            self.kept.append((data, weight_bytes))
            if self.size_bytes > size_max:
                self.kept = None


class LogTail(Generic[State]):
    """The head of one log. Safe to use from many threads."""

    def __init__(
        self,
        backend: LogBackend,
        location: CheckpointLocation,
        identity: str,
        machine: Machine[State, Any, Any],
        read_sidecars: ReadSidecars,
    ) -> None:
        self.checkpoints = Checkpoints(location, identity, machine, self._replayed)
        self.retained = RetainedCheckpoints(location, identity, machine, self._replayed, lambda: self.limits)
        self.past = Past(backend, self.retained, identity, machine, read_sidecars)
        self.last_modified_times = LastModifiedTimes(backend, identity)
        self.opened = self._may_append = False
        self.moved_s = self.proven_s = -math.inf
        self._backend = backend
        self._identity = identity
        self._machine = machine
        self.limits = LIMITS
        self._read_sidecars = read_sidecars
        self._head: Head[State] = Head(0, "", machine.empty)
        self._base = 0
        self._log_start = 0
        self._may_be_behind = True
        self._looked_s = -math.inf
        self._advancing = threading.Lock()
        self._ahead: ReadAhead[State] | None = None
        self._remembered: ReadAhead[State] | None = None
        self._may_remember = True
        self._writing: threading.Thread | None = None

    @property
    def head(self) -> Head[State]:
        """The latest head that this process has read; no request."""
        return self._head

    # -- following ----------------------------------------------------------------------------------------------

    def follow(self) -> Head[State]:
        """Return the newest head: reads on until an entry is not there, then the log start; two requests when nothing
        is new.

        Raises DamagedError, UnsupportedFormatError.
        """
        listed = False
        if not self.opened and not (listed := self._follow_remembered()):
            self.open()
        if listed or (self._looked_s == -math.inf and self._follow_listed()):
            if self._may_be_behind:
                self._move_on()
            return self._head
        for _ in range(OPENINGS_MAX):
            with self._advancing:
                reading = ReadAhead(self._head.version, self._head, self._base)
            if self.prove(reading, self.read_to_end(reading)):
                if self._may_be_behind:
                    self._move_on()
                return self._head
        raise Code.LOG_TRUNCATED(
            f"the log of {self._identity} is truncated faster than it can be opened", log=self._identity, transient=True
        )

    def likely(self) -> Head[State]:
        """Return the head to read in while :meth:`follow` finds out whether it is the newest.

        The latest that was read, else the remembered one, else that of the latest checkpoint. It proves nothing.
        """
        return self.remembered() or self.open()

    def remembered(self) -> Head[State] | None:
        """Return the head that a process before this one has proven; None: there is none, or the log was opened."""
        reading = self._remember()
        return None if reading is None else reading.head

    def _follow_listed(self) -> bool:
        """Publish the rest of the log if one listing shows it from the head on without a gap; False: it does not.

        The newest entry at the time of the request is never below the log start then. So either it is listed, or it was
        deleted meanwhile, after a later one was created, and then that one is listed, and not this one. Without a gap
        after the head, there was no truncation above the head, and the last entry listed is the newest. Entries are
        read later: one may have been deleted since, and another put in its place, which the log start after them shows.
        """
        with self._advancing:
            reading = ReadAhead(self._head.version, self._head, self._base)
        asked_s = clock.monotonic_s()
        later = self._listed_after(reading.start)
        return later is not None and self._follow_to(later, reading, asked_s)

    def _follow_remembered(self) -> bool:
        """As :meth:`_follow_listed`, from the remembered head; False: there is none, or it is not used."""
        reading = self._remember()
        if reading is None:
            return False
        asked_s = clock.monotonic_s()
        asks: list[Callable[[], Any]] = [
            lambda: self._listed_after(reading.start),
            lambda: self._backend.get(reading.start),
        ]
        later, data = in_parallel(lambda ask: ask(), asks)
        is_there = data is not None and digest_of(data) == reading.head.digest
        # A checkpoint is after as many entries as usual, or more.
        near = max(_READ_AT_ONCE, reading.start - reading.base)
        is_near = later is not None and len(later) <= near
        with self._advancing:
            self._remembered = None
            if not (is_there and is_near) or self.opened:
                return False
            self._head, self._base, self.opened = reading.head, reading.base, True
            self.checkpoints.count_bytes(reading.size_bytes)
        return self._follow_to(later, ReadAhead(reading.start, reading.head, reading.base), asked_s)

    def _listed_after(self, version: int) -> Sequence[int] | None:
        """Return the versions after one that one listing shows, from it on without a gap; None: it does not."""
        first = version or 1
        listed = self._backend.entries_from(first)
        if not listed or list(listed) != list(range(first, first + len(listed))):
            return None
        return listed[1 if version else 0 :]

    def _follow_to(self, later: Sequence[int], reading: ReadAhead[State], asked_s: float) -> bool:
        """Read the entries after the head of a reading that were listed at that time, and publish the last one.

        False: they are not those that were listed.
        """
        try:
            for begin in range(0, len(later), _READ_AT_ONCE):
                for data in in_parallel(self._backend.get, later[begin : begin + _READ_AT_ONCE]):
                    if data is None:
                        return False
                    self.read_on(reading, data)
        except (DamagedError, UnsupportedFormatError):
            # A reading in order, with the log start, finds out what is wrong.
            return False
        if later and self._machine.truncated and self._backend.log_start() > reading.start:
            return False
        self.proven_s = self._looked_s = asked_s
        if reading.head.version > reading.start:
            self._publish(reading)
        else:
            self.checkpoints.remembered.keep(reading.head.version, reading.head.digest)
        return True

    def look_past_end(self, since_s: float) -> None:
        """Look past the end before the first append, unless a reading has done so since ``since_s``.

        If there is an entry beyond the next one, the view is old, or an entry is lost: only a reading that looks again
        can tell. Raises DamagedError if one is lost.
        """
        if self._may_append:
            return
        if self._looked_s < since_s:
            head = self._head
            around = self._backend.around(head.version)
            if around.beyond or around.digest not in (None, head.digest):
                self._looked_s = -math.inf
                self.follow()
        self._may_append = True

    def reading(self) -> ReadAhead[State]:
        """Return the unproven entries: those that this process has put since, if any."""
        with self._advancing:
            published, ahead = ReadAhead(self._head.version, self._head, self._base), self._ahead
        if ahead is None or ahead.head.version <= published.start or ahead.kept is None:
            return published
        if ahead.base < published.base and (rebased := self._on_base(ahead, published)):
            return rebased
        kept = ahead.kept[published.start - ahead.head.version :]
        return ReadAhead(published.start, ahead.head, ahead.base, sum(len(data) for data, _ in kept), kept)

    def _on_base(self, reading: ReadAhead[State], published: ReadAhead[State]) -> ReadAhead[State] | None:
        """Return the entries read, rebased onto a published head with a newer checkpoint; None if impossible.

        With a busy writer there is always an entry in progress, and each would restore the older base.
        """
        assert reading.kept is not None
        try:
            for data, _ in reading.kept[published.start - reading.head.version :]:
                self.read_on(published, data)
        except (DamagedError, NotRetainedError, StorageError):
            # A sidecar or a segment cannot be read now.
            return None
        return published

    def go_on_from(self, reading: ReadAhead[State]) -> None:
        """Start the next reading at the end of this one before it is proven: the proof of the next proves both."""
        kept = None if reading.kept is None else list(reading.kept)
        self._ahead = ReadAhead(reading.start, reading.head, reading.base, reading.size_bytes, kept)
        # The last entry was put just now.
        self._looked_s = clock.monotonic_s()

    def forget_ahead(self) -> None:
        """Start the next reading at the published head, with a look: an entry is not in the log any more."""
        self._ahead = None
        self._looked_s = -math.inf

    def read_on(self, reading: ReadAhead[State], data: bytes) -> None:
        """Apply the next entry, of these bytes. Raises DamagedError, UnsupportedFormatError."""
        version = reading.head.version
        after = advance(reading.head, data, self._identity, self._machine, self._read_sidecars)
        if after.entry.last_modified_us is not None:
            self.last_modified_times.note(version, from_us(after.entry.last_modified_us))
        reading.take(after.head, data, weight_bytes(data, after.entry.sidecars), self.limits.ahead_bytes)

    def read_to_end(self, reading: ReadAhead[State]) -> ReadingError | None:
        """Apply all entries that follow; one request for each, and one that finds none. What was read is not proven.

        Returns the error that ended the reading, for :meth:`prove`, because a truncated log explains it.
        """
        try:
            while (data := self._backend.get(reading.head.version + 1)) is not None:
                self.read_on(reading, data)
        except (DamagedError, UnsupportedFormatError) as error:
            return error
        return None

    def prove(
        self, reading: ReadAhead[State], error: ReadingError | None = None, *, log_start: int | None = None
    ) -> bool:
        """Publish what was read if the log start proves it; False: the log was truncated beyond, and opened again.

        ``error`` is the error that ended the reading; it is raised if the log was not truncated. ``log_start`` is the
        one after the last request of the reading, if that is known; else it is read, if such logs are ever truncated.
        """
        around, self.proven_s = None, clock.monotonic_s()
        if log_start is None:
            log_start = 0
            if self._machine.truncated:
                ask = self._backend.whole_end if self._looked_s == -math.inf else self._backend.end
                end = ask(reading.head.version)
                log_start, around = end.log_start, end.around
            if around is None and self.proven_s - self._looked_s >= self.limits.look_s:
                around = self._backend.around(reading.head.version)
        if log_start != self._log_start:
            self._log_start, self._may_be_behind = log_start, True
        if log_start > reading.start:
            self._open_above(log_start)
            return False
        if around is not None:
            self._check_around(reading.head, around)
        if reading.head.version > reading.start:
            self._publish(reading)
        if error is not None:
            self._check_in_log(reading.head)
            raise error
        return True

    def _check_around(self, head: Head[State], around: Around) -> None:
        """Raise DamagedError if the head is not in the log, or the next entry is missing and a later one is there.

        What was seen is looked at again, because other processes append and truncate meanwhile.
        """
        if around.digest not in (None, head.digest):
            self._check_in_log(head)
        if around.beyond > head.version + 1 and self._backend.get(head.version + 1) is None:
            # The next entry was put before that one, so it is gone; unless the log was truncated beyond it.
            log_start = self._backend.log_start() if self._machine.truncated else 0
            if log_start <= head.version:
                raise entry_missing(self._identity, head.version + 1)
        self._looked_s = clock.monotonic_s()

    def _check_in_log(self, head: Head[State]) -> None:
        """Raise DamagedError if the entry of the head is not in the log, and was not truncated."""
        data = self._backend.get(head.version) if head.version else None
        if head.version == 0 or (data is not None and digest_of(data) == head.digest):
            return
        if not self._machine.truncated or self._backend.log_start() < head.version:
            raise log_went_back(self._identity, head.version)

    def open(self) -> Head[State]:
        """Return the latest head that was read, else that of the latest checkpoint, which needs no proof."""
        with self._advancing:
            if not self.opened:
                self._may_be_behind = True
                self._head = self.checkpoints.latest() or self._head
                self._base = self._head.version
                self.opened = True
            return self._head

    def _remember(self) -> ReadAhead[State] | None:
        """Return what is remembered and was not refuted yet, as a reading without entries; None: nothing."""
        with self._advancing:
            if self._may_remember and not self.opened:
                self._may_remember = False
                # What is damaged, or written by a newer version, is not remembered.
                with suppress(DamagedError, UnsupportedFormatError, NotRetainedError, StorageError):
                    self._remembered = self._read_remembered()
            return None if self.opened else self._remembered

    def _read_remembered(self) -> ReadAhead[State] | None:
        found = self.checkpoints.remembered.read()
        if found is None:
            return None
        head: Head[State] | None = Head(0, "", self._machine.empty)
        if found.manifest is not None:
            head = self.checkpoints.latest(found.manifest)
        if head is None:
            return None
        base, size_bytes = head.version, 0
        for data in found.entries:
            after = advance(head, data, self._identity, self._machine, self._read_sidecars)
            head, size_bytes = after.head, size_bytes + weight_bytes(data, after.entry.sidecars)
        return ReadAhead(head.version, head, base, size_bytes) if head.version else None

    def _open_above(self, log_start: int) -> None:
        """Continue from a checkpoint that is not below the log start."""
        self._may_be_behind = True
        head = self.checkpoints.latest()
        if head is None or head.version < log_start:
            head = self.retained.latest(log_start)
        with self._advancing:
            self._ahead = None
            if head.version > self._head.version:
                self._head, self._base = head, head.version

    def _move_on(self) -> None:
        """Rebase the state onto a checkpoint of another process, if one must have been written by now.

        This needs no log start: the result is used only if it leads to the digest of the head, which is proven.
        """
        # Cleared first, because another thread may publish in between and set it.
        self._may_be_behind = False
        if not self.checkpoints.wants_newer(self._log_start):
            return
        self._may_be_behind = True
        # Best effort: the state is correct without it.
        with suppress(StorageError, DamagedError, NotRetainedError):
            if base := self.checkpoints.newer(self._log_start):
                newer = self.past.onwards(base, self._head.version)
                with self._advancing:
                    if (newer.version, newer.digest) == (self._head.version, self._head.digest):
                        self._head, self._base = newer, base.version

    def _replayed(self, version: int) -> State:
        return self.past.at(version).state

    def _publish(self, reading: ReadAhead[State]) -> None:
        """Publish the end of the reading as the head, unless another thread has published a later one."""
        with self._advancing:
            published = ReadAhead(self._head.version, self._head, self._base)
        if reading.base < published.base and published.start < reading.head.version and reading.kept is not None:
            reading = self._on_base(reading, published) or reading
        with self._advancing:
            new = reading.head.version - self._head.version
            if new <= 0:
                return
            self._head, self._base = reading.head, reading.base
            self.moved_s = clock.monotonic_s()
            if reading.kept is None:
                self.checkpoints.count_bytes(reading.size_bytes)
            else:
                self.checkpoints.count_bytes(sum(weight for _, weight in reading.kept[-new:]))
            self._may_be_behind = True
        if reading.kept is not None:
            kept = [data for data, _ in reading.kept[-new:]]
            self.checkpoints.remembered.keep(reading.head.version, reading.head.digest, kept)

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def start_checkpoint(self) -> None:
        """Write a checkpoint of the head, unless one is being written."""
        with self._advancing:
            if self._writing is None or not self._writing.is_alive():
                self._writing = threading.Thread(
                    target=self._write_checkpoint, args=(self._head,), name="lakebed-checkpoint"
                )
                self._writing.start()

    def wait_for_checkpoint(self) -> None:
        """Wait until no checkpoint is being written."""
        with self._advancing:
            writing = self._writing
        if writing is not None:
            writing.join()

    def _write_checkpoint(self, head: Head[State]) -> None:
        rebased = self.checkpoints.write(head)
        if rebased is None:
            return
        # The state is now based on the new checkpoint: it takes less memory, and the next checkpoint only writes later
        # changes.
        with self._advancing:
            if self._base < rebased.version:
                now = self._head
                state = self._machine.rebase(now.state, head.state, rebased.state)
                self._head, self._base = Head(now.version, now.digest, state), rebased.version
            now = self._head
        self.checkpoints.remembered.keep(now.version, now.digest)
