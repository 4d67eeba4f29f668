"""Producers of the simulated cluster, with the ways of librdkafka that the protocol depends on.

Records wait in the client until somebody flushes (or leave earlier, as a fault); a partition is added to the
transaction before its first record; an unknown topic fails its record after a second, an unreachable one after the
message time-out; a transaction that lost a record can only be aborted; an end is repeated until the transaction's time
is used up; a broken connection or a slow end taints the producer (`settle`). See the seam for what is promised.

Thread rule: one thread; time passes in the link's waits only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from postdate.connectors.kafka import limits
from postdate.connectors.kafka.classification import TRANSPORT_CODES, classify, classify_delivery, error_of
from postdate.connectors.kafka.errors import (
    AbortRequired,
    FatalClient,
    Fenced,
    KafkaFault,
    RecordRejected,
    Retriable,
    UnknownOutcome,
)
from postdate.connectors.kafka.seam import Headers, OnDelivery, Partition
from postdate.connectors.kafka.sim.answers import code_of, refusal
from postdate.connectors.kafka.sim.broker import SimBroker, Writer, record_size_bytes
from postdate.connectors.kafka.sim.link import Link
from postdate.connectors.kafka.sim.partitioning import partition_for
from postdate.connectors.kafka.sim.time import SimClock

T = TypeVar("T")

#: ms. The pause before a retriable request is repeated.
RETRY_MS = 20.0
#: ms. The longest that the first copy of an EndTxn stays in the network after the connection broke.
COPY_MS_MAX = 160.0

_RETRIED = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.CONCURRENT_TRANSACTIONS,
    }
)


@dataclass
class _Queued:
    """A record in the client. `written` is what the log said, also where that answer was lost: sent again, a record is
    recognised by its sequence number and not written twice."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    on_delivery: OnDelivery | None
    since_ms: float
    written: tuple[int, int] | None = None
    refused: bool = False


class SimPlainProducer:
    """PlainProducer over the simulated cluster, and what it shares with the transactional one."""

    def __init__(self, broker: SimBroker, link: Link, clock: SimClock, message_bytes_max: int) -> None:
        self._broker = broker
        self._link = link
        self._clock = clock
        self._size_max = message_bytes_max
        self._queue: list[_Queued] = []
        self._destroyed = False
        self._transport_failed = False
        self._created_ms = 0

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
        known = self._broker.topics.get(topic)
        if known is not None and partition >= len(known.logs):
            raise RecordRejected(f"{topic} has no partition {partition}", KafkaError._UNKNOWN_PARTITION)
        if partition < 0 and known is not None:
            partition = partition_for(key, len(known.logs))
        self._queue.append(_Queued(topic, partition, key, value, list(headers), on_delivery, self._link.time.now_ms))
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
        """Send what waits, log by log, until all of it has its report or the time is up."""
        waiting: dict[tuple[str, int], list[_Queued]] = {}
        for queued in self._queue:
            waiting.setdefault((queued.topic, queued.partition), []).append(queued)
        logs = list(waiting.values())
        if len(logs) > 1 and self._link.faults.strikes("any-order"):
            logs = self._link.faults.shuffled(logs)
        for records in logs:
            while records and not self._sent(records):
                if self._link.time.now_ms >= deadline_ms:
                    return
                self._link.wait(min(RETRY_MS, max(deadline_ms - self._link.time.now_ms, 1.0)))

    def _sent(self, records: list[_Queued]) -> bool:
        """One produce request for one log; False where it is to be repeated."""
        first = records[0]
        if all(queued.refused for queued in records):
            return True
        now_ms = self._link.time.now_ms
        if first.topic not in self._broker.topics:
            if now_ms - first.since_ms < limits.METADATA_PROPAGATION_MS_MAX:
                return False
            self._report_all(records, refusal(KafkaError._UNKNOWN_TOPIC, f"there is no topic {first.topic}"))
            return True
        if first.partition < 0:
            first.partition = partition_for(first.key, len(self._broker.topics[first.topic].logs))
        try:
            if not self._admit(Partition(first.topic, first.partition)):
                return True
            self._link.ask("produce", lambda: self._write(records))
        except KafkaException as error:
            self._saw(error)
            if code_of(error) in _RETRIED:
                if self._link.time.now_ms - first.since_ms < limits.MESSAGE_TIMEOUT_MS:
                    return False
                error = refusal(KafkaError._MSG_TIMED_OUT, f"no answer for {first.topic} in time")
            self._report_all(records, error)
            return True
        for queued in records:
            if queued.written is not None:
                self._reported(queued, None)
        return True

    def _write(self, records: list[_Queued]) -> None:
        """In the cluster: write the records of a request; a refused one is reported, the others are written."""
        for queued in list(records):
            if queued.written is not None or queued.refused:
                continue
            part = Partition(queued.topic, queued.partition)
            try:
                created_ms = self._created_ms or self._clock.wall_ms()
                queued.written = self._broker.append(
                    part, queued.key, queued.value, queued.headers, created_ms, self._writer()
                )
            except KafkaException as error:
                if code_of(error) in _RETRIED or error_of(error).fatal():
                    raise
                queued.refused = True
                self._reported(queued, error)

    def _report_all(self, records: list[_Queued], error: KafkaException) -> None:
        for queued in records:
            if not queued.refused:
                self._reported(queued, error)

    def _reported(self, queued: _Queued, error: KafkaException | None) -> None:
        self._queue = [each for each in self._queue if each is not queued]
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
        """Before the first record for a log in a transaction; False where the transaction has failed by it."""
        return True

    def _lost(self, queued: _Queued, error: KafkaException) -> None:
        """A record was not written, or nobody knows whether it was."""

    def _writer(self) -> Writer | None:
        return None

    def _open(self) -> None:
        if self._destroyed:
            raise FatalClient("This producer is destroyed.")


