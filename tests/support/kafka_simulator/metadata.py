"""The metadata cache of one client: the leader of each log, and the existing topics. It may be stale.

As in librdkafka, a client sends requests to the leader in its cache, and refreshes the cache only if that broker
refuses or does not respond. So it may send a request to a deposed broker. While that broker considers itself the
leader, its responses are stale.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from postdate.kafka.interface import Isolation, Partition, Record
from support.kafka_simulator.brokers import Node, Tail
from support.kafka_simulator.error_responses import no_answer, refusal
from support.kafka_simulator.log import PartitionLog

if TYPE_CHECKING:
    from support.kafka_simulator.broker import SimBroker

#: Milliseconds: the interval at which a client refreshes its topics (topic.metadata.refresh.interval.ms).
TOPIC_AGE_MS_MAX = 300_000.0
#: Milliseconds: how long a fetch waits for a leader that does not respond: the library's default for socket.timeout.ms.
#: The product's consumers wait a sixth of it, so the simulation is harder than the real client.
FETCH_TIMEOUT_MS = 60_000.0
#: The probability that a refresh queries a deposed leader, which names itself: one broker of three.
_ASKS_DEPOSED = 1 / 3


class StaleLog:
    """A log in the view of a deposed leader: it ends where it ended when that broker froze."""

    def __init__(self, log: PartitionLog, tail: Tail) -> None:
        self._log = log
        self._tail = tail

    @property
    def start(self) -> int:
        """The first offset of the log."""
        return self._log.start

    def end_for(self, isolation: Isolation) -> int:
        """Returns the end that a reader of this isolation level can reach."""
        return self._tail.stable_end if isolation is Isolation.READ_COMMITTED else self._tail.end

    def offset_for_time(self, timestamp_ms: int) -> int | None:
        """Returns the first offset stamped at or after a time."""
        found = self._log.offset_for_time(timestamp_ms)
        return found if found is not None and found < self._tail.end else None

    def read(self, offset: int, isolation: Isolation, records_max: int) -> tuple[list[Record], int]:
        """Reads like `PartitionLog.read`; raises OFFSET_OUT_OF_RANGE above the end in this view."""
        if offset > self._tail.end:
            raise refusal(KafkaError.OFFSET_OUT_OF_RANGE, f"offset {offset} is above the end {self._tail.end}")
        return self._log.read(offset, isolation, records_max, max(self.end_for(isolation), offset))


class Metadata:
    """The cache of one client."""

    def __init__(self, broker: SimBroker) -> None:
        self._broker = broker
        self._leaders: dict[Partition, Node] = {}
        self._silent_from_ms: dict[Partition, float] = {}
        # the number of partitions, and the time at which this entry expires
        self._topics: dict[str, tuple[int, float]] = {}

    def leader(self, part: Partition) -> Node:
        """Returns the broker to query about a partition; the first broker if the partition is unknown."""
        node = self._leaders.get(part)
        if node is None:
            node = self._leaders[part] = self._look(part)
        return node

    def by_leader(self, parts: Iterable[Partition]) -> dict[int, tuple[Node, list[Partition]]]:
        """Returns the partitions, grouped by the broker to query about them."""
        found: dict[int, tuple[Node, list[Partition]]] = {}
        for part in parts:
            node = self.leader(part)
            found.setdefault(node.number, (node, []))[1].append(part)
        return found

    def log(self, part: Partition, node: Node) -> PartitionLog | StaleLog:
        """Returns the log in the view of a broker. Raises like `SimBroker.log`; NOT_LEADER_FOR_PARTITION; and a
        transport error if the broker is down."""
        log = self._broker.log(part)
        if node.is_down:
            self.forget(part)
            raise no_answer()
        if log.leader == node.number:
            return log
        tail = node.believes.get(part)
        if tail is None:
            self.forget(part)
            raise refusal(KafkaError.NOT_LEADER_FOR_PARTITION, f"{part.topic}/{part.index} is led by another broker")
        self._broker.stale_answers += 1
        return StaleLog(log, tail)

    def is_silent(self, part: Partition) -> bool:
        """True while a fetch waits for a frozen leader, until the leader resumes or the fetch times out."""
        if not self.leader(part).is_frozen:
            self._silent_from_ms.pop(part, None)
            return False
        now_ms = self._broker.time.now_ms
        if now_ms - self._silent_from_ms.setdefault(part, now_ms) > FETCH_TIMEOUT_MS:
            self.forget(part)
        return True

    def forget(self, part: Partition) -> None:
        """Drops the leader of a partition; the next request refreshes it."""
        self._leaders.pop(part, None)
        self._silent_from_ms.pop(part, None)

    def partitions(self, topic: str) -> int:
        """Returns the number of partitions of a topic in the cache; 0 if the topic is unknown or missing."""
        now_ms, known = self._broker.time.now_ms, self._broker.topics.get(topic)
        if known is not None:
            self._topics[topic] = (len(known.logs), now_ms + TOPIC_AGE_MS_MAX)
        count, until_ms = self._topics.get(topic, (0, 0.0))
        return count if now_ms < until_ms else 0

    def forget_topic(self, topic: str) -> None:
        """Drops a topic if it does not exist in the cluster."""
        if topic not in self._broker.topics:
            self._topics.pop(topic, None)

    def _look(self, part: Partition) -> Node:
        broker = self._broker
        topic = broker.topics.get(part.topic)
        nodes = broker.brokers.nodes
        if topic is None or not 0 <= part.index < len(topic.logs):
            return nodes[0]
        for node in nodes:
            deposed = part in node.believes and not node.is_frozen and topic.logs[part.index].leader != node.number
            if deposed and broker.faults.between(0.0, 1.0) < _ASKS_DEPOSED:
                return node
        return broker.brokers.leader(topic.logs[part.index])
