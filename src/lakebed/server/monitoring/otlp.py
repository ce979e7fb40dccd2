"""Sends the metrics and traces of a service to an OpenTelemetry collector, by OTLP over HTTP.

The metrics are those of ``/metrics``, with the same names, values and labels: they are collected once a minute from the
same registry. Headers, such as a token for the collector, and a certificate come from the standard environment
variables (``OTEL_EXPORTER_OTLP_HEADERS``, ``OTEL_EXPORTER_OTLP_CERTIFICATE``), the interval from
``OTEL_METRIC_EXPORT_INTERVAL``, and more attributes of the resource from ``OTEL_RESOURCE_ATTRIBUTES``.

Traces are spans of HTTP requests, reads, commits and maintenance. A request with a trace context (W3C, ``traceparent``)
continues that trace. Requests to the store are recorded only inside other spans, because a service polls for new
entries all the time. Spans are sent in batches by a thread; if the collector is unavailable they are dropped.
Attributes of HTTP follow the semantic conventions of OpenTelemetry 1.23; others begin with ``lakebed.``.

Core types: :class:`Otlp`, :class:`Traces`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
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
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lakebed import clock
from lakebed.errors import Code
from lakebed.model.version import VERSION
from lakebed.storage import telemetry

if TYPE_CHECKING:
    from opentelemetry.trace import Span as TraceSpan
    from prometheus_client import Metric as Family
    from prometheus_client.samples import Sample

    from lakebed.server.monitoring.monitor import Monitor
    from lakebed.storage.telemetry import Ended, Labels
    from lakebed.table.instance import Instance

_LOG = logging.getLogger("lakebed.monitoring")

INTERVAL_MS = "60000"
"""Default interval between two sends; that of OpenTelemetry's own exporters."""

TIMEOUT_S = 3.0
"""Time limit of one send with its retries: a service that ends does not wait long for an unavailable collector."""

CUMULATIVE = AggregationTemporality.CUMULATIVE

REQUEST, STORAGE = "http_request", "storage_request"

KINDS = {REQUEST: SpanKind.SERVER, STORAGE: SpanKind.CLIENT}

ATTRIBUTES = {
    "method": "http.request.method",
    "route": "http.route",
    "status": "http.response.status_code",
    "table": "lakebed.table",
    "kind": "lakebed.read.kind",
    "operation": "lakebed.operation",
    "outcome": "lakebed.outcome",
}
"""The attributes of the labels of spans."""


class Traces:
    """Sends spans to a collector. Safe to use from many threads."""

    def __init__(
        self, url: str, resource: Resource, names: Callable[[], Mapping[str, str]], *, timeout_s: float
    ) -> None:
        """``url`` accepts OTLP over HTTP, such as ``http://localhost:4318``; ``names`` returns tables' names by id."""
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces", timeout=timeout_s)))
        self._tracer = self._provider.get_tracer("lakebed", VERSION)
        self._names = names
        self._propagator = TraceContextTextMapPropagator()

    def measured(self, name: str, value: float, labels: Labels) -> None:
        """Ignored: values belong to metrics."""

    def begun(self, name: str, labels: Labels, *, nests: bool = True) -> Ended | None:
        """Begin a span: a child of the current span of this thread, else of the caller's."""
        parent: context.Context | None = None
        if name == REQUEST and (sent := telemetry.trace_parent.get()):
            parent = self._propagator.extract({"traceparent": sent})
        elif name == STORAGE and not trace.get_current_span().is_recording():
            return None
        span = self._tracer.start_span(name, parent, KINDS.get(name, SpanKind.INTERNAL))
        token = context.attach(trace.set_span_in_context(span)) if nests else None

        def ended(error: BaseException | None) -> None:
            if token is not None:
                context.detach(token)
            self._describe(span, name, labels)
            if error is not None:
                span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
            span.end()

        return ended

    def _describe(self, span: TraceSpan, name: str, labels: Labels) -> None:
        for label, value in labels.items():
            said: str | int = self._names().get(value, value) if label == "table" else value
            if label == "status":
                said = int(value)
                if said >= 500:
                    span.set_status(Status(StatusCode.ERROR))
            span.set_attribute(ATTRIBUTES.get(label, f"lakebed.{label}"), said)
        if name == REQUEST:
            span.update_name(f"{labels['method']} {labels['route']}")

    def close(self) -> None:
        """Send the remaining spans, for at most ten seconds."""
        self._provider.force_flush(10_000)
        self._provider.shutdown()


class Otlp:
    """Sends metrics periodically, and traces, between :meth:`start` and :meth:`stop`."""

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

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def stop(self) -> None:
        """Send the rest, and stop."""
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
            # The exporter logs a missing answer, and the next send has the same counters.
            self._exporter.export(metrics_data(self._monitor.families(), self._resource, self._began_ns))
        except Exception:  # noqa: BLE001 - logged; the service goes on without its collector
            _LOG.exception("the metrics cannot be sent")


def _now_ns() -> int:
    return int(clock.now().timestamp() * 1e9)


def metrics_data(families: Any, resource: Resource, began_ns: int) -> MetricsData:
    """Convert families of Prometheus to metrics of OpenTelemetry; counts begin at ``began_ns``."""
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
    """Return a point for each set of labels; a bucket of Prometheus includes the buckets below it."""
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
        # Minimum and maximum are unknown; the field is optional in the protocol.
        unknown: Any = None
        points.append(
            HistogramDataPoint(
                dict(labels), began_ns, now_ns, count, total, counts, bounds[:-1], min=unknown, max=unknown
            )
        )
    return points
