"""The implementations of the Kafka seam that the contract suite is run against."""

from __future__ import annotations

import pytest

from postdate.connectors.kafka.client import ConfluentKafka
from postdate.connectors.kafka.seam import Kafka
from postdate.connectors.kafka.settings import KafkaSettings
from postdate.connectors.kafka.sim import SimBroker, SimKafka
from support.broker import RunningBroker


@pytest.fixture(scope="session", params=["simulated", "confluent"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    """Each implementation in turn; a test that takes this says what holds for all of them."""
    if request.param == "simulated":
        return SimKafka(SimBroker())
    running: RunningBroker = request.getfixturevalue("broker")
    return ConfluentKafka(KafkaSettings(running.bootstrap_servers))
