"""A service of one instance: maintains its online tables, and answers through doors such as HTTP.

Core types: :class:`Service`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Self

from lakebed import clock
from lakebed.service.status import Backlog, ServiceStatus, SparkState, TableStatus
from lakebed.service.summary import TableSummary, summarise
from lakebed.table.instance import Instance
from lakebed.version import VERSION


class Service:
    """Maintenance in the background, from :meth:`start` to :meth:`stop`, and the instance that doors read."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._started_at: datetime | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin."""
        self._started_at = clock.now()

    def stop(self) -> None:
        """End what is under way, and return when nothing runs any more."""

    def status(self) -> ServiceStatus:
        """What the service knows and does now."""
        tables = []
        for name in self.instance.tables():
            table = self.instance.table(name)
            online = self.instance.is_online(name)
            summary = summarise(table.state(), table.settings_in_force(), online=online)
            tables.append(status_of(TableStatus(table.id, name, online), summary))
        return ServiceStatus(self._started_at, VERSION, SparkState.NONE, (), tuple(tables))


def status_of(table: TableStatus, summary: TableSummary) -> TableStatus:
    """The status of a table with what its summary has."""
    backlog = Backlog(
        summary.requests,
        summary.request_files,
        summary.request_bytes,
        None,
        summary.runs_due,
        summary.bytes_due,
    )
    return replace(
        table,
        version=summary.version,
        rows=summary.rows,
        size_bytes=summary.size_bytes,
        partitions=summary.partitions,
        files=summary.files,
        files_per_partition_mean=summary.files / max(1, summary.partitions),
        files_per_partition_max=summary.files_max,
        backlog=backlog,
    )
