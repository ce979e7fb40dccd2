"""Garbage collection of one table: retire files, read the pins, delete the objects, purge the files.

Files are retired by a transaction before the first delete, so no later transaction can bring back a file that is about
to go. They are purged by a transaction after the last delete: after a crash in between, the next round finishes. Pins
are read after the state that has the retired files, whichever collector retired them, so a later pin sees them in the
state that it reads. Pinned files stay retired until a later round.

Concurrent collectors do no harm: deleting an object twice is a no-op, and a collector whose transaction is rejected
reads the state again. Raises the errors of :func:`collect_garbage`. Source: decision 0013.
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
"""Files per entry: 37 KB of ids, and as many objects as an object store deletes in one request."""

REFUSALS_MAX = 5
"""Attempts of a collector whose transactions are rejected because another one does the same work."""


@dataclass(frozen=True, slots=True)
class CollectionReport:
    """What was deleted, or with ``dry_run`` would be. ``waiting`` files have no reference and are too young.

    ``pinned`` files are kept by pins of readers. ``checkpoint_segments`` are objects that only older
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
        ContentionError, UnknownOutcomeError, StorageError: retired files stay retired for the next round.
        DamagedError, UnsupportedFormatError: a pin cannot be read; nothing was deleted.
    """
    if dry_run:
        planned = _plan(table)
        doomed = (*planned.retired, *planned.due)
        free, _ = _unpinned(table, doomed)
        return _report(table, free, planned.waiting, len(doomed) - len(free), dry_run=True)
    return with_reserve(table.storage, lambda: _collect(table))


def _collect(table: Table) -> CollectionReport:
    freed: list[DataFile] = []
    earlier = None
    # Files retired by an earlier round go first: on a full disk, that frees the space for new entries.
    if retired := _plan(table).retired:
        freed, _ = _unpinned(table, retired)
        earlier = _finish(table, freed)
    planned = _retire(table)
    free, pins = _unpinned(table, planned.retired)
    version = _finish(table, free) or earlier
    table.storage.delete(pins.dead)
    _purge_requests(table)
    truncated = truncate(table)
    parts, sidecars = table.log.checkpoints.sweep(), table.log.delete_orphan_sidecars()
    report = _report(table, (*freed, *free), planned.waiting, len(planned.retired) - len(free))
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
    pins = read_pins(table.storage, table.id)
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


def _retire(table: Table) -> CollectionPlan:
    """Retire all files that are due; returns the plan of the state after that."""
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
        # Plan again: files that a tag needs were left out when the transaction was resolved.
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
            # The outcome does not matter: another collector did it, or the next round will.
            table.try_commit(RaiseWatermark(Watermark.REQUEST_WATERMARK, line))


def _finish(table: Table, files: Sequence[DataFile]) -> int | None:
    """Delete the objects of retired files and purge the files; returns the version."""
    version = None
    for start in range(0, len(files), BATCH_FILES):
        batch = files[start : start + BATCH_FILES]
        table.storage.delete([name for f in batch for name in object_names(table.id, f)])
        table.snapshot(max_staleness=inf).reader.drop(batch)
        version = _purge(table, [f.id for f in batch]) or version
    return version


def _purge(table: Table, ids: Sequence[str]) -> int | None:
    for _ in range(REFUSALS_MAX):
        files = table.state().files
        left = tuple(name for name in ids if name in files)
        if not left:
            # Another collector purged them.
            return None
        outcome = table.try_commit(PurgeFiles(left))
        if not isinstance(outcome, NotCommitted):
            return version_of(outcome, f"table {table.name}")
    return None
