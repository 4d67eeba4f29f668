"""Goal: a message with a sampled `traceparent` gets one span when it is accepted and one when it is delivered, each
linked to its producer. Other messages get no span, and a full queue delays nobody.

Method: the queue, real requests ingested into a timer index, and the SDK's own exporter in memory.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from opentelemetry.trace import SpanKind

from postdate.kafka.interface import Partition, Record
from postdate.sidecar.config.settings import Config
from postdate.sidecar.context.traced_messages import TraceQueue, trace_context
from postdate.sidecar.counts import LATENESS_BOUNDS_MS
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.sidecar.ingest.ingest import Intake, ingest
from postdate.sidecar.process.span_exporter import SpanThread, exporting_provider, tracing
from postdate.wheel.index import TimerIndex
from postdate.wheel.options import IndexOptions
from postdate.wheel.timer_log.identity import Identity
from postdate.wire.dispatch_log import CANCELLED, DELIVERED, OCCURRED, Fate, Occurred, PlainFate
from postdate.wire.headers import Headers
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.rules import RequestRules

PART = Partition("requests", 3)
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01".encode()
TRACED: Headers = [("traceparent", PARENT)]
UNSAMPLED = PARENT[:-2] + b"00"
NOW_MS = 1_700_000_000_000


def _spans(traces: TraceQueue, sampler: Sampler = ALWAYS_ON) -> tuple[ReadableSpan, ...]:
    """Returns the spans that a thread makes of the queued steps."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    thread = SpanThread(traces, provider)
    thread.start()
    thread.close()
    return exporter.get_finished_spans()


def _delivered(traces: TraceQueue, *headers: Headers, late_ms: int = 7) -> None:
    """Queues one transaction of messages with these headers, from offset 0 on."""
    messages = [(offset, "orders", each) for offset, each in enumerate(headers)]
    fates = [PlainFate(offset, NOW_MS, DELIVERED) for offset in range(len(headers))]
    traces.delivered(PART, messages, fates, [NOW_MS] * len(headers), NOW_MS + late_ms)


def _record(offset: int, *headers: tuple[str, bytes | None], topic: bytes = b"orders") -> Record:
    given = [("postdate-topic", topic), ("postdate-delay", b"1s"), *headers]
    return Record(offset, NOW_MS - 40, False, b"k", b"v", given)


class TestContext:
    @pytest.mark.parametrize(
        ("headers", "expected"),
        [
            ([("traceparent", PARENT)], (PARENT, b"")),
            ([("a", b"1"), ("tracestate", b"x=y"), ("traceparent", PARENT)], (PARENT, b"x=y")),
            ([("traceparent", PARENT[:-1] + b"3")], (PARENT[:-1] + b"3", b"")),
            ([("traceparent", UNSAMPLED)], None),
            ([("traceparent", b"00-4bf9-01")], None),
            ([("traceparent", None)], None),
            ([("Traceparent", PARENT)], None),
            ([("traceparent", b"01" + PARENT[2:] + b"-more")], (b"01" + PARENT[2:] + b"-more", b"")),
            ([("traceparent", b"01" + PARENT[2:] + b"-" + b"x" * 1_000)], None),
            ([("traceparent", PARENT), ("tracestate", b"x=" + b"y" * 510)], (PARENT, b"x=" + b"y" * 510)),
            ([("traceparent", PARENT), ("tracestate", b"x=" + b"y" * 511)], (PARENT, b"")),
            ([], None),
        ],
    )
    def test_only_a_sampled_context_counts(self, headers: Headers, expected: tuple[bytes, bytes] | None) -> None:
        assert trace_context(headers) == expected


