"""Makes OpenTelemetry spans of the messages that their producers trace, on a thread of the process.

A message may wait for days between two spans, so they have no parent: each is the root of a new trace, with a link to
the context in the message's `traceparent`. The message keeps its headers. The standard SDK exports the spans and reads
its own environment variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`). Its exporter
has a bounded queue and threads, and an unreachable collector costs only spans.

This is the only module that imports `opentelemetry`, an optional package, and it does so only if the setting `traces`
requires it.

Thread rule: the main thread starts and closes a `SpanThread`; the thread itself makes the spans.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from postdate.sidecar.config.settings import Config
from postdate.sidecar.context.traced_messages import Exemplar, TracedStep, TraceQueue
from postdate.sidecar.counts import LATENESS_BOUNDS_MS
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.process.limits import SPANS_CLOSE_S_MAX, SPANS_TAKEN_MAX, SPANS_WAIT_S
from postdate.wire.origins import format_origin

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_NS_PER_MS = 1_000_000
_SERVICE = "postdate"

#: The logger to which the packages report a malformed context.
_CONTEXT_LOGGER = "opentelemetry.trace"


@contextmanager
def tracing(config: Config) -> Iterator[TraceQueue | None]:
    """Provides the queue of steps to trace; None if `traces` is off. Raises ConfigError if the packages are missing."""
    if config.traces == "off":
        yield None
        return
    traces = TraceQueue()
    spans = SpanThread(traces, exporting_provider(config))
    spans.start()
    try:
        yield traces
    finally:
        spans.close()


def exporting_provider(config: Config) -> TracerProvider:
    """Returns the SDK's provider with its exporter over OTLP and HTTP. Raises ConfigError if the packages are
    missing."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"traces = opentelemetry needs {error.name}: install it with pip install 'postdate[otel]', or set traces = "
            "off"
        ) from error
    named = {"service.name": _SERVICE, "service.instance.id": config.instance_name}
    provider = TracerProvider(resource=Resource.create(named).merge(OTELResourceDetector().detect()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class SpanThread:
    """Makes spans of queued steps until it is closed."""

    def __init__(self, traces: TraceQueue, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._traces = traces
        self._provider = provider
        self._tracer = provider.get_tracer(_SERVICE)
        self._propagator = TraceContextTextMapPropagator()
        # Otherwise the packages log a line for each malformed context, with the producer's header.
        logging.getLogger(_CONTEXT_LOGGER).setLevel(logging.ERROR)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Makes spans of the queued steps, and exports them. Waits up to SPANS_CLOSE_S_MAX for each of the two."""
        self._closing.set()
        self._thread.join(SPANS_CLOSE_S_MAX)
        ending = threading.Thread(target=self._provider.shutdown, name="spans end", daemon=True)
        ending.start()
        ending.join(SPANS_CLOSE_S_MAX)

    def _run(self) -> None:
        while True:
            taken = self._traces.next_steps(SPANS_TAKEN_MAX, SPANS_WAIT_S)
            if not taken and self._closing.is_set():
                return
            for step in taken:
                self._make(step)

    def _make(self, step: TracedStep) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import Link, SpanKind, get_current_span

        carrier = {"traceparent": step.traceparent.decode("latin-1"), "tracestate": step.tracestate.decode("latin-1")}
        producer = get_current_span(self._propagator.extract(carrier, Context())).get_span_context()
        if not producer.is_valid:
            return
        topic, index = step.part
        lateness_ms = step.ended_ms - step.began_ms
        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.destination.name": step.target if step.is_delivery else topic,
            "messaging.operation.name": "deliver" if step.is_delivery else "accept",
            "messaging.operation.type": "send" if step.is_delivery else "receive",
            "postdate.origin": format_origin(topic, index, step.offset).decode(),
        }
        if step.is_delivery:
            attributes["postdate.lateness_ms"] = lateness_ms
        elif step.target:
            attributes["postdate.target"] = step.target
        span = self._tracer.start_span(
            f"deliver {step.target}" if step.is_delivery else f"accept {topic}",
            context=Context(),
            kind=SpanKind.PRODUCER if step.is_delivery else SpanKind.CONSUMER,
            attributes=attributes,
            links=[Link(producer)],
            start_time=step.began_ms * _NS_PER_MS,
        )
        span.end(step.ended_ms * _NS_PER_MS)
        own = span.get_span_context()
        if step.is_delivery and own.trace_flags.sampled:
            bucket = bisect_left(LATENESS_BOUNDS_MS, lateness_ms)
            self._traces.exemplars[topic, bucket] = Exemplar(
                f"{own.trace_id:032x}", f"{own.span_id:016x}", lateness_ms, step.ended_ms
            )
