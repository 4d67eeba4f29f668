"""Produces requests like any client: an idempotent producer, an explicit partition, and the acknowledgement.

For the command line and the HTTP API. Before it is sent, a request is parsed by the sidecar's own rules. If it has an
id, the id is the record's key and `postdate-key` carries the message's own key, so that later controls with that id
reach the same partition.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from postdate.kafka.errors import KafkaFault, NotAuthorized, SettingRefused
from postdate.kafka.interface import Admin, Kafka, Partition, PlainProducer
from postdate.sidecar.cluster import limits
from postdate.sidecar.cluster.topics import RETENTION_MS
from postdate.sidecar.errors import ConfigError, TransientError
from postdate.wire import headers as names
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import Headers
from postdate.wire.origins import format_origin
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.request import Request
from postdate.wire.requests.rules import RequestRules
from postdate.wire.values.murmur2 import partition_for
from postdate.wire.values.texts import counted


@dataclass(frozen=True, slots=True)
class UnsentRequest:
    """A request record before it is produced."""

    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """The cluster's metadata of a request topic, and which of the other requested names exist."""

    partitions: int
    retention_ms: int
    existing: frozenset[str]


@dataclass(slots=True)
class DeliveryReport:
    """The broker's acknowledgement of the record, filled in by the client during flush."""

    reported: bool = False
    fault: KafkaFault | None = None
    offset: int = -1
    timestamp_ms: int = -1

    def resolve(self, fault: KafkaFault | None, offset: int, timestamp_ms: int) -> None:
        """Take the delivery report."""
        self.reported, self.fault, self.offset, self.timestamp_ms = True, fault, offset, timestamp_ms

    def check(self, topic: str) -> None:
        """Raises the fault that the broker reports, or TransientError: no report in time, so it is not known whether
        the request exists, or no offset in it."""
        if self.fault is not None:
            raise self.fault
        if not self.reported:
            raise TransientError(
                f"no answer within {limits.COMMAND_TIMEOUT_S:.0f} s: the request may or may not be in {topic}"
            )
        if self.offset < 0:
            # The answer of a broker to a repeated request that it had already written.
            raise TransientError(f"the request is in {topic}, but the broker did not report its offset")


class PartlyProduced(TransientError):
    """A control for several partitions is in some of them. The text names the origins, and what to do about the
    others."""

    def __init__(self, message: str, produced: Mapping[int, DeliveryReport]) -> None:
        super().__init__(message)
        self.produced = produced
        """The acknowledgements, by partition."""


def look_up(admin: Admin, requests: str, bootstrap_servers: str, others: tuple[str, ...] = ()) -> LiveTopic:
    """Look up the request topic and `others`. Raises ConfigError: the request topic does not exist."""
    live = admin.describe([requests, *others], [RETENTION_MS])
    if requests not in live:
        raise ConfigError(
            f"request topic {requests} does not exist: postdate topics create -b {bootstrap_servers}"
            f" --requests {requests}"
        )
    info = live[requests]
    return LiveTopic(len(info.partitions), int(info.config.get(RETENTION_MS, "-1")), frozenset(live))


