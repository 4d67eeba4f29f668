"""A simulated Kafka cluster behind the same interface as the real one: deterministic, without threads and without
waiting.

`SimTime` is the one time of a simulation, and every wait moves it. `SimBroker` holds the logs, the transaction
coordinator and the group coordinator. `SimKafka` is what one process has of it: the interface's factory, over a `Link`
that may delay, lose or cut what goes through it, as `Faults` decides from a seed. `tests/contract` proves that it
behaves like Kafka where the two can be compared.
"""

from __future__ import annotations

from support.kafka_simulator.broker import SimBroker
from support.kafka_simulator.client import SimKafka
from support.kafka_simulator.faults import FAULTS, Faults
from support.kafka_simulator.link import Link
from support.kafka_simulator.time import SimClock, SimTime

__all__ = ["FAULTS", "Faults", "Link", "SimBroker", "SimClock", "SimKafka", "SimTime"]
