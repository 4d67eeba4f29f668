"""Creates the Prometheus metrics from plain counts, only during a scrape.

Thread rule: `collect` runs on a thread of the HTTP server. It reads the counts, the figures, the status files and the
mapped wheels of the shards, and sends no query to a shard.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as PrometheusExemplar

from postdate.kafka.interface import Partition
from postdate.kafka.statistics import BrokerStatistics
from postdate.sidecar.context.holds import DELIVERY, INTAKE, TARGET
from postdate.sidecar.context.index_queries import IndexStats
from postdate.sidecar.context.traced_messages import Exemplar
from postdate.sidecar.counts import Histogram, ShardCounts
from postdate.sidecar.http.metrics import metrics
from postdate.sidecar.http.metrics.metrics import Metric, Shape
from postdate.sidecar.http.process_state import ProcessState, not_ready
from postdate.sidecar.operation.shard_status import read_status
from postdate.sidecar.shard.shard_thread import ShardThread
from postdate.sidecar.states import DELIVERING, State
from postdate.wheel.index import LOG_NAME
from postdate.wheel.timing_wheel.forecast import OVERDUE
from postdate.wheel.timing_wheel.wheel_view import WHEEL_NAME, present_snapshot

_NO_SPANS: Mapping[tuple[str, int], Exemplar] = {}

Labelled = tuple[Sequence[str], float]


class ProcessCollector(Collector):
    """All metrics of one process."""

    def __init__(self, process: ProcessState) -> None:
        self._process = process

    def describe(self) -> Iterable[Family]:
        """Returns no metrics, so that a registration does not collect them."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yields the present values. O(shards), about 2 ms each for a copy of the wheel."""
        yield from self._counted()
        yield from self._states()
        yield from self._held()
        process = self._process
        yield _family(metrics.READY, [((), float(not not_ready(process)))])
        yield _family(metrics.MEMBER, [((), float(process.poller.is_member))])
        yield from _brokers(process.poller.statistics)
        yield _family(metrics.SPANS_DROPPED, [((), process.traces.dropped if process.traces is not None else 0)])
        build = (_version("postdate"), platform.python_version(), _version("confluent-kafka"), _version("rocksdict"))
        yield _family(metrics.BUILD, [(build, 1.0)])

    # ---- counts by request topic -----------------------------------------------------------------------------------

    def _counted(self) -> Iterator[Family]:
        topics: dict[str, list[ShardCounts]] = {name: [] for name in self._process.config.request_topic_names}
        for part, counts in sorted(self._process.counts.items()):
            topics.setdefault(part.topic, []).append(counts)
        lateness = {topic: [each.lateness for each in all_] for topic, all_ in topics.items()}
        traces = self._process.traces
        yield _histogram(metrics.LATENESS, lateness, {} if traces is None else dict(traces.exemplars))
        yield _summed(metrics.REQUESTS, {topic: [each.requests for each in all_] for topic, all_ in topics.items()})
        yield _summed(metrics.FATES, {topic: [each.fates for each in all_] for topic, all_ in topics.items()})
        yield _summed(
            metrics.SKIPPED_OCCURRENCES, {name: [each.skipped for each in all_] for name, all_ in topics.items()}
        )
        yield _summed(metrics.DEAD_LETTERS, {topic: [each.dead for each in all_] for topic, all_ in topics.items()})
        limited = [((topic,), sum(each.rated for each in all_)) for topic, all_ in topics.items()]
        yield _family(metrics.RATE_LIMITED, limited)
        missed = [((topic,), sum(each.unremembered_ids for each in all_)) for topic, all_ in topics.items()]
        yield _family(metrics.UNREMEMBERED_IDS, missed)
        yield _summed(metrics.TRANSACTIONS, {t: [each.transactions for each in all_] for t, all_ in topics.items()})
        times = {topic: [each.transaction_ms for each in all_] for topic, all_ in topics.items()}
        yield _histogram(metrics.TRANSACTION_SECONDS, times)

    # ---- shards and their states -----------------------------------------------------------------------------------

    def _states(self) -> Iterator[Family]:
        now_ms = self._process.clock.steady_ms()
        all_counts = sorted(self._process.counts.items())
        yield _family(metrics.FENCES, [(_shard(p), c.states.entered[State.FENCED]) for p, c in all_counts])
        yield _family(metrics.TAKEOVERS, [(_shard(p), c.states.entered[State.CATCHING_UP]) for p, c in all_counts])
        took = [(_shard(p), c.states.takeover_ms / 1000) for p, c in all_counts if c.states.takeover_ms >= 0]
        yield _family(metrics.TAKEOVER_SECONDS, took)
        held = self._process.shards()
        yield _family(metrics.STATE, [((*_shard(part), thread.shard.state), 1.0) for part, thread in held])
        spent = [
            ((*_shard(part), state), ms / 1000)
            for part, counts in all_counts
            for state, ms in counts.states.spent_ms(now_ms).items()
            if state is not State.UNASSIGNED
        ]
        yield _family(metrics.STATE_SECONDS, spent)
        yield _family(metrics.INBOX, [(_shard(part), thread.inbox.records) for part, thread in held])
        yield _family(metrics.HELD, [row for part, thread in held for row in _held_of(part, thread)])
        skews = ((part, self._process.counts[part].skew_ms) for part, _ in held)
        yield _family(metrics.SKEW, [(_shard(part), ms / 1000) for part, ms in skews if ms is not None])

    # ---- entries of the shards -------------------------------------------------------------------------------------

    def _held(self) -> Iterator[Family]:
        rows: dict[Metric, list[Labelled]] = {metric: [] for metric in _OF_FIGURES}
        horizons: Counter[tuple[str, str]] = Counter()
        for part, thread in self._process.shards():
            figures = thread.shard.ctx.index_queries.figures
            if figures is None or thread.shard.state not in DELIVERING:
                continue
            for metric, value in self._figures(part, figures):
                rows[metric].append((_shard(part), value))
            snapshot = present_snapshot(figures.directory, complete=False)
            if snapshot is None:
                continue
            now_ms = self._broker_ms(part)
            by_horizon = snapshot.pending_by_horizon(now_ms)
            rows[metrics.DUE].append((_shard(part), snapshot.due(now_ms).entries))
            rows[metrics.OVERDUE].append((_shard(part), by_horizon[OVERDUE]))
            horizons.update({(part.topic, horizon): count for horizon, count in by_horizon.items()})
        yield _family(metrics.HORIZONS, list(horizons.items()))
        for metric, labelled in rows.items():
            yield _family(metric, labelled)

    def _figures(self, part: Partition, figures: IndexStats) -> Iterator[tuple[Metric, float]]:
        yield metrics.PENDING, figures.pending
        if figures.schedules is not None:
            yield metrics.SCHEDULES, figures.schedules
        yield metrics.PARKED, figures.parked
        yield metrics.ENDING, figures.ending
        yield metrics.NEXT_REQUEST, figures.next_request
        yield metrics.LOW_WATER, figures.low_water
        status = read_status(figures.directory)
        if status is not None and status.lag is not None:
            yield metrics.LAG, status.lag
        yield metrics.WHEEL_REBUILDS, figures.wheel_rebuilds
        yield metrics.TIMER_LOG_BYTES, _size_bytes(figures.directory / LOG_NAME)
        yield metrics.WHEEL_BYTES, _size_bytes(figures.directory / WHEEL_NAME)
        retention_ms = self._process.retentions.get(part.topic, -1)
        if retention_ms >= 0 and figures.oldest_ms >= 0:
            yield metrics.HEAD_ROOM, (figures.oldest_ms + retention_ms - self._broker_ms(part)) / 1000

    def _broker_ms(self, part: Partition) -> int:
        return int(self._process.clock.wall_ms() - (self._process.counts[part].skew_ms or 0.0))