class SimTransactionalProducer(SimPlainProducer):
    """TransactionalProducer over the simulated cluster. See the seam for what its methods promise."""

    def __init__(
        self, broker: SimBroker, link: Link, clock: SimClock, transactional_id: str, message_bytes_max: int
    ) -> None:
        super().__init__(broker, link, clock, message_bytes_max)
        self._id = transactional_id
        self._producer = -1
        self._epoch = -1
        self._added: set[Partition] = set()
        self._touched = False  # the coordinator was asked to add something: it is told of the end
        self._failed: KafkaFault | None = None
        self._broken: KafkaFault | None = None
        self._timed_out = False
        self._end_took_ms = 0.0

    def init(self, timeout_s: float) -> None:
        self._open()
        coordinator, doing = self._broker.transactions, f"take the transactional id {self._id}"
        self._producer, self._epoch = self._repeat(
            "init",
            lambda: coordinator.init(self._id, limits.TRANSACTION_TIMEOUT_MS),
            doing,
            self._link.time.now_ms + timeout_s * 1000,
        )

    def begin(self, created_ms: int = 0) -> None:
        self._usable()
        self._created_ms = created_ms
        if self._epoch < 0:
            raise FatalClient("This producer was not initialised.")
        self._transport_failed = False
        self._end_took_ms = 0.0
        self._added.clear()
        self._touched = False
        self._failed = None
        self._timed_out = False

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        self._usable()
        if self._failed is not None:
            raise AbortRequired(f"The transaction has failed: {self._failed}", KafkaError._STATE)
        super().produce(topic, value, key, headers, partition, on_delivery)

    def commit(self) -> None:
        self._usable()
        self._send(self._link.time.now_ms + limits.TRANSACTION_TIMEOUT_MS)
        self._usable()
        if self._queue and self._failed is None:
            self._failed = AbortRequired("records are left without an answer", KafkaError._TIMED_OUT)
        if self._failed is not None:
            raise self._failed
        self._end(commit=True)

    def abort(self) -> None:
        self._usable()
        self._purge()
        self._end(commit=False)
        if self._timed_out:
            coordinator = self._broker.transactions
            self._epoch = self._repeat(
                "bump",
                lambda: coordinator.bump(self._id, self._producer, self._epoch),
                f"abort a transaction of {self._id}",
                self._link.time.now_ms + limits.TRANSACTION_TIMEOUT_MS,
                unknown=True,
            )

    def settle(self) -> bool:
        self._open()
        return not self._transport_failed and self._end_took_ms <= limits.SUSPICIOUS_END_S * 1000

    def _end(self, commit: bool) -> None:
        if not self._touched:
            return
        what = "commit" if commit else "abort"
        started_ms = self._link.time.now_ms
        try:
            self._repeat(
                what,
                lambda: self._end_once(commit),
                f"{what} a transaction of {self._id}",
                started_ms + limits.TRANSACTION_TIMEOUT_MS,
                unknown=True,
            )
        finally:
            self._end_took_ms += self._link.time.now_ms - started_ms

    def _end_once(self, commit: bool) -> None:
        """EndTxn at the coordinator; or, as a fault, its first copy stays under way while the client sends another."""
        coordinator = self._broker.transactions
        identity = (self._id, self._producer, self._epoch)
        if not self._link.faults.strikes("end-copied"):
            coordinator.end(*identity, commit)
            return

        def arrive() -> None:
            try:
                coordinator.end(*identity, commit, late=True)
            except KafkaException as error:
                code_of(error)  # an answer that nobody waits for any more

        self._link.time.at(self._link.time.now_ms + self._link.faults.between(1.0, COPY_MS_MAX), arrive)
        raise refusal(KafkaError._TRANSPORT, "the connection broke")

    def _repeat(self, what: str, request: Callable[[], T], doing: str, deadline_ms: float, unknown: bool = False) -> T:
        """Ask until there is an answer that is one, or the time is up."""
        while True:
            try:
                return self._link.ask(what, request)
            except KafkaException as error:
                self._saw(error)
                fault = classify(error, doing)
                if not fault.retriable:
                    raise self._breaks(fault) from error
                if self._link.time.now_ms >= deadline_ms:
                    raise (UnknownOutcome(str(fault), fault.code) if unknown else fault) from error
            self._link.wait(RETRY_MS)

    def _breaks(self, fault: KafkaFault) -> KafkaFault:
        if isinstance(fault, Fenced | FatalClient) and not isinstance(fault, Retriable):
            self._broken = fault
        return fault

    def _admit(self, part: Partition) -> bool:
        if part in self._added:
            return True
        parts = [part]
        if not self._link.faults.strikes("added-apart"):
            waiting = (Partition(queued.topic, queued.partition) for queued in self._queue if queued.partition >= 0)
            parts = [each for each in dict.fromkeys([part, *waiting]) if each.topic in self._broker.topics]
        self._touched = True
        try:
            self._link.ask("add", lambda: self._broker.add(self._writer(), parts))
        except KafkaException as error:
            if code_of(error) != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            self._failed = AbortRequired(f"Could not commit a transaction of {self._id}: {error}", code_of(error))
            self._purge()
            return False
        self._added.update(parts)
        return True

    def _purge(self) -> None:
        """Give up what was not sent; nobody learns why."""
        purged, self._queue = self._queue, []
        for queued in purged:
            queued.refused = True
            if queued.on_delivery is not None:
                queued.on_delivery(AbortRequired("purged from the queue", KafkaError._PURGE_QUEUE), -1, -1)

    def _lost(self, queued: _Queued, error: KafkaException) -> None:
        fault = classify_delivery(error_of(error), queued.topic)
        if self._failed is None:
            code = code_of(error) if code_of(error) > 0 else KafkaError._INCONSISTENT  # its own errors are in reports
            why = f"Could not commit a transaction of {self._id}: a record was not delivered, see its report"
            self._failed = RecordRejected(why, code)
        self._timed_out = self._timed_out or code_of(error) == KafkaError._MSG_TIMED_OUT
        if isinstance(fault, Fenced | FatalClient):
            self._broken = fault

    def _writer(self) -> Writer:
        return self._id, self._producer, self._epoch

    def _usable(self) -> None:
        self._open()
        if self._broken is not None:
            raise self._broken
