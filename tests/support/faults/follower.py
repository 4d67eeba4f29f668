"""Files all records of all topics in a ledger, as a read_committed reader gets them. It continues after every fault of
a broker.

Thread rule: `start`, `to_end` and `close` from one thread; a separate thread reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from postdate.kafka.statistics import BrokerLoss
from postdate.wire.topics import OwnTopics
from support.brokers.end_offsets import end_offsets
from support.deployments.sidecars import wait_until
from support.faults.request_ledger import Headers, RequestLedger
from support.waiting.timeouts import WAIT_TIMEOUT_S

_RECORDS_AT_ONCE = 2_000


class Follower:
    """The only reader that files records in a ledger."""

    def __init__(self, bootstrap: str, ledger: RequestLedger, targets: Sequence[str]) -> None:
        self._bootstrap, self._ledger = bootstrap, ledger
        self._ends: dict[tuple[str, int], int] = {}
        self._at_end = threading.Event()
        self._own = OwnTopics.of(ledger.requests)
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        self._broker_loss = BrokerLoss()
        self._next: dict[tuple[str, int], int] = {}
        self._consumer = self._new_consumer()
        topics = [*targets, self._own.requests, self._own.dispatch_log, self._own.dead_letters, self._own.verdicts]
        self._parts: list[tuple[str, int]] = []

        def all_known() -> bool:
            known = self._consumer.list_topics(timeout=WAIT_TIMEOUT_S).topics
            self._parts = [(topic, index) for topic in topics if topic in known for index in known[topic].partitions]
            return {topic for topic, _ in self._parts} == {*topics}

        wait_until(all_known, f"the broker knows {topics}")
        self._consumer.assign([TopicPartition(*part, OFFSET_BEGINNING) for part in self._parts])
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def to_end(self, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Waits until every record that the topics contain at the time of the call has been filed."""
        ends = end_offsets(AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0}), self._parts)
        self._ends = {part: end for part, end in ends.items() if end > 0}

        def reached() -> bool:
            if self.failure is not None:
                raise self.failure
            return self._at_end.is_set()

        wait_until(reached, "everything is read", timeout_s)

    def close(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(30)
        self._consumer.close()

    def _new_consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "follower",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 1_000,
                "topic.metadata.refresh.interval.ms": 3_000,
                "statistics.interval.ms": 2_000,
                "stats_cb": self._on_statistics,
                "log_level": 0,
            }
        )

    def _on_statistics(self, text: str) -> None:
        self._broker_loss.observe(text)

    def _begin_again(self) -> None:
        """Replaces the client and continues: while a broker starts, a client of librdkafka may lose all brokers (its
        issue 5301)."""
        self._consumer.close()
        self._consumer, self._broker_loss = self._new_consumer(), BrokerLoss()
        self._consumer.assign([TopicPartition(*part, self._next.get(part, OFFSET_BEGINNING)) for part in self._parts])

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._broker_loss.is_lost:
                    self._begin_again()
                messages = self._consumer.consume(_RECORDS_AT_ONCE, 0.05)
                if messages:
                    with self._ledger.lock:
                        for message in messages:
                            self._file(message)
                elif self._ends:  # position() also counts markers and aborted records; only this thread may call it
                    positions = self._consumer.position([TopicPartition(*part) for part in self._ends])
                    if all(place.offset >= self._ends[place.topic, place.partition] for place in positions):
                        self._at_end.set()
        except Exception as error:
            self.failure = error
            self._ledger.wrong.append(f"{time.time():.0f}: the reader stopped: {type(error).__name__}: {error}")

    def _file(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if not (error.retriable() or error.code() in _PASSING):
                self._ledger.wrong.append(f"{message.topic()}/{message.partition()} cannot be read: {error}")
            return
        topic, part, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert part is not None
        assert offset is not None
        self._next[topic, part] = offset + 1
        headers = cast(Headers, message.headers() or [])
        own, ledger, at_ms = self._own, self._ledger, message.timestamp()[1]
        if topic == own.requests:
            ledger.file_request(part, offset, at_ms, message.key(), message.value(), headers)
        elif topic == own.dispatch_log:
            ledger.file_log(part, offset, at_ms, message.value())
        elif topic == own.dead_letters:
            ledger.file_dead_letter(headers)
        elif topic == own.verdicts:
            ledger.file_verdict(part, message.value())
        else:
            ledger.file_delivered(topic, part, offset, message.key(), message.value(), headers)


#: Errors of a broker that is unavailable or starting: the reader waits until they pass.
_PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE})
