"""Goal: a Spark job over few requests is planned as brief. A job over many requests, or without an end, is not.

Method: the command over a simulated cluster. A substituted job records its options.
"""

from __future__ import annotations

import pytest

from postdate.cli.spark import audit as audit_command
from postdate.cli.spark import spark_jobs
from postdate.kafka.interface import Partition
from postdate.spark.audit import continuous
from postdate.spark.audit.options import AuditOptions
from support.deployments.simulated_cluster import SimulatedCluster


def _planned(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch, *options: str, requests_max: int
) -> AuditOptions:
    kept: list[AuditOptions] = []

    def run(options: AuditOptions | continuous.FollowOptions) -> int:
        kept.append(options if isinstance(options, AuditOptions) else options.audit)
        return 0

    monkeypatch.setattr(spark_jobs, "BRIEF_RECORDS_MAX", requests_max)
    monkeypatch.setattr(audit_command, "require_spark", lambda what: None)
    monkeypatch.setattr(continuous, "run_audit", run)
    monkeypatch.setattr(continuous, "run_follow", run)
    result = cluster.call("audit", "--requests", cluster.requests, *options)
    assert result.exit_code == 0, result.output
    return kept[0]


@pytest.mark.parametrize(("requests_max", "is_brief"), [(3, True), (2, False)])
def test_an_audit_is_brief_if_its_topics_have_few_requests(
    monkeypatch: pytest.MonkeyPatch, requests_max: int, is_brief: bool
) -> None:
    cluster = SimulatedCluster()
    for partition in range(3):
        cluster.bury(partition, None, b"v", [], "expired")
    assert _planned(cluster, monkeypatch, requests_max=requests_max).is_brief is is_brief


def test_an_audit_is_not_brief_if_its_dispatch_logs_have_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SimulatedCluster()
    for _ in range(4):
        cluster.broker.append(Partition(cluster.own.dispatch_log, 0), None, b"{}", [], cluster.broker.now_ms())
    assert not _planned(cluster, monkeypatch, requests_max=3).is_brief


def test_the_size_of_fetches_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    options = _planned(SimulatedCluster(), monkeypatch, "-X", "max.poll.records=7", requests_max=3)
    assert options.properties["max.poll.records"] == "7"


def test_an_audit_that_follows_is_not_brief(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--follow", "--state", "state")
    assert not _planned(SimulatedCluster(), monkeypatch, *options, requests_max=3).is_brief


def test_a_missing_request_topic_is_named_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_command, "require_spark", lambda what: None)
    result = SimulatedCluster().call("audit", "--requests", "elsewhere")
    assert result.exit_code == 2
    assert "request topic elsewhere does not exist at sim:1" in result.output
