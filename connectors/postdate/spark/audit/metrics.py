"""The result of an audit as OpenMetrics text, for a textfile collector or a Pushgateway.

All metrics are gauges, and no name ends in `_total`: each run counts from 0, so values may fall. Gauges without
timestamps are also valid in Prometheus's older text format, which the textfile collector and the Pushgateway read.
Every sample has the label `topic`, so that the metrics of different topics may be in one directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from postdate.spark.audit.output import AuditOutcome
from postdate.spark.output.lateness import PERCENTILES
from postdate.spark.rules.verdicts import INFORMATION, OUTSIDE_WINDOW, VIOLATIONS

_QUANTILES: Final = {**{name: f"{share:g}" for name, share in PERCENTILES}, "max": "1"}


def audit_metrics(outcome: AuditOutcome, ended_ms: int) -> str:
    """Returns the OpenMetrics text. `ended_ms` is the end of the audit, in epoch milliseconds."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(outcome, ended_ms))
    return bytes(generate_latest(registry)).decode()  # type: ignore[no-untyped-call]


class _Metrics(Collector):
    def __init__(self, outcome: AuditOutcome, ended_ms: int) -> None:
        self._outcome, self._ended_ms = outcome, ended_ms

    def collect(self) -> Iterator[Family]:
        outcome = self._outcome
        outcomes, counts = outcome.outcomes, outcome.summary.counts
        reasons = {reason: outcomes.reasons.get(reason, 0) for reason in (*INFORMATION, OUTSIDE_WINDOW)}
        late_s = {_QUANTILES[name]: value / 1_000 for name, value in outcome.summary.lateness_ms.items()}
        yield self._gauge("verified_requests", "Requests that this run verified.", outcomes.verified)
        if outcomes.verified_share is not None:
            share = "The share of verified requests in those that are not pending."
            yield self._gauge("verified_ratio", share, outcomes.verified_share, "ratio")
        yield self._gauges(
            *("violations", "Violations that this run found; a request with two counts twice."),
            *("verdict", {verdict: counts[verdict] for verdict in VIOLATIONS}),
        )
        yield self._gauge("pending_requests", "Requests that had not ended: nothing to verify yet.", outcomes.pending)
        yield self._gauges("unverifiable_requests", "Requests that this run could not verify.", "reason", reasons)
        yield self._gauge(
            "open_violations",
            "Violations of this run, and those of earlier runs that nobody has acknowledged.",
            outcome.summary.violations + outcome.standing,
        )
        yield self._gauges(
            *("lateness_seconds", "Lateness of messages that this run judged as delivered; quantile 1 is the maximum."),
            *("quantile", late_s),
            unit="seconds",
        )
        schedules = outcome.summary.schedules
        if schedules is not None:
            yield self._gauge("schedules", "Recurring schedules that this run judged.", schedules.judged)
            yield self._gauges(
                *("occurrences", "Occurrences of schedules that this run judged; one may count under several names."),
                *("outcome", schedules.occurrences),
            )
        if outcome.state is not None:
            yield self._gauge("run", "The number of this run in its state.", outcome.state.run)
        yield self._gauge("exit_code", "The exit code of this run.", outcome.exit_code)
        yield self._gauge("end_timestamp_seconds", "When this run ended.", self._ended_ms / 1_000, "seconds")

    def _gauge(self, name: str, description: str, value: float, unit: str = "") -> Family:
        return self._gauges(name, description, "", {"": value}, unit=unit)

    def _gauges(
        self, name: str, description: str, label: str, values: Mapping[str, float], *, unit: str = ""
    ) -> Family:
        """Returns a gauge with one sample for each value of `label`. If `label` is empty, `topic` is the only label."""
        labels = ("topic", label) if label else ("topic",)
        family = GaugeMetricFamily(f"postdate_audit_{name}", description, labels=labels, unit=unit)
        for label_value, value in values.items():
            family.add_metric((",".join(self._outcome.requests), label_value)[: len(labels)], value)
        return family
