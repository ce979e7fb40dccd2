"""Collecting garbage: mark dead, delete the objects, forget.

The mark is logged before the first delete, so no transaction can bring a file back that is about to go; forgetting is
logged after the last, so that a crash in between leaves marks, which the next round finishes before it does anything
else. Two collectors at once do no harm: deleting twice is nothing, and whoever is refused looks again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.collection.plan import CollectionPlan, horizon, plan
from lakebed.files import data_name, summary_name
from lakebed.log.outcomes import NotCommitted, number_of
from lakebed.state.transactions import ForgetFiles, MarkDead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.files import DataFile
    from lakebed.table import Table

BATCH_FILES = 1_000
"""Files in one entry: their ids are 37 KB of it, and an object store deletes as many in one request."""

REFUSALS_MAX = 5
"""How often a collector that was refused looks again: someone else is doing the same work."""


@dataclass(frozen=True, slots=True)
class CollectionReport:
    """What was deleted (or, with ``dry_run``, would be). ``waiting`` files have no reference but are too young.

    ``snapshot_parts`` are objects that only older snapshots had named, ``side_objects`` were put for entries that never
    came; a dry run does not look for them.
    """

    table: str
    files: int
    size_bytes: int
    waiting: int
    dry_run: bool
    number: int | None
    snapshot_parts: int = 0
    side_objects: int = 0


def collect_garbage(table: Table, *, dry_run: bool = False) -> CollectionReport:
    """Delete what no reference has needed for longer than the GC delay and the history window.

    Raises:
        ContentionError, UnknownOutcomeError, StorageError: what was marked stays marked for the next round.
    """
    planned = _plan(table)
    if dry_run:
        files = (*planned.unfinished, *planned.due)
        return CollectionReport(
            table.name, len(files), sum(f.size_bytes for f in files), planned.waiting, dry_run=True, number=None
        )
    gone: dict[str, DataFile] = {}
    number = _finish(table, planned.unfinished, gone)
    refused = 0
    while planned.due and refused < REFUSALS_MAX:
        batch = planned.due[:BATCH_FILES]
        outcome = table.try_commit(MarkDead(tuple(f.id for f in batch)))
        if isinstance(outcome, NotCommitted):
            refused += 1
        else:
            number_of(outcome, f"table {table.name}")
            # Of the state after the mark: a tag that came before it has had files left out.
            known = table.state().files
            marked = [f for f in batch if f.id in known and known[f.id].dead]
            number = _finish(table, marked, gone) or number
        planned = _plan(table)
    size_bytes = sum(f.size_bytes for f in gone.values())
    return CollectionReport(
        table.name,
        len(gone),
        size_bytes,
        planned.waiting,
        dry_run=False,
        number=number,
        snapshot_parts=table.log.sweep_snapshots(),
        side_objects=table.log.sweep_sides(),
    )


def _plan(table: Table) -> CollectionPlan:
    state = table.state()
    if next(state.files.having("dropped"), None) is None:
        return CollectionPlan((), (), 0)
    return plan(state, table.log.entry_stamp, horizon(table.log.now(), table.settings_in_force()))


def _finish(table: Table, dead: Sequence[DataFile], gone: dict[str, DataFile]) -> int | None:
    """Delete the objects of files marked dead and forget them; returns the log number."""
    number = None
    for start in range(0, len(dead), BATCH_FILES):
        batch = dead[start : start + BATCH_FILES]
        table.storage.delete([name for f in batch for name in (data_name(table.id, f), summary_name(table.id, f))])
        number = _forget(table, [f.id for f in batch]) or number
        gone.update((f.id, f) for f in batch)
    return number


def _forget(table: Table, ids: Sequence[str]) -> int | None:
    for _ in range(REFUSALS_MAX):
        files = table.state().files
        left = tuple(name for name in ids if name in files)
        if not left:
            # Another collector was here.
            return None
        outcome = table.try_commit(ForgetFiles(left))
        if not isinstance(outcome, NotCommitted):
            return number_of(outcome, f"table {table.name}")
    return None
