"""The transactional producer of the simulated cluster, with the behaviour of librdkafka on which the protocol depends.

A partition is added to the transaction before its first record; if one partition of a request cannot be added, none is.
A transaction that lost a record can only be aborted. An EndTxn is repeated until the transaction time-out. A broken
connection or a slow end taints the producer (`settle`). The interface describes the methods.

Thread rule: one thread; time advances only in the waits of the link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from postdate.kafka import limits
from postdate.kafka.classification import classify, classify_delivery, error_of
from postdate.kafka.errors import (
    AbortRequired,
    FatalClient,
    Fenced,
    KafkaFault,
    RecordRejected,
    Retriable,
    UnknownOutcome,
)
from postdate.kafka.interface import Headers, OnDelivery, Partition
from support.kafka_simulator.broker import SimBroker, Writer
from support.kafka_simulator.error_responses import abort_required, code_of, refusal
from support.kafka_simulator.link import Link
from support.kafka_simulator.plain_producer import RETRY_MS, Queued, SimPlainProducer
from support.kafka_simulator.time import SimClock

T = TypeVar("T")


class SimTransactionalProducer(SimPlainProducer):
    """TransactionalProducer of the simulated cluster. The interface describes the methods."""

    def __init__(
        self, broker: SimBroker, link: Link, clock: SimClock, transactional_id: str, message_bytes_max: int
    ) -> None:
        super().__init__(broker, link, clock, message_bytes_max)
        self._id = transactional_id
        self._producer = -1
        self._epoch = -1
        self._added: set[Partition] = set()
        # partitions that are not added yet; each further request to add partitions includes them
        self._pending: dict[Partition, None] = {}
        self._copied = False  # a copy of the last EndTxn is in the network
        self._touched = False  # the coordinator was asked to add partitions, so it also gets an EndTxn
        self._failed: KafkaFault | None = None
        self._broken: KafkaFault | None = None
        self._timed_out = False
        self._end_took_ms = 0.0

    def init(self, timeout_s: float, topic: str = "") -> None:
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
        self._pending.clear()
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

    def flush(self, timeout_s: float) -> int:
        deadline_ms = self._link.time.now_ms + timeout_s * 1000
        left = super().flush(0.0)
        while left and self._link.time.now_ms < deadline_ms:
            if self._failed is not None:
                raise self._failed
            self._link.wait(min(RETRY_MS, max(deadline_ms - self._link.time.now_ms, 1.0)))
            left = super().flush(0.0)
        return left

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
        try:
            self._end(commit=False)
        except AbortRequired as fault:
            raise UnknownOutcome(str(fault), fault.code) from fault
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
        self._copied = False
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
        """Sends EndTxn to the coordinator. In one of the faults, its first copy stays in the network while the client
        sends another."""
        coordinator = self._broker.transactions
        identity = (self._id, self._producer, self._epoch)
        if self._copied and self._link.faults.strikes("end-refused"):
            self._copied = False
            raise abort_required("the coordinator failed")
        if not self._link.faults.strikes("end-copied"):
            coordinator.end(*identity, commit)
            return

        def arrive() -> None:
            try:
                coordinator.end(*identity, commit, late=True)
            except KafkaException as error:
                code_of(error)  # a response for which no client waits

        self._copied = True
        self._link.time.at(
            self._link.time.now_ms + self._link.faults.between(1.0, self._link.faults.copy_ms_max), arrive
        )
        raise refusal(KafkaError._TRANSPORT, "the connection broke")

    def _repeat(self, what: str, request: Callable[[], T], doing: str, deadline_ms: float, unknown: bool = False) -> T:
        """Repeats a request until it gets a response that is not retriable, or the time is up."""
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
        self._pending[part] = None
        if not self._link.faults.strikes("added-apart"):
            waiting = (Partition(queued.topic, queued.partition) for queued in self._queue if queued.partition >= 0)
            self._pending |= {each: None for each in waiting if self._metadata.partitions(each.topic)}
        parts = list(self._pending)
        self._touched = True
        try:
            self._link.ask("add", lambda: self._broker.add(self._writer(), parts))
        except KafkaException as error:
            if code_of(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:  # later requests repeat all of these
                raise refusal(KafkaError.REQUEST_TIMED_OUT, "a partition is not known to the coordinator") from error
            if code_of(error) != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            self._failed = AbortRequired(f"Could not commit a transaction of {self._id}: {error}", code_of(error))
            self._purge()
            return False
        self._added.update(parts)
        self._pending.clear()
        return True

    def _purge(self) -> None:
        """Drops the records that were not sent; their delivery reports give no cause."""
        purged, self._queue = self._queue, {}
        for queued in purged:
            queued.reported = True
            if queued.on_delivery is not None:
                queued.on_delivery(AbortRequired("purged from the queue", KafkaError._PURGE_QUEUE), -1, -1)

    def _lost(self, queued: Queued, error: KafkaException) -> None:
        fault = classify_delivery(error_of(error), queued.topic)
        if self._failed is None:
            # librdkafka's own errors are only in the reports
            code = code_of(error) if code_of(error) > 0 else KafkaError._INCONSISTENT
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
