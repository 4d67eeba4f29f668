"""Produces requests like any client: with an idempotent producer, to an explicit partition, and waits for the
acknowledgement.

For the command line and the HTTP API. The sidecar's own rules parse a request before it is sent. If the request has an
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
    """The cluster's metadata of a request topic. `existing`: the names that were looked up and exist."""

    partitions: int
    retention_ms: int
    existing: frozenset[str]


@dataclass(slots=True)
class DeliveryReport:
    """The delivery report of one record. The client fills it in, usually during a flush."""

    reported: bool = False
    fault: KafkaFault | None = None
    offset: int = -1
    timestamp_ms: int = -1

    def resolve(self, fault: KafkaFault | None, offset: int, timestamp_ms: int) -> None:
        """Stores the report of the client."""
        self.reported, self.fault, self.offset, self.timestamp_ms = True, fault, offset, timestamp_ms

    def check(self, topic: str) -> None:
        """Raises the reported fault. Raises TransientError if no report came in time (the request may or may not
        exist), or if the report has no offset."""
        if self.fault is not None:
            raise self.fault
        if not self.reported:
            raise TransientError(
                f"no answer within {limits.COMMAND_TIMEOUT_S:.0f} s: the request may or may not be in {topic}"
            )
        if self.offset < 0:
            # If the client repeats a produce request whose record is already written, the broker's answer has no
            # offset.
            raise TransientError(f"the request is in {topic}, but the broker did not report its offset")


class PartlyProduced(TransientError):
    """A control for several partitions is in only some of them. The text names the origins, and the remedy for the
    other partitions."""

    def __init__(self, message: str, produced: Mapping[int, DeliveryReport]) -> None:
        super().__init__(message)
        self.produced = produced
        """The acknowledgements, by partition."""


def look_up(admin: Admin, requests: str, bootstrap_servers: str, others: tuple[str, ...] = ()) -> LiveTopic:
    """Looks up the request topic and `others`. Raises ConfigError if the request topic does not exist. Otherwise raises
    as `Admin.describe`."""
    live = admin.describe([requests, *others], [RETENTION_MS])
    if requests not in live:
        raise ConfigError(
            f"request topic {requests} does not exist: postdate topics create -b {bootstrap_servers}"
            f" --requests {requests}"
        )
    info = live[requests]
    return LiveTopic(len(info.partitions), int(info.config.get(RETENTION_MS, "-1")), frozenset(live))


class ReusedProducer:
    """Produces single requests with a client that is kept, since creating a new client takes half a second.

    An idempotent producer requests its id when it is created, before it has a connection, and the library then waits
    500 ms before it repeats the request (librdkafka 2.16, `rd_kafka_idemp_pid_fsm`). A client that met a fault is
    replaced.

    Thread rule: any thread. One client is kept; further concurrent calls create their own.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._lock = threading.Lock()
        self._idle: PlainProducer | None = None

    def produce(self, part: Partition, record: UnsentRequest) -> DeliveryReport:
        """Produces the record and waits for its acknowledgement. Raises as `DeliveryReport.check`, and any KafkaFault
        of the client."""
        with self._lock:
            idle, self._idle = self._idle, None
        producer = idle or self._kafka.plain_producer()
        report = DeliveryReport()
        spare: PlainProducer | None = producer
        try:
            producer.produce(part.topic, record.value, record.key, record.headers, part.index, report.resolve)
            producer.flush(limits.COMMAND_TIMEOUT_S)
            report.check(part.topic)
            with self._lock:
                self._idle, spare = producer, self._idle
        finally:
            if spare is not None:
                spare.destroy()
        return report

    def close(self) -> None:
        """Destroys the idle client. A later call of `produce` creates another one."""
        with self._lock:
            idle, self._idle = self._idle, None
        if idle is not None:
            idle.destroy()


def partitions_of(live: LiveTopic, topic: str, chosen: Sequence[int]) -> list[int]:
    """Returns the partitions of a request topic to which a bulk control goes: the chosen ones, or all if none is
    chosen. Raises ConfigError if a chosen one does not exist."""
    missing = [index for index in chosen if index >= live.partitions]
    if missing:
        raise ConfigError(f"{topic} has {counted(live.partitions, 'partition')}, and no partition {missing[0]}")
    return sorted(set(chosen)) or list(range(live.partitions))


def produce_to_each(
    producer: ReusedProducer, topic: str, partitions: Sequence[int], record: UnsentRequest
) -> dict[int, DeliveryReport]:
    """Produces a bulk control to each of the partitions; returns the acknowledgements by partition.

    Raises PartlyProduced at the first failure, but NotAuthorized or SettingRefused itself if no partition has the
    control yet.
    """
    produced: dict[int, DeliveryReport] = {}
    for index in partitions:
        try:
            produced[index] = producer.produce(Partition(topic, index), record)
        except (KafkaFault, TransientError) as fault:
            if not produced and isinstance(fault, NotAuthorized | SettingRefused):
                raise
            remaining = partitions[len(produced) + 1 :]
            raise PartlyProduced(_partly(topic, produced, index, remaining, record, fault), produced) from fault
    return produced


def _partly(
    topic: str,
    produced: Mapping[int, DeliveryReport],
    failed: int,
    remaining: Sequence[int],
    record: UnsentRequest,
    fault: Exception,
) -> str:
    """Returns the text of a partial failure: the partitions that have the control, and how to reach the others."""
    origins = [format_origin(topic, index, report.offset).decode() for index, report in produced.items()]
    unsent = [f"{topic}/{index}" for index in remaining]
    lines = [
        f"{topic}/{failed}: {fault}",
        f"sent: {', '.join(origins) or 'none'}; may be sent: {topic}/{failed}; not sent: {', '.join(unsent) or 'none'}",
    ]
    if names.BY not in dict(record.headers):
        return "\n".join([*lines, "repeat the command: a second control of this kind does no harm"])
    if remaining:
        options = " ".join(f"--partition {index}" for index in remaining)
        lines.append(f"repeat it only with {options} (HTTP: `partitions`): a second control moves messages again")
    check_command = f"postdate pending list --requests {topic} --partition {failed}"
    lines.append(
        f"repeat it with --partition {failed} only if its messages have not moved a minute from now: {check_command}"
    )
    return "\n".join(lines)


def produce(kafka: Kafka, part: Partition, record: UnsentRequest) -> DeliveryReport:
    """Produces one record and waits for its acknowledgement. Raises as `ReusedProducer.produce`."""
    producer = ReusedProducer(kafka)
    try:
        return producer.produce(part, record)
    finally:
        producer.close()


def partition_of(key: bytes | None, count: int) -> int:
    """Returns the partition of the request topic for a record with this key: by murmur2, as Java clients do, or a
    random one for a null key."""
    return random.randrange(count) if key is None else partition_for(key, count)  # noqa: S311


def accepted(rules: RequestRules, record: UnsentRequest, partition: int, timestamp_ms: int) -> Request:
    """Returns the request as the sidecar will read it; sends nothing. Raises ConfigError if the sidecar would refuse
    it."""
    try:
        return parse_request(rules, partition, timestamp_ms, record.key, record.headers, record.value is None)
    except RequestRefused as refusal:
        raise ConfigError(f"this request would be refused: {refusal}") from refusal
