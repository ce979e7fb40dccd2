"""Deletion of what dropped tables leave: their data files, which can be neither read nor added to.

A table is dropped by the last entry of its own log, and by nothing else: a stale catalog makes no table look dropped.
Its files are deleted when that entry is older than the GC delay and the history window, and no pin is alive. The log
stays, a few small objects: its last entry rejects writers that slept through the drop. A table that is in no catalog
and not dropped, after a drop that was interrupted, is reported and left alone.

The logs of creations that lost the race for a name, or died before it, are deleted too: one entry each. A creation
under way looks the same, so only logs older than ``orphan_age_s`` go, and before that an entry of the catalog rejects
every creation that began earlier.

Finding them lists every object of the instance: one request per thousand objects.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lakebed import settings
from lakebed.model.files import file_of_object, is_failure_name, table_of_object, tables_folder
from lakebed.retention.plan import cutoff
from lakebed.snapshot.pins import read_pins

if TYPE_CHECKING:
    from lakebed.storage.contract import Listed
    from lakebed.table.instance import Instance
    from lakebed.table.table import Table


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """The data objects of a table that has no name any more. ``waiting`` is why they stay; None: they do not."""

    id: str
    objects: int
    size_bytes: int
    waiting: str | None


@dataclass(frozen=True, slots=True)
class DroppedReport:
    """What was deleted, or with ``dry_run`` would be; ``temporaries`` are those of puts anywhere in the instance.

    ``logs`` counts those of tables that never had a name.
    """

    tables: tuple[DroppedTable, ...]
    temporaries: int
    dry_run: bool
    logs: int = 0


def delete_dropped(instance: Instance, *, dry_run: bool = False) -> DroppedReport:
    """Delete the data files of dropped tables, and temporaries that are older than the default of ``orphan_age_s``.

    Raises StorageError, DamagedError: the next sweep goes on.
    """
    named = instance.table_ids()
    found: defaultdict[str, list[Listed]] = defaultdict(list)
    for listed in instance.storage.list(tables_folder()):
        table_id = table_of_object(listed.name)
        if table_id is not None and table_id not in named and _goes(table_id, listed.name):
            found[table_id].append(listed)
    # Once more: a table that was created meanwhile has a name now.
    named, tables = instance.table_ids(), []
    for table_id, objects in sorted(found.items()):
        if table_id in named:
            continue
        waiting = _waiting(instance.unnamed(table_id), dry_run=dry_run)
        tables.append(DroppedTable(table_id, len(objects), sum(listed.size_bytes for listed in objects), waiting))
        if waiting is None and not dry_run:
            instance.storage.delete([listed.name for listed in objects])
    temporaries = 0
    age = timedelta(seconds=settings.in_force(instance.settings(), {}).orphan_age_s)
    if not dry_run:
        temporaries = instance.storage.delete_temporaries("", instance.storage.now() - age)
    return DroppedReport(tuple(tables), temporaries, dry_run, _delete_lost(instance, age, dry_run=dry_run))


def _goes(table_id: str, name: str) -> bool:
    """Whether an object goes with its table: the log stays, which says that the table was dropped."""
    return file_of_object(table_id, name) is not None or is_failure_name(table_id, name)


def _delete_lost(instance: Instance, age: timedelta, *, dry_run: bool) -> int:
    """Delete the logs of creations that were given up so long ago; returns how many."""
    lost = [table_id for table_id in instance.unnamed_logs() if _is_lost(instance.unnamed(table_id), age)]
    if not lost or dry_run:
        return len(lost)
    instance.fence_creations()
    # After the fence: none of them can get a name any more, and one that has got it stays.
    lost = sorted(set(lost) & set(instance.unnamed_logs()))
    for table_id in lost:
        instance.unnamed(table_id).log.backend.remove([1])
    return len(lost)


def _is_lost(table: Table, age: timedelta) -> bool:
    return table.state().version == 1 and table.log.entry_last_modified(1) <= table.log.now() - age


def _waiting(table: Table, *, dry_run: bool) -> str | None:
    """Why the table's files may not go yet; None if they may. Dead pins go on the way."""
    state = table.state()
    if not state.dropped:
        return "it has no name and was not dropped: a drop that broke off, or a catalog that is not the newest"
    in_force = table.settings_in_force()
    # No entry follows that of the drop.
    if table.log.entry_last_modified(state.version) > cutoff(table.log.now(), in_force):
        return "it was dropped too short a time ago"
    pins = read_pins(table.storage, table.id)
    if not dry_run:
        table.storage.delete(pins.dead)
    return "readers hold it by pins" if pins.versions else None
