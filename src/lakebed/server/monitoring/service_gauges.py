"""Gauges of a service, computed from its status when they are collected: its tables, its loop, its caches.

Tables without a label of their own are aggregated: counts are summed, and of other values the largest is kept. Makes no
request to the store.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from lakebed import clock
from lakebed.files.parquet.read_cache import CacheKind, read_cache_stats
from lakebed.log.segments import STATE_CACHE
from lakebed.model.version import VERSION
from lakebed.server.monitoring.definitions import SERVICE_GAUGES, TABLE_GAUGES, MetricKind
from lakebed.server.service.status import SparkState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from prometheus_client import Metric as Family

    from lakebed.server.monitoring.definitions import Metric
    from lakebed.server.monitoring.table_labels import TableLabels
    from lakebed.server.service.room import Room
    from lakebed.server.service.service import Service
    from lakebed.server.service.status import OperationStatus, ServiceStatus, TableStatus

_LOG = logging.getLogger("lakebed.monitoring")

LARGEST = (
    "versions",
    "mean",
    "max",
    "seconds",
    "version",
    "unreadable",
    "offline",
    "failures",
    "parked",
    "paused",
    "due",
)
"""The suffixes of gauges whose values are not summed over tables."""

Values = dict[tuple[str, ...], float]


class ServiceGauges(Collector):
    """Collects the gauges of one service."""

    def __init__(self, service: Service, labels: TableLabels) -> None:
        self._service = service
        self._labels = labels
        self._errors = 0
        self._active = 0
        self._rooms: list[Room] = []
        self._changing = threading.Lock()

    def answering(self, change: int) -> None:
        """Count requests being answered: 1 at the start of one, -1 at its end."""
        with self._changing:
            self._active += change

    def watch(self, *rooms: Room) -> None:
        """Publish how full rooms are, from now on."""
        self._rooms.extend(rooms)

    def collect(self) -> Iterator[Family]:
        """Return all families. Those of the tables are missing if the status is unavailable; this is counted."""
        values: dict[str, Values] = defaultdict(dict)
        try:
            status = self._service.status()
        except Exception:  # noqa: BLE001 - counted and logged
            # Whatever the error, the measurements are still published.
            self._errors += 1
            _LOG.exception("the status of the service cannot be collected")
        else:
            _add_service(values, status)
            for table in status.tables:
                self._add_table(values, table, clock.now())
            self._add_followers(values, status)
            values["tables"][()] = len(status.tables)
            values["tables_unlabelled"][()] = self._labels.unlabelled
        values["scrape_errors_total"][()] = self._errors
        values["http_requests_active"][()] = self._active
        values["build"][(VERSION,)] = 1
        for room in self._rooms:
            use = room.use()
            for name in ("used", "capacity", "waiting"):
                values[f"room_{name}"][(room.name,)] = getattr(use, name)
            values["room_refused_total"][(room.name,)] = use.refused
        _add_caches(values)
        for metric in (*TABLE_GAUGES, *SERVICE_GAUGES):
            yield _family(metric, values[metric.name])

    def _add_table(self, values: dict[str, Values], table: TableStatus, now: datetime) -> None:
        label = self._labels.of(table.id)
        for name, value in _of_table(table).items():
            _merge(values[name], name, (label,), value)
        for operation in table.operations:
            for name, value in _of_operation(operation, now).items():
                _merge(values[name], name, (label, operation.operation), value)

    def _add_followers(self, values: dict[str, Values], status: ServiceStatus) -> None:
        """Add how far hooks and views are behind their tables."""
        versions = {table.id: table.version for table in status.tables}
        found = [("table_view_lag_versions", *one) for one in self._service.view_lags().items()]
        for hook in status.hooks:
            lag = max(0, versions.get(hook.table, 0) - hook.delivered)
            found += [("table_hook_failures", hook.table, hook.failures), ("table_hook_lag_versions", hook.table, lag)]
        for name, table_id, value in found:
            _merge(values[name], name, (self._labels.of(table_id),), value)


def _merge(values: Values, name: str, key: tuple[str, ...], value: float) -> None:
    present = values.get(key)
    if present is None:
        values[key] = value
    else:
        values[key] = max(present, value) if name.endswith(LARGEST) else present + value


def _of_table(table: TableStatus) -> dict[str, float]:
    backlog = table.backlog
    found: dict[str, float] = {
        "table_unreadable": table.error is not None,
        "table_offline": not table.online,
    }
    if not table.version:
        # Not read yet: zeros would look like an empty table.
        return found
    return found | {
        "table_version": table.version,
        "table_rows": table.rows,
        "table_bytes": table.size_bytes,
        "table_files": table.files,
        "table_partitions": table.partitions,
        "table_partition_files_mean": table.files_per_partition_mean,
        "table_partition_files_max": table.files_per_partition_max,
        "table_backlog_requests": backlog.requests,
        "table_backlog_files": backlog.files,
        "table_backlog_bytes": backlog.size_bytes,
        "table_backlog_oldest_seconds": backlog.oldest_s or 0.0,
        "table_compaction_due_runs": backlog.runs_due,
        "table_compaction_due_bytes": backlog.bytes_due,
    }


def _of_operation(status: OperationStatus, now: datetime) -> dict[str, float]:
    waiting = status.waiting_since
    return {
        "operation_due": status.due is not None,
        "operation_failures": status.failures_in_a_row,
        "operation_parked": status.parked,
        "operation_paused": status.paused,
        "operation_waiting_seconds": 0.0 if waiting is None else max(0.0, (now - waiting).total_seconds()),
    }


def _add_service(values: dict[str, Values], status: ServiceStatus) -> None:
    if status.started_at is not None:
        values["service_start_time_seconds"][()] = status.started_at.timestamp()
    values["service_maintains"][()] = status.maintains
    values["service_catalog_unreadable"][()] = status.error is not None
    for state in SparkState:
        values["service_spark"][(state.value,)] = state is status.spark
    for operation, count in Counter(one.operation for one in status.work).items():
        values["service_work"][(operation,)] = count


def _add_caches(values: dict[str, Values]) -> None:
    read = read_cache_stats()
    for kind in CacheKind:
        stats, label = getattr(read, kind.value), (f"read_{kind.value}",)
        values["cache_hits_total"][label] = stats.hits
        values["cache_misses_total"][label] = stats.misses
        values["cache_entries"][label] = stats.entries
        values["cache_bytes"][label] = stats.size_bytes
    values["cache_hits_total"][("state",)] = STATE_CACHE.hits
    values["cache_misses_total"][("state",)] = STATE_CACHE.misses
    values["cache_bytes"][("state",)] = STATE_CACHE.size_bytes


def _family(metric: Metric, values: Values) -> Family:
    made = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = made(metric.full_name, metric.help, labels=metric.labels)
    for labels, value in sorted(values.items()):
        family.add_metric(labels, float(value))
    return family
