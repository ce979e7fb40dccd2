"""Follows a source: reads changes, commits them to tables, and confirms them, until it is stopped.

One loop: read for :attr:`FollowOptions.every_s`, or until the memory is full; commit to each table that has changes, in
one commit with the position; every few seconds record the position and confirm it to the source. After a failure that
may pass, everything in memory is dropped, and the source is opened again: the tables know what they have.

Core types: :class:`SourceFollower`, :class:`FollowOptions`. Rules. What is confirmed is committed and recorded. A
change that does not fit its table is committed to the table of dead letters, before the others: none is left out
silently.

Errors: those of sources and writes. Source: docs/decisions/0085.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from lakebed import clock
from lakebed.errors import Code, ContentionError, Error, StorageError, UnknownOutcomeError
from lakebed.model.html_tables import FactsView
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.wording import count_text
from lakebed.storage.disk_space import delete_abandoned_folders, scratch_folder
from lakebed.storage.processes import this_process
from lakebed.upkeep.follow.change_source import ChangeSource, DeadLetter, RecordedSource
from lakebed.upkeep.follow.follow_record import FollowRecord, check_unused, read_record, write_record
from lakebed.upkeep.follow.pending import Memory, PendingChanges
from lakebed.upkeep.follow.positions import Positions
from lakebed.upkeep.follow.target import DEAD_LETTERS, ChangeTarget, SourceColumns

if TYPE_CHECKING:
    from lakebed.table.instance import Instance

RECORD_S = 10.0
"""Between two records. After a crash as much is read again, and skipped by the commit ids."""

BEAT_S = 5.0

LETTERS_MAX = 1_000
"""Dead letters that wait to be made columns."""

PAUSE_S, PAUSE_MAX_S = 1.0, 30.0
"""Between two attempts to open a source that failed."""


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """``name`` is that of the follower, ``dead_letters`` the table of changes that do not fit.

    A commit is made every ``every_s`` seconds, or when half of ``memory_bytes_max`` is in use. ``snapshot``: tables
    without a position begin with the rows that are there. ``resnapshot``: all tables do, once.
    """

    name: str
    dead_letters: str
    every_s: float = 1.0
    memory_bytes_max: int = 64 * 1024 * 1024
    snapshot: bool = True
    resnapshot: bool = False


@dataclass(frozen=True, slots=True)
class FollowReport(FactsView):
    """The result of following a source until it was caught up, or stopped; ``place`` is its position."""

    name: str
    tables: tuple[str, ...]
    changes: int
    snapshot_rows: int
    dead_letters: int
    place: Mapping[str, str]

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        place = ", ".join(f"{name} {value}" for name, value in self.place.items())
        up_to = f", up to {place}" if place else ""
        loaded = f"{count_text(self.snapshot_rows, 'row')} of snapshots and " if self.snapshot_rows else ""
        dead = f"; {count_text(self.dead_letters, 'dead letter')}" if self.dead_letters else ""
        tables = count_text(len(self.tables), "table")
        return f"{loaded}{count_text(self.changes, 'change')} committed to {tables}{up_to}{dead}"


class SourceFollower:
    """Follows a source into tables of an instance. ``say`` takes messages for people."""

    def __init__(
        self,
        instance: Instance,
        source: ChangeSource,
        options: FollowOptions,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.targets: dict[str, ChangeTarget] = {}
        self.snapshot = options.snapshot
        self._instance = instance
        self._source = source
        self._options = options
        self._say = say
        self._folder = Path()
        self._memory = Memory(options.memory_bytes_max)
        self._letters: list[DeadLetter] = []
        self._letters_target: ChangeTarget | None = None
        self._record = FollowRecord(name=options.name, url=source.url, source="")
        self._anew = options.resnapshot
        self._changes = self._snapshot_rows = self._dead = 0
        self._recorded_s = 0.0
        self._committer = ThreadPoolExecutor(1, "lakebed-follow")

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self, *, until_caught_up: bool = False, stop: Callable[[], bool] = lambda: False) -> FollowReport:
        """Follow until ``stop``, or until all changes are there that the source had at the beginning."""
        # Those of followers that were killed.
        delete_abandoned_folders()
        with scratch_folder("follow") as self._folder, self._committer:
            try:
                return self._run(until_caught_up=until_caught_up, stop=stop)
            finally:
                self._leave()

    def _run(self, *, until_caught_up: bool, stop: Callable[[], bool]) -> FollowReport:
        pause_s = PAUSE_S
        while True:
            opened_s = clock.monotonic_s()
            try:
                self._open()
                self._follow(until_caught_up=until_caught_up, stop=stop)
                return self._report()
            except (ContentionError, StorageError, UnknownOutcomeError) as error:
                if isinstance(error, StorageError) and not error.facts.get("transient"):
                    self._failed(error)
                    raise
                self._failed(error)
                if until_caught_up and pause_s > 4 * PAUSE_S:
                    raise
                if clock.monotonic_s() - opened_s > PAUSE_MAX_S:
                    pause_s = PAUSE_S
                self._say(f"{error.message}; trying again in {pause_s:.0f} s")
                if self._waited(pause_s, stop):
                    return self._report()
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            except Error as error:
                self._failed(error)
                raise
            finally:
                self._source.close()

    def _leave(self) -> None:
        """Say that no process follows any more."""
        if self._record.holder:
            self._record = msgspec.structs.replace(self._record, holder="")
            with suppress(Error):
                self._write()

    def _follow(self, *, until_caught_up: bool, stop: Callable[[], bool]) -> None:
        end = self._source.target_end() if until_caught_up else None
        while True:
            self._source.read(clock.monotonic_s() + self._options.every_s, self._full)
            positions = self._source.positions()
            self._commit(positions)
            caught_up = end is not None and all(positions.get(stream, 0) >= at for stream, at in end.items())
            if caught_up or stop() or clock.monotonic_s() - self._recorded_s >= RECORD_S:
                self.record(positions)
                self._source.confirm(positions)
                if caught_up or stop():
                    return

    def _full(self) -> bool:
        return self._memory.used_bytes >= self._options.memory_bytes_max // 2

    def _waited(self, pause_s: float, stop: Callable[[], bool]) -> bool:
        """Wait; returns whether to stop."""
        end = clock.monotonic_s() + pause_s
        while not stop() and clock.monotonic_s() < end:
            clock.sleep(min(0.2, pause_s))
        return stop()

    def _open(self) -> None:
        for target in self.targets.values():
            target.pending.clear()
        self.targets, self._letters, self._letters_target = {}, [], None
        self._memory = Memory(self._options.memory_bytes_max)
        self._source.open(self)

    def _commit(self, positions: dict[int, int]) -> None:
        """Commit what is pending to all tables, and show the source that the follower is there."""
        work = self._committer.submit(self._commit_all, positions)
        while True:
            try:
                work.result(BEAT_S)
                return
            except StillRunning:
                if work.done():
                    raise
                self._source.beat()

    def _commit_all(self, positions: dict[int, int]) -> None:
        self._commit_letters(positions)
        for target in self.targets.values():
            before = target.changes
            target.commit(self._source.id, positions)
            self._changes += target.changes - before

    def _commit_letters(self, positions: Positions) -> None:
        self._gather_letters()
        target = self._letters_target
        if target is not None and target.pending:
            before = target.changes
            target.commit(self._source.id, positions)
            self._dead += target.changes - before

    def _gather_letters(self) -> None:
        """Add the letters to what is pending for their table, which is created with the first."""
        if not self._letters:
            return
        if self._letters_target is None:
            name = self._options.dead_letters
            table = self._instance.create_table(name, DEAD_LETTERS, merge=KEEP_ALL, if_not_exists=True)
            self._letters_target = ChangeTarget(table, PendingChanges(self._folder, self._memory))
            self._letters_target.applied(self._source.id, {})
            self._letters_target.streams = set()
        letters, self._letters, target = self._letters, [], self._letters_target
        assert target.streams is not None
        target.streams |= {one.stream for one in letters}
        # After a crash between its commit and those of the tables, a letter comes again.
        fresh = [one for one in letters if one.position >= target.positions.get(one.stream, 0)]
        if fresh:
            rows = [{**asdict(one), "source": self._source.id} for one in fresh]
            target.pending.add(pa.RecordBatch.from_pylist(rows, DEAD_LETTERS.arrow))

    # -- what the source asks for ------------------------------------------------------------------------------------

    def prepared(self, source: str) -> RecordedSource:
        """Return what is recorded of the source."""
        found = read_record(self._instance.storage, self._options.name)
        if found is not None and found.source and found.source != source and not self._anew:
            raise Code.SOURCE_POSITION_LOST(
                f"the follower {self._options.name} followed {found.source}, and {self._source.url} is {source}: "
                "follow it by another --name, or with --resnapshot, which replaces all rows by a new snapshot",
                url=self._source.url,
            )
        if found is not None:
            check_unused(found)
        record = found or self._record
        positions = {} if record.source != source else {int(stream): at for stream, at in record.positions.items()}
        anew = self._anew
        if anew:
            # Until all tables have their snapshots, the old positions count for none.
            record = msgspec.structs.replace(record, waiting=record.tables, tables=(), positions={}, identities={})
            self._anew = False
        self._record = msgspec.structs.replace(
            record,
            url=self._source.url,
            source=source,
            dead_letters_table=self._options.dead_letters,
            error=None,
            holder=this_process(),
        )
        if anew:
            self._write()
        return RecordedSource(positions, anew, frozenset(self._record.targets), self._record.identities)

    def target(self, name: str, columns: SourceColumns) -> ChangeTarget:
        """Return the table of that name."""
        target = self._opened(name, columns)
        assert target is not None
        return target

    def existing(self, name: str) -> ChangeTarget | None:
        """Return the table of that name, if there is one."""
        return self._opened(name, None)

    def _opened(self, name: str, columns: SourceColumns | None) -> ChangeTarget | None:
        target = ChangeTarget.open(self._instance, name, columns, self._folder, self._memory)
        if target is None:
            return None
        record = self._record
        known = record.positions if target.table.id in record.tables else {}
        target.applied(self._source.id, {int(stream): at for stream, at in known.items()})
        if target.table.id in record.waiting:
            target.forget()
        elif not target.positions and not target.empty:
            raise Code.SOURCE_CHANGE_UNSUPPORTED(
                f"table {name} has rows that did not come from {self._source.url}: follow it into another table "
                "(--table SOURCE=NEW_NAME), or drop the table",
                table=name,
            )
        self.targets[name] = target
        return target

    def load(
        self, target: ChangeTarget, positions: Positions, batches: Iterator[pa.RecordBatch], columns: pa.Schema
    ) -> None:
        """Put the rows of a snapshot into a table."""

        def read() -> Iterator[pa.RecordBatch]:
            yield from batches
            self._commit_letters(positions)

        rows = target.load(self._source.id, positions, read(), columns)
        self._snapshot_rows += rows
        waiting = tuple(one for one in self._record.waiting if one != target.table.id)
        tables = tuple({*self._record.tables, target.table.id})
        self._record = msgspec.structs.replace(self._record, waiting=waiting, tables=tables)
        self._write()
        if self.snapshot:
            self._say(f"table {target.table.name}: {count_text(rows, 'row')} of the snapshot")

    def record(self, positions: Positions) -> None:
        """Record how far the tables are."""
        progress = self._source.progress({**positions})
        tables = {target.table.id for target in self.targets.values() if target.positions}
        self._record = msgspec.structs.replace(
            self._record,
            targets={name: target.table.id for name, target in self.targets.items()},
            positions={str(stream): at for stream, at in positions.items()},
            tables=tuple(sorted(tables)),
            identities=dict(progress.identities),
            place=dict(progress.place),
            behind=progress.lag.behind,
            behind_unit=progress.lag.unit,
            lag_s=round(progress.lag.seconds, 3),
            error=None,
        )
        self._write()
        self._recorded_s = clock.monotonic_s()

    def reject(self, letter: DeadLetter) -> None:
        """Take a change that cannot be applied."""
        if len(self._letters) >= LETTERS_MAX:
            self._gather_letters()
        self._letters.append(letter)

    # -- reports -----------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        self._record = msgspec.structs.replace(self._record, at=clock.now().isoformat(timespec="seconds"))
        counted = msgspec.structs.replace(
            self._record,
            changes=self._record.changes + self._changes,
            dead_letters=self._record.dead_letters + self._dead,
        )
        write_record(self._instance.storage, counted)

    def _failed(self, error: Error) -> None:
        self._record = msgspec.structs.replace(self._record, error=error.message)
        if self._record.source:
            # The store may be what failed, and the next attempt has to be made.
            with suppress(Error):
                self._write()

    def _report(self) -> FollowReport:
        return FollowReport(
            self._options.name,
            tuple(sorted(self.targets)),
            self._changes,
            self._snapshot_rows,
            self._dead,
            self._record.place,
        )
