"""The producer of the simulated cluster, with the behaviour of librdkafka on which the protocol depends.

Records wait in the client until a flush; one of the faults is that they leave earlier. Logs are written independently:
none waits for another. A record for an unknown topic fails after a second, and a record for an unreachable leader after
the message time-out. If a broker finds a record invalid, all records of its request fail.

Thread rule: one thread; time advances only in the waits of the link.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from postdate.kafka import limits
from postdate.kafka.classification import TRANSPORT_CODES, classify_delivery, error_of
from postdate.kafka.errors import FatalClient, RecordRejected
from postdate.kafka.interface import Headers, OnDelivery, Partition
from support.kafka_simulator.broker import SimBroker, Writer, record_size_bytes
from support.kafka_simulator.brokers import Node
from support.kafka_simulator.error_responses import code_of, refusal
from support.kafka_simulator.link import Link
from support.kafka_simulator.metadata import Metadata, StaleLog
from support.kafka_simulator.partitioning import partition_for
from support.kafka_simulator.time import SimClock

#: Milliseconds: the pause before a retriable request is repeated.
RETRY_MS = 20.0

_RETRIED = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.CONCURRENT_TRANSACTIONS,
    }
)
#: The error of the other records of a batch that contains an invalid one.
_SPOILT = refusal(KafkaError._INVALID_DIFFERENT_RECORD, "another record of the batch is invalid")


@dataclass(eq=False)
class Queued:
    """A record in the client. `written`: the result of its write, even if the response was lost: the log recognizes the
    sequence number of a repeated record and does not write it twice. `reported`: the sender has its delivery report."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    on_delivery: OnDelivery | None
    since_ms: float
    written: tuple[int, int] | None = None
    reported: bool = False


