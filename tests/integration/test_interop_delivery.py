"""Goal: a message that a client without Postdate's library requests arrives unchanged, in the partition that a Java
producer would choose.

Method: kcat, Kafka's Java client and KafkaJS each send the same messages as requests to a real broker. A sidecar
process delivers them, and a read_committed consumer reads the target. The Java client also produces the same keys to a
topic with the same number of partitions, which gives the expected partitions.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka import Message as Received
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from postdate.wire.headers import AT, DELAY, DUE, LEVEL, ORIGIN, TOPIC
from support.brokers.broker import RunningBroker, unique_name
from support.clients.foreign_clients import (
    Message,
    Producer,
    produce_with_java,
    produce_with_javascript,
    produce_with_kcat,
    send_with_java,
)
from support.deployments.programs import need_program
from support.deployments.sidecars import Sidecar, postdate
from support.repository import ROOT
from support.waiting.timeouts import WAIT_TIMEOUT_S

PARTITIONS = 4

FULL = Message(
    key=b"order-\xff\xfe",
    value=b"line 1\nline 2\x00\xff",
    headers=(
        ("traceparent", b"00-4bf92f3577b34da6-01"),
        ("repeated", b"1"),
        ("repeated", b"2"),
        ("binary", b"\x80\xff=\x7f"),
        ("empty", b""),
        ("missing", None),
        ("naïve-名", b"name beyond ASCII"),
    ),
)
BODILESS = (Message(b"tombstone", None), Message(b"empty", b""))
KEYLESS = Message(None, b"without a key")
KEYED = tuple(Message(key, key) for key in (b"a", b"order-9", b"\xf0\x9f\xa6\x89", b"k" * 300, b"21", b"x y", b"\x01"))
# A name repeats with other names in between. KafkaJS takes headers as an object, so it cannot send them in this order.
INTERLEAVED = Message(b"interleaved", b"v", (("b", b"1"), ("a", b"2"), ("b", b"3"), ("B", b"4"), ("b", b"1")))
ALL = (FULL, *BODILESS, KEYLESS, *KEYED)
WITHOUT_NULL_HEADERS = tuple(Message(m.key, m.value, tuple(h for h in m.headers if h[1] is not None)) for m in ALL)


@pytest.fixture(scope="module")
def new_topic(broker: RunningBroker) -> Callable[[str], str]:
    """Returns a function that creates a topic with a unique name and PARTITIONS partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def create(prefix: str) -> str:
        name = unique_name(prefix)
        for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
            future.result(WAIT_TIMEOUT_S)
        return name

    return create


