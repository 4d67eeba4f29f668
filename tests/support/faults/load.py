"""Sends requests at a steady rate. Later controls change some of them by their ids, and one request in a hundred is
invalid.

The first letter of a value states the intended outcome of its request (`request_ledger.RequestKind`). All content
except the times follows from the seed. The producer is idempotent and has no message time-out: after an outage of the
broker it sends the remaining requests.

Thread rule: `start` and `stop` from one thread; a separate thread sends.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from postdate.kafka.statistics import BrokerLoss
from postdate.wire.headers import ACTION, AT, DELAY, GRACE, ID, KEY, LEVEL, PARTITION, TOPIC, Headers
from support.waiting.timeouts import WAIT_TIMEOUT_S

_TICK_S = 0.02
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_PURGE_S = 5.0
"""Seconds: how long a replaced client may report the records that it has not sent."""
_BAD_SHARE, _ID_SHARE, _CHANGED = 0.01, 0.02, ("cancel", "cancel", "reschedule", "")


@dataclass(frozen=True)
class LoadPlan:
    """The parameters of the load."""

    requests: str
    targets: tuple[str, ...]
    small_target: str
    """A target that refuses records above 20,000 bytes."""
    seed: int
    per_second: int
    delay_ms_max: int = 20_000
    bad_share: float = _BAD_SHARE
    id_share: float = _ID_SHARE


@dataclass(order=True)
class _Later:
    """A change by id that is sent later."""

    at_ms: int
    id: bytes
    action: str
    due_ms: int


class Load:
    """Sends requests until it is stopped."""

    def __init__(self, bootstrap: str, plan: LoadPlan) -> None:
        self._plan = plan
        self._chance = random.Random(plan.seed)
        self._bad = bad_requests(plan)
        self._later: list[_Later] = []
        self.sent = self.acknowledged = 0
        self.clients_lost = self.given_up = 0
        """The number of clients that lost all brokers, and the number of their requests without an acknowledgement."""
        self.failures: list[KafkaError] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._bootstrap = bootstrap
        self._producer = self._new_producer()

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Stops sending; returns once all sent requests are acknowledged."""
        self._stopping.set()
        self._thread.join(30)
        deadline = time.monotonic() + timeout_s
        while (left := self._producer.flush(1.0)) and time.monotonic() < deadline:
            self._replace_if_lost()
        assert left == 0, f"{left} requests were not acknowledged"
        assert not self.failures, self.failures[:3]

    def unanswered(self) -> int:
        """Returns the number of requests without an acknowledgement."""
        return self.sent - self.acknowledged - self.given_up

    def _new_producer(self) -> Producer:
        self._broker_loss = BrokerLoss()
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "queue.buffering.max.messages": 1_000_000,
                "reconnect.backoff.max.ms": 1_000,
                # While a broker that stopped gracefully is away, its topics have no leader. If the fast retries for
                # metadata fail, librdkafka by default retries only after five minutes.
                "topic.metadata.refresh.interval.ms": 3_000,
                "statistics.interval.ms": 2_000,
                "stats_cb": self._on_statistics,
                "log_level": 0,
            }
        )

    def _on_statistics(self, text: str) -> None:
        self._broker_loss.observe(text)

    def _replace_if_lost(self) -> None:
        if not self._broker_loss.is_lost:
            return
        self.clients_lost += 1
        self._producer.purge(in_queue=True, in_flight=True)
        left = self._producer.flush(_PURGE_S)
        assert left == 0, f"a client without brokers kept {left} requests after a purge"
        self._producer = self._new_producer()

    def _run(self) -> None:
        began, count = time.monotonic(), 0
        while not self._stopping.is_set():
            wanted = int((time.monotonic() - began) * self._plan.per_second)
            for _ in range(min(wanted - count, 5_000)):
                self._send_one()
            count = wanted
            now_ms = int(time.time() * 1000)
            while self._later and self._later[0].at_ms <= now_ms:
                self._send_change(heapq.heappop(self._later))
            self._producer.poll(0)
            self._replace_if_lost()
            self._stopping.wait(_TICK_S)

    def _send_one(self) -> None:
        chance, plan = self._chance, self._plan
        roll = chance.random()
        if roll < plan.bad_share:
            rest, bad_headers = chance.choice(self._bad)
            self._produce(b"bad", b"X%d " % self.sent + rest, bad_headers)
            return
        delay_ms = self._delay_ms()
        due_ms = int(time.time() * 1000) + delay_ms
        if roll < plan.bad_share + plan.id_share:
            id_ = b"id-%d" % self.sent
            self._schedule_id(id_, due_ms)
            for _ in range(chance.choice((0, 1, 1, 2, 3))):
                at_ms = due_ms - int(chance.triangular(-200, 4_000, 50))
                later_ms = due_ms + int(chance.random() * 2_000)
                heapq.heappush(self._later, _Later(at_ms, id_, chance.choice(_CHANGED), later_ms))
            return
        headers: Headers = [("trace", b"%x" % chance.getrandbits(64)), (TOPIC, chance.choice(plan.targets).encode())]
        headers.append((AT, b"%d" % due_ms) if delay_ms < 0 or chance.random() < 0.5 else (DELAY, b"%d" % delay_ms))
        if chance.random() < 0.1:
            headers += [("twice", b"1"), ("twice", None)]
        filler = b"." * chance.choice((10, 50, 100, 200, 400))
        self._produce(b"k%d" % chance.randrange(997), b"D%d " % self.sent + filler, headers)

    def _delay_ms(self) -> int:
        """Returns a random delay: mostly short, sometimes long, rarely negative."""
        chance, most = self._chance, self._plan.delay_ms_max
        kind = chance.random()
        if kind < 0.02:
            return -1_000
        return chance.randrange(100, most // 4) if kind < 0.75 else chance.randrange(100, most)

    def _schedule_id(self, id_: bytes, due_ms: int) -> None:
        target = self._chance.choice(self._plan.targets)
        headers: Headers = [(ID, id_), (TOPIC, target.encode()), (KEY, b"key of " + id_), (AT, b"%d" % due_ms)]
        self._produce(id_, b"I%d" % self.sent, headers)

    def _send_change(self, change: _Later) -> None:
        if not change.action:
            self._schedule_id(change.id, change.due_ms)
            return
        headers: Headers = [(ID, change.id), (ACTION, change.action.encode())]
        if change.action == "reschedule":
            headers.append((AT, b"%d" % change.due_ms))
        self._produce(change.id, b"C%d" % self.sent, headers)

    def _produce(self, key: bytes, value: bytes, headers: Headers) -> None:
        self.sent += 1
        while True:
            try:
                self._producer.produce(
                    self._plan.requests, value, key, headers=list(headers), on_delivery=self._acknowledged
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def _acknowledged(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        elif error.code() in _PURGED:
            self.given_up += 1
        else:
            self.failures.append(error)


def bad_requests(plan: LoadPlan) -> list[tuple[bytes, Headers]]:
    """Returns requests that end as dead letters, each with the rest of its value."""
    to, now = (TOPIC, plan.targets[0].encode()), (DELAY, b"0")
    requests = plan.requests.encode()
    large = b"x" * 30_000
    return [
        (b"no target", [now]),
        (b"a name that is none", [(TOPIC, b"no topic name"), now]),
        (b"not UTF-8", [(TOPIC, b"\xff\xfe"), now]),
        (b"Kafka's own", [(TOPIC, b"__consumer_offsets"), now]),
        (b"the request topic", [(TOPIC, requests), now]),
        (b"the dispatch log", [(TOPIC, requests + b".dispatch-log"), now]),
        (b"no time", [to]),
        (b"two times", [to, now, (LEVEL, b"1")]),
        (b"negative", [to, (DELAY, b"-5")]),
        (b"beyond 63 bits", [to, (AT, b"%d" % 2**64)]),
        (b"many digits", [to, (AT, b"9" * 400)]),
        (b"beyond the horizon", [to, (DELAY, b"5000d")]),
        (b"no level", [to, (LEVEL, b"two")]),
        (b"no partition", [to, now, (PARTITION, b"-1")]),
        (b"an id too long", [to, now, (ID, b"i" * 257)]),
        (b"names nothing", [(ACTION, b"cancel")]),
        (b"no action", [to, now, (ACTION, b"postpone")]),
        (b"twice", [to, now, now]),
        (b"a typing error", [to, now, ("postdate-dealy", b"5s")]),
        (b"a large header", [now, ("much", b"y" * 200_000)]),
        (b"expired", [to, (AT, b"1000"), (GRACE, b"1h")]),
        (b"too large " + large, [(TOPIC, plan.small_target.encode()), now]),
        (b"a missing topic", [(TOPIC, b"missing-" + plan.targets[0].encode()), now]),
    ]
