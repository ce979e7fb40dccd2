"""What a round of maintenance reports."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.maintenance.compaction.run import CompactionReport
from lakebed.maintenance.ingest_jobs import IngestReport
from lakebed.maintenance.splitting.run import JoinReport, SplitReport
from lakebed.retention.run import CollectionReport


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What a round of maintenance did, in the order in which it was done; empty parts had nothing to do."""

    table: str
    online: bool
    ingest: IngestReport
    compactions: tuple[CompactionReport, ...]
    splits: tuple[SplitReport, ...]
    joins: tuple[JoinReport, ...]
    collection: CollectionReport
