"""Reads one partition from an offset: for example the dispatch log in recovery, or a topic for the command line.

The partition is assigned manually, without a group. One thread at a time.
"""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from postdate.kafka import limits
from postdate.kafka.classification import classify
from postdate.kafka.consumer.records import group_records
from postdate.kafka.errors import FatalClient, NotAuthorized, OffsetOutOfRange, Unreachable
from postdate.kafka.interface import Isolation, Partition, Record
from postdate.kafka.settings import KafkaSettings, log


class ConfluentLogReader:
    """LogReader over confluent_kafka. The interface documents its methods."""

    def __init__(self, settings: KafkaSettings, part: Partition, offset: int, isolation: Isolation) -> None:
        self._part = part
        self._doing = f"read {part.topic}/{part.index}"
        self._position = offset
        self._check_at = time.monotonic() + limits.SILENCE_S
        self._error: KafkaError | None = None
        conf = settings.reader_conf(isolation.value) | {"error_cb": self._on_error}
        try:
            consumer = Consumer(conf, logger=log)
            consumer.assign([TopicPartition(part.topic, part.index, offset)])
        except KafkaException as error:
            raise classify(error, self._doing) from error
        self._consumer: Consumer | None = consumer
        self._renewal = settings.renewal(consumer, settings.consumer)

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        consumer = self._open()
        self._renewal.follow()
        try:
            first = consumer.poll(timeout_s)
            messages = [] if first is None else [first, *consumer.consume(records_max - 1, 0)]
        except KafkaException as error:
            raise classify(error, self._doing) from error
        if first is None:
            self._check_topic(consumer, timeout_s)
        else:
            self._error = None
        grouped, errors = group_records(messages)
        for _, _, error_event in errors:
            self._judge(error_event)
        records = grouped.get(self._part, [])
        self._advance(consumer, records)
        return records

    def position(self) -> int:
        return self._position

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _on_error(self, error: KafkaError) -> None:
        """Keeps the latest error of the connections. The next check of the topic logs it, unless a record arrives
        before then, since one address of several may be out of service."""
        self._error = error

    def _check_topic(self, consumer: Consumer, timeout_s: float) -> None:
        """Queries the topic after a read without records, unless the last check was too recent. *Measured*: if ACLs
        hide a topic, the library reports nothing to a consumer with a manual assignment, and waits forever."""
        if time.monotonic() < self._check_at:
            return
        self._check_at = time.monotonic() + limits.SILENCE_S
        if self._error is not None:
            log.warning("%s", classify(self._error, self._doing, otherwise=Unreachable))
            self._error = None
        try:
            error = consumer.list_topics(self._part.topic, max(timeout_s, 0.1)).topics[self._part.topic].error
        except KafkaException:  # no broker answers now: the library keeps trying, and so does this reader
            return
        if error is not None:
            self._judge(error)

    def _judge(self, error: KafkaError) -> None:
        """Raises an error that the caller must handle. Logs any other error: the library retries."""
        fault = classify(error, self._doing, otherwise=Unreachable)
        if isinstance(fault, OffsetOutOfRange | NotAuthorized | FatalClient):
            raise fault
        log.warning("%s", fault)

    def _advance(self, consumer: Consumer, records: list[Record]) -> None:
        """Moves the position after the records, and past markers and aborted records if the client's position is beyond
        them. The client has no position before its first record."""
        if records:
            self._position = records[-1].offset + 1
        try:
            (at,) = consumer.position([TopicPartition(self._part.topic, self._part.index)])
        except KafkaException as error:
            raise classify(error, self._doing, otherwise=Unreachable) from error
        if at.offset > self._position:
            self._position = at.offset

    def _open(self) -> Consumer:
        if self._consumer is None:
            raise FatalClient(f"Could not {self._doing}: this reader is closed")
        return self._consumer
