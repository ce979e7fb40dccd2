"""Sends the metrics and traces of a service to an OpenTelemetry collector, by OTLP over HTTP.

The metrics are those of ``/metrics``, with the same names, values and labels: they are collected once a minute from the
same registry. Headers, such as a token for the collector, and a certificate are taken from the standard environment
variables (``OTEL_EXPORTER_OTLP_HEADERS``, ``OTEL_EXPORTER_OTLP_CERTIFICATE``), the interval from
``OTEL_METRIC_EXPORT_INTERVAL``, and more attributes of the resource from ``OTEL_RESOURCE_ATTRIBUTES``.

Core type: :class:`Otlp`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Self

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from lakebed import clock
from lakebed.errors import Code
from lakebed.monitoring.traces import Traces
from lakebed.version import VERSION

if TYPE_CHECKING:
    from types import TracebackType

    from prometheus_client import Metric as Family
    from prometheus_client.samples import Sample

    from lakebed.monitoring.monitor import Monitor
    from lakebed.table.instance import Instance

_LOG = logging.getLogger("lakebed.monitoring")

INTERVAL_MS = "60000"
"""Between two sends, by default; that of OpenTelemetry's own exporters."""

TIMEOUT_S = 3.0
"""For one send with its retries: a service that ends does not wait long for a collector that is gone."""

CUMULATIVE = AggregationTemporality.CUMULATIVE


class Otlp:
    """Sends metrics from time to time, and traces, between :meth:`start` and :meth:`stop`."""

    def __init__(self, url: str, instance: Instance, monitor: Monitor) -> None:
        """``url`` is that of the collector, without a path: ``http://localhost:4318``. Raises UsageError."""
        if not url.startswith(("http://", "https://")):
            raise Code.URL_INVALID(f"--otlp {url}: must begin with http:// or https://, as in http://localhost:4318")
        base = url.rstrip("/")
        interval_ms = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", INTERVAL_MS)
        if not interval_ms.isdecimal() or not int(interval_ms):
            raise Code.ARGUMENT_INVALID(
                f"OTEL_METRIC_EXPORT_INTERVAL = {interval_ms!r}: must be a number of milliseconds"
            )
        self._interval_s = int(interval_ms) / 1000
        self._resource = Resource.create(
            {"service.name": "lakebed", "service.version": VERSION, "lakebed.instance": instance.id}
        )
        self._traces = Traces(base, self._resource, instance.known_tables, timeout_s=TIMEOUT_S)
        self._exporter = OTLPMetricExporter(f"{base}/v1/metrics", timeout=TIMEOUT_S)
        self._monitor = monitor
        self._began_ns = _now_ns()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lakebed-otlp", daemon=True)
        monitor.add_sink(self._traces)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send what is left, and end."""
        self._stopping.set()
        self._thread.join()
        self._send()
        self._exporter.shutdown()
        self._traces.close()

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            self._send()

    def _send(self) -> None:
        try:
            # The exporter logs an answer that is none, and the next send has the same counters.
            self._exporter.export(metrics_data(self._monitor.families(), self._resource, self._began_ns))
        except Exception:  # noqa: BLE001 - logged; the service goes on without its collector
            _LOG.exception("the metrics cannot be sent")


def _now_ns() -> int:
    return int(clock.now().timestamp() * 1e9)


def metrics_data(families: Any, resource: Resource, began_ns: int) -> MetricsData:
    """Families of Prometheus as metrics of OpenTelemetry; counters and histograms count from ``began_ns`` on."""
    now_ns = _now_ns()
    metrics = [_metric(family, began_ns, now_ns) for family in families if family.samples]
    scope = ScopeMetrics(InstrumentationScope("lakebed", VERSION), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, began_ns: int, now_ns: int) -> Metric:
    unit = "s" if family.name.endswith("_seconds") else "By" if family.name.endswith("_bytes") else "1"
    data: Gauge | Histogram | Sum
    if family.type == "histogram":
        data = Histogram(_histogram_points(family.samples, began_ns, now_ns), CUMULATIVE)
    else:
        points = [NumberDataPoint(dict(one.labels), began_ns, now_ns, one.value) for one in family.samples]
        data = Sum(points, CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(points)
    return Metric(family.name, family.documentation, unit, data)


def _histogram_points(samples: list[Sample], began_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    """A point for each set of labels; the buckets of Prometheus include those below them."""
    grouped: dict[tuple[tuple[str, str], ...], dict[str, float]] = defaultdict(dict)
    for sample in samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        grouped[labels][sample.labels.get("le", sample.name.rpartition("_")[2])] = sample.value
    points = []
    for labels, values in grouped.items():
        total, count = values.pop("sum"), int(values.pop("count"))
        bounds = sorted(float(bound) for bound in values)
        reached = [int(value) for _, value in sorted(values.items(), key=lambda one: float(one[0]))]
        counts = [above - below for below, above in zip([0, *reached], reached, strict=False)]
        # Least and largest are not known; the field is optional in the protocol.
        unknown: Any = None
        points.append(
            HistogramDataPoint(
                dict(labels), began_ns, now_ns, count, total, counts, bounds[:-1], min=unknown, max=unknown
            )
        )
    return points
