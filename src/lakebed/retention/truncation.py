"""Truncation of a table's log: entries older than any version that can be read are deleted, behind a retained
checkpoint.

Every step is logged or conditional before the next one deletes anything, so the table stays readable after a crash at
any line, and the next round continues:

1. Retain a checkpoint from time to time, as objects of its own, and read it back.
2. Choose the latest retained checkpoint that is old enough and has another one above it; read both back.
3. Commit that no earlier version is retained. From then on no tag can be set below it.
4. Advance the log start to the version below it by compare-and-set, then delete the entries up to the log start.
5. Delete the retained checkpoints below it, except those of tags.

Pins hold back steps 3 to 5: nothing that a pinned version rests on is deleted, because a segment of its state may be
asked for at any time (:mod:`lakebed.log.segments`). The entry of the chosen version stays, because its last-modified
time is in it or asked of it. Source: decision 0011; tests/model/truncation.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lakebed.errors import DamagedError
from lakebed.log.outcomes import NotCommitted, version_of
from lakebed.snapshot.pins import read_pins
from lakebed.state.transactions import RaiseWatermark, Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from lakebed.settings import Settings
    from lakebed.state.table_state import TableState
    from lakebed.table.table import Table

KEPT_SHARE = 4
"""Checkpoints retained in the time for which the log is kept: at most a quarter more than that is kept."""


@dataclass(frozen=True, slots=True)
class Truncated:
    """``log_start`` is the version up to which entries are gone, ``entries`` how many of them went now."""

    log_start: int
    entries: int


def window(settings: Settings) -> timedelta:
    """How long entries are kept: as long as their versions can be asked for, at least."""
    return timedelta(seconds=settings.log_retention_s)


def keep_due(retained: Sequence[int], head: int, last_modified_of: Callable[[int], datetime], before: datetime) -> bool:
    """Whether the head should be kept: something is new, and what was kept last (or the table) is of before. Pure."""
    last = max(retained, default=1)
    return last < head and last_modified_of(last) <= before


def cut(
    retained: Sequence[int], state: TableState, last_modified_of: Callable[[int], datetime], before: datetime
) -> int | None:
    """The kept version to truncate up to: of ``before``, with another above it, below all open jobs. None: none.
    Pure.
    """
    # Whether a job is past its deadline is told by the last-modified time of the entry that opened it.
    opened = min((job.opened for job in state.jobs.values()), default=state.version)
    fit = [version for version in sorted(retained)[:-1] if version <= opened]
    return next((version for version in reversed(fit) if last_modified_of(version) <= before), None)


def truncate(table: Table) -> Truncated:
    """Keep a checkpoint and truncate the log, as far as either is due. Where no log start can be kept, nothing ever is.

    Raises:
        ContentionError, UnknownOutcomeError, StorageError: the next round goes on.
        DamagedError, UnsupportedFormatError: a pin cannot be read.
    """
    log, keep_for = table.log, window(table.settings_in_force())
    state, log_start, now = table.state(), table.log.log_start(), table.log.now()
    there = log.retained.versions()
    retained = [version for version in there if version > log_start]
    due = keep_due(retained, state.version, log.last_modified_or_epoch, now - keep_for / KEPT_SHARE)
    if (log_start == 0 and not (retained or due)) or (due and not log.backend.supports_truncation()):
        return Truncated(log_start, 0)
    if due:
        retained.append(log.retain_checkpoint())
    to = _whole_cut(table, retained, now - keep_for)
    entries = 0
    if to is not None:
        _retain_from(table, to)
        # Read after the mark, below which nobody can begin to read any more.
        if not any(log_start < version < to for version in _pinned(table)):
            entries = log.truncate(to - 1)
            log_start = log.log_start()
    elif log_start and log.backend.get(log_start) is not None:
        # A round before this one died while it deleted.
        entries = log.truncate(log_start)
    # Read after the mark: from then on no tag can come below it.
    tagged = set(table.state().tags.values())
    if any(version <= log_start and version not in tagged for version in there):
        log.retained.delete(log_start + 1, {*tagged, *_pinned(table)})
    return Truncated(log_start, entries)


def _pinned(table: Table) -> Collection[int]:
    """The numbers that readers hold."""
    return read_pins(table.storage, table.id).versions


def _whole_cut(table: Table, retained: Sequence[int], before: datetime) -> int | None:
    """Where to cut, with the checkpoint there and the newest one read back; one that is damaged is as good as none."""
    whole = set(retained)
    while (to := cut(sorted(whole), table.state(), table.log.last_modified_or_epoch, before)) is not None:
        damaged = {version for version in (to, max(whole)) if not _reads_back(table, version)}
        if not damaged:
            return to
        whole -= damaged
    return None


def _reads_back(table: Table, version: int) -> bool:
    try:
        return table.log.retained.read(version).version == version
    except DamagedError:
        return False


def _retain_from(table: Table, version: int) -> None:
    outcome = table.try_commit(RaiseWatermark(Watermark.EARLIEST_RETAINED_VERSION, version))
    if not isinstance(outcome, NotCommitted):
        version_of(outcome, f"table {table.name}")
    elif table.state().earliest_retained_version < version:
        raise outcome.error(f"table {table.name}")