def _held_of(part: Partition, thread: ShardThread) -> Iterator[Labelled]:
    holds = thread.shard.ctx.held.current
    yield (*_shard(part), DELIVERY), float(holds.delivery)
    yield (*_shard(part), INTAKE), float(holds.intake)
    yield (*_shard(part), TARGET), float(len(holds.targets))


_OF_FIGURES = (
    metrics.PENDING,
    metrics.SCHEDULES,
    metrics.DUE,
    metrics.OVERDUE,
    metrics.PARKED,
    metrics.ENDING,
    metrics.NEXT_REQUEST,
    metrics.LAG,
    metrics.LOW_WATER,
    metrics.HEAD_ROOM,
    metrics.TIMER_LOG_BYTES,
    metrics.WHEEL_BYTES,
    metrics.WHEEL_REBUILDS,
)


def _brokers(connections: Sequence[BrokerStatistics]) -> Iterator[Family]:
    trips = [((each.name,), each.round_trip_ms / 1000) for each in connections if each.round_trip_ms >= 0]
    yield _family(metrics.BROKER_UP, [((each.name,), float(each.is_up)) for each in connections])
    yield _family(metrics.BROKER_ROUND_TRIP, trips)
    yield _family(metrics.BROKER_TIMEOUTS, [((each.name,), each.timeouts) for each in connections])
    yield _family(metrics.BROKER_DISCONNECTS, [((each.name,), each.disconnects) for each in connections])


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _shard(part: Partition) -> tuple[str, str]:
    return part.topic, str(part.index)


