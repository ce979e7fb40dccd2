"""The operations that maintain a table, as a service and ``lakebed maintain`` name them."""

from __future__ import annotations

from enum import StrEnum


class TableOperation(StrEnum):
    """One kind of work on one table; each can be paused."""

    INGEST = "ingest"
    """Adds the files of open requests."""

    COMPACTION = "compaction"
    """Merges the runs of partitions."""

    SPLITTING = "splitting"
    """Cuts large partitions and joins small ones."""

    REFRESH = "refresh"
    """Feeds a view from its source."""

    GC = "gc"
    """Deletes what no version needs, truncates the log, and lets rows age off."""
