"""Goal: `postdate send --retry NAME` uses the policy of that name that the sidecars use, and refuses an unknown name.

Method: the real command over a simulated Kafka. The test writes the dispatch-log records of a sidecar.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from postdate.kafka.errors import NotAuthorized
from postdate.kafka.interface import Partition
from postdate.sidecar.errors import Exit
from postdate.wire.dispatch_log import BEAT, DELIVERED, DispatchRecord, PlainFate, PolicyRow, encode_record
from support.deployments.simulated_cluster import SimulatedCluster
from unit.cli.test_waiting import SOON, DispatchedKafka

SEND = ("send", "--requests", "requests", "--topic", "orders", "--value", "v", "--output", "json", "--retry")
FORMAT_2 = {"POSTDATE_FORMAT_VERSION": "2"}
SLOW: list[PolicyRow] = [(0, "slow", "base=1s"), (0, "slow", "base=10m"), (0, "gone", "base=1s"), (1, "gone", "")]


def cluster_with(policies: list[PolicyRow] | None) -> SimulatedCluster:
    """Returns a cluster with a sidecar that has these policies; None: no sidecar has written anything."""
    cluster = SimulatedCluster(partitions=1)
    if policies is not None:
        cluster.broker.append(Partition("requests", 0), None, b"", [], cluster.broker.now_ms())
        for seq, rows in enumerate((policies[:1], policies[1:]), 1):
            record = DispatchRecord(
                seq=seq,
                takeover=1,
                instance="test",
                group="postdate",
                at=1,
                next_request=1,
                low_water=0,
                kind=BEAT,
                fates=[],
                policies=rows,
            )
            cluster.broker.append(
                Partition(cluster.own.dispatch_log, 0), None, encode_record(record), [], cluster.broker.now_ms()
            )
    return cluster


def test_the_due_time_is_that_of_the_policy() -> None:
    result = cluster_with(SLOW).call(*SEND, "slow", environ=FORMAT_2)
    sent = json.loads(result.stdout)
    assert (result.exit_code, sent["due_ms"] - sent["sent_ms"]) == (Exit.OK, 600_000), result.stderr


@pytest.mark.parametrize("name", ["other", "gone"])
def test_a_name_without_a_policy_is_refused_and_not_sent(name: str) -> None:
    cluster = cluster_with(SLOW)
    result = cluster.call(*SEND, name, environ=FORMAT_2)
    assert result.exit_code == Exit.USAGE
    assert f"bad-retry: requests has no retry policy '{name}'" in result.stderr
    assert len(cluster.records("requests", 0)) == 1


def test_a_name_is_sent_if_no_sidecar_has_run() -> None:
    result = cluster_with(None).call(*SEND, "slow", environ=FORMAT_2)
    assert (result.exit_code, json.loads(result.stdout)["due_ms"]) == (Exit.OK, None)


def test_a_name_is_sent_if_the_log_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_with(SLOW)

    def refuse(*_: Any) -> Any:
        raise NotAuthorized("no right to read the log")

    monkeypatch.setattr(cluster.kafka, "log_reader", refuse)
    result = cluster.call(*SEND, "slow", environ=FORMAT_2)
    assert (result.exit_code, json.loads(result.stdout)["due_ms"]) == (Exit.OK, None)


def test_lateness_counts_from_the_due_time_of_the_fate_if_the_policy_is_unknown() -> None:
    cluster = cluster_with(None)
    cluster.kafka = DispatchedKafka(
        cluster.broker, cluster.time, [[PlainFate(0, cluster.broker.now_ms() + 1_000, DELIVERED)]], late_ms=1_020
    )
    result = cluster.call(*SEND, "slow", "--wait-delivery", *SOON, environ=FORMAT_2)
    _, end = (json.loads(line) for line in result.stdout.splitlines())
    assert 15 <= end["late_ms"] <= 500


def test_a_delivery_is_awaited_until_the_policy_makes_it_due() -> None:
    cluster = cluster_with([(0, "slow", ""), (0, "slow", "base=1s")])
    began = time.monotonic()
    result = cluster.call(*SEND, "slow", "--wait-delivery", *SOON, environ=FORMAT_2)
    assert time.monotonic() - began >= 1.3
    assert "has not ended within 300ms of its time" in result.stderr
    assert json.loads(result.stdout)["due_ms"] is not None
