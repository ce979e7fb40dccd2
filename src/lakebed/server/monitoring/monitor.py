"""The metrics of a service, for Prometheus: measurements since it started, and its current state.

Core types: :class:`Monitor` receives the measurements of :mod:`lakebed.storage.telemetry`, and collects gauges from the
status of the service when the text is requested. Collecting makes no request to the store. Each monitor has a registry
of its own, so metrics that another library registers are not published.

:class:`TableLabels`: each value of the label ``table`` makes hundreds of series, so an instance of 10,000 tables cannot
have one for each. The tables that were created first have labels of their own, until they are dropped or renamed; all
others share :data:`OTHERS`. Their counts are summed, and of other values the largest is kept.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from lakebed import clock
from lakebed.files.parquet.read_cache import CacheKind, read_cache_stats
from lakebed.log.segments import STATE_CACHE
from lakebed.model.version import VERSION
from lakebed.server.monitoring.definitions import (
    FOLLOWER_GAUGES,
    MEASURED,
    SERVICE_GAUGES,
    TABLE_GAUGES,
    Metric,
    MetricKind,
)
from lakebed.server.service.recent_reads import KINDS
from lakebed.server.service.status import FollowerState, SparkState
from lakebed.storage import telemetry
from lakebed.storage.disk_cache import USE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from prometheus_client import Metric as Family

    from lakebed.server.service.room import Room
    from lakebed.server.service.service import Service
    from lakebed.server.service.status import OperationStatus, ServiceStatus, TableStatus
    from lakebed.storage.telemetry import Ended, Labels, Sink


OTHERS = "(others)"
"""The label of all other tables; parentheses are not allowed in names of tables."""

CATALOG = "(catalog)"
"""The label of the log of the catalog."""


class TableLabels:
    """Labels by table id. Safe to use from many threads."""

    def __init__(self, tables_max: int, catalog: str, names: Callable[[], Mapping[str, str]]) -> None:
        """``catalog`` is the identity of the catalog's log; ``names`` returns the names of all tables by id."""
        self._tables_max = tables_max
        self._names = names
        self._own: dict[str, str] = {"": "", catalog: CATALOG}
        self._kept = len(self._own)
        self._unlabelled: Collection[str] = ()
        self._changing = threading.Lock()

    def of(self, table_id: str) -> str:
        """Return the label of a table."""
        label = self._own.get(table_id)
        if label is None:
            if table_id not in self._unlabelled:
                self.refresh()
            label = self._own.get(table_id, OTHERS)
        return label

    def refresh(self) -> list[str]:
        """Assign labels to new tables up to the maximum; return the labels that no table has any more."""
        names = self._names()
        with self._changing:
            own = dict(list(self._own.items())[: self._kept])
            gone = [name for table, name in self._own.items() if table not in own and names.get(table) != name]
            # Ids begin with the time of creation. Tables that have a label keep it.
            known = [table for table in self._own if names.get(table) == self._own[table]]
            for table in (*known, *sorted(names)):
                if len(own) - self._kept >= self._tables_max:
                    break
                if table in names:
                    own.setdefault(table, names[table])
            self._own, self._unlabelled = own, names.keys() - own.keys()
        return gone

    @property
    def unlabelled(self) -> int:
        """The number of tables without a label of their own."""
        return len(self._unlabelled)


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
            self._add_subscribers(values, status)
            _add_followers(values, status)
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
        for metric in (*TABLE_GAUGES, *FOLLOWER_GAUGES, *SERVICE_GAUGES):
            yield _family(metric, values[metric.name])

    def _add_table(self, values: dict[str, Values], table: TableStatus, now: datetime) -> None:
        label = self._labels.of(table.id)
        for name, value in _of_table(table).items():
            _merge(values[name], name, (label,), value)
        for operation in table.operations:
            for name, value in _of_operation(operation, now).items():
                _merge(values[name], name, (label, operation.operation), value)

    def _add_subscribers(self, values: dict[str, Values], status: ServiceStatus) -> None:
        """Add how far hooks and views are behind their tables."""
        versions = {table.id: table.version for table in status.tables}
        found = [("table_view_lag_versions", *one) for one in self._service.view_lags().items()]
        for hook in status.hooks:
            lag = max(0, versions.get(hook.table, 0) - hook.delivered)
            found += [("table_hook_failures", hook.table, hook.failures), ("table_hook_lag_versions", hook.table, lag)]
        lags = [(table.id, table.published_lag) for table in status.tables]
        found += [("table_publication_lag_versions", one, lag) for one, lag in lags if lag is not None]
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
    for operation, count in collections.Counter(one.operation for one in status.work).items():
        values["service_work"][(operation,)] = count


