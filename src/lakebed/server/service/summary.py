"""The part of a table's state that a service keeps: sums for display, and due operations. Pure: no I/O.

A summary is small, so a service with many tables keeps one for each, and releases the states of idle tables.

Core types: :class:`TableSummary`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakebed.model.state.sums import partition_sums
from lakebed.server.service.status import Backlog, TableStatus
from lakebed.upkeep.compaction.plan import plan as plan_compaction
from lakebed.upkeep.compaction.plan import pressing, runs_piled, why_wait
from lakebed.upkeep.splitting.plan import due as due_splits
from lakebed.upkeep.splitting.plan import small

if TYPE_CHECKING:
    from lakebed.model.settings import Settings
    from lakebed.model.state.table_state import TableState


@dataclass(frozen=True, slots=True)
class TableSummary:
    """A table at ``version``.

    ``rows`` are those of all files, before any merge. ``files`` counts the references of partitions to files.
    ``backlog`` has no age yet; ``oldest_request`` is the version that the oldest open request is on record from.
    ``splits`` and ``joins`` count partitions to be cut and groups to be joined. ``crowded``: compaction waits for
    ingest, because too many requests are open. ``piled``: a partition has more runs than merges should leave, and
    merges are due. ``unused``: there are files without references. ``ages``: rows expire. A view has ``fed``, the
    version of its ``source``, the id of a table, that it has.
    """

    version: int = 0
    rows: int = 0
    size_bytes: int = 0
    partitions: int = 0
    files: int = 0
    files_max: int = 0
    backlog: Backlog = field(default_factory=Backlog)
    oldest_request: int = 0
    ingest_bytes_min: int = 0
    ingest_age_s: int = 0
    jobs: int = 0
    splits: int = 0
    joins: int = 0
    crowded: bool = False
    piled: bool = False
    unused: bool = False
    ages: bool = False
    source: str | None = None
    fed: int = 0


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
        backlog=replace(summary.backlog, oldest_s=oldest_s),
    )


def summarise(state: TableState, settings: Settings, *, online: bool) -> TableSummary:
    """Return the summary of a state. Due compactions, splits and joins are computed only for ``online`` tables.

    Linear in the partitions.
    """
    sums = partition_sums(state)
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
        unused=next(iter(state.files.having("dropped")), None) is not None,
        ages=state.row_filter.age_field != 0,
        source=None if state.view is None else state.view.table,
        fed=0 if state.view is None else state.view.version,
    )