def _family(metric: Metric, rows: Sequence[Labelled]) -> Family:
    make = CounterMetricFamily if metric.shape is Shape.COUNTER else GaugeMetricFamily
    family = make(metric.name, metric.help, labels=metric.labels)
    for labels, value in rows:
        family.add_metric(labels, value)
    return family


def _summed(metric: Metric, by_topic: dict[str, list[dict[str, int]] | list[Counter[str]]]) -> Family:
    """Returns counts by topic and kind, summed over shards."""
    rows: list[Labelled] = []
    for topic, counted in by_topic.items():
        total: Counter[str] = Counter()
        for each in counted:
            total.update(dict(each))
        rows += [((topic, kind), count) for kind, count in sorted(total.items())]
    return _family(metric, rows)


def _histogram(
    metric: Metric, by_topic: dict[str, list[Histogram]], spans: Mapping[tuple[str, int], Exemplar] = _NO_SPANS
) -> Family:
    """Returns histograms in seconds by topic, summed over shards. `spans`: the exemplar of a topic and a bucket."""
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for topic, histograms in by_topic.items():
        if not histograms:
            continue
        below = 0
        buckets: list[tuple[str, int] | tuple[str, int, PrometheusExemplar]] = []
        counted = [sum(column) for column in zip(*(each.buckets for each in histograms), strict=True)]
        for index, (bound, count) in enumerate(zip([*histograms[0].bounds, None], counted, strict=True)):
            below += count
            name, span = "+Inf" if bound is None else str(bound / 1000), spans.get((topic, index))
            buckets.append((name, below) if span is None else (name, below, _exemplar(span)))
        family.add_metric([topic], buckets, sum(each.total for each in histograms) / 1000)
    return family


def _exemplar(span: Exemplar) -> PrometheusExemplar:
    labels = {"trace_id": span.trace_id, "span_id": span.span_id}
    return PrometheusExemplar(labels, span.lateness_ms / 1000, span.at_ms / 1000)


def _size_bytes(path: Path) -> int:
    """Returns the size of a file, or of the files of a directory; files that disappear meanwhile are not counted."""
    try:
        if path.is_dir():
            return sum(_size_bytes(Path(entry)) for entry in os.scandir(path))
        return path.stat().st_size
    except FileNotFoundError:
        return 0
