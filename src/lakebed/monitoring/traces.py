"""Traces for OpenTelemetry: spans of HTTP requests, reads, commits and maintenance, sent by OTLP over HTTP.

:class:`Traces` is a sink of :mod:`lakebed.telemetry`. A request that comes with a trace context (W3C, ``traceparent``)
continues that trace. Requests to the store are recorded as parts of something else only: a service looks for new
entries all the time. Spans are sent in batches by a thread; if the collector is gone they are dropped.

Attributes of HTTP follow the semantic conventions of OpenTelemetry 1.23; others begin with ``lakebed.``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lakebed import telemetry
from lakebed.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Span as TraceSpan

    from lakebed.telemetry import Ended, Labels

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
        """``url`` takes OTLP over HTTP, such as ``http://localhost:4318``; ``names`` returns tables' names by id."""
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces", timeout=timeout_s)))
        self._tracer = self._provider.get_tracer("lakebed", VERSION)
        self._names = names
        self._propagator = TraceContextTextMapPropagator()

    def measured(self, name: str, value: float, labels: Labels) -> None:
        """Values are for metrics."""

    def begun(self, name: str, labels: Labels, *, nests: bool = True) -> Ended | None:
        """Begin a span: a child of the one that is current here, else of the caller's."""
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
        """Send what is left, for at most ten seconds."""
        self._provider.force_flush(10_000)
        self._provider.shutdown()
