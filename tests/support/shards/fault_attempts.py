"""Inputs of `FaultAttribution` without Kafka: finished transactions, and a clock that the test advances."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError

from postdate.kafka.errors import RecordRejected
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution, Finding, FinishedTransaction
from postdate.sidecar.dispatch.targets.isolated_targets import Isolated
from postdate.sidecar.transaction.transaction import TopicOutcome

BUDGET_MS = 30_000
STORE = "requests.store"
VERDICTS = "requests.verdicts"
TIMED_OUT = RecordRejected("timed out", KafkaError._MSG_TIMED_OUT)
REFUSED = RecordRejected("against the policy", KafkaError.POLICY_VIOLATION)


class StepClock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def steady_ms(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return int(self.now)

    def sleep(self, wait_ms: float) -> None:
        self.now += wait_ms


def outcome(acknowledged: int, *refused: int, why: RecordRejected = REFUSED) -> TopicOutcome:
    return TopicOutcome(acknowledged, faults=dict.fromkeys(refused, why))


def finished(
    trial: Isolated | None,
    size: int,
    counts: dict[str, int],
    outcomes: dict[str, TopicOutcome],
    took_ms: float,
    **more: Any,
) -> FinishedTransaction:
    """Returns a transaction with a message for each topic of `counts` except Postdate's own topics."""
    targets = [topic for topic, count in counts.items() if count and topic not in (STORE, VERDICTS)]
    return FinishedTransaction(trial, size, counts, outcomes, took_ms, **{"targets": targets, **more})


def common(counts: dict[str, int], **outcomes: TopicOutcome) -> FinishedTransaction:
    return finished(None, sum(counts.values()), counts, outcomes, 5.0, is_refused=True)


def trial(
    isolated: Isolated, size: int, outcome: TopicOutcome, took_ms: float = 5.0, due_ms: int = 0
) -> FinishedTransaction:
    dues = dict.fromkeys(outcome.faults, due_ms)
    return finished(isolated, size, {isolated.name: size}, {isolated.name: outcome}, took_ms, due_ms=dues)


def isolated_target(faults: FaultAttribution, name: str = "bad") -> Isolated:
    isolated = faults.get(name)
    assert isolated is not None
    return isolated


def isolate(faults: FaultAttribution, count: int, why: RecordRejected = TIMED_OUT, *, target: str = "bad") -> Isolated:
    refused = {target: outcome(0, *range(count), why=why)}
    assert faults.aborted(common({target: count}, **refused), 0) is Finding.ATTRIBUTED
    return isolated_target(faults, target)


def quick(faults: FaultAttribution, first_ms: float = 3.0) -> None:
    """Reports a common transaction that was committed without a delay."""
    faults.committed(finished(None, 20, {"good": 20}, {"good": outcome(20)}, first_ms + 5), first_ms, 0.0)
