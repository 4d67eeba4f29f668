"""The clock that a Kafka's waits are measured by: this machine's for the real one, simulated time for a simulated one.

Contract tests take deadlines and durations from here, so that one text fits both: a simulated client returns from a
wait of a second at once, with a second gone by on its own clock and none on this machine's.
"""

from __future__ import annotations

import time

from postdate.kafka.interface import Kafka
from support.kafka_simulator import SimKafka


def now_s(kafka: Kafka) -> float:
    """Seconds on a clock that only goes forward, from any start."""
    return kafka.broker.time.now_ms / 1000 if isinstance(kafka, SimKafka) else time.monotonic()


def wall_ms(kafka: Kafka) -> float:
    """Epoch milliseconds, as the machine of the client has them."""
    return float(kafka.clock.wall_ms()) if isinstance(kafka, SimKafka) else time.time() * 1000
