"""Trimming a table's log: entries that are older than anybody asks for go, behind a snapshot that is kept.

Each step is logged or conditional before the next destroys anything, so a crash anywhere leaves a table that reads on,
and the next round goes on (docs/decisions/0011, the model in tests/model/trimming):

1. *Keep* a snapshot now and then: it lies by itself, and is read back.
2. Choose the newest kept one that is old enough and has another above it; read both back.
3. Commit that nothing below it is retained. From here on no tag can be set below it.
4. Raise the floor to right below it, by compare-and-set, then delete the entries up to the floor.
5. Delete the kept snapshots below it, but for those at which tags stand.

The entry of that number stays, because the stamp of its number is in it or asked of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lakebed.errors import DamagedError, RejectedError
from lakebed.log.outcomes import NotCommitted, number_of
from lakebed.state.transactions import Mark, RaiseMark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from lakebed.settings import Settings
    from lakebed.state.table import TableState
    from lakebed.table import Table

KEPT_SHARE = 4
"""A snapshot is kept four times in the time that the log is kept for, so that as much again is not."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """``floor`` is the number up to which entries are gone, ``entries`` how many of them went now."""

    floor: int
    entries: int


def window(settings: Settings) -> timedelta:
    """How long entries are kept: as long as their numbers can be asked for, at least."""
    return timedelta(seconds=max(settings.log_s, settings.history_s, settings.gc_delay_s))


def keep_due(kept: Sequence[int], head: int, stamp_of: Callable[[int], datetime], before: datetime) -> bool:
    """Whether the head should be kept: something is new, and what was kept last (or the table) is of before. Pure."""
    last = max(kept, default=1)
    return last < head and stamp_of(last) <= before


def cut(kept: Sequence[int], state: TableState, stamp_of: Callable[[int], datetime], before: datetime) -> int | None:
    """The kept number to trim up to: of ``before``, with another above it, below all open jobs. None: none. Pure."""
    # Whether a job is past its deadline is told by the stamp of the entry that opened it.
    opened = min((job.opened for job in state.jobs.values()), default=state.number)
    fit = [number for number in sorted(kept)[:-1] if number <= opened]
    return next((number for number in reversed(fit) if stamp_of(number) <= before), None)


def trim(table: Table) -> Trimmed:
    """Keep a snapshot and trim the log, as far as either is due. Where no floor can be kept, nothing ever is.

    Raises:
        ContentionError, UnknownOutcomeError, StorageError: the next round goes on.
    """
    log, keep_for = table.log, window(table.settings_in_force())
    state, floor, now = table.state(), table.log.floor(), table.log.now()
    there = log.kept.numbers()
    kept = [number for number in there if number > floor]
    due = keep_due(kept, state.number, log.stamp_or_epoch, now - keep_for / KEPT_SHARE)
    if (floor == 0 and not (kept or due)) or (due and not log.keeps_floor()):
        return Trimmed(floor, 0)
    if due:
        kept.append(log.keep())
    to = _whole_cut(table, kept, now - keep_for)
    entries = 0
    if to is not None:
        _retain_from(table, to)
        entries = log.trim(to - 1)
        floor = log.floor()
    elif floor and log.entry(floor) is not None:
        # A round before this one died while it deleted.
        entries = log.trim(floor)
    # Read after the mark: from then on no tag can come below it.
    tagged = set(table.state().tags.values())
    if any(number <= floor and number not in tagged for number in there):
        log.kept.delete(floor + 1, tagged)
    return Trimmed(floor, entries)


def _whole_cut(table: Table, kept: Sequence[int], before: datetime) -> int | None:
    """Where to cut, with the snapshot there and the newest one read back; one that is damaged is as good as none."""
    whole = set(kept)
    while (to := cut(sorted(whole), table.state(), table.log.stamp_or_epoch, before)) is not None:
        damaged = {number for number in (to, max(whole)) if not _reads_back(table, number)}
        if not damaged:
            return to
        whole -= damaged
    return None


def _reads_back(table: Table, number: int) -> bool:
    try:
        return table.log.kept.read(number).number == number
    except DamagedError:
        return False


def _retain_from(table: Table, number: int) -> None:
    outcome = table.try_commit(RaiseMark(Mark.RETAINED_FROM, number))
    if not isinstance(outcome, NotCommitted):
        number_of(outcome, f"table {table.name}")
    elif table.state().retained_from < number:
        raise RejectedError(f"table {table.name}: {outcome.reason}", reason=outcome.reason)
