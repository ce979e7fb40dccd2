"""How tests delete orphans: as the command does, which fails if something is in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.upkeep.retention import orphans

if TYPE_CHECKING:
    from lakebed.table.table import Table


def delete_orphans(table: Table, *, dry_run: bool = False, force: bool = False) -> orphans.OrphanReport:
    """Delete the orphans of a table. Raises RejectedError if doubts kept it from deleting."""
    report = orphans.delete_orphans(table, dry_run=dry_run, force=force)
    if report.refused:
        raise orphans.refusal(report)
    return report