def _add_followers(values: dict[str, Values], status: ServiceStatus) -> None:
    for one in status.followers:
        follows = one.state in (FollowerState.FOLLOWING, FollowerState.ELSEWHERE) and one.error is None
        found: dict[str, float] = {
            "follower_following": follows,
            "follower_lag_seconds": one.lag_s,
            "follower_changes": one.changes,
            "follower_dead_letters": one.dead_letters,
            "follower_failures": one.failures,
            "follower_parked": one.state in (FollowerState.PARKED, FollowerState.DAMAGED),
            "follower_paused": one.state is FollowerState.PAUSED,
        }
        for name, value in found.items():
            values[name][one.name,] = value
        if one.behind_unit:
            values["follower_behind"][one.name, one.behind_unit] = one.behind


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
    values["cache_hits_total"][("disk",)] = USE.hits
    values["cache_misses_total"][("disk",)] = USE.misses
    values["cache_saved_bytes_total"][("disk",)] = USE.hit_bytes


def _family(metric: Metric, values: Values) -> Family:
    made = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = made(metric.full_name, metric.help, labels=metric.labels)
    for labels, value in sorted(values.items()):
        family.add_metric(labels, float(value))
    return family


TABLES_MAX = 100
"""Maximum tables with labels of their own. Each has 100 to 300 series, most of them buckets of reads and commits."""

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

# Disabled because a series for the start of each counter would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Monitor:
    """The metrics of one service. Safe to use from many threads."""

    def __init__(self, service: Service, *, tables_max: int = TABLES_MAX, public: bool = False) -> None:
        """``public``: whether the metrics can be read without a token."""
        self.public = public
        instance = service.instance
        self._labels = TableLabels(tables_max, instance.id, instance.known_tables)
        self._registry = CollectorRegistry(auto_describe=False)
        self._metrics = {metric.name: _made(metric, self._registry) for metric in MEASURED}
        self._label_names = {metric.name: metric.labels for metric in MEASURED}
        self._children: dict[tuple[object, ...], Callable[[float], None]] = {}
        self._gauges = ServiceGauges(service, self._labels)
        self._registry.register(self._gauges)
        ProcessCollector(registry=self._registry)
        self.answering = self._gauges.answering
        self.watch = self._gauges.watch
        self._reads = service.reads
        self._sinks: list[Sink] = [self]

    # -- what is measured -----------------------------------------------------------------------------------------

    def measured(self, name: str, value: float, labels: Labels) -> None:
        """Add a value to its metric; an unpublished measure is ignored."""
        if name == "read_seconds" and labels["kind"] in KINDS:
            self._reads.add(value)
        elif name == "read_errors_total" and labels["kind"] in KINDS:
            self._reads.fail()
        key = (name, *labels.items())
        take = self._children.get(key)
        if take is None:
            if name not in self._metrics:
                return
            table = self._labels.of(labels["table"]) if "table" in labels else None
            take = self._child(name, labels, table)
            # A table has no name yet while it is created, and may get a label later.
            if table != OTHERS:
                self._children[key] = take
        take(value)

    def begun(self, name: str, labels: Labels, *, nests: bool = True) -> Ended | None:  # noqa: ARG002 - for traces
        """Begin a span, which is measured only at its end."""
        return None

    def _child(self, name: str, labels: Labels, table: str | None) -> Callable[[float], None]:
        metric = self._metrics[name]
        values = [table or "" if one == "table" else labels.get(one, "") for one in self._label_names[name]]
        child = metric.labels(*values) if values else metric
        match child:
            case Histogram():
                return child.observe
            case Gauge():
                return child.set
            case _:
                return child.inc

    # -- in the process -------------------------------------------------------------------------------------------

    def add_sink(self, sink: Sink) -> None:
        """Forward everything to another sink, such as one for traces. Call it before :meth:`install`."""
        self._sinks.append(sink)

    def install(self) -> None:
        """Receive the measurements of this process from now on."""
        telemetry.install(self if len(self._sinks) == 1 else telemetry.Several(*self._sinks))

    def uninstall(self) -> None:
        """Stop receiving measurements."""
        telemetry.install(None)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Receive the measurements of this process in the block."""
        self.install()
        try:
            yield
        finally:
            self.uninstall()

    # -- what is published ----------------------------------------------------------------------------------------

    def text(self) -> bytes:
        """Return all metrics in the text format, of :data:`CONTENT_TYPE`."""
        self._forget_dropped()
        return generate_latest(self._registry)

    def families(self) -> Iterable[Family]:
        """Return all metrics as values."""
        self._forget_dropped()
        return self._registry.collect()

    def _forget_dropped(self) -> None:
        """Remove the series of tables that were dropped or renamed, which would otherwise stay forever."""
        gone = self._labels.refresh()
        if gone:
            for name, labels in self._label_names.items():
                if "table" in labels:
                    for label in gone:
                        self._metrics[name].remove_by_labels({"table": label})
        # Also moves a table that has got its own label since to that label.
        self._children = {}


def _made(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    match metric.kind:
        case MetricKind.HISTOGRAM:
            return Histogram(metric.full_name, metric.help, metric.labels, registry=registry, buckets=metric.buckets)
        case MetricKind.COUNTER:
            return Counter(metric.full_name, metric.help, metric.labels, registry=registry)
        case MetricKind.GAUGE:
            return Gauge(metric.full_name, metric.help, metric.labels, registry=registry)
