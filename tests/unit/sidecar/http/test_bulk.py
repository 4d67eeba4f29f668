"""Goal: a bulk control over HTTP is produced to the requested partitions. A failure names the partitions that have it.

Method: the function of the endpoint over a simulated Kafka.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from postdate.kafka.errors import FatalClient
from postdate.kafka.interface import Partition
from postdate.sidecar.cluster.producing import PartlyProduced, ReusedProducer
from postdate.sidecar.config.settings import Config, RequestTopicConfig
from postdate.sidecar.http.api.bulk import control_selected
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.queries.pending import BadQuery
from support.deployments.simulated_cluster import SimulatedCluster

BY = {"key": "k", "by": "2h"}


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster()


@pytest.fixture
def process(cluster: SimulatedCluster) -> ProcessState:
    config = Config(format_version=2, request_topics=(RequestTopicConfig("requests"),))
    clock = SimpleNamespace(wall_ms=cluster.broker.now_ms)
    parts = {
        "config": config,
        "admin": cluster.kafka.admin(),
        "controls": ReusedProducer(cluster.kafka),
        "clock": clock,
    }
    return cast(ProcessState, SimpleNamespace(**parts))


def counts(cluster: SimulatedCluster) -> list[int]:
    return [len(cluster.records("requests", index)) for index in range(cluster.partitions)]


def test_a_failure_names_the_partitions_that_have_the_control(
    cluster: SimulatedCluster, process: ProcessState, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_append = cluster.broker.append

    def append(part: Partition, *more: Any) -> tuple[int, int]:
        if part.index == 2:
            raise FatalClient("the connection is lost")
        return real_append(part, *more)

    with monkeypatch.context() as patch:
        patch.setattr(cluster.broker, "append", append)
        with pytest.raises(PartlyProduced) as failed:
            control_selected(process, "reschedule", BY)
    assert "sent: requests/0/0, requests/1/0; may be sent: requests/2; not sent: requests/3" in str(failed.value)
    assert "the connection is lost" in str(failed.value)
    assert counts(cluster) == [1, 1, 0, 0]
    answer = control_selected(process, "reschedule", {**BY, "partitions": [2, 3]})
    assert [control["origin"] for control in answer["controls"]] == ["requests/2/0", "requests/3/0"]
    assert counts(cluster) == [1, 1, 1, 1]


@pytest.mark.parametrize("partitions", ["2", [], [-1], [True], ["1"], [0, 4]])
def test_invalid_partitions_send_nothing(cluster: SimulatedCluster, process: ProcessState, partitions: object) -> None:
    with pytest.raises(BadQuery, match="partition"):
        control_selected(process, "reschedule", {**BY, "partitions": partitions})
    assert counts(cluster) == [0, 0, 0, 0]
