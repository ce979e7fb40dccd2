"""Collecting garbage: retire, read the pins, delete the objects, purge.

The mark is logged before the first delete, so no transaction can bring a file back that is about to go; forgetting is
logged after the last, so that a crash in between partitions marks, which the next round finishes. The pins are read
after the state that has the marks, its own and those of others alike: whoever pins later finds the marks in what he
reads. What a pin holds stays marked, for a later round. Two collectors at once do no harm: deleting twice is nothing,
and whoever is refused looks again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from lakebed.errors import NotRetainedError
from lakebed.log.outcomes import NotCommitted, version_of
from lakebed.model.files import object_names
from lakebed.retention.plan import CollectionPlan, cutoff, plan, request_watermark, unpinned
from lakebed.retention.truncation import truncate
from lakebed.snapshot.pins import read_pins
from lakebed.state.transactions import PurgeFiles, RaiseWatermark, RetireFiles, Watermark
from lakebed.storage.reserve import with_reserve

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lakebed.model.files import CommittedFile, DataFile
    from lakebed.snapshot.pins import Pins
    from lakebed.table.table import Table

BATCH_FILES = 1_000
"""Files in one entry: their ids are 37 KB of it, and an object store deletes as many in one request."""

REFUSALS_MAX = 5
"""How often a collector that was refused looks again: someone else is doing the same work."""


@dataclass(frozen=True, slots=True)
class CollectionReport:
    """What was deleted (or, with ``dry_run``, would be). ``waiting`` files have no reference but are too young.

    ``pinned`` files would go as well, but for readers' pins. ``checkpoint_segments`` are objects that only older
    checkpoints had named, ``sidecars`` those that no entry names, ``entries`` those that left the log, which is
    truncated up to ``log_start``; a dry run looks for none of them.
    """

    table: str
    files: int
    size_bytes: int
    waiting: int
    pinned: int
    dry_run: bool
    version: int | None
    checkpoint_segments: int = 0
    entries: int = 0
    log_start: int = 0
    sidecars: int = 0


def collect_garbage(table: Table, *, dry_run: bool = False) -> CollectionReport:
    """Delete what no reference has needed for longer than the GC delay and the history window, and dead pins.

    Raises:
        ContentionError, UnknownOutcomeError, StorageError: what was marked stays marked for the next round.
        DamagedError, UnsupportedFormatError: a pin cannot be read; nothing was deleted.
    """
    if dry_run:
        planned = _plan(table)
        doomed = (*planned.marked, *planned.due)
        free, _ = _unpinned(table, doomed)
        return _report(table, free, planned.waiting, len(doomed) - len(free), dry_run=True)
    return with_reserve(table.storage, lambda: _collect(table))


def _collect(table: Table) -> CollectionReport:
    freed: list[DataFile] = []
    earlier = None
    # What an earlier round marked goes first: on a full disk that makes the room that new marks need.
    if marked := _plan(table).marked:
        freed, _ = _unpinned(table, marked)
        earlier = _finish(table, freed)
    planned = _mark(table)
    free, pins = _unpinned(table, planned.marked)
    version = _finish(table, free) or earlier
    table.storage.delete(pins.dead)
    _purge_requests(table)
    truncated = truncate(table)
    parts, sidecars = table.log.checkpoints.sweep(), table.log.delete_orphan_sidecars()
    report = _report(table, (*freed, *free), planned.waiting, len(planned.marked) - len(free))
    return replace(
        report,
        version=version,
        checkpoint_segments=parts,
        entries=truncated.entries,
        log_start=truncated.log_start,
        sidecars=sidecars,
    )


def _unpinned(table: Table, doomed: Sequence[CommittedFile]) -> tuple[list[DataFile], Pins]:
    """Those of the files that no pin holds, and the pins."""
    pins = read_pins(table.storage, table.id, table.settings_in_force().pin_timeout_s)
    return [committed.facts for committed in unpinned(doomed, pins.versions)], pins


def _report(
    table: Table, freed: Sequence[DataFile], waiting: int, pinned: int, *, dry_run: bool = False
) -> CollectionReport:
    return CollectionReport(
        table=table.name,
        files=len(freed),
        size_bytes=sum(file.size_bytes for file in freed),
        waiting=waiting,
        pinned=pinned,
        dry_run=dry_run,
        version=None,
    )


def _plan(table: Table) -> CollectionPlan:
    state = table.state()
    if next(state.files.having("dropped"), None) is None:
        return CollectionPlan((), (), 0)
    return plan(state, table.log.last_modified_or_epoch, cutoff(table.log.now(), table.settings_in_force()))


def _mark(table: Table) -> CollectionPlan:
    """Watermark all that is due; returns the plan of the state after that, which has the marks."""
    planned = _plan(table)
    refused = 0
    while planned.due and refused < REFUSALS_MAX:
        for start in range(0, len(planned.due), BATCH_FILES):
            batch = planned.due[start : start + BATCH_FILES]
            outcome = table.try_commit(RetireFiles(tuple(committed.facts.id for committed in batch)))
            if isinstance(outcome, NotCommitted):
                refused += 1
                break
            version_of(outcome, f"table {table.name}")
        # Of the state after the mark: a tag that came before it has had files left out.
        planned = _plan(table)
    return planned


def _purge_requests(table: Table) -> None:
    """Purge the request keys and fences that are older than they have to be."""

    def last_modified_of(version: int) -> datetime | None:
        try:
            return table.log.entry_last_modified(version)
        except NotRetainedError:
            return None

    state = table.state()
    if state.requests or state.fences:
        line = request_watermark(state, last_modified_of, table.log.now(), table.settings_in_force())
        if line is not None:
            # However it ends: another collector was here, or the next round does it.
            table.try_commit(RaiseWatermark(Watermark.REQUEST_WATERMARK, line))


def _finish(table: Table, dead: Sequence[DataFile]) -> int | None:
    """Delete the objects of files retired and purge them; returns the version."""
    version = None
    for start in range(0, len(dead), BATCH_FILES):
        batch = dead[start : start + BATCH_FILES]
        table.storage.delete([name for f in batch for name in object_names(table.id, f)])
        table.snapshot(max_staleness=inf).reader.drop(batch)
        version = _forget(table, [f.id for f in batch]) or version
    return version


def _forget(table: Table, ids: Sequence[str]) -> int | None:
    for _ in range(REFUSALS_MAX):
        files = table.state().files
        left = tuple(name for name in ids if name in files)
        if not left:
            # Another collector was here.
            return None
        outcome = table.try_commit(PurgeFiles(left))
        if not isinstance(outcome, NotCommitted):
            return version_of(outcome, f"table {table.name}")
    return None
