"""An OpenTelemetry collector for tests: a server that decodes what it is sent."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What came so far."""

    def __init__(self, url):
        self.url = url
        self.spans = []
        self.metrics = {}
        self.resource = {}
        self.headers = []

    def take(self, path, data, headers):
        self.headers.append(headers)
        if path == "/v1/traces":
            for sent in ExportTraceServiceRequest.FromString(data).resource_spans:
                self.spans += [span for scope in sent.scope_spans for span in scope.spans]
        else:
            assert path == "/v1/metrics", path
            for sent in ExportMetricsServiceRequest.FromString(data).resource_metrics:
                self.resource = attributes(sent.resource)
                self.metrics |= {metric.name: metric for scope in sent.scope_metrics for metric in scope.metrics}

    def named(self, name):
        return [span for span in self.spans if span.name == name]

    def point(self, name, **labels):
        metric = self.metrics[name]
        points = getattr(metric, metric.WhichOneof("data")).data_points
        return next(point for point in points if attributes(point) == labels)


def attributes(of):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}


@contextmanager
def collecting():
    class Answering(BaseHTTPRequestHandler):
        def do_POST(self):
            collector.take(self.path, self.rfile.read(int(self.headers["Content-Length"])), dict(self.headers))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
