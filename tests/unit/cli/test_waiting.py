"""Goal: `send --wait-delivery` reports correctly how a message ended, and fails if it was not delivered.

Method: the real command over a simulated Kafka. The test writes the dispatch-log records of a sidecar before the
command reads them.
"""

from __future__ import annotations

import json

import pytest

from postdate.cli.requests.waiting import FateWatch, FinalFate
from postdate.kafka.interface import Isolation, LogReader, Partition
from postdate.sidecar.errors import Exit
from postdate.wire.dispatch_log import (
    APPLIED,
    CANCELLED,
    DEAD,
    DELIVERED,
    FATES,
    MOVED,
    STORED,
    DispatchRecord,
    Fate,
    FateName,
    Moved,
    PlainFate,
    encode_record,
)
from support.deployments.simulated_cluster import AnsweredKafka, SimulatedCluster
from support.kafka_simulator import SimBroker, SimTime

SEND = ("send", "--requests", "requests", "--topic", "orders", "--value", "v", "--delay", "1ms", "--wait-delivery")
SOON = ("--timeout", "300ms")


class DispatchedKafka(AnsweredKafka):
    """A simulated Kafka with a sidecar that writes these records, `late_ms` after the request."""

    def __init__(self, broker: SimBroker, time: SimTime, fates: list[list[Fate]], late_ms: int) -> None:
        super().__init__(broker, lambda part, record: None)
        self.time = time
        self.fates = fates
        self.late_ms = late_ms

    def log_reader(self, part: Partition, offset: int, isolation: Isolation) -> LogReader:
        self.time.wait(self.late_ms)
        at_ms = self.broker.now_ms()
        for seq, fates in enumerate(self.fates, 1):
            record = DispatchRecord(
                seq=seq,
                takeover=1,
                instance="test",
                group="postdate",
                at=at_ms,
                next_request=9,
                low_water=0,
                kind=FATES,
                fates=fates,
            )
            self.broker.append(part, None, encode_record(record), [], at_ms)
        return super().log_reader(part, offset, isolation)


def cluster_with(*fates: list[Fate], late_ms: int = 0) -> SimulatedCluster:
    cluster = SimulatedCluster(partitions=1)
    cluster.kafka = DispatchedKafka(cluster.broker, cluster.time, list(fates), late_ms)
    return cluster


def test_wait_delivery_prints_the_lateness() -> None:
    cluster = cluster_with(
        [PlainFate(7, 5, DELIVERED)],
        [PlainFate(0, 5, STORED)],
        [Moved(0, 5, MOVED, 9, 3)],
        [PlainFate(0, 5, DELIVERED)],
        late_ms=41,
    )
    result = cluster.call(*SEND, *SOON, "--output", "json")
    sent, end = (json.loads(line) for line in result.stdout.splitlines())
    assert (result.exit_code, end["fate"], end["origin"]) == (Exit.OK, DELIVERED, sent["origin"]), result.stderr
    assert end["late_ms"] == end["ended_ms"] - sent["due_ms"]
    assert 40 <= end["late_ms"] < 10_000


def test_a_time_that_has_passed_makes_nothing_late_from_before_the_request() -> None:
    cluster = cluster_with([PlainFate(0, 5, DELIVERED)], late_ms=41)
    past = [*SEND[:-3], "--at", "2001-02-03T04:05:06Z", SEND[-1]]
    _, end = (json.loads(line) for line in cluster.call(*past, *SOON, "--output", "json").stdout.splitlines())
    assert 40 <= end["late_ms"] < 10_000


def test_the_text_output_has_one_more_line() -> None:
    result = cluster_with([PlainFate(0, 5, DELIVERED)], late_ms=41).call(*SEND, *SOON)
    origin, end = result.stdout.splitlines()
    assert origin == "requests/0/0"
    assert end.startswith("delivered ")
    assert end.endswith("ms after its time")


@pytest.mark.parametrize("fate", [DEAD, CANCELLED, APPLIED])
def test_any_other_fate_ends_with_1(fate: FateName) -> None:
    result = cluster_with([PlainFate(0, 5, fate)]).call(*SEND, *SOON)
    assert result.exit_code == Exit.FAILED
    assert f"{fate}: the message was not delivered" in result.stderr
    assert ("its dead letter has the reason" in result.stderr) == (fate == DEAD)
    assert ("postdate dead-letters list" in result.stderr) == (fate == DEAD)


def test_a_missing_verdict_fails_with_a_hint() -> None:
    result = cluster_with([PlainFate(1, 5, DELIVERED)]).call(*SEND, *SOON)
    assert result.exit_code == Exit.FAILED
    assert "requests/0/0 has not ended within 300ms of its time" in result.stderr


def test_records_before_the_request_are_not_its_fate() -> None:
    cluster = cluster_with()
    DispatchedKafka(cluster.broker, cluster.time, [[PlainFate(0, 5, DELIVERED)]], 0).log_reader(
        Partition(cluster.own.dispatch_log, 0), 0, Isolation.READ_COMMITTED
    ).close()
    assert cluster.call(*SEND, *SOON).exit_code == Exit.FAILED


def test_a_record_that_cannot_be_read_is_skipped_with_a_warning() -> None:
    cluster = cluster_with([PlainFate(0, 5, DELIVERED)])
    written = cluster.kafka.log_reader

    def spoilt(part: Partition, offset: int, isolation: Isolation) -> LogReader:
        cluster.broker.append(part, None, b"not JSON", [], cluster.broker.now_ms())
        return written(part, offset, isolation)

    cluster.kafka.log_reader = spoilt  # type: ignore[method-assign]
    result = cluster.call(*SEND, *SOON)
    assert result.exit_code == Exit.OK, result.stderr
    assert "requests.dispatch-log/0/0" in result.stderr


@pytest.mark.parametrize(("budget", "timeout_ms"), [("30s", 60_000), ("5m", 330_000)])
def test_the_timeout_exceeds_the_retry_budget(budget: str, timeout_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []

    def wait(_watch: FateWatch, _offset: int, timeout_ms: int) -> FinalFate:
        waited.append(timeout_ms)
        return FinalFate(DEAD, 0)

    monkeypatch.setattr(FateWatch, "wait", wait)
    cluster_with().call(*SEND, environ={"POSTDATE_DISPATCH_RETRY_BUDGET_MS": budget})
    assert waited == [timeout_ms + 1], "counted from the due time, 1 ms after the request"


def test_wait_verdict_and_wait_delivery_exclude_each_other() -> None:
    result = cluster_with().call(*SEND, "--wait-verdict")
    assert result.exit_code == Exit.USAGE
    assert "give only one of" in result.stderr
