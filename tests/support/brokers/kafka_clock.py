"""The clock for time-outs of a Kafka interface: the machine's clock for a real Kafka, simulated time for a simulated
one.

Contract tests measure deadlines and durations with it, so that the same test fits both. A simulated client returns
immediately from a wait of one second: only its own clock advances.
"""

from __future__ import annotations

import time

from postdate.kafka.interface import Kafka
from support.kafka_simulator import SimKafka


def now_s(kafka: Kafka) -> float:
    """Returns a monotonic time in seconds; its zero is arbitrary."""
    return kafka.broker.time.now_ms / 1000 if isinstance(kafka, SimKafka) else time.monotonic()


def wall_ms(kafka: Kafka) -> float:
    """Returns the client machine's wall-clock time in epoch milliseconds."""
    return float(kafka.clock.wall_ms()) if isinstance(kafka, SimKafka) else time.time() * 1000
