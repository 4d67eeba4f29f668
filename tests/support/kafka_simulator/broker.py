"""The simulated cluster: topics with their logs, brokers, a transaction coordinator, a group coordinator, one clock.

Each request of a client is a method that returns the response, or raises an error response. Other methods and
attributes change the cluster from outside: retention, truncation, a lost leader, an ACL, a step of the clock.

Thread rule: one thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException

from postdate.kafka.interface import Headers, NewTopic, Partition, Record
from support.kafka_simulator.brokers import Brokers
from support.kafka_simulator.coordinator import TransactionCoordinator
from support.kafka_simulator.error_responses import refusal
from support.kafka_simulator.faults import Faults
from support.kafka_simulator.groups import GroupCoordinator
from support.kafka_simulator.log import NO_PRODUCER, PartitionLog
from support.kafka_simulator.misbehaviour import Misbehaviour
from support.kafka_simulator.silence import Silence
from support.kafka_simulator.time import SimTime
from support.kafka_simulator.topics import Topic, check_settings

#: Bytes: the overhead of a record, and that of each header.
_RECORD_OVERHEAD_BYTES, _HEADER_OVERHEAD_BYTES = 80, 4

#: The writer: transactional id, producer id, epoch.
Writer = tuple[str, int, int]


class SimBroker:
    """One simulated cluster.

    `denied` contains the topics to which no client may write, `misbehaving` those that refuse or delay records,
    `deleted` those that were deleted. `skew_ms` is the error of the cluster's clock; the clock of each broker may
    differ from the cluster's. `stale_answers` counts the responses of deposed leaders.
    """

    def __init__(
        self, time: SimTime | None = None, faults: Faults | None = None, cluster_id: str = "simulated"
    ) -> None:
        self.time = time or SimTime()
        self.faults = faults or Faults()
        self.cluster_id = cluster_id
        self.topics: dict[str, Topic] = {}
        self.denied: set[str] = set()
        self.misbehaving: dict[str, Misbehaviour] = {}
        self.deleted: list[Topic] = []
        self.skew_ms = 0.0
        self.stale_answers = 0
        self.silence = Silence(self.time)
        self.brokers = Brokers(self.time, self.faults, self._logs, self._coordinators_away)
        self.transactions = TransactionCoordinator(self.time, self.faults, self._mark)
        self.groups = GroupCoordinator(self.time, self._partitions)
        self._topic_numbers = itertools.count(1)

    def now_ms(self, log: PartitionLog | None = None) -> int:
        """Returns the time in epoch milliseconds by the clock of the cluster, or of the leader of `log`."""
        error_ms = 0.0 if log is None else self.brokers.error_ms(log)
        return int(self.time.now_ms + self.skew_ms + error_ms)

    # ---- requests of clients ---------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """Returns the topic. Raises UNKNOWN_TOPIC_OR_PART."""
        found = self.topics.get(name)
        if found is None:
            raise refusal(KafkaError.UNKNOWN_TOPIC_OR_PART, f"there is no topic {name}")
        return found

    def log(self, part: Partition) -> PartitionLog:
        """Returns the partition's log. Raises UNKNOWN_TOPIC_OR_PART, and LEADER_NOT_AVAILABLE if it has no leader."""
        topic = self.topic(part.topic)
        if not 0 <= part.index < len(topic.logs):
            raise refusal(KafkaError.UNKNOWN_TOPIC_OR_PART, f"there is no partition {part.topic}/{part.index}")
        log = topic.logs[part.index]
        if not log.has_leader:
            raise refusal(KafkaError.LEADER_NOT_AVAILABLE, f"{part.topic}/{part.index} has no leader")
        return log

    def append(
        self,
        part: Partition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None,
        created_ms: int,
        writer: Writer | None = None,
    ) -> tuple[int, int]:
        """Writes one record; returns its offset and its timestamp.

        Raises the error of a produce response. `headers` None: headers that no client can read.
        """
        log = self.log(part)
        topic = self.topics[part.topic]
        if part.topic in self.denied:
            raise refusal(KafkaError.TOPIC_AUTHORIZATION_FAILED, f"not authorized to write to {part.topic}")
        if record_size_bytes(key, value, headers or []) > topic.message_bytes_max:
            raise refusal(KafkaError.MSG_SIZE_TOO_LARGE, f"{part.topic} takes {topic.message_bytes_max} bytes")
        error = self.invalid(part, key, value, created_ms)
        if error is not None:
            raise error
        stamp = self.now_ms(log) if topic.log_append else created_ms
        record = Record(-1, stamp, topic.log_append, key, value, headers)
        if writer is None:
            return log.append(record, NO_PRODUCER), stamp
        tid, producer, epoch = writer
        if epoch < log.epochs.get(producer, 0):
            raise refusal(KafkaError.INVALID_PRODUCER_EPOCH, f"{tid} has a newer producer")
        if not self.transactions.includes(tid, producer, epoch, part):
            raise refusal(KafkaError.INVALID_TXN_STATE, f"{part.topic}/{part.index} is not part of a transaction")
        return log.append(record, producer, epoch), stamp

    def invalid(
        self, part: Partition, key: bytes | None, value: bytes | None, created_ms: int
    ) -> KafkaException | None:
        """Returns the error for an invalid record; None if the broker accepts it."""
        topic = self.topics[part.topic]
        if key is None and "compact" in topic.setting("cleanup.policy"):
            return refusal(KafkaError.INVALID_RECORD, f"{part.topic} is compacted and takes no record without a key")
        if not topic.log_append and created_ms > self.now_ms(topic.logs[part.index]) + topic.ahead_ms_max:
            return refusal(KafkaError.INVALID_TIMESTAMP, f"{part.topic} takes no record stamped {created_ms}")
        misbehaviour = self.misbehaving.get(part.topic)
        if misbehaviour is not None and misbehaviour.refuses(value):
            return refusal(KafkaError.INVALID_RECORD, f"{part.topic} refuses this value")
        return None

    def add(self, writer: Writer, parts: list[Partition]) -> None:
        """Adds all partitions to the transaction, or none if one is refused (AddPartitionsToTxn). Raises the error of
        the response."""
        if not self.denied.isdisjoint(part.topic for part in parts):
            raise refusal(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized to write to one of these topics")
        for part in parts:
            if part.topic not in self.topics or part.index >= len(self.topics[part.topic].logs):
                raise refusal(KafkaError.UNKNOWN_TOPIC_OR_PART, f"there is no partition {part.topic}/{part.index}")
        for part in parts:
            self.transactions.add(*writer, part)

    def create(self, new: NewTopic) -> None:
        """Creates a topic. Raises TOPIC_ALREADY_EXISTS, INVALID_CONFIG, INVALID_PARTITIONS."""
        if new.name in self.topics:
            raise refusal(KafkaError.TOPIC_ALREADY_EXISTS, f"topic {new.name} exists")
        check_settings(new.config)
        topic = Topic(new.name, f"topic-id-{next(self._topic_numbers)}", dict(new.config))
        topic.grow(new.partitions)
        for log in topic.logs:
            self.brokers.place(log)
        self.topics[new.name] = topic

    def takes(self, topic: str) -> bool:
        """True if the rate of a topic permits one more record now, and counts that record; otherwise it must wait."""
        misbehaviour = self.misbehaving.get(topic)
        return misbehaviour is None or misbehaviour.takes()

    # ---- changes from outside --------------------------------------------------------------------------------------

    def delete(self, name: str) -> None:
        """Deletes a topic. Observers of the cluster can still read its logs and the ends of their transactions."""
        self.deleted.append(self.topics.pop(name))

    def expire(self) -> dict[Partition, int]:
        """Applies retention: deletes the records below the last stable offset that are older than their topic allows.
        Returns the new start offsets."""
        moved: dict[Partition, int] = {}
        for topic in self.topics.values():
            retention_ms = int(topic.setting("retention.ms"))
            if retention_ms < 0 or "delete" not in topic.setting("cleanup.policy"):
                continue
            for index, log in enumerate(topic.logs):
                start = min(log.first_since(self.now_ms() - retention_ms), log.stable_end)
                if start > log.start:
                    log.delete_before(start)
                    moved[Partition(topic.name, index)] = start
        return moved

    def compact(self, name: str, active_offsets: int) -> int:
        """Compacts the logs of a topic, except the last `active_offsets` of each; returns the number of removed
        records."""
        topic = self.topics[name]
        assert "compact" in topic.setting("cleanup.policy"), f"{name} is not compacted"
        tombstones_ms = int(topic.setting("delete.retention.ms"))
        return sum(log.compact(log.end - active_offsets, self.now_ms(), tombstones_ms) for log in topic.logs)

    def _mark(self, part: Partition, producer: int, epoch: int, commit: bool) -> bool:
        for gone in self.deleted:
            if (
                gone.name == part.topic
                and part.index < len(gone.logs)
                and producer in gone.logs[part.index].undecided()
            ):
                gone.logs[part.index].mark(producer, epoch, commit, self.now_ms())
        topic = self.topics.get(part.topic)
        if topic is None or part.index >= len(topic.logs):
            return True
        log = topic.logs[part.index]
        if not self.serves(log):
            return False
        log.mark(producer, epoch, commit, self.now_ms(log))
        return True

    def serves(self, log: PartitionLog) -> bool:
        """True if a log has a leader that responds, and its records are replicated."""
        return log.has_leader and not log.is_held and self.brokers.leader(log).answers

    def _logs(self) -> Iterator[tuple[Partition, PartitionLog]]:
        for name, topic in self.topics.items():
            for index, log in enumerate(topic.logs):
                yield Partition(name, index), log

    def _coordinators_away(self, for_ms: float) -> None:
        self.transactions.away_until_ms = self.time.now_ms + for_ms

    def _partitions(self, topic: str) -> int:
        return len(self.topics[topic].logs) if topic in self.topics else 0


def record_size_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Returns the size of a record for the limits of client and broker."""
    extra = sum(len(name) + len(content or b"") + _HEADER_OVERHEAD_BYTES for name, content in headers)
    return _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") + extra
