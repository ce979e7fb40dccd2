"""Deletion of objects that no log names: orphans of a table, and the files and logs of dropped tables.

An *orphan* was written and never committed: after a crash, a lost race, a second attempt. Only its age distinguishes it
from a file whose commit is in progress, and a writer may be delayed for any time. The age limit, the orphan cutoff, is
therefore itself a log entry: after it no older file can be committed, and files committed before it are in the state
that is read afterwards. Steps: list the objects, commit the cutoff, read the state, delete. Objects of unknown kinds
are reported and never deleted; retired files and segments are left to :mod:`lakebed.upkeep.retention.run`.

A table is *dropped* by the last entry of its own log, and by nothing else, so a stale catalog cannot make a table look
dropped. Its files are deleted when that entry is older than ``history_s`` and no pin is alive. Its log and checkpoints
are deleted when that entry is older than ``Settings.log_retention_s``, except for that entry, the log start and a
checkpoint of the state without files: these reject processes that were suspended during the drop, as where the log of
a living table was truncated (decision 0011). A drop that was interrupted between the catalog and that entry is
finished, if the log of the catalog has it. A table that is missing from the catalog for another reason, such as a
catalog restored from an older copy, is reported and kept. The logs of creations that lost the race for a name, or died
before it, are deleted too: one entry each. A creation in progress looks the same, so only logs older than
``orphan_age_s`` are deleted, after an entry of the catalog has rejected every creation that began earlier.

Listing takes one request per thousand objects, of the table or of the instance. Source: decision 0013.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from lakebed.errors import Code, Error
from lakebed.log.last_modified_times import from_us, to_us
from lakebed.log.outcomes import NotCommitted, version_of
from lakebed.model import settings
from lakebed.model.features import COLLECTORS, require_features
from lakebed.model.files import (
    TABLES_FOLDER,
    checkpoint_folder,
    checkpoint_name,
    data_folder,
    file_of_object,
    is_copy_name,
    is_published_name,
    log_of_entry,
    parse_retained_version,
    table_of_object,
    table_prefix,
)
from lakebed.model.html_tables import FactsView
from lakebed.model.state.catalog import PurgeTable
from lakebed.model.state.transactions import RaiseWatermark, Watermark
from lakebed.read.snapshot.pins import read_pins
from lakebed.storage.disk_space import with_reserve
from lakebed.table.instance import finish_drop
from lakebed.upkeep.retention.plan import FoundObject, ObjectListing, OrphanPlan, cutoff, plan_orphans, what_remains

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from lakebed.model.state.table_state import TableState
    from lakebed.storage.contract import Listed
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table

REFUSALS_MAX = 5
"""Attempts to commit a cutoff: a job may be opened meanwhile, or another process may do the same."""

BATCH_OBJECTS = 1_000
"""As many as an object store deletes in one request."""

UNKNOWN_MAX = 20
"""Names of unknown objects in a report."""


@dataclass(frozen=True, slots=True)
class OrphanReport(FactsView):
    """What was deleted (or, with ``dry_run``, would be): ``orphans`` of ``objects``, and ``temporaries`` of puts.

    Orphans are those with a last-modified time of the store less than ``before``, which is held back by the open job
    ``held_by``, if any. ``unknown`` objects are kept; ``unknown_names`` are some of them. If there are ``doubts``,
    nothing is deleted without ``force``, and ``refused`` is true. ``version`` is that of the entry with the cutoff;
    None if an earlier one served, or none was needed.
    """

    table: str
    orphans: int
    size_bytes: int
    objects: int
    temporaries: int
    before: datetime
    held_by: str | None
    unknown: int
    unknown_names: tuple[str, ...]
    doubts: tuple[str, ...]
    dry_run: bool
    refused: bool
    version: int | None


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """The data objects of a dropped table. ``waiting`` is why they are kept; None: they are deleted.

    ``entries`` of its log are deleted, with its checkpoints.
    """

    id: str
    objects: int
    size_bytes: int
    waiting: str | None
    entries: int = 0


@dataclass(frozen=True, slots=True)
class DroppedReport(FactsView):
    """What was deleted, or with ``dry_run`` would be; ``temporaries`` are those of puts anywhere in the instance.

    ``logs`` counts those of tables that never had a name.
    """

    tables: tuple[DroppedTable, ...]
    temporaries: int
    dry_run: bool
    logs: int = 0


# -- orphans ----------------------------------------------------------------------------------------------------


def refusal(report: OrphanReport) -> Error:
    """Return the error for orphans that were kept because of doubts."""
    reason = "; ".join(report.doubts)
    return Code.ORPHANS_DOUBTFUL(
        f"no orphan of table {report.table} was deleted: {reason}. List more with a dry run; delete anyway with force",
        reason=reason,
    )


def delete_orphans(table: Table, *, dry_run: bool = False, force: bool = False) -> OrphanReport:
    """Delete what was written to a table, and not committed, before the setting ``orphan_age_s``.

    Nothing is deleted if there are doubts and no ``force``: then the report is ``refused``.

    Raises:
        DamagedError: the log has an entry that cannot be reached, so it is not known which objects are named.
        ContentionError, UnknownOutcomeError, StorageError: nothing, or not all, was deleted; the next run continues.
    """
    return with_reserve(table.storage, lambda: _sweep(table, dry_run=dry_run, force=force))


def _sweep(table: Table, *, dry_run: bool, force: bool) -> OrphanReport:
    last = max(table.log.backend.versions(), default=0)
    known = table.state()
    require_features(known.features, COLLECTORS, f"table {table.name}")
    _check_reached(table, known, last)
    objects = [
        FoundObject(listed.name, listed.size_bytes, to_us(listed.last_modified))
        for listed in table.storage.list(data_folder(table.id))
    ]
    listing = ObjectListing(objects, to_us(table.storage.now()), known)
    planned, version = _plan(table, listing), None
    if planned.orphans and not dry_run:
        version = _raise_cutoff(table, listing)
        # After the cutoff: what was committed before it is in this state, and nothing older can be added later.
        planned = _plan(table, listing)
    gone = planned.orphans if dry_run else planned.deletable
    doubts, temporaries = planned.doubts(), 0
    refused = bool(doubts) and not (dry_run or force)
    if not dry_run and not refused:
        temporaries = _delete(table, planned)
    return OrphanReport(
        table=table.name,
        orphans=0 if refused else len(gone),
        size_bytes=0 if refused else sum(orphan.size_bytes for orphan in gone),
        objects=planned.objects,
        temporaries=temporaries,
        before=from_us(planned.before_us),
        held_by=planned.held_by,
        unknown=len(planned.unknown),
        unknown_names=planned.unknown[:UNKNOWN_MAX],
        doubts=tuple(doubts),
        dry_run=dry_run,
        refused=refused,
        version=version,
    )


def _plan(table: Table, listing: ObjectListing) -> OrphanPlan:
    return plan_orphans(table.state(), listing, table.settings_in_force().orphan_age_s)


def _raise_cutoff(table: Table, listing: ObjectListing) -> int | None:
    """Commit the cutoff that the plan needs; returns the version, or None if the one in the state serves."""
    for _ in range(REFUSALS_MAX):
        cutoff_us = _plan(table, listing).cutoff_us
        if cutoff_us is None:
            break
        outcome = table.try_commit(RaiseWatermark(Watermark.ORPHAN_CUTOFF, cutoff_us))
        if not isinstance(outcome, NotCommitted):
            return version_of(outcome, f"table {table.name}")
    return None


def _check_reached(table: Table, state: TableState, last: int) -> None:
    """Raise DamagedError if the store lists an entry beyond the state: an entry between is gone."""
    if last > state.version:
        raise Code.ENTRY_DAMAGED(
            f"the log of table {table.name} can be read up to version {state.version}, but has an entry {last}: "
            "the files in use are not known, and no orphan was deleted. Verify the log",
            version=state.version,
        )


def _delete(table: Table, planned: OrphanPlan) -> int:
    """Delete the orphans, and temporaries of puts before that time; returns the number of temporaries."""
    for start in range(0, len(planned.deletable), BATCH_OBJECTS):
        batch = planned.deletable[start : start + BATCH_OBJECTS]
        table.storage.delete([orphan.name for orphan in batch])
    return table.storage.delete_temporaries(table_prefix(table.id), from_us(planned.before_us))


# -- dropped tables ---------------------------------------------------------------------------------------------


def delete_dropped(instance: Instance, *, dry_run: bool = False) -> DroppedReport:
    """Delete the data files and the logs of dropped tables, and temporaries older than the default of ``orphan_age_s``.

    Raises StorageError, DamagedError: the next run continues.
    """
    named = instance.table_ids()
    unnamed: defaultdict[str, list[Listed]] = defaultdict(list)
    for listed in instance.storage.list(TABLES_FOLDER):
        table_id = table_of_object(listed.name)
        if table_id is not None and table_id not in named:
            unnamed[table_id].append(listed)
    # Read again: a table that was created meanwhile now has a name.
    named, tables, purged = instance.table_ids(), [], None
    for table_id, there in sorted(unnamed.items()):
        objects = [listed for listed in there if _goes(table_id, listed.name)]
        whole_log = _is_whole(table_id, [listed.name for listed in there])
        if table_id in named or not (objects or whole_log):
            continue
        table = instance.unnamed(table_id)
        require_features(table.state().features, COLLECTORS, f"table {table_id}")
        if not table.state().dropped:
            if not objects:
                continue
            purged = _purged(instance) if purged is None else purged
            if table_id in purged and not dry_run:
                finish_drop(table)
        waiting = _waiting(table, interrupted=purged is not None and table_id in purged, dry_run=dry_run)
        if waiting is None and not dry_run:
            instance.storage.delete([listed.name for listed in objects])
        entries = _delete_log(table, dry_run=dry_run) if waiting is None and whole_log else 0
        if objects or entries:
            size_bytes = sum(listed.size_bytes for listed in objects)
            tables.append(DroppedTable(table_id, len(objects), size_bytes, waiting, entries))
    temporaries = 0
    age = timedelta(seconds=settings.in_force(instance.settings(), {}).orphan_age_s)
    if not dry_run:
        temporaries = instance.storage.delete_temporaries("", instance.storage.now() - age)
    return DroppedReport(tuple(tables), temporaries, dry_run, _delete_lost(instance, age, dry_run=dry_run))


def _goes(table_id: str, name: str) -> bool:
    """Return whether an object is deleted as soon as no reader can have the table open."""
    return (
        file_of_object(table_id, name) is not None or is_copy_name(table_id, name) or is_published_name(table_id, name)
    )


def _is_whole(table_id: str, names: Collection[str]) -> bool:
    """Return whether a table that has these objects may have more of its log than :func:`_delete_log` leaves.

    That function deletes the latest checkpoint last. More entries than one are of processes that slept through it.
    """
    prefix = table_prefix(table_id)
    retained = any(parse_retained_version(prefix, name) is not None for name in names)
    latest = any(name.startswith(f"{checkpoint_folder(prefix)}/") for name in names)
    return latest or not retained or sum(log_of_entry(name) is not None for name in names) > 1


def _delete_log(table: Table, *, dry_run: bool) -> int:
    """Delete the entries of a dropped table's log before the last, and its checkpoints, if it is time; returns how many
    entries.

    A new checkpoint takes their place before, so the log can be opened after a crash at any line, and says that the
    table was dropped. The next run continues.
    """
    log, state = table.log, table.state()
    due = log.now() - timedelta(seconds=table.settings_in_force().log_retention_s)
    if log.entry_last_modified(state.version) > due or not log.backend.supports_truncation():
        return 0
    if dry_run:
        return sum(version < state.version for version in log.backend.versions())
    log.retained.retain(replace(log.head, state=what_remains(state)))
    entries = log.truncate(state.version - 1)
    log.delete_orphan_sidecars()
    log.retained.delete(state.version, ())
    prefix = table_prefix(table.id)
    # First what opens the checkpoint, then its segments.
    table.storage.delete([checkpoint_name(prefix)])
    table.storage.delete([listed.name for listed in table.storage.list(checkpoint_folder(prefix))])
    return entries


def _delete_lost(instance: Instance, age: timedelta, *, dry_run: bool) -> int:
    """Delete the logs and checkpoints of creations that were given up before that age; returns how many."""
    lost = [table_id for table_id in instance.unnamed_logs() if _is_lost(instance.unnamed(table_id), age)]
    if not lost or dry_run:
        return len(lost)
    instance.fence_creations()
    # After the fence: none of them can get a name any more, and one that has got it stays.
    lost = sorted(set(lost) & set(instance.unnamed_logs()))
    for table_id in lost:
        # The entry is deleted last, because the table is found by it.
        names = [one.name for one in instance.storage.list(table_prefix(table_id)) if log_of_entry(one.name) is None]
        instance.storage.delete(names)
        instance.unnamed(table_id).log.backend.remove([1])
    return len(lost)


def _is_lost(table: Table, age: timedelta) -> bool:
    return table.state().version == 1 and table.log.entry_last_modified(1) <= table.log.now() - age


def _purged(instance: Instance) -> frozenset[str]:
    """Return the ids of the tables that were taken out of the catalog. Reads the whole log of the catalog."""
    return frozenset(change.table for change in instance.catalog_changes() if isinstance(change, PurgeTable))


def _waiting(table: Table, *, interrupted: bool, dry_run: bool) -> str | None:
    """Return why the table's files must be kept; None if they need not be. Expired pins are deleted."""
    state = table.state()
    if not state.dropped:
        if interrupted:
            return "its drop was interrupted, and is finished by a run that is no dry run"
        return "it has no name and was not dropped: restore the newest catalog, if it is an older copy"
    # No entry follows that of the drop.
    if table.log.entry_last_modified(state.version) > cutoff(table.log.now(), table.settings_in_force()):
        return "it was dropped too short a time ago"
    pins = read_pins(table.storage, table.id)
    if not dry_run:
        table.storage.delete(pins.dead)
    return "readers hold it by pins" if pins.versions else None
