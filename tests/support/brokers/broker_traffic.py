"""Sends requests at a steady rate to a cluster whose brokers fail, and reads the outcome of each.

One thread sends; another reads the dispatch log and the target as a read_committed consumer. Both clients refresh their
metadata every second, so that stale metadata in the test does not look like a delay of the sidecar or the brokers. Any
thread may query the figures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from random import Random

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from postdate.wire.dispatch_log import FINAL, decode_record
from postdate.wire.headers import AT, ORIGIN, TOPIC, Headers
from postdate.wire.origins import format_origin
from support.deployments.sidecars import wait_until
from support.oracles.exactly_once import Sender, Sent
from support.waiting.timeouts import WAIT_TIMEOUT_S

#: Milliseconds: a request is overdue if it has not ended this long after its due time.
GRACE_MS = 1_000
_TICK_S = 0.05
_CLIENT: Mapping[str, str | int] = {
    "topic.metadata.refresh.interval.ms": 1_000,
    "reconnect.backoff.max.ms": 1_000,
    "log_level": 0,
}


class Traffic:
    """Sends requests for one target between `start` and `stop`. They are due 0 to 3 s after they are sent."""

    def __init__(self, bootstrap: str, requests: str, target: str, per_second: int, random: Random) -> None:
        self._requests, self._target, self._per_second, self._random = requests, target, per_second, random
        # The producer is idempotent and retries without limit, so the log contains each request exactly once. Only one
        # batch is in flight: if the response to one batch is lost and the next batch is acknowledged, librdkafka also
        # reports the first as acknowledged, but without its offsets (2.16, `rd_kafka_dr_implicit_ack`).
        sending: dict[str, str | int] = {"enable.idempotence": "true", "max.in.flight.requests.per.connection": 1}
        self._sender = Sender(bootstrap, **sending, **{"message.timeout.ms": 0, **_CLIENT})
        self.sent_requests: list[Sent] = []
        self._open: dict[bytes, Sent] = {}
        self._ended_ms: dict[bytes, int] = {}
        self._seen_ms: dict[bytes, int] = {}
        self._checked = 0
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._read = threading.Event()
        self.failure: BaseException | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "traffic",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                **_CLIENT,
            }
        )
        self._follow([f"{requests}.dispatch-log", target], bootstrap)
        self._threads = [
            threading.Thread(target=self._guarded, args=(body,), name=body.__name__, daemon=True)
            for body in (self._send, self._file)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> list[Sent]:
        """Stops sending; returns all requests once they are acknowledged."""
        self._ending.set()
        self._threads[0].join(WAIT_TIMEOUT_S)
        self._sender.flush()
        return self.sent_requests

    def close(self) -> None:
        self._ending.set()
        self._read.set()
        for thread in self._threads:
            thread.join(WAIT_TIMEOUT_S)
        self._consumer.close()

    def overdue(self) -> int:
        """Returns the number of overdue requests: not acknowledged, without a fate, or not delivered to the reader.
        Raises the error that stopped a thread."""
        if self.failure is not None:
            raise self.failure
        now_ms = int(time.time() * 1000)
        with self._lock:
            late = 0
            for sent in self.sent_requests[self._checked :]:
                if sent.origin in self._seen_ms and sent.origin in self._ended_ms:
                    continue
                late += max(sent.due_ms, sent.appended_ms) < now_ms - GRACE_MS
            # Skip the completed requests at the start of the list next time: a completed request stays completed.
            while self._checked < len(self.sent_requests) and self.sent_requests[self._checked].origin in self._seen_ms:
                if self.sent_requests[self._checked].origin not in self._ended_ms:
                    break
                self._checked += 1
        return late

    def seen_between(self, begun_ms: int, until_ms: int) -> list[tuple[int, int]]:
        """Returns (ready, seen) in ms of each delivered request that became ready in this interval. A request is ready
        once it is due and in the log."""
        with self._lock:
            return [
                (ready_ms, self._seen_ms[sent.origin])
                for sent in self.sent_requests
                if sent.origin in self._seen_ms
                and begun_ms <= (ready_ms := max(sent.due_ms, sent.appended_ms)) < until_ms
            ]

    def _guarded(self, body: object) -> None:
        assert callable(body)
        try:
            body()
        except BaseException as error:
            self.failure = error

    def _send(self) -> None:
        began, count = time.monotonic(), 0
        while not self._ending.wait(_TICK_S):
            wanted = int((time.monotonic() - began) * self._per_second)
            for number in range(count, wanted):
                due_ms = int(time.time() * 1000) + int(self._random.random() * 3_000)
                given: Headers = [(TOPIC, self._target.encode()), ("n", b"%d" % number), (AT, b"%d" % due_ms)]
                sent = Sent(self._target, b"%d" % (number % 97), b"v%d" % number, given, due_ms)
                self._sender.send(self._requests, sent)
                with self._lock:
                    self.sent_requests.append(sent)
            count = wanted
            self._sender.serve()

    def _follow(self, topics: Sequence[str], bootstrap: str) -> None:
        asking = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        parts: list[TopicPartition] = []

        def known() -> bool:
            seen = asking.list_topics(timeout=WAIT_TIMEOUT_S).topics
            parts[:] = [
                TopicPartition(each, index, OFFSET_BEGINNING)
                for each in topics
                if each in seen
                for index in seen[each].partitions
            ]
            return {part.topic for part in parts} == {*topics}

        wait_until(known, f"the brokers know {topics}")
        self._consumer.assign(parts)

    def _file(self) -> None:
        log = f"{self._requests}.dispatch-log"
        while not self._read.is_set():
            messages = self._consumer.consume(2_000, 0.05)
            now_ms = int(time.time() * 1000)
            with self._lock:
                for message in messages:
                    error = message.error()
                    if error is not None:
                        assert error.retriable() or error.code() in _PASSING, error
                        continue
                    if message.topic() == log:
                        for fate in decode_record(message.value()).fates:
                            if fate.name in FINAL:
                                part = message.partition()
                                assert part is not None
                                self._ended_ms[format_origin(self._requests, part, fate.offset)] = now_ms
                    else:
                        origin = dict(message.headers() or [])[ORIGIN]
                        assert isinstance(origin, bytes)
                        self._seen_ms.setdefault(origin, now_ms)


#: Errors of a broker that is down or restarting: the reader waits until they pass.
_PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._RESOLVE})
