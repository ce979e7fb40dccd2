"""The operations that maintain a table, as named by a service and by ``lakebed maintain``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from lakebed.errors import Code
from lakebed.model.checks import shown


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
    """Deletes files that no version needs, truncates the log, and raises the cut of the age-off."""


def operations_named(names: Sequence[object]) -> tuple[TableOperation, ...]:
    """Return the operations of these names; all of them if no name is given. Raises UsageError for an unknown name."""
    for name in names:
        if not isinstance(name, str) or name not in tuple(TableOperation):
            raise Code.ARGUMENT_INVALID(f"unknown operation {shown(name)}; operations: {', '.join(TableOperation)}")
    return tuple(TableOperation(str(name)) for name in names) or tuple(TableOperation)
