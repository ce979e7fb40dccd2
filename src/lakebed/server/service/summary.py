"""The part of a table's state that a service keeps: sums for display, and due operations. Pure: no I/O.

A summary is small, so a service with many tables keeps one for each, and releases the states of idle tables.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakebed.model.settings import ICEBERG_FORMATS
from lakebed.model.state.sums import partition_sums, unreferenced_files
from lakebed.model.table_summary import Backlog, TableSummary
from lakebed.server.service.status import TableStatus
from lakebed.upkeep.compaction.plan import plan as plan_compaction
from lakebed.upkeep.compaction.plan import pressing, runs_piled, why_wait
from lakebed.upkeep.splitting.plan import due as due_splits
from lakebed.upkeep.splitting.plan import small

if TYPE_CHECKING:
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import TableState


def described(table: TableStatus, summary: TableSummary, oldest_s: float | None) -> TableStatus:
    """Return the status of a table with what its summary has; ``oldest_s`` is the age of its oldest open request."""
    return replace(
        table,
        version=summary.version,
        rows=summary.rows,
        size_bytes=summary.size_bytes,
        partitions=summary.partitions,
        files=summary.files,
        files_per_partition_mean=summary.files / max(1, summary.partitions),
        files_per_partition_max=summary.files_max,
        unreferenced_files=summary.unreferenced_files,
        unreferenced_bytes=summary.unreferenced_bytes,
        backlog=replace(summary.backlog, oldest_s=oldest_s),
    )


def summarise(state: TableState, settings: Settings, *, online: bool) -> TableSummary:
    """Return the summary of a state. Due compactions, splits and joins are computed only for ``online`` tables.

    Linear in the partitions.
    """
    sums, unreferenced = partition_sums(state), unreferenced_files(state)
    requests = list(state.open_requests.values())
    compaction = plan_compaction(state, settings) if online else None
    merges = () if compaction is None else (*compaction.whole, *compaction.merges)
    concatenations = () if compaction is None else compaction.concatenations
    return TableSummary(
        version=state.version,
        rows=sum(one.rows for one in sums.values()),
        size_bytes=sum(one.size_bytes for one in sums.values()),
        partitions=len(state.partitions.ids),
        files=sum(one.files for one in sums.values()),
        files_max=max((one.files for one in sums.values()), default=0),
        backlog=Backlog(
            requests=len(requests),
            files=sum(len(request.files) for request in requests),
            size_bytes=sum(request.size_bytes for request in requests),
            runs_due=sum(merge.runs for merge in merges) + sum(one.runs for one in concatenations),
            bytes_due=sum(merge.size_bytes for merge in merges),
        ),
        oldest_request=min((request.submitted for request in requests), default=0),
        ingest_bytes_min=settings.ingest_bytes_min,
        ingest_age_s=settings.ingest_age_s,
        jobs=len(state.jobs),
        splits=len(due_splits(state, settings).large) if online else 0,
        joins=len(small(state, settings)) if online else 0,
        # A partition that is near its bound of runs refuses what ingest adds: then ingest waits for compaction.
        crowded=why_wait(len(requests), 0) is not None and not pressing(state, settings),
        piled=compaction is not None and any(sums[one].runs > runs_piled(settings) for one in compaction.partitions),
        unreferenced_files=unreferenced.files,
        unreferenced_bytes=unreferenced.size_bytes,
        ages=state.row_filter.age_field != 0,
        source=None if state.view is None else state.view.table,
        fed=0 if state.view is None else state.view.version,
        published=settings.publish in ICEBERG_FORMATS and not state.is_index,
    )
