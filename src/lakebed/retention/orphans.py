"""Deletion of orphans: list the objects, commit the cutoff, read the state, delete.

An orphan was written and never committed: after a crash, a lost race, a second attempt. Only its age distinguishes it
from a file whose commit is under way, and a writer may be delayed for any time. So the age limit, the cutoff, is itself
a log entry: after it no older file can be committed, and files committed before it are in the state that is read
afterwards. The choice of the cutoff decides when orphans go and which writers are rejected, and nothing else.

Retired files and segments of checkpoints are left to garbage collection. Objects of unknown kinds are reported and
never deleted. Source: decision 0013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.log.last_modified_times import from_us, to_us
from lakebed.log.outcomes import NotCommitted, version_of
from lakebed.model.files import data_folder, table_prefix
from lakebed.retention.orphan_plan import FoundObject, OrphanPlan, orphan_cutoff, plan_orphans
from lakebed.state.transactions import RaiseWatermark, Watermark
from lakebed.storage.reserve import with_reserve

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lakebed.state.table_state import TableState
    from lakebed.table.table import Table

REFUSALS_MAX = 5
"""Attempts to commit a cutoff: a job may be opened meanwhile, or another process may do the same."""

BATCH_OBJECTS = 1_000
"""As many as an object store deletes in one request."""

UNKNOWN_MAX = 20
"""Names of unknown objects in a report."""


@dataclass(frozen=True, slots=True)
class _Limit:
    """How old is old enough: ``now_us`` is the store's."""

    now_us: int
    age_s: float

    def within(self, state: TableState) -> tuple[int, str | None]:
        """The cutoff up to which orphans may go now, and the open job that holds it back."""
        wanted_us, held_by = orphan_cutoff(state, self.now_us, self.age_s)
        return max(wanted_us, state.orphan_cutoff_us), held_by


@dataclass(frozen=True, slots=True)
class OrphanReport:
    """What was deleted (or, with ``dry_run``, would be): ``orphans`` of ``objects``, and ``temporaries`` of puts.

    Orphans are those with a last-modified time of the store less than ``before``, which is held back by the open job
    ``held_by``, if any. ``unknown`` objects are left alone; ``unknown_names`` are some of them. ``doubts`` are why only
    ``force`` goes on. ``version`` is that of the entry with the cutoff; None if one of before served, or none was
    needed.
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
    version: int | None


def delete_orphans(table: Table, *, dry_run: bool = False, force: bool = False) -> OrphanReport:
    """Delete what was written to a table, and not committed, before the setting ``orphan_age_s``.

    Raises:
        RejectedError: something should be looked at first (see ``OrphanReport.doubts``), and ``force`` was not given.
        DamagedError: the log has an entry that cannot be reached: what is on record is not known.
        ContentionError, UnknownOutcomeError, StorageError: nothing, or not all, was deleted; the next run goes on.
    """
    return with_reserve(table.storage, lambda: _sweep(table, dry_run=dry_run, force=force))


def _sweep(table: Table, *, dry_run: bool, force: bool) -> OrphanReport:
    last = max(table.log.backend.versions(), default=0)
    known = table.state()
    _check_reached(table, known, last)
    found = [
        FoundObject(listed.name, listed.size_bytes, to_us(listed.last_modified))
        for listed in table.storage.list(data_folder(table.id))
    ]
    limit = _Limit(to_us(table.storage.now()), table.settings_in_force().orphan_age_s)
    cutoff_us, held_by = limit.within(known)
    planned = plan_orphans(known, found, cutoff_us, known)
    version = None
    if planned.orphans and not dry_run:
        held_by, version = _raise_cutoff(table, found, limit)
        # After the cutoff: what was committed before it is on record here, and nothing older comes after it.
        state = table.state()
        planned = plan_orphans(state, found, state.orphan_cutoff_us, known)
    doubts, temporaries = planned.doubts(), 0
    if not dry_run:
        if doubts and not force:
            raise Code.ORPHANS_DOUBTFUL(
                f"no orphan of table {table.name} was deleted: {'; '.join(doubts)}. List more with a dry run; "
                "delete anyway with force",
                reason="; ".join(doubts),
            )
        temporaries = _delete(table, planned, from_us(cutoff_us))
    return OrphanReport(
        table=table.name,
        orphans=len(planned.orphans),
        size_bytes=planned.size_bytes,
        objects=planned.objects,
        temporaries=temporaries,
        before=from_us(cutoff_us),
        held_by=held_by,
        unknown=len(planned.unknown),
        unknown_names=planned.unknown[:UNKNOWN_MAX],
        doubts=tuple(doubts),
        dry_run=dry_run,
        version=version,
    )


def _raise_cutoff(table: Table, found: Sequence[FoundObject], limit: _Limit) -> tuple[str | None, int | None]:
    """Commit a cutoff just above the newest orphan; the job that holds it back, and the entry.

    No higher than is needed: should the store's clock be wrong, nobody is refused for what is yet to be written. Where
    another cutoff stands that is as high, that one serves: no entry.
    """
    held_by = None
    for _ in range(REFUSALS_MAX):
        state = table.state()
        cutoff_us, held_by = limit.within(state)
        orphans = plan_orphans(state, found, cutoff_us, state).orphans
        needed_us = max((orphan.last_modified_us for orphan in orphans), default=0) + 1
        if needed_us <= state.orphan_cutoff_us or not orphans:
            break
        outcome = table.try_commit(RaiseWatermark(Watermark.ORPHAN_CUTOFF, needed_us))
        if not isinstance(outcome, NotCommitted):
            return held_by, version_of(outcome, f"table {table.name}")
    return held_by, None


def _check_reached(table: Table, state: TableState, last: int) -> None:
    """Raise DamagedError if the store lists an entry beyond the state: an entry between is gone."""
    if last > state.version:
        raise Code.ENTRY_DAMAGED(
            f"the log of table {table.name} can be read up to version {state.version}, but has an entry {last}: "
            "the files in use are not known, and no orphan was deleted. Verify the log",
            version=state.version,
        )


def _delete(table: Table, planned: OrphanPlan, before: datetime) -> int:
    """Delete the orphans, and what puts of before that time left behind; how many those were."""
    for start in range(0, len(planned.orphans), BATCH_OBJECTS):
        batch = planned.orphans[start : start + BATCH_OBJECTS]
        table.storage.delete([orphan.name for orphan in batch])
    return table.storage.delete_temporaries(table_prefix(table.id), before)
