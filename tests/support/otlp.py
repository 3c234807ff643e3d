"""A receiver of OTLP: an HTTP server that decodes what is posted, and can be slow or refuse."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

Labels = frozenset[tuple[str, str]]


@dataclass(slots=True)
class Receiver:
    """``answer``: the HTTP status; ``go``: requests are answered only while it is set."""

    port: int
    answer: int = 200
    go: threading.Event = field(default_factory=threading.Event)
    posted: int = 0
    taken: list[ExportMetricsServiceRequest] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def receiver(port: int = 0) -> Iterator[Receiver]:
    """A receiver that takes everything, on a free port or on ``port``."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.headers = {name.lower(): value for name, value in self.headers.items()}
            state.paths.add(self.path)
            state.posted += 1
            state.go.wait()
            if state.answer == 200:
                state.taken.append(ExportMetricsServiceRequest.FromString(body))
            reply = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(state.answer)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: Any) -> None:
            """Not on the tests' stderr."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        state = Receiver(port=server.server_port)
        state.go.set()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield state
        finally:
            state.go.set()
            server.shutdown()


def resource(request: ExportMetricsServiceRequest) -> dict[str, str]:
    """The attributes of the one resource."""
    (one,) = request.resource_metrics
    return {item.key: item.value.string_value for item in one.resource.attributes}


def metrics(request: ExportMetricsServiceRequest) -> dict[str, Any]:
    """Its metrics by name; fails where one is there twice."""
    found = [
        metric
        for of_resource in request.resource_metrics
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
    ]
    by_name = {metric.name: metric for metric in found}
    assert len(by_name) == len(found)
    return by_name


def labels(point: Any) -> Labels:
    return frozenset((item.key, item.value.string_value) for item in point.attributes)


def series(request: ExportMetricsServiceRequest) -> dict[tuple[str, str, Labels], float]:
    """What a backend makes of it in Prometheus' terms: type, name of the series, labels, value."""
    found: dict[tuple[str, str, Labels], float] = {}
    for name, metric in metrics(request).items():
        if metric.HasField("gauge"):
            for point in metric.gauge.data_points:
                found["gauge", name, labels(point)] = point.as_double
        elif metric.HasField("sum"):
            assert metric.sum.is_monotonic
            assert metric.sum.aggregation_temporality == 2  # cumulative
            for point in metric.sum.data_points:
                found["counter", name, labels(point)] = point.as_double
        else:
            assert metric.histogram.aggregation_temporality == 2
            for point in metric.histogram.data_points:
                found.update(_buckets(name, point))
    return found


def _buckets(name: str, point: Any) -> Iterator[tuple[tuple[str, str, Labels], float]]:
    own, upto = labels(point), 0
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    for bound, count in zip((*point.explicit_bounds, "+Inf"), point.bucket_counts, strict=True):
        upto += count
        yield ("histogram", f"{name}_bucket", own | {("le", str(bound))}), upto
    yield ("histogram", f"{name}_count", own), point.count
    yield ("histogram", f"{name}_sum", own), point.sum