@pytest.fixture(scope="module")
def requests(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A request topic that a sidecar serves."""
    name = unique_name("interop.requests")
    postdate("topics", "create", "-b", broker.bootstrap_servers, "--requests", name, "--partitions", "2")
    sidecar = Sidecar("sidecar", broker.bootstrap_servers, [name], tmp_path_factory.mktemp("interop"), group_id=name)
    sidecar.start()
    try:
        sidecar.wait_for_shards(2)
        yield name
    finally:
        sidecar.kill()


@pytest.fixture(scope="module")
def partition_by_java(broker: RunningBroker, new_topic: Callable[[str], str]) -> dict[bytes, int]:
    """The partition of each key on a topic with PARTITIONS partitions, as acknowledged to the Java client."""
    messages = [message for message in (*ALL, INTERLEAVED) if message.key is not None]
    sent = send_with_java(broker.bootstrap_servers, new_topic("interop.reference"), messages)
    return {m.key: partition for m, (partition, _) in zip(messages, sent, strict=True) if m.key is not None}


def read(bootstrap: str, topic: str, count: int) -> list[Received]:
    """Returns the first `count` committed records of a topic, and fails after a time-out."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique_name("reader"),
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    records: list[Received] = []
    while len(records) < count and time.monotonic() < deadline:
        for record in consumer.consume(count - len(records), 0.5):
            error: KafkaError | None = record.error()
            assert error is None, error
            records.append(record)
    consumer.close()
    assert len(records) == count, f"{len(records)} of {count} arrived"
    return records


def as_message(record: Received, postdate_headers: int = 0) -> Message:
    """Returns the record as a message without its last `postdate_headers` headers, which Postdate added."""
    headers = cast("list[tuple[str, bytes | None]]", record.headers() or [])
    return Message(record.key(), record.value(), tuple(headers[: len(headers) - postdate_headers]))


CLIENTS = [
    pytest.param(produce_with_kcat, (*ALL, INTERLEAVED), id="kcat"),
    pytest.param(produce_with_java, (*ALL, INTERLEAVED), id="java"),
    pytest.param(produce_with_javascript, WITHOUT_NULL_HEADERS, id="javascript"),
]


@pytest.mark.parametrize(("produce", "messages"), CLIENTS)
def test_a_message_arrives_as_it_was_sent_and_where_java_would_put_it(
    broker: RunningBroker,
    requests: str,
    new_topic: Callable[[str], str],
    partition_by_java: dict[bytes, int],
    produce: Producer,
    messages: tuple[Message, ...],
) -> None:
    bootstrap = broker.bootstrap_servers
    target = new_topic("interop.target")
    produce(bootstrap, requests, [m.with_headers((TOPIC, target.encode()), (DELAY, b"1s")) for m in messages])

    delivered = read(bootstrap, target, len(messages))

    partitions = {as_message(record, postdate_headers=2): record.partition() for record in delivered}
    assert set(partitions) == set(messages)
    by_key = {message.key: partition for message, partition in partitions.items() if message.key is not None}
    assert by_key == {key: partition_by_java[key] for key in by_key}
    assert len(set(by_key.values())) > 1, "keys that all fall on one partition prove nothing"


def test_the_added_headers_are_last_and_hold_origin_and_due_time(
    broker: RunningBroker, requests: str, new_topic: Callable[[str], str]
) -> None:
    bootstrap = broker.bootstrap_servers
    target = new_topic("interop.target")
    due_ms = time.time_ns() // 1_000_000 + 1_500
    request = Message(b"k", b"v", ((TOPIC, target.encode()), ("first", b"1"), (AT, b"%d" % due_ms), ("second", b"2")))
    ((partition, offset),) = send_with_java(bootstrap, requests, [request])

    (record,) = read(bootstrap, target, 1)

    origin = f"{requests}/{partition}/{offset}".encode()
    assert record.headers() == [("first", b"1"), ("second", b"2"), (ORIGIN, origin), (DUE, b"%d" % due_ms)]


def test_a_delivered_record_sent_back_with_all_its_headers_is_delivered_again(
    broker: RunningBroker, requests: str, new_topic: Callable[[str], str]
) -> None:
    bootstrap = broker.bootstrap_servers
    first, second = new_topic("interop.first"), new_topic("interop.second")
    produce_with_kcat(bootstrap, requests, [FULL.with_headers((TOPIC, first.encode()), (LEVEL, b"0"))])
    (record,) = read(bootstrap, first, 1)
    retry = as_message(record).with_headers((TOPIC, second.encode()), (DELAY, b"100"))
    produce_with_kcat(bootstrap, requests, [retry])

    (again,) = read(bootstrap, second, 1)

    assert as_message(again, postdate_headers=2) == FULL


@pytest.mark.parametrize(("document", "language"), [("README.md", "python"), ("docs/client.md", "sh")])
def test_the_first_examples_of_the_documents_work(
    broker: RunningBroker, requests: str, new_topic: Callable[[str], str], document: str, language: str
) -> None:
    need_program("kcat", "kcat")
    target = new_topic("interop.readme")
    text = (ROOT / document).read_text(encoding="utf-8")
    example = text.partition(f"\n```{language}\n")[2].partition("\n```")[0]
    for shown, here in (
        ("localhost:9092", broker.bootstrap_servers),
        ("postdate.requests", requests),
        ("reminders", target),
        ("15m", "1s"),
        ("1 hour", "1 second ago"),
    ):
        example = example.replace(shown, here)
    interpreter = {"python": [sys.executable, "-c"], "sh": ["bash", "-c"]}[language]
    subprocess.run([*interpreter, example], check=True, timeout=WAIT_TIMEOUT_S)

    (record,) = read(broker.bootstrap_servers, target, 1)

    assert record.key() == b"order-9"
    assert record.value() == b'{"reminder": 1}'
