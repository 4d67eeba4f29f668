"""A simulated Kafka cluster behind the same interface as the real one. It is deterministic, has no threads, and never
really waits.

`SimTime` is the only clock of a simulation, and every wait advances it. `SimBroker` contains the logs, the transaction
coordinator and the group coordinator. `SimKafka` makes the clients of one process. Their requests pass a `Link`, which
may delay or lose them, or cut the connection; `Faults` draws these events from a seed. `tests/contract` runs one suite
against this cluster and the real one.
"""

from __future__ import annotations

from support.kafka_simulator.broker import SimBroker
from support.kafka_simulator.client import SimKafka
from support.kafka_simulator.faults import FAULTS, Faults
from support.kafka_simulator.link import Link
from support.kafka_simulator.time import SimClock, SimTime

__all__ = ["FAULTS", "Faults", "Link", "SimBroker", "SimClock", "SimKafka", "SimTime"]
