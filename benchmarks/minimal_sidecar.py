"""The least work that any sidecar in Python must do with these client libraries: a lower bound for the sidecar's cost.

    python -m benchmarks.minimal_sidecar BOOTSTRAP REQUESTS TARGET CASE COUNT PAUSE_MS

Does the work of one case of `postdate bench` for COUNT records of REQUESTS: intake, through, long, cancel or steady.
It consumes batches with their headers. For each partition of a batch, one RocksDB write puts a row for each request, as
large as an entry. If messages are due, the program reads their rows back, and produces the messages with their origin
and due time. Each transaction also has one record that names its messages. Then the program deletes the rows. `long`
writes to the store topic instead, and puts the rows after the commit; `cancel` looks up ids. The program checks,
refuses, recovers and counts nothing. It has one thread; in `steady` each of the four partitions also has a thread with
a producer that pauses for PAUSE_MS between transactions, like a shard.

Prints {"records": …, "seconds": …, "cpu_s": …, "transactions": …}, from the first record on.
"""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from rocksdict import Rdict, ReadOptions, WriteBatch

from postdate.kafka.limits import FETCH_QUEUE_BACKOFF_MS
from postdate.tools.bench.limits import COPY_BATCH_RECORDS, PARTITIONS
from postdate.wheel.options import IndexOptions, family_options
from postdate.wire.headers import Headers
from postdate.wire.topics import OwnTopics

_TIMEOUT_S = 30.0
_POLL_RECORDS_MAX = 5_000
#: Seconds: how long a poll gathers records from a full topic, and in `steady`, where the sidecar gathers as long.
_GATHER_S = 1.0
_STEADY_GATHER_S = 0.01
_KEY = struct.Struct(">QQ")
#: The prefix of the keys of ids. It sorts after all due times.
_ID = b"\xff"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes | None, bytes | None, Headers, bytes, int]).decode
_encode_fates = msgspec.json.Encoder().encode

_Fate = tuple[int, int, str]


