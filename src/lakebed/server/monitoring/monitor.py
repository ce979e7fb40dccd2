"""The metrics of a service, for Prometheus: measurements since it started, and its current state.

:class:`Monitor` receives the measurements of :mod:`lakebed.storage.telemetry`, and collects gauges from the status of
the service when the text is requested. Collecting makes no request to the store. Each monitor has a registry of its
own, so metrics that another library registers are not published.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

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
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from lakebed.server.monitoring.definitions import MEASURED, Metric, MetricKind
from lakebed.server.monitoring.service_gauges import ServiceGauges
from lakebed.server.monitoring.table_labels import OTHERS, TableLabels
from lakebed.server.service.recent_reads import KINDS
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import Metric as Family

    from lakebed.server.service.service import Service
    from lakebed.storage.telemetry import Ended, Labels, Sink

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
