"""The factory of the interface for the simulated cluster: the clients of one process.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable

from postdate.kafka import limits
from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import (
    GroupConsumer,
    Isolation,
    LogReader,
    Partition,
    PlainProducer,
    TransactionalProducer,
)
from support.kafka_simulator.admin import SimAdmin
from support.kafka_simulator.broker import SimBroker
from support.kafka_simulator.group_consumer import SimGroupConsumer
from support.kafka_simulator.link import Link
from support.kafka_simulator.plain_producer import SimPlainProducer
from support.kafka_simulator.producer import SimTransactionalProducer
from support.kafka_simulator.reader import SimLogReader
from support.kafka_simulator.time import SimClock


class SimKafka:
    """Kafka for one simulated process: the cluster, the link of this process to it, and the clock of its machine."""

    def __init__(self, broker: SimBroker, link: Link | None = None, clock: SimClock | None = None) -> None:
        self.broker = broker
        self.link = link or Link(broker.time, broker.faults)
        self.clock = clock or SimClock(broker.time)

    def connection_fault(self, over: Callable[[], bool]) -> KafkaFault | None:
        return None

    def group_consumer(self, group_id: str, instance_id: str | None = None, address: str = "") -> GroupConsumer:
        return SimGroupConsumer(self.broker, self.link, group_id, instance_id, address)

    def log_reader(self, part: Partition, offset: int, isolation: Isolation) -> LogReader:
        return SimLogReader(self.broker, self.link, part, offset, isolation)

    def producer(
        self, transactional_id: str, message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    ) -> TransactionalProducer:
        return SimTransactionalProducer(self.broker, self.link, self.clock, transactional_id, message_bytes_max)

    def plain_producer(self, created_ms: int = 0) -> PlainProducer:
        return SimPlainProducer(self.broker, self.link, self.clock, limits.MESSAGE_BYTES_MAX, created_ms)

    def admin(self) -> SimAdmin:
        return SimAdmin(self.broker, self.link)
