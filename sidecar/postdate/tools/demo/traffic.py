"""The demo's clients: a plain producer of requests, and read_committed readers of the targets.

Of Postdate's protocol, they use only the header names and the choice of the partition. Thread rule: a `DemoSender`
belongs to one thread; each reader has a separate thread and only puts arrivals into the queue of its `Readers`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

from postdate.kafka.client import ConfluentKafka
from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import Isolation, Kafka, LogReader, Partition, Record
from postdate.kafka.settings import KafkaSettings
from postdate.sidecar.errors import TransientError
from postdate.tools.demo.ledger import Arrival, Ledger
from postdate.tools.demo.plan import PARTITIONS, REQUESTS, DemoMessage
from postdate.wire import headers as names
from postdate.wire.values.murmur2 import partition_for

#: Seconds: how long a reader waits for a record before it checks whether it must end.
_READ_TIMEOUT_S = 0.2
_READ_RECORDS_MAX = 500
#: Seconds: the time for an acknowledgement, and for an admin request. A shard's producer waits only two seconds, since
#: the shard repeats a failed write. With so short a time, a pause of a busy broker would end the demo.
_ANSWER_TIMEOUT_S = 60.0


def demo_clients(bootstrap: str) -> ConfluentKafka:
    """Returns the clients of the demo, with long time-outs, since the machine may be slow and busy."""
    patient = {"message.timeout.ms": round(_ANSWER_TIMEOUT_S * 1_000)}
    return ConfluentKafka(KafkaSettings(bootstrap, producer=patient, admin_timeout_s=_ANSWER_TIMEOUT_S))


def now_ms() -> int:
    """Returns the time, epoch ms, rounded down so that no arrival is recorded as later than it was."""
    return time.time_ns() // 1_000_000


class DemoSender:
    """Sends the planned requests at their times."""

    def __init__(
        self, kafka: Kafka, planned: Sequence[DemoMessage], ledger: Ledger, begin_ms: int, burst_ms: int
    ) -> None:
        self._producer = kafka.plain_producer()
        self._planned = planned
        self._ledger = ledger
        self._begin_ms = begin_ms
        self._burst_ms = burst_ms
        self._next = 0
        self._refusal = ""

    @property
    def is_done(self) -> bool:
        """True if every request was sent and acknowledged."""
        return self._next == len(self._planned) == self._ledger.sent

    def send_until(self, at_ms: int) -> None:
        """Sends the requests that are planned until `at_ms`, and handles acknowledgements. Raises TransientError if the
        broker did not acknowledge a request."""
        while self._next < len(self._planned) and self._planned[self._next].send_after_ms + self._begin_ms <= at_ms:
            self._send(self._planned[self._next])
            self._next += 1
        self._producer.flush(0)
        if self._refusal:
            raise TransientError(f"the broker did not acknowledge a request: {self._refusal}")

    def close(self) -> None:
        """Drops the client."""
        self._producer.destroy()

    def _send(self, message: DemoMessage) -> None:
        partition = partition_for(message.key, PARTITIONS)

        def acknowledged(fault: KafkaFault | None, offset: int, timestamp_ms: int) -> None:
            if fault is not None or offset < 0:
                self._refusal = str(fault or "the connection broke before its offset arrived")
                return
            due_ms = message.due_ms(timestamp_ms, self._burst_ms)
            self._ledger.note_sent(message, f"{REQUESTS}/{partition}/{offset}", due_ms)

        headers = message.headers(self._burst_ms)
        self._producer.produce(REQUESTS, message.value, message.key, headers, partition, acknowledged)


class Readers:
    """Reads all partitions of the targets from their beginning, committed records only."""

    def __init__(self, kafka: Kafka, parts: Sequence[Partition]) -> None:
        self._arrivals: queue.SimpleQueue[Arrival | KafkaFault] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._threads = []
        for part in parts:
            reader = kafka.log_reader(part, 0, Isolation.READ_COMMITTED)
            name = f"read {part.topic}/{part.index}"
            self._threads.append(threading.Thread(target=self._read, args=(part.topic, reader), name=name, daemon=True))
        for thread in self._threads:
            thread.start()

    def read_new(self, ledger: Ledger, timeout_s: float) -> None:
        """Records all new arrivals in the ledger; waits up to `timeout_s` for the first arrival. Raises KafkaFault if a
        reader failed."""
        try:
            item = self._arrivals.get(timeout=timeout_s)
            while True:
                if isinstance(item, KafkaFault):
                    raise item
                ledger.note_arrival(item)
                item = self._arrivals.get_nowait()
        except queue.Empty:
            return

    def close(self) -> None:
        """Ends the threads."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _read(self, target: str, reader: LogReader) -> None:
        try:
            while not self._ending.is_set():
                records = reader.read(_READ_RECORDS_MAX, _READ_TIMEOUT_S)
                at_ms = now_ms()
                for record in records:
                    self._arrivals.put(_arrival(target, record, at_ms))
        except KafkaFault as fault:
            self._arrivals.put(fault)
        finally:
            reader.close()


def _arrival(target: str, record: Record, at_ms: int) -> Arrival:
    headers = dict(record.headers or [])
    origin = (headers.get(names.ORIGIN) or b"?").decode(errors="replace")
    due_ms = int(headers.get(names.DUE) or -1)
    return Arrival(target, record.key, record.value, origin, due_ms, at_ms)