class ReusedProducer:
    """Produces single requests with a client that is kept, since a new one takes half a second.

    An idempotent producer asks for its id when it is created, before it has a connection, and the library then waits
    500 ms before it asks again (librdkafka 2.16, `rd_kafka_idemp_pid_fsm`). A client that met a fault is replaced.

    Thread rule: any thread. One client is kept; further concurrent calls create their own.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._lock = threading.Lock()
        self._idle: PlainProducer | None = None

    def produce(self, part: Partition, draft: UnsentRequest) -> DeliveryReport:
        """Produce the record and wait for its acknowledgement. Raises what `DeliveryReport.check` raises."""
        with self._lock:
            idle, self._idle = self._idle, None
        producer = idle or self._kafka.plain_producer()
        delivery = DeliveryReport()
        spare: PlainProducer | None = producer
        try:
            producer.produce(part.topic, draft.value, draft.key, draft.headers, part.index, delivery.resolve)
            producer.flush(limits.COMMAND_TIMEOUT_S)
            delivery.check(part.topic)
            with self._lock:
                self._idle, spare = producer, self._idle
        finally:
            if spare is not None:
                spare.destroy()
        return delivery

    def close(self) -> None:
        """Drop the client. A later call of `produce` creates another one."""
        with self._lock:
            idle, self._idle = self._idle, None
        if idle is not None:
            idle.destroy()


def partitions_of(live: LiveTopic, topic: str, chosen: Sequence[int]) -> list[int]:
    """The partitions of a request topic to which a bulk control goes: the chosen ones, or all if none is chosen.
    Raises ConfigError: one of them does not exist."""
    absent = [index for index in chosen if index >= live.partitions]
    if absent:
        raise ConfigError(f"{topic} has {counted(live.partitions, 'partition')}, and no partition {absent[0]}")
    return sorted(set(chosen)) or list(range(live.partitions))


def produce_to_each(
    producer: ReusedProducer, topic: str, partitions: Sequence[int], draft: UnsentRequest
) -> dict[int, DeliveryReport]:
    """Produce a bulk control to each of the partitions; returns the acknowledgements by partition.

    Raises PartlyProduced at the first failure. Raises NotAuthorized, SettingRefused: no partition has the control.
    """
    produced: dict[int, DeliveryReport] = {}
    for index in partitions:
        try:
            produced[index] = producer.produce(Partition(topic, index), draft)
        except (KafkaFault, TransientError) as fault:
            if not produced and isinstance(fault, NotAuthorized | SettingRefused):
                raise
            left = partitions[len(produced) + 1 :]
            raise PartlyProduced(_partly(topic, produced, index, left, draft, fault), produced) from fault
    return produced


def _partly(
    topic: str,
    produced: Mapping[int, DeliveryReport],
    failed: int,
    left: Sequence[int],
    draft: UnsentRequest,
    fault: Exception,
) -> str:
    """Which partitions have a control after a failure, and how to reach the others."""
    origins = [format_origin(topic, index, delivery.offset).decode() for index, delivery in produced.items()]
    absent = [f"{topic}/{index}" for index in left]
    lines = [
        f"{topic}/{failed}: {fault}",
        f"sent: {', '.join(origins) or 'none'}; may be sent: {topic}/{failed}; not sent: {', '.join(absent) or 'none'}",
    ]
    if names.BY not in dict(draft.headers):
        return "\n".join([*lines, "repeat the command: a second control of this kind does no harm"])
    if left:
        options = " ".join(f"--partition {index}" for index in left)
        lines.append(f"repeat it only with {options} (HTTP: `partitions`): a second control moves messages again")
    look = f"postdate pending list --requests {topic} --partition {failed}"
    lines.append(f"repeat it with --partition {failed} only if its messages have not moved a minute from now: {look}")
    return "\n".join(lines)


def produce(kafka: Kafka, part: Partition, draft: UnsentRequest) -> DeliveryReport:
    """Produce one record and wait for its acknowledgement. Raises what `DeliveryReport.check` raises."""
    producer = ReusedProducer(kafka)
    try:
        return producer.produce(part, draft)
    finally:
        producer.close()


def partition_of(key: bytes | None, count: int) -> int:
    """The partition of the request topic for a record with this key: murmur2 as Java clients, any for a null key."""
    return random.randrange(count) if key is None else partition_for(key, count)  # noqa: S311


def accepted(rules: RequestRules, draft: UnsentRequest, partition: int, timestamp_ms: int) -> Request:
    """The request as the sidecar will read it. Raises ConfigError: it would be refused; nothing is sent."""
    try:
        return parse_request(rules, partition, timestamp_ms, draft.key, draft.headers, draft.value is None)
    except RequestRefused as refusal:
        raise ConfigError(f"this request would be refused: {refusal}") from refusal
