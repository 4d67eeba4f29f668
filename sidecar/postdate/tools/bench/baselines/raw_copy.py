"""Copies the same records with the client library alone: the baseline of the benchmark.

    python -m postdate.tools.bench.baselines.raw_copy BOOTSTRAP SOURCE TARGET COUNT BATCH

The program consumes COUNT records of SOURCE with their headers, and produces them to TARGET in transactions of BATCH
records. It neither delays nor stores them, and uses one thread. With an empty TARGET it only consumes. It prints
{"records": …, "seconds": …, "cpu_s": …}; the times start at the first record. It is written as a user without Postdate
would write it, so it does not use `postdate.kafka.interface`.
"""

from __future__ import annotations

import json
import sys
import time
import uuid

from confluent_kafka import Consumer, Message, Producer, TopicPartition

#: Seconds: the time-out of each request to the cluster, and of the wait for the first record. Later, one second without
#: a record means that there are fewer than COUNT.
_TIMEOUT_S = 30.0

#: Milliseconds before the library fetches again if its queue is full. With the default of 1 s, the consumer would empty
#: the queue and then wait.
_FETCH_PAUSE_MS = 20


def copy(bootstrap: str, source: str, target: str, count: int, batch: int) -> tuple[float, float]:
    """Returns the wall-clock time and the processor time, s, for `count` records. Raises RuntimeError if the topic has
    fewer."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"raw-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": _FETCH_PAUSE_MS,
        }
    )
    partitions = consumer.list_topics(source, _TIMEOUT_S).topics[source].partitions
    producer = _producer(bootstrap) if target else None
    consumer.assign([TopicPartition(source, partition, 0) for partition in partitions])
    first = consumer.poll(_TIMEOUT_S)  # `consume` would wait for a whole batch, while the library keeps fetching
    messages = [] if first is None else [first]
    taken, began, began_cpu = 0, time.perf_counter(), time.process_time()
    while taken < count:
        messages += consumer.consume(min(batch, count - taken) - len(messages), 1.0)
        if not messages:
            raise RuntimeError(f"{source} has {taken} records instead of {count}")
        if producer is None:
            for message in messages:
                message.headers(), message.key(), message.value()
        else:
            _produce(producer, target, messages)
        taken += len(messages)
        messages = []
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    consumer.close()
    return took_s, cpu_s


def _producer(bootstrap: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"raw-{uuid.uuid4()}",
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(_TIMEOUT_S)
    return producer


def _produce(producer: Producer, target: str, messages: list[Message]) -> None:
    producer.begin_transaction()
    for message in messages:
        producer.produce(target, message.value(), message.key(), headers=message.headers())
    producer.commit_transaction(_TIMEOUT_S)


if __name__ == "__main__":
    _bootstrap, _source, _target, _count, _batch = sys.argv[1:]
    _seconds, _cpu_s = copy(_bootstrap, _source, _target, int(_count), int(_batch))
    sys.stdout.write(json.dumps({"records": int(_count), "seconds": _seconds, "cpu_s": _cpu_s}) + "\n")
