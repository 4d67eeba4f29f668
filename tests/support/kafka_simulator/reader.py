"""Readers of one simulated partition, without a group.

Thread rule: one thread; time advances only in the waits of the link.
"""

from __future__ import annotations

from confluent_kafka import KafkaException

from postdate.kafka.classification import classify
from postdate.kafka.errors import FatalClient, NotAuthorized, OffsetOutOfRange, Unreachable
from postdate.kafka.interface import Isolation, Partition, Record
from support.kafka_simulator.broker import SimBroker
from support.kafka_simulator.link import Link
from support.kafka_simulator.metadata import Metadata


class SimLogReader:
    """LogReader of the simulated cluster. The interface describes the methods."""

    def __init__(self, broker: SimBroker, link: Link, part: Partition, offset: int, isolation: Isolation) -> None:
        self._link = link
        self._metadata = Metadata(broker)
        self._part = part
        self._position = offset
        self._isolation = isolation
        self._closed = False

    def read(self, records_max: int, timeout_s: float) -> list[Record]:
        records = self._fetch(records_max)
        if not records and timeout_s > 0:
            self._link.wait(timeout_s * 1000)
            records = self._fetch(records_max)
        return records

    def position(self) -> int:
        return self._position

    def close(self) -> None:
        self._closed = True

    def _fetch(self, records_max: int) -> list[Record]:
        doing = f"read {self._part.topic}/{self._part.index}"
        if self._closed:
            raise FatalClient(f"Could not {doing}: this reader is closed")
        if self._metadata.is_silent(self._part):
            return []
        try:
            records, self._position = self._link.ask("fetch", lambda: self._look(records_max))
        except KafkaException as error:
            fault = classify(error, doing, otherwise=Unreachable)
            if isinstance(fault, OffsetOutOfRange | NotAuthorized | FatalClient):
                raise fault from error
            return []  # the library repeats the request, and so does the caller
        return records

    def _look(self, records_max: int) -> tuple[list[Record], int]:
        log = self._metadata.log(self._part, self._metadata.leader(self._part))
        return log.read(self._position, self._isolation, records_max)