class SimPlainProducer:
    """PlainProducer of the simulated cluster, and the base of its transactional producer."""

    def __init__(
        self, broker: SimBroker, link: Link, clock: SimClock, message_bytes_max: int, created_ms: int = 0
    ) -> None:
        self._broker = broker
        self._link = link
        self._metadata = Metadata(broker)
        self._clock = clock
        self._size_max = message_bytes_max
        self._queue: dict[Queued, None] = {}  # in order
        self._destroyed = False
        self._transport_failed = False
        self._created_ms = created_ms

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        self._open()
        if record_size_bytes(key, value, headers) > self._size_max:
            raise RecordRejected(f"A record for {topic} is refused: it is too large", KafkaError.MSG_SIZE_TOO_LARGE)
        partitions = self._metadata.partitions(topic)
        if partitions and partition >= partitions:
            raise RecordRejected(f"{topic} has no partition {partition}", KafkaError._UNKNOWN_PARTITION)
        if partition < 0 and partitions:
            partition = partition_for(key, partitions)
        queued = Queued(topic, partition, key, value, list(headers), on_delivery, self._link.time.now_ms)
        self._queue[queued] = None
        if self._link.faults.strikes("sent-early"):
            self._send(deadline_ms=self._link.time.now_ms)

    def flush(self, timeout_s: float) -> int:
        self._open()
        self._send(self._link.time.now_ms + timeout_s * 1000)
        return len(self._queue)

    def destroy(self) -> None:
        self._destroyed = True
        self._queue.clear()

    def _send(self, deadline_ms: float) -> None:
        """Sends the queued records to all logs independently, until each has its report or the time is up."""
        waiting: dict[tuple[str, int], list[Queued]] = {}
        for queued in self._queue:
            waiting.setdefault((queued.topic, queued.partition), []).append(queued)
        logs = list(waiting.values())
        if len(logs) > 1 and self._link.faults.strikes("any-order"):
            logs = self._link.faults.shuffled(logs)
        while logs:
            logs = [records for records in logs if not self._sent(records)]
            if not logs or self._link.time.now_ms >= deadline_ms:
                return
            self._link.wait(min(RETRY_MS, max(deadline_ms - self._link.time.now_ms, 1.0)))

    def _sent(self, records: Sequence[Queued]) -> bool:
        """Sends one produce request for one log; False if some of its records must be sent again."""
        records = [queued for queued in records if not queued.reported]
        if not records:
            return True
        first = records[0]
        partitions = self._metadata.partitions(first.topic)
        if not partitions:
            if self._link.time.now_ms - first.since_ms < limits.METADATA_PROPAGATION_MS_MAX:
                return False
            self._report_all(records, refusal(KafkaError._UNKNOWN_TOPIC, f"there is no topic {first.topic}"))
            return True
        if first.partition < 0:
            first.partition = partition_for(first.key, partitions)
        part = Partition(first.topic, first.partition)
        left_ms = max(limits.MESSAGE_TIMEOUT_MS - (self._link.time.now_ms - first.since_ms), 0.0)
        try:
            if not self._admit(part):
                return True
            node = self._metadata.leader(part)
            self._link.ask("produce", lambda: self._write(part, node, records), node, left_ms)
        except KafkaException as error:
            self._saw(error)
            if code_of(error) not in _RETRIED:
                self._metadata.forget_topic(first.topic)
                self._report_all(records, error)
                return True
            if code_of(error) == KafkaError._TIMED_OUT:
                self._metadata.forget(part)
        else:
            for queued in records:
                if queued.written is not None:
                    self._reported(queued, None)
        if self._link.time.now_ms - first.since_ms >= limits.MESSAGE_TIMEOUT_MS:
            self._report_all(records, refusal(KafkaError._MSG_TIMED_OUT, f"no answer for {first.topic} in time"))
        return all(queued.reported for queued in records)

    def _write(self, part: Partition, node: Node, records: Sequence[Queued]) -> None:
        """Writes the records of a request at a broker. If one is refused, reports it and writes the others."""
        log = self._metadata.log(part, node)
        if isinstance(log, StaleLog):
            raise refusal(KafkaError.NOT_ENOUGH_REPLICAS, f"nobody replicates {part.topic}/{part.index} from here")
        new = [queued for queued in records if queued.written is None and not queued.reported]
        if self._spoil(part, new):
            return
        created_ms = self._stamp_ms()
        for queued in new:
            if self._writer() is not None and not self._broker.takes(part.topic):
                break  # the others wait, as for a slow topic
            try:
                queued.written = self._broker.append(
                    part, queued.key, queued.value, queued.headers, created_ms, self._writer()
                )
            except KafkaException as error:
                if code_of(error) in _RETRIED or error_of(error).fatal():
                    raise
                self._reported(queued, error)
        if log.is_held:
            raise refusal(KafkaError.REQUEST_TIMED_OUT, f"{part.topic}/{part.index} is not replicated in time")

    def _stamp_ms(self) -> int:
        """Returns the CreateTime of records that are sent now."""
        return self._created_ms or self._clock.wall_ms()

    def _spoil(self, part: Partition, records: Sequence[Queued]) -> bool:
        """True if a record is invalid. Then no record of the request is written, and each gets an error."""
        wrong = {}
        for queued in records:
            error = self._broker.invalid(part, queued.key, queued.value, self._stamp_ms())
            if error is not None:
                wrong[queued] = error
        if wrong:
            for queued in records:
                self._reported(queued, wrong.get(queued, _SPOILT))
        return bool(wrong)

    def _report_all(self, records: Sequence[Queued], error: KafkaException) -> None:
        for queued in records:
            if not queued.reported:
                self._reported(queued, error)

    def _reported(self, queued: Queued, error: KafkaException | None) -> None:
        queued.reported = True
        self._queue.pop(queued, None)
        if error is not None:
            self._lost(queued, error)
        if queued.on_delivery is None:
            return
        if error is not None:
            queued.on_delivery(classify_delivery(error_of(error), queued.topic), -1, -1)
        elif queued.written is not None:
            queued.on_delivery(None, *queued.written)

    def _saw(self, error: KafkaException) -> None:
        if code_of(error) in TRANSPORT_CODES:
            self._transport_failed = True

    def _admit(self, part: Partition) -> bool:
        """Called before the first record for a log in a transaction; False if this has failed the transaction."""
        return True

    def _lost(self, queued: Queued, error: KafkaException) -> None:
        """Called if a record was not written, or its outcome is unknown."""

    def _writer(self) -> Writer | None:
        return None

    def _open(self) -> None:
        if self._destroyed:
            raise FatalClient("This producer is destroyed.")
