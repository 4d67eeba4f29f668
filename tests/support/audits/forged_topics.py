"""A history forged on real topics: requests, fates, records and dead letters, written by hand and by no sidecar.

There is one partition of a request topic. The broker stamps the dispatch log, so due times are chosen around now.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from msgspec import UNSET

from postdate.spark.audit.job import run_audit
from postdate.spark.audit.options import AuditOptions
from postdate.wire.dispatch_log import DispatchRecord, Fate, Moved, Occurred, PlainFate, PolicyRow, encode_record
from postdate.wire.headers import AT, DUE, ID, ORIGIN, TOPIC
from postdate.wire.values.murmur2 import partition_for
from support.brokers.broker import unique_name
from support.deployments.sidecar_deployment import SidecarDeployment
from support.oracles.expected_records import Headers
from support.waiting.timeouts import WAIT_TIMEOUT_S

#: The longest timeout that a broker allows by default, so that a transaction outlives the audit.
_LONG = {"transaction.timeout.ms": 900_000}


@dataclass
class Forged:
    """One request topic with one target of four partitions. `due_ms` is the due time of requests that name none."""

    deployment: SidecarDeployment
    requests: str
    target: str
    due_ms: int = field(default_factory=lambda: int(time.time() * 1000) - 600_000)
    seq: int = 0
    next: int = 0
    sent: dict[int, Headers] = field(default_factory=dict)
    expected: dict[str, set[str]] = field(default_factory=dict)
    producer: Producer = field(init=False)

    def __post_init__(self) -> None:
        # This producer's metadata requests must not create a deleted topic again.
        settings = {"bootstrap.servers": self.deployment.bootstrap, "acks": "all", "allow.auto.create.topics": False}
        self.producer = Producer(settings)

    @classmethod
    def on(cls, deployment: SidecarDeployment, partitions: int = 4, **settings: str) -> Forged:
        return cls(deployment, deployment.new_requests(1), deployment.new_target(partitions, **settings))

    def ask(self, *more: tuple[str, bytes | None], key: bytes | None = b"k", at: int | None = None) -> int:
        """Produces a request to the target, and returns its offset."""
        due = b"%d" % (self.due_ms if at is None else at)
        sent = [(TOPIC, self.target.encode()), (AT, due), *more]
        offset = self.write(self.requests, 0, key, b"v", sent)
        self.sent[offset], self.next = sent, offset + 1
        return offset

    def bury(self, origin: int, reason: str) -> int:
        """Produces the dead letter of a request, and returns its offset."""
        own = [("postdate-dead-reason", reason.encode()), ("postdate-dead-detail", b"why")]
        own.append((ORIGIN, f"{self.requests}/0/{origin}".encode()))
        return self.write(f"{self.requests}.dead-letters", 0, b"k", b"v", [*self.sent[origin], *own])

    def deliver(
        self,
        origin: int,
        *,
        key: bytes | None = b"k",
        at: int | None = None,
        id: bytes | None = None,
        partition: int | None = None,
    ) -> int:
        """Produces the record of a request, as a sidecar would write it, and returns its offset."""
        own: Headers = [
            (ORIGIN, f"{self.requests}/0/{origin}".encode()),
            (DUE, b"%d" % (self.due_ms if at is None else at)),
        ]
        own += [(ID, id)] if id is not None else []
        place = partition_of_key(key) if partition is None else partition
        return self.write(self.target, place, key, b"v", own)

    @staticmethod
    def _fate(*fields: Any) -> Fate:
        return PlainFate(*fields) if len(fields) == 3 else Moved(*fields)

    def commit(self, *fates: Any, next_request: int | None = None, policies: list[PolicyRow] | None = None) -> int:
        """Produces the next record of the dispatch log, and returns its offset.

        Each of `fates` is either a whole fate, or the offset of a request that was delivered at the usual time.
        `policies` are named policies.
        """
        self.seq += 1
        spelled = [
            fate
            if isinstance(fate, Occurred)
            else self._fate(*((fate, self.due_ms, "delivered") if isinstance(fate, int) else fate))
            for fate in fates
        ]
        record = DispatchRecord(
            seq=self.seq,
            takeover=1,
            instance="a",
            group="postdate",
            at=1,
            next_request=self.next if next_request is None else next_request,
            low_water=0,
            fates=spelled,
            policies=UNSET if policies is None else policies,
        )
        return self.write(f"{self.requests}.dispatch-log", 0, None, encode_record(record), [])

    def sound(self, *, key: bytes | None = b"k", at: int | None = None) -> int:
        """Produces a correctly delivered request with its effects, and returns its offset."""
        offset = self.ask(key=key, at=at)
        self.deliver(offset, key=key, at=at)
        self.commit((offset, self.due_ms if at is None else at, "delivered"))
        return offset

    def expect(self, offset: int, *verdicts: str) -> int:
        """Records the verdict that the audit must find for a request."""
        self.expected[f"{self.requests}/0/{offset}"] = {*verdicts}
        return offset

    def write(
        self, topic: str, partition: int, key: Any, value: Any, headers: Headers, *, stamped_ms: int | None = None
    ) -> int:
        """Produces one record, now or with the CreateTime `stamped_ms`, and returns its offset."""
        taken: list[int] = []

        def note(error: KafkaError | None, message: Message) -> None:
            assert error is None, "the record was not taken"
            taken.append(message.offset() or 0)

        self.producer.produce(topic, value, key, partition, note, timestamp=stamped_ms or 0, headers=[*headers])
        assert self.producer.flush(WAIT_TIMEOUT_S) == 0
        assert taken, "no answer from the broker"
        return taken[0]

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Deletes the records of a partition below an offset, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.deployment.bootstrap})
        for future in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            future.result(WAIT_TIMEOUT_S)

    def hanging(self, partition: int, topic: str | None = None) -> Producer:
        """Opens a transaction that nobody ends, on a partition of the target or of another topic."""
        producer = Producer(
            {"bootstrap.servers": self.deployment.bootstrap, "transactional.id": unique_name("hanging")} | _LONG
        )
        producer.init_transactions(WAIT_TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(topic or self.target, b"open", partition=partition)
        assert producer.flush(WAIT_TIMEOUT_S) == 0
        return producer

    def audited(self, capsys: pytest.CaptureFixture[str], **options: Any) -> dict[str, Any]:
        """Audits the topics, and returns the JSON."""
        return audited_together([self], capsys, **options)


def audited_together(histories: Sequence[Forged], capsys: pytest.CaptureFixture[str], **options: Any) -> dict[str, Any]:
    """Audits the topics of all `histories`, which are on the same broker, together, and returns the JSON."""
    given = {"output": "json", "slack_ms": 1_000, "settle_ms": 1_000, "samples": 1_000, **options}
    requests = tuple(one.requests for one in histories)
    exit_code = run_audit(AuditOptions(histories[0].deployment.bootstrap, requests, **given))
    outcome: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert outcome["exit"] == exit_code
    return outcome


def expected_of(histories: Sequence[Forged]) -> dict[str, set[str]]:
    """Returns the verdicts that an audit of all `histories` must find, by origin."""
    return {origin: verdicts for one in histories for origin, verdicts in one.expected.items()}


def partition_of_key(key: bytes | None, partitions: int = 4) -> int:
    """Returns the partition of a key; for a null key, the first partition."""
    return 0 if key is None else partition_for(key, partitions)


def until(holds: Callable[[], bool], what: str) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def named(outcome: dict[str, Any]) -> dict[str, set[str]]:
    """Returns the violations of an audit by origin."""
    found: dict[str, set[str]] = {}
    for verdict, samples in outcome["samples"].items():
        for sample in samples:
            found.setdefault(sample["origin"], set()).add(verdict)
    return found
