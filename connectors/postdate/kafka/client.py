"""The factory of the interface over confluent_kafka: one cluster, and clients for it."""

from __future__ import annotations

from collections.abc import Callable

from postdate.kafka import limits
from postdate.kafka.admin.admin import ConfluentAdmin
from postdate.kafka.connection_fault import connection_fault
from postdate.kafka.consumer.group_consumer import ConfluentGroupConsumer
from postdate.kafka.consumer.log_reader import ConfluentLogReader
from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import (
    Admin,
    GroupConsumer,
    Isolation,
    LogReader,
    Partition,
    PlainProducer,
    TransactionalProducer,
)
from postdate.kafka.producer import ConfluentPlainProducer, ConfluentTransactionalProducer
from postdate.kafka.settings import KafkaSettings


class ConfluentKafka:
    """Kafka over confluent_kafka. Threads may share it and its admin clients; every other client belongs to one thread.

    Creating a client raises SettingRefused if librdkafka does not know a property or refuses its value.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings

    def connection_fault(self, over: Callable[[], bool]) -> KafkaFault | None:
        return connection_fault(self.settings, over)

    def group_consumer(self, group_id: str, instance_id: str | None = None, address: str = "") -> GroupConsumer:
        return ConfluentGroupConsumer(self.settings, group_id, instance_id, address)

    def log_reader(self, part: Partition, offset: int, isolation: Isolation) -> LogReader:
        return ConfluentLogReader(self.settings, part, offset, isolation)

    def producer(
        self, transactional_id: str, message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    ) -> TransactionalProducer:
        return ConfluentTransactionalProducer(self.settings, transactional_id, message_bytes_max)

    def plain_producer(self, created_ms: int = 0) -> PlainProducer:
        return ConfluentPlainProducer(self.settings, created_ms=created_ms)

    def admin(self) -> Admin:
        return ConfluentAdmin(self.settings)
