"""Runs the shipped commands in this process on a simulated Kafka, without a broker and without waiting.

`SimulatedCluster` creates the topics of a request topic as `postdate topics create` does, and runs commands with
click's runner. If a test needs a sidecar, it writes verdicts and dead letters with the sidecar's codecs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from click.testing import CliRunner, Result

from postdate.cli import postdate
from postdate.kafka.interface import Headers, Isolation, LogReader, Partition, Record
from postdate.sidecar.cluster import connection
from postdate.sidecar.cluster.topics import own_topics, request_topic
from postdate.sidecar.config.settings import Config, TopicsConfig
from postdate.wire.delivered import dead_letter_headers
from postdate.wire.origins import format_origin
from postdate.wire.topics import OwnTopics
from postdate.wire.verdicts import Verdict, encode_bulk_verdict, encode_verdict
from support.kafka_simulator import SimBroker, SimKafka, SimTime

#: Computes the response to a request in place of the sidecar: the verdict and the affected origin; None: no response.
Answering = Callable[[Partition, Record], tuple[Verdict, bytes] | None]


class AnsweredKafka(SimKafka):
    """A simulated Kafka that writes the verdicts of new requests when a client opens a reader of the verdicts."""

    def __init__(self, broker: SimBroker, answering: Answering) -> None:
        super().__init__(broker)
        self.answering = answering
        self.counts: Callable[[Partition], int] | None = None  # affected entries of the bulk control on each partition
        self.answered: dict[Partition, int] = {}

    def log_reader(self, part: Partition, offset: int, isolation: Isolation) -> LogReader:
        if part.topic.endswith(".verdicts"):
            requests = Partition(part.topic.removesuffix(".verdicts"), part.index)
            records, _ = self.broker.log(requests).read(self.answered.get(requests, 0), Isolation.READ_COMMITTED, 1_000)
            for record in records:
                self._answer(part, requests, record)
                self.answered[requests] = record.offset + 1
        return super().log_reader(part, offset, isolation)

    def _answer(self, verdicts: Partition, requests: Partition, record: Record) -> None:
        if self.counts is not None:
            value = encode_bulk_verdict(
                format_origin(requests.topic, requests.index, record.offset), self.counts(requests), 1
            )
            self.broker.append(verdicts, None, value, [], self.broker.now_ms())
            return
        answer = self.answering(requests, record)
        if answer is not None:
            origin = format_origin(requests.topic, requests.index, record.offset)
            key, value = encode_verdict(answer[0], origin, b"", answer[1], self.broker.now_ms())
            self.broker.append(verdicts, key, value, [], self.broker.now_ms())


@dataclass
class SimulatedCluster:
    """One simulated cluster with one request topic and one target."""

    partitions: int = 4
    requests: str = "requests"
    target: str = "orders"
    answering: Answering = field(default=lambda part, record: None)

    def __post_init__(self) -> None:
        self.time = SimTime(float(time.time_ns() // 1_000_000))
        self.broker = SimBroker(self.time)
        self.kafka = AnsweredKafka(self.broker, self.answering)
        admin = self.kafka.admin()
        settings = TopicsConfig(partitions=self.partitions, replication_factor=1, min_insync_replicas=1)
        admin.create_topics([request_topic(self.requests, settings)])
        live = admin.describe([self.requests], ("retention.ms", "segment.ms", "max.message.bytes"))[self.requests]
        admin.create_topics(own_topics(live, settings))
        admin.create_topics([request_topic(self.target, settings)._replace(config={})])

    @property
    def own(self) -> OwnTopics:
        return OwnTopics.of(self.requests)

    def call(self, *arguments: str, environ: Mapping[str, str] | None = None) -> Result:
        """Runs a command against this cluster."""

        def kafka_here(config: Config) -> SimKafka:
            assert config.kafka.bootstrap_servers == "sim:1"
            return self.kafka

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connection, "kafka_of", kafka_here)
            return CliRunner().invoke(postdate, [*arguments, "-b", "sim:1"], env=environ)

    def records(self, topic: str, partition: int) -> list[Record]:
        """Returns the records of a partition as a read_committed consumer reads them."""
        return self.broker.log(Partition(topic, partition)).read(0, Isolation.READ_COMMITTED, 10_000)[0]

    def bury(
        self, partition: int, key: bytes | None, value: bytes | None, headers: Headers, why: str, lived_ms: int = 0
    ) -> str:
        """Writes a request and its dead letter to their topics; returns the request's origin."""
        now_ms = self.broker.now_ms()
        offset, _ = self.broker.append(Partition(self.requests, partition), key, value, headers, now_ms)
        self.time.wait(lived_ms)
        origin = format_origin(self.requests, partition, offset)
        dead_letter = dead_letter_headers(headers, why, f"why it was {why}", origin)
        self.broker.append(Partition(self.own.dead_letters, partition), key, value, dead_letter, now_ms)
        return origin.decode()
