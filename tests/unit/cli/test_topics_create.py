"""Goal: `topics create` works on a cluster whose brokers learn of new topics at different times.

Method: the command over a simulated Kafka. The first answers about a topic omit it, like the answers of a broker that
lags behind the controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from postdate.kafka.interface import TopicInfo
from postdate.wire.topics import OwnTopics
from support.deployments.simulated_cluster import SimulatedCluster
from support.kafka_simulator.admin import SimAdmin


def test_an_outdated_answer_of_a_broker_is_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, asked = SimulatedCluster(), Counter[str]()
    describe = SimAdmin.describe

    def lagging(admin: SimAdmin, topics: Iterable[str], config: Iterable[str] = ()) -> dict[str, TopicInfo]:
        live = describe(admin, topics, config)
        asked.update(live.keys())
        return {name: info for name, info in live.items() if asked[name] % 3 == 0}

    monkeypatch.setattr(SimAdmin, "describe", lagging)
    result = cluster.call("topics", "create", "--requests", "late", "--replication-factor", "1", "--partitions", "1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert set(result.stdout.split()) == OwnTopics.of("late").names()
