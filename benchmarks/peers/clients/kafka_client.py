"""The client program for Postdate: plain Kafka, without a library of Postdate.

    kafka_client.py BOOTSTRAP send REQUESTS TARGET COUNT RATE DUE_MS
    kafka_client.py BOOTSTRAP receive TARGET

`send` prints {"acknowledged": …, "seconds": …}; `receive` writes rows (see `benchmarks/peers/arrivals.py`).
"""

from __future__ import annotations

import json
import random
import struct
import sys
import time
import uuid

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

VALUE_SIZE_BYTES = 150
PARTITIONS = 4
#: Seconds: messages of a steady load that are planned within this time are sent together.
STEP_S = 0.005
DELAY_MS = (1_000, 5_000)
ACKNOWLEDGE_TIMEOUT_S = 120.0
READ_RECORDS_MAX = 5_000
_FILLER = random.Random(20).randbytes(1 << 16)  # noqa: S311  # not a secret


def value_of(number: int, due_ms: int) -> bytes:
    """Returns a value: the sequence number, the due time, and bytes that do not compress."""
    first = number * 61 % (len(_FILLER) - VALUE_SIZE_BYTES)
    return struct.pack(">qq", number, due_ms) + _FILLER[first : first + VALUE_SIZE_BYTES - 16]


def send(bootstrap: str, requests: str, target: str, count: int, rate: int, due_ms: int) -> None:
    """Sends `count` requests and waits until all are acknowledged."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "queue.buffering.max.messages": 100_000}
    )
    acknowledged, refused = 0, ""

    def delivered(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged, refused
        acknowledged += error is None
        refused = refused or (str(error) if error else "")

    chance, began, sent = random.Random(7), time.monotonic(), 0  # noqa: S311
    name = target.encode()
    while sent < count:
        wanted = count if not rate else min(count, int((time.monotonic() - began) * rate) + 1)
        for number in range(sent, wanted):
            due = due_ms or time.time_ns() // 1_000_000 + chance.randint(*DELAY_MS)
            headers: list[tuple[str, str | bytes | None]] = [("postdate-topic", name), ("postdate-at", b"%d" % due)]
            while True:
                try:
                    producer.produce(
                        requests,
                        value_of(number, due),
                        partition=number % PARTITIONS,
                        headers=headers,
                        on_delivery=delivered,
                    )
                    break
                except BufferError:
                    producer.poll(0.01)
            if not number % 1_000:
                producer.poll(0)
        sent = wanted
        if rate:
            producer.poll(STEP_S)
    producer.flush(ACKNOWLEDGE_TIMEOUT_S)
    if acknowledged < count:
        raise SystemExit(f"{acknowledged} of {count} requests were acknowledged. {refused}")
    sys.stdout.write(json.dumps({"acknowledged": acknowledged, "seconds": time.monotonic() - began}) + "\n")


def receive(bootstrap: str, target: str) -> None:
    """Writes a row for each message until the process is ended."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"peers-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(target, partition, 0) for partition in range(PARTITIONS)])
    consumer.poll(1.0)
    out = sys.stdout.buffer
    out.write(struct.pack(">qqqq", -1, 0, 0, 0))
    out.flush()
    while True:
        first = consumer.poll(1.0)  # `consume` would wait for a whole batch
        if first is None:
            continue
        messages = [first, *consumer.consume(READ_RECORDS_MAX, 0)]
        now_us = time.time_ns() // 1_000
        rows = bytearray()
        for message in messages:
            value, partition, offset = message.value(), message.partition(), message.offset()
            if message.error() or value is None or partition is None or offset is None:
                raise SystemExit(f"the consumer got {message.error()}")
            rows += value[:16] + struct.pack(">qq", now_us, partition << 48 | offset)
        out.write(rows)
        out.flush()


if __name__ == "__main__":
    if sys.argv[2] == "send":
        _requests, _target, *_numbers = sys.argv[3:]
        send(sys.argv[1], _requests, _target, *map(int, _numbers))
    else:
        receive(sys.argv[1], sys.argv[3])
