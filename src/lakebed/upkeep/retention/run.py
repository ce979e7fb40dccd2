"""Garbage collection: :func:`collect_garbage` for one table by its log, :func:`gc` for everything that may be deleted.

The steps of one table, in this order:

1. Retire files by a transaction, so that no later transaction can bring back a file that is about to be deleted.
2. Read the pins, after the state that has the retired files, whichever collector retired them. A later pin sees them in
   the state that it reads. Pinned files stay retired until a later round. So do files of published versions; if the
   table is not published any more, that is recorded first.
3. Delete the objects of the files, then purge the files from the state by a transaction. After a crash in between, the
   next round finishes.
4. Raise the request watermark.
5. Retain a checkpoint of the head from time to time, and read it back. Choose the version to truncate to, and read back
   the checkpoints there and above it. Commit that no earlier version is retained: from then on no tag can be set below
   it. Advance the log start by compare-and-set, delete the entries up to it, then the retained checkpoints below it
   except those of tags. Pins hold all of this back, because a segment of a pinned state may be read at any time
   (:mod:`lakebed.log.segments`). The entry of the chosen version stays, because its last-modified time is needed.
6. Delete segments and sidecars that nothing names any more.

Every step is logged or conditional before the next one deletes anything, so the table stays readable after a crash at
any line, and the next round continues. Concurrent collectors do no harm: deleting an object twice is a no-op, and a
collector whose transaction is rejected reads the state again.

Errors: ContentionError, UnknownOutcomeError, StorageError (the next round continues); DamagedError,
UnsupportedFormatError (a pin cannot be read: nothing that it may hold is deleted). Source: decisions 0011 and 0013;
tests/model/{deletion,truncation}.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from lakebed import clock
from lakebed.errors import DamagedError, Error, NotRetainedError
from lakebed.log.outcomes import NotCommitted, version_of
from lakebed.model.features import COLLECTORS, require_features
from lakebed.model.files import object_names
from lakebed.model.html_tables import FactsView
from lakebed.model.reports import WorkReport
from lakebed.model.settings import Publish
from lakebed.model.state.transactions import PurgeFiles, RaiseWatermark, RetireFiles, Watermark
from lakebed.model.wording import count_text, size_text
from lakebed.read.inspect.history import committed_on_interrupt
from lakebed.read.inspect.hooks import delete_incomplete_hooks
from lakebed.read.snapshot.pins import read_pins
from lakebed.storage import telemetry
from lakebed.storage.disk_space import delete_abandoned_folders, with_reserve
from lakebed.table.filter_choice import age_off
from lakebed.table.tracker.submitted_queries import QueryObjects
from lakebed.upkeep.publish.record import Retained, retained
from lakebed.upkeep.publish.record import end as end_publication
from lakebed.upkeep.retention.orphans import DroppedReport, OrphanReport, delete_dropped, delete_orphans
from lakebed.upkeep.retention.plan import FilePlan, LogPlan, cutoff, plan_files, plan_log, request_watermark, unpinned

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from lakebed.model.files import DataFile
    from lakebed.model.state.table_state import TableState
    from lakebed.read.snapshot.pins import Pins
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table

BATCH_FILES = 1_000
"""Files per entry: 37 KB of ids, and as many objects as an object store deletes in one request."""

REFUSALS_MAX = 5
"""Attempts of a collector whose transactions are rejected because another one does the same work."""


@dataclass(frozen=True, slots=True)
class CollectionReport(WorkReport):
    """What was deleted, or with ``dry_run`` would be deleted. ``waiting`` files have no reference and are
    too young.

    ``pinned`` files are kept by pins of readers. ``checkpoint_segments`` are objects that only older
    checkpoints had named, ``sidecars`` those that no entry names, ``entries`` those that left the log, which is
    truncated up to ``log_start``; a dry run looks for none of them.
    """

    table: str
    files: int = 0
    size_bytes: int = 0
    waiting: int = 0
    pinned: int = 0
    dry_run: bool = False
    version: int | None = None
    checkpoint_segments: int = 0
    entries: int = 0
    log_start: int = 0
    sidecars: int = 0

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        deleted = "would be deleted" if self.dry_run else "deleted"
        young = f"; {count_text(self.waiting, 'file')} without reference still too young" if self.waiting else ""
        pinned = f"; {count_text(self.pinned, 'file')} kept for readers by pins" if self.pinned else ""
        truncated = f"; log truncated up to {self.log_start}" if self.entries else ""
        files = f"{count_text(self.files, 'file')} of {size_text(self.size_bytes)}"
        return f"{files} {deleted}{young}{pinned}{truncated}"

    @property
    def outlook(self) -> str:
        """What a dry run found, as a text."""
        waiting = f"{count_text(self.waiting, 'unreferenced file')} kept until history_s has passed"
        due_now = f"{count_text(self.files, 'file')} of {self.size_bytes:,} bytes can be deleted"
        return ", ".join([due_now] * bool(self.files) + [waiting] * bool(self.waiting)) or waiting

    @property
    def idle(self) -> bool:
        """Whether nothing was deleted."""
        return not (self.files or self.entries or self.checkpoint_segments or self.sidecars)


@dataclass(frozen=True, slots=True)
class GcReport(FactsView):
    """What :func:`gc` did: for each table by its log (``collections``) and by a listing of its objects (``orphans``).

    ``dropped`` is empty if tables were named. ``errors`` are those of tables that were skipped.
    """

    collections: tuple[CollectionReport, ...]
    orphans: tuple[OrphanReport, ...]
    dropped: DroppedReport
    dry_run: bool
    errors: tuple[Error, ...] = ()


def gc(
    instance: Instance, tables: Iterable[Table] | None = None, *, dry_run: bool = False, force: bool = False
) -> GcReport:
    """Delete objects that are no longer needed, of these tables, or of all tables and dropped ones.

    Orphans in doubt are kept and reported, unless ``force`` is given. Lists all objects of the tables:
    one request per thousand objects. After an error of one table the others are still collected.
    """
    require_features(instance.catalog().features, COLLECTORS, f"the instance {instance.url}")
    collections, orphans, errors = [], [], []
    chosen = [instance.table(name) for name in instance.tables()] if tables is None else tables
    for table in chosen:
        try:
            with committed_on_interrupt(table.log):
                collections.append(collect_garbage(table, dry_run=dry_run))
                orphans.append(delete_orphans(table, dry_run=dry_run, force=force))
        except Error as error:
            errors.append(error)
    dropped = delete_dropped(instance, dry_run=dry_run) if tables is None else DroppedReport((), 0, dry_run)
    if not dry_run:
        instance.tracker.trim()
        delete_abandoned_folders()
        QueryObjects(instance.storage).expire()
        delete_incomplete_hooks(instance.storage, instance.settings()["orphan_age_s"])
    return GcReport(tuple(collections), tuple(orphans), dropped, dry_run, tuple(errors))


def collect_garbage(table: Table, *, dry_run: bool = False, batch_files: int = BATCH_FILES) -> CollectionReport:
    """Delete what no reference has needed for ``history_s``, entries older than ``log_s``, and dead pins; at most
    ``batch_files`` at a time.

    Raises:
        ContentionError, UnknownOutcomeError, StorageError: retired files stay retired for the next round.
        DamagedError, UnsupportedFormatError: a pin cannot be read, or collectors must know a feature that is unknown
            here; nothing was deleted.
    """
    require_features(table.state().features, COLLECTORS, f"table {table.name}")
    if dry_run:
        state = table.state()
        planned = _plan(table, state)
        doomed = (*planned.retired, *planned.due)
        free = [committed.facts for committed in unpinned(doomed, read_held(table)[0].versions)]
        return _report(table, free, planned.waiting, len(doomed) - len(free), dry_run=True)
    with telemetry.span("gc", table=table.id):
        report = with_reserve(table.storage, lambda: _collect(table, batch_files))
    telemetry.measure("gc_deleted_files_total", report.files, table=table.id)
    telemetry.measure("gc_deleted_bytes_total", report.size_bytes, table=table.id)
    telemetry.measure("table_gc_end_time_seconds", clock.now().timestamp(), table=table.id)
    return report


def _collect(table: Table, batch_files: int) -> CollectionReport:
    freed: list[DataFile] = []
    earlier = None
    if table.settings_in_force().publish is Publish.NONE:
        end_publication(table.storage, table.id)
    # Files retired by an earlier round are deleted first, which frees space for new entries on a full disk.
    state = table.state()
    if _plan(table, state).retired:
        freed, *_ = _unpinned(table, state)
        earlier = _delete(table, freed, batch_files)
    age_off(table)
    state = _retire(table, batch_files)
    free, planned, pins, published = _unpinned(table, state)
    version = _delete(table, free, batch_files) or earlier
    table.storage.delete(pins.dead)
    _delete_published(table, published, batch_files)
    _purge_requests(table)
    log_start, entries = truncate(table)
    orphan_age = timedelta(seconds=table.settings_in_force().orphan_age_s)
    parts, sidecars = table.log.checkpoints.delete_unnamed(orphan_age), table.log.delete_orphan_sidecars()
    report = _report(table, (*freed, *free), planned.waiting, len(planned.retired) - len(free))
    return replace(
        report,
        version=version,
        checkpoint_segments=parts,
        entries=entries,
        log_start=log_start,
        sidecars=sidecars,
    )


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
    )


def _plan(table: Table, state: TableState, pins: Collection[int] | None = None) -> FilePlan:
    """Return the plan for the files of a state, with the pins that were read after it."""
    if next(state.files.having("dropped"), None) is None:
        # Saves the request for the time.
        return FilePlan()
    before = cutoff(table.log.now(), table.settings_in_force())
    return plan_files(state, partial(last_modified_of, table), before, pins)


def last_modified_of(table: Table, version: int) -> datetime | None:
    """Return the last-modified time of an entry of the log; None if the entry was truncated."""
    try:
        return table.log.entry_last_modified(version)
    except NotRetainedError:
        return None


# -- files ------------------------------------------------------------------------------------------------------


def _unpinned(table: Table, state: TableState) -> tuple[list[DataFile], FilePlan, Pins, Retained]:
    """Return the retired files of a state that no pin holds, and what was read, after the state was."""
    pins, published = read_held(table)
    planned = _plan(table, state, pins.versions)
    return [committed.facts for committed in planned.deletable], planned, pins, published


def read_held(table: Table) -> tuple[Pins, Retained]:
    """Return the pins, with the published versions beside them, and what is kept of publications."""
    pins = read_pins(table.storage, table.id)
    published = retained(table.storage, table.id, timedelta(seconds=table.settings_in_force().history_s))
    return replace(pins, versions=pins.versions | published.versions), published


def _retire(table: Table, batch_files: int) -> TableState:
    """Retire all files that are due; returns the state after that."""
    state = table.state()
    planned = _plan(table, state)
    refused = 0
    while planned.due and refused < REFUSALS_MAX:
        for start in range(0, len(planned.due), batch_files):
            batch = planned.due[start : start + batch_files]
            outcome = table.try_commit(RetireFiles(tuple(committed.facts.id for committed in batch)))
            if isinstance(outcome, NotCommitted):
                refused += 1
                break
            version_of(outcome, f"table {table.name}")
        # Plan again: files that a tag needs were left out when the transaction was resolved.
        state = table.state()
        planned = _plan(table, state)
    return state


def _delete(table: Table, files: Sequence[DataFile], batch_files: int) -> int | None:
    """Delete the objects of retired files and purge the files; returns the version."""
    version = None
    for start in range(0, len(files), batch_files):
        batch = files[start : start + batch_files]
        table.storage.delete([name for f in batch for name in object_names(table.id, f)])
        table.reader.drop(batch)
        version = _purge(table, [f.id for f in batch]) or version
    return version


def _delete_published(table: Table, there: Retained, batch_files: int) -> None:
    """Delete manifests and deletes that no published version needs any more, and orphans among them.

    What was published since ``there`` was read is younger, and not in it.
    """
    if not there.old:
        return
    named: set[str] = set()
    if there.lists:
        if find_spec("pyiceberg") is None:
            # They are deleted by a process that can read which of them are needed.
            return
        from lakebed.upkeep.publish.metadata import parts_of

        named.update(parts_of(table.storage, there.lists))
    doomed = [name for name in there.old if name not in named]
    for start in range(0, len(doomed), batch_files):
        table.storage.delete(doomed[start : start + batch_files])


def _purge(table: Table, ids: Sequence[str]) -> int | None:
    for _ in range(REFUSALS_MAX):
        files = table.state().files
        present = tuple(name for name in ids if name in files)
        if not present:
            # Another collector purged them.
            return None
        outcome = table.try_commit(PurgeFiles(present))
        if not isinstance(outcome, NotCommitted):
            return version_of(outcome, f"table {table.name}")
    return None


# -- the log ----------------------------------------------------------------------------------------------------


def _purge_requests(table: Table) -> None:
    """Purge the request keys and fences that have expired."""
    state = table.state()
    if state.requests or state.fences:
        times = partial(last_modified_of, table)
        line = request_watermark(state, times, table.log.now(), table.settings_in_force())
        if line is not None:
            # The outcome is ignored: another collector did it, or the next round will.
            table.try_commit(RaiseWatermark(Watermark.REQUEST_WATERMARK, line))


def truncate(table: Table) -> tuple[int, int]:
    """Truncate the log as far as due; returns the log start and the number of deleted entries.

    Does nothing if the store cannot keep a log start.
    """
    log, state = table.log, table.state()
    log_start, now = log.log_start(), log.now()
    there = log.retained.versions()
    retained = [version for version in there if version > log_start]

    def planned(state: TableState, checkpoints: Collection[int]) -> LogPlan:
        return plan_log(state, checkpoints, partial(last_modified_of, table), now, table.settings_in_force())

    due = planned(state, retained).retain
    if (log_start == 0 and not (retained or due)) or (due and not log.backend.supports_truncation()):
        return log_start, 0
    if due:
        retained.append(log.retain_checkpoint())
    entries = 0
    while (to := planned(table.state(), retained).truncate_to) is not None:
        # A damaged checkpoint counts as absent.
        damaged = {version for version in (to, max(retained)) if not _reads_back(table, version)}
        if not damaged:
            break
        retained = [version for version in retained if version not in damaged]
    if to is not None:
        _retain_from(table, to)
        # Read after the watermark, below which no reader can begin any more.
        if not any(log_start < version < to for version in read_pins(table.storage, table.id).versions):
            entries = log.truncate(to - 1)
            log_start = log.log_start()
    elif log_start and log.backend.get(log_start) is not None:
        # An earlier round died while it deleted.
        entries = log.truncate(log_start)
    # Read after the watermark: no tag can be set below it any more.
    tagged = set(table.state().tags.values())
    if any(version <= log_start and version not in tagged for version in there):
        log.retained.delete(log_start + 1, {*tagged, *read_pins(table.storage, table.id).versions})
    return log_start, entries


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