class TestSpans:
    @pytest.mark.parametrize("state", [b"a=1,secret", b"\xff=secret", b",".join(b"k%d=1" % n for n in range(40))])
    def test_a_malformed_trace_state_is_not_logged(self, state: bytes, caplog: pytest.LogCaptureFixture) -> None:
        """The trace state may contain the producer's data, and one line for each message would fill the log."""
        traces = TraceQueue()
        _delivered(traces, [("traceparent", PARENT), ("tracestate", state)])
        (span,) = _spans(traces)
        (link,) = span.links
        assert not link.context.trace_state
        assert caplog.records == []

    def test_a_request_from_the_future_gets_a_span_that_can_be_exported(self) -> None:
        """The producer wrote microseconds as its timestamp. Such a time in one span would make the exporter drop all
        spans of its batch."""
        traces = TraceQueue()
        record = Record(1, NOW_MS * 1_000, False, b"k", b"v", TRACED)
        headers: Headers = [("postdate-topic", b"orders"), ("postdate-delay", b"1s"), *TRACED]
        request = parse_request(RequestRules(topic="requests"), 3, record.timestamp_ms, record.key, headers)
        traces.accepted(PART, [(record, request)], NOW_MS)
        (span,) = _spans(traces)
        assert (span.start_time, span.end_time) == (NOW_MS * 1_000_000, NOW_MS * 1_000_000)
        encode_spans([span])

    def test_a_delivery_is_the_root_of_a_trace_with_a_link_to_the_producer(self) -> None:
        traces = TraceQueue()
        _delivered(traces, [("traceparent", PARENT), ("tracestate", b"vendor=1"), ("postdate-origin", b"requests/3/0")])
        (span,) = _spans(traces)
        assert span.parent is None
        assert (span.name, span.kind) == ("deliver orders", SpanKind.PRODUCER)
        (link,) = span.links
        assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == (TRACE, SPAN)
        assert link.context.is_remote
        assert link.context.trace_state.get("vendor") == "1"
        assert span.context is not None
        assert f"{span.context.trace_id:032x}" != TRACE
        assert (span.start_time, span.end_time) == (NOW_MS * 1_000_000, (NOW_MS + 7) * 1_000_000)
        assert span.attributes is not None
        assert span.attributes["postdate.origin"] == "requests/3/0"
        assert span.attributes["postdate.lateness_ms"] == 7
        assert span.attributes["messaging.destination.name"] == "orders"

    def test_the_records_beside_a_delivery_get_no_span(self) -> None:
        """Such records are a verdict on the same request, and a dead letter."""
        traces = TraceQueue()
        traced: Headers = [("traceparent", PARENT)]
        messages = [(0, "orders", traced), (0, "requests.verdicts", traced), (1, "requests.dead-letters", traced)]
        fates = [PlainFate(0, NOW_MS, DELIVERED), PlainFate(2, NOW_MS, CANCELLED)]
        traces.delivered(PART, messages, fates, [NOW_MS], NOW_MS)
        assert [span.name for span in _spans(traces)] == ["deliver orders"]

    def test_each_occurrence_of_a_schedule_gets_a_span(self) -> None:
        traces = TraceQueue()
        traced: Headers = [("traceparent", PARENT)]
        messages = [(0, "orders", traced), (-1, "requests.store", traced), (0, "orders", traced), (1, "orders", traced)]
        fates: list[Fate] = [
            Occurred(0, NOW_MS, OCCURRED, 1, NOW_MS, NOW_MS + 1),
            Occurred(0, NOW_MS, OCCURRED, 2, NOW_MS + 1, NOW_MS + 2),
            PlainFate(1, NOW_MS, DELIVERED),
        ]
        traces.delivered(PART, messages, fates, [NOW_MS, NOW_MS + 1, NOW_MS], NOW_MS + 1)
        spans = _spans(traces)
        assert [(span.attributes or {})["postdate.lateness_ms"] for span in spans] == [1, 0, 1]

    def test_a_request_is_accepted_once_and_a_refused_one_is_not(self, tmp_path: Path) -> None:
        index = TimerIndex.open(tmp_path, Identity("cluster", "r", "l", 3), IndexOptions(), NOW_MS)
        overlay = IndexOverlay(index)
        overlay.advance(next_request=0, next_dispatch=0, seq=0)
        overlay.write()
        traces = TraceQueue()
        intake = Intake(RequestRules(topic="requests", horizon_ms=86_400_000), 3, traces=traces)
        sent = _record(0, ("traceparent", PARENT)).headers
        records = [
            _record(0, ("traceparent", PARENT)),
            _record(1, ("traceparent", PARENT), topic=b"not a topic"),
            _record(2),
            _record(3, ("traceparent", UNSAMPLED)),
            _record(4, ("traceparent", PARENT), ("postdate-action", b"cancel"), ("postdate-id", b"x")),
        ]
        assert ingest(index, intake, records, NOW_MS) == 5
        assert ingest(index, intake, records, NOW_MS) == 5, "read again after a takeover"
        (span,) = _spans(traces)
        assert (span.name, span.kind) == ("accept requests", SpanKind.CONSUMER)
        assert [f"{link.context.span_id:016x}" for link in span.links] == [SPAN]
        assert (span.start_time, span.end_time) == ((NOW_MS - 40) * 1_000_000, NOW_MS * 1_000_000)
        assert span.attributes is not None
        assert span.attributes["postdate.origin"] == "requests/3/0"
        assert span.attributes["postdate.target"] == "orders"
        assert records[0].headers == sent
        index.close()

    def test_the_last_delivery_of_a_class_is_its_exemplar(self) -> None:
        traces = TraceQueue()
        _delivered(traces, [("traceparent", PARENT)], late_ms=5)
        _delivered(traces, [("traceparent", PARENT)], late_ms=6)
        _delivered(traces, [("traceparent", PARENT)], late_ms=9_000_000)
        spans = _spans(traces)
        exemplars = traces.exemplars
        assert exemplars.keys() == {("requests", 0), ("requests", 1), ("requests", len(LATENESS_BOUNDS_MS))}
        assert [exemplars[key].lateness_ms for key in sorted(exemplars)] == [5, 6, 9_000_000]
        assert spans[1].context is not None
        assert exemplars["requests", 1].trace_id == f"{spans[1].context.trace_id:032x}"
        assert exemplars["requests", 1].span_id == f"{spans[1].context.span_id:016x}"

    def test_the_sampler_of_the_sdk_decides(self) -> None:
        traces = TraceQueue()
        _delivered(traces, [("traceparent", PARENT)])
        assert _spans(traces, ALWAYS_OFF) == ()
        assert traces.exemplars == {}

    def test_a_context_of_zeros_makes_no_span(self) -> None:
        traces = TraceQueue()
        _delivered(traces, [("traceparent", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01")], [("traceparent", PARENT)])
        assert len(_spans(traces)) == 1


class TestQueue:
    def test_steps_that_do_not_fit_are_dropped_and_counted(self) -> None:
        traces = TraceQueue(queued_max=3)
        _delivered(traces, *[TRACED] * 2)
        _delivered(traces, *[TRACED] * 4)
        assert traces.dropped == 3
        assert [step.offset for step in traces.next_steps(10, 0.0)] == [0, 1, 0]
        _delivered(traces, [("traceparent", PARENT)])
        assert traces.dropped == 3

    def test_the_queue_is_taken_in_pieces_until_it_is_empty(self) -> None:
        traces = TraceQueue()
        assert traces.next_steps(10, 0.0) == []
        _delivered(traces, *[TRACED] * 3)
        assert [len(traces.next_steps(2, 0.0)) for _ in range(3)] == [2, 1, 0]


class TestSetting:
    def test_tracing_is_off_by_default_and_loads_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(builtins, "__import__", _refuse(builtins.__import__))
        with tracing(Config()) as traces:
            assert traces is None

    def test_missing_packages_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(builtins, "__import__", _refuse(builtins.__import__))
        with pytest.raises(ConfigError, match=r"pip install 'postdate\[otel\]', or set traces = off"):
            exporting_provider(Config(traces="opentelemetry"))

    def test_names_from_the_environment_take_precedence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OTEL_SERVICE_NAME", "reminders")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        provider = exporting_provider(Config(traces="opentelemetry", instance="pod-0"))
        attributes = provider.resource.attributes
        provider.shutdown()
        assert attributes["service.name"] == "reminders"
        assert attributes["service.instance.id"] == "pod-0"
        assert attributes["deployment.environment.name"] == "test"


def _refuse(load: Callable[..., object]) -> Callable[..., object]:
    """Returns an import function that fails for the packages of OpenTelemetry."""

    def imported(name: str, *rest: object, **named: object) -> object:
        if name.startswith("opentelemetry"):
            raise ImportError(f"No module named {name!r}", name=name)
        return load(name, *rest, **named)

    return imported