class MinimalSidecar:
    """A consumer of all partitions, and a RocksDB for each."""

    def __init__(self, bootstrap: str, requests: str, target: str, directory: Path) -> None:
        self._bootstrap, self._target, self._own = bootstrap, target, OwnTopics.of(requests)
        options = family_options(IndexOptions(), bodies=True)
        options.create_if_missing(True)
        self._logs = [Rdict(str(directory / str(each)), options) for each in range(PARTITIONS)]
        self._cursors = [b""] * PARTITIONS
        conf = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
        self._consumer = Consumer({**conf, "fetch.queue.backoff.ms": FETCH_QUEUE_BACKOFF_MS})
        self._consumer.assign([TopicPartition(requests, each, 0) for each in range(PARTITIONS)])
        self.transactions = 0
        self.began = 0.0, 0.0
        """Wall and processor time of the first record, s."""

    def producer(self) -> Producer:
        """Returns a producer that may begin a transaction."""
        name = f"minimal-{uuid.uuid4()}"
        conf = {"bootstrap.servers": self._bootstrap, "transactional.id": name, "partitioner": "murmur2_random"}
        made = Producer(conf)
        made.init_transactions(_TIMEOUT_S)
        return made

    def batches(self, count: int, gather_s: float) -> Iterator[tuple[int, list[Any]]]:
        """Yields the next `count` records, by poll and partition. The type is `Any`, since the library's type of a
        message is too general."""
        taken = 0
        while taken < count:
            first = self._consumer.poll(_TIMEOUT_S)
            if first is None:
                raise RuntimeError(f"there are {taken} records instead of {count}")
            if not taken:
                self.began = time.perf_counter(), time.process_time()
            grouped: dict[int, list[Any]] = defaultdict(list)
            messages: list[Any] = [first]
            messages += self._consumer.consume(min(_POLL_RECORDS_MAX, count - taken) - 1, gather_s)
            for message in messages:
                grouped[message.partition()].append(message)
            taken += len(messages)
            yield from grouped.items()

    def accept(self, partition: int, messages: list[Any]) -> None:
        """Puts a row for each request, in one write."""
        batch = WriteBatch(raw_mode=True)
        for message in messages:
            headers = message.headers()
            batch.put(_KEY.pack(int(headers[1][1]), message.offset()), _row(message, headers[2:]))
        self._logs[partition].write(batch)

    def store(self, partition: int, messages: list[Any], producer: Producer) -> None:
        """Writes each request to the store topic in one transaction, then puts the rows."""
        batch, fates = WriteBatch(raw_mode=True), list[_Fate]()
        producer.begin_transaction()
        for message in messages:
            headers, offset = message.headers(), message.offset()
            due_ms = int(headers[1][1])
            batch.put(_KEY.pack(due_ms, offset), _row(message, headers[2:]))
            stored = [*headers, ("postdate-due", b"%d" % due_ms)]
            producer.produce(self._own.store, message.value(), b"%d" % offset, partition, headers=stored)
            fates.append((offset, due_ms, "stored"))
        self._commit(producer, partition, fates)
        self._logs[partition].write(batch)

    def accept_with_ids(self, partition: int, messages: list[Any], producer: Producer) -> None:
        """Puts a row for each request and one for its id. For a cancel, deletes both rows, and writes the fates in a
        transaction."""
        batch, fates = WriteBatch(raw_mode=True), list[_Fate]()
        log: Any = self._logs[partition]
        new: dict[bytes, bytes] = {}
        for message in messages:
            headers, offset = message.headers(), message.offset()
            id: bytes = headers[-1][1]
            if len(headers) == 2:  # an action and an id
                key: bytes = new.pop(id) if id in new else log[_ID + id]
                batch.delete(key)
                batch.delete(_ID + id)
                fates += [(_KEY.unpack(key)[1], 0, "cancelled"), (offset, 0, "applied")]
            else:
                key = new[id] = _KEY.pack(int(headers[1][1]), offset)
                batch.put(key, _row(message, headers[2:-1], id))
                batch.put(_ID + id, key)
        if fates:
            producer.begin_transaction()
            for offset, _, _ in fates[1::2]:
                producer.produce(self._own.verdicts, b"x" * 100, b"%d" % offset, partition)
            self._commit(producer, partition, fates)
        log.write(batch)

    def deliver(self, partition: int, producer: Producer) -> int:
        """Delivers the due messages of a partition in transactions; returns their number."""
        log, delivered = self._logs[partition], 0
        before = _KEY.pack(time.time_ns() // 1_000_000, 0)
        origin = f"{self._own.requests}/{partition}/".encode()
        while rows := _read(log, self._cursors[partition], before):
            batch, fates = WriteBatch(raw_mode=True), list[_Fate]()
            producer.begin_transaction()
            for row_key, row in rows:
                due_ms, offset = _KEY.unpack(row_key)
                key, value, headers, id, _ = _decode(row)
                headers += [("postdate-origin", origin + b"%d" % offset), ("postdate-due", b"%d" % due_ms)]
                producer.produce(self._target, value, key, headers=list(headers))
                fates.append((offset, due_ms, "delivered"))
                if id:
                    batch.delete(_ID + id)
            self._commit(producer, partition, fates)
            end = self._cursors[partition] = rows[-1][0] + b"\0"
            batch.delete_range(rows[0][0], end)
            log.write(batch)
            delivered += len(rows)
        return delivered

    def _commit(self, producer: Producer, partition: int, fates: list[_Fate]) -> None:
        producer.produce(self._own.dispatch_log, _encode_fates(fates), partition=partition)
        producer.commit_transaction(_TIMEOUT_S)
        self.transactions += 1


def _row(message: Any, headers: Headers, id: bytes = b"") -> bytes:
    return _encode((message.key(), message.value(), headers, id, message.timestamp()[1]))


def _read(log: Rdict, start: bytes, before: bytes) -> list[tuple[bytes, bytes]]:
    options = ReadOptions()  # must live as long as the iterator
    options.set_iterate_upper_bound(before)
    found, rows = log.iter(options), list[tuple[bytes, bytes]]()
    found.seek(start)
    key, value, step = found.key, found.value, found.next
    while len(rows) < COPY_BATCH_RECORDS and (row := key()) is not None:
        rows.append((row, value()))
        step()
    return rows


def run_full(sidecar: MinimalSidecar, case: str, count: int) -> None:
    """Does the work of a case that begins with a full request topic."""
    producer = sidecar.producer()
    for partition, messages in sidecar.batches(count, _GATHER_S):
        if case == "long":
            sidecar.store(partition, messages, producer)
        elif case == "cancel":
            sidecar.accept_with_ids(partition, messages, producer)
        else:
            sidecar.accept(partition, messages)
            if case == "through":
                sidecar.deliver(partition, producer)
    if case == "cancel":
        for partition in range(PARTITIONS):
            sidecar.deliver(partition, producer)


def run_steady(sidecar: MinimalSidecar, count: int, pause_ms: float) -> None:
    """Does the work of `steady`. Requires the same number of records in each partition."""

    def deliver(partition: int, producer: Producer) -> None:
        left = count // PARTITIONS
        while left:
            left -= sidecar.deliver(partition, producer)
            time.sleep(pause_ms / 1_000)

    threads = [threading.Thread(target=deliver, args=(each, sidecar.producer())) for each in range(PARTITIONS)]
    for thread in threads:
        thread.start()
    for partition, messages in sidecar.batches(count, _STEADY_GATHER_S):
        sidecar.accept(partition, messages)
    for thread in threads:
        thread.join()


def main(arguments: list[str]) -> None:
    """Runs a case and prints its figures."""
    bootstrap, requests, target, case, count, pause_ms = arguments
    with tempfile.TemporaryDirectory(prefix="minimal-sidecar-") as directory:
        sidecar = MinimalSidecar(bootstrap, requests, target, Path(directory))
        if case == "steady":
            run_steady(sidecar, int(count), float(pause_ms))
        else:
            run_full(sidecar, case, int(count))
        wall_s, cpu_s = time.perf_counter() - sidecar.began[0], time.process_time() - sidecar.began[1]
    figures = {"records": int(count), "seconds": wall_s, "cpu_s": cpu_s, "transactions": sidecar.transactions}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
