"""Goal: a process exports a span when it accepts a traced message and another when it delivers it. The metrics name the
last trace of each class of lateness, and the message keeps its `traceparent`.

Method: a process with `traces = opentelemetry` exports to a collector in the test, which implements OTLP over HTTP.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from postdate.wire.headers import AT, TOPIC, Headers
from support.deployments.ports import free_port
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import wait_until
from support.oracles.exactly_once import Sent
from support.waiting.timeouts import WAIT_TIMEOUT_S

_TRACED, _OTHERS = 20, 30
_EXEMPLAR = re.compile(r'^postdate_lateness_seconds_bucket\{.*\} \S+ # \{.*trace_id="([0-9a-f]{32})"', re.MULTILINE)


class Collector(ThreadingHTTPServer):
    """Keeps the exported spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        exported = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        for resource in exported.resource_spans:
            for scope in resource.scope_spans:
                self.server.spans += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def test_traced_messages_have_spans_and_exemplars_and_keep_their_headers(
    deployment: SidecarDeployment, collector: Collector
) -> None:
    requests, target = deployment.new_requests(), deployment.new_target()
    sidecar, port = deployment.new_sidecar(), free_port()
    sidecar.traces = "opentelemetry"
    sidecar.http = {"port": port}
    sidecar.environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    sidecar.start()
    sidecar.wait_for_shards(1)
    sender, due_ms = deployment.sender(), int(time.time() * 1000) + 500
    requested = []
    for number in range(_TRACED + _OTHERS):
        headers: Headers = [(TOPIC, target.encode()), (AT, b"%d" % due_ms)]
        if number < _TRACED:
            headers.append(("traceparent", b"00-%032x-%016x-01" % (number + 1, number + 1)))
        requested.append(sender.send(requests, Sent(target, b"k", b"v%d" % number, headers, due_ms)))
    sender.flush()
    deployment.wait_for_ends(len(requested))
    wait_until(lambda: len(collector.spans) >= 2 * _TRACED, "all spans are exported")
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_TIMEOUT_S)
    connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    metrics = connection.getresponse().read().decode()
    connection.close()
    assert sidecar.stop() == 0
    deployment.judge(requested)  # also checks that each header is unchanged
    for name in (f"accept {requests}", f"deliver {target}"):
        spans = [span for span in collector.spans if span.name == name]
        linked = sorted(int.from_bytes(link.trace_id) for span in spans for link in span.links)
        assert linked == list(range(1, _TRACED + 1)), name
        assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    assert len(collector.spans) == 2 * _TRACED
    delivered = {span.trace_id.hex() for span in collector.spans if span.name == f"deliver {target}"}
    exemplars = _EXEMPLAR.findall(metrics)
    assert exemplars
    assert set(exemplars) <= delivered
    assert metrics.endswith("# EOF\n")
