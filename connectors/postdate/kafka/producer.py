"""Producers: the transactional one of a shard, and an idempotent one without transactions.

The behaviour of librdkafka shapes this module. If the queue is full, the library raises BufferError, and `produce`
waits. A commit that fails with a `retriable` error is repeated, and never followed by an abort. After a transaction
whose end was slow, or during which a connection broke, the producer must not begin another one (see `settle` in the
interface, and KAFKA-17754). One thread at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from postdate.kafka import limits
from postdate.kafka.classification import (
    RECORD_CODES,
    TRANSPORT_CODES,
    classify,
    classify_delivery,
    error_of,
    is_fatal,
)
from postdate.kafka.errors import (
    AbortRequired,
    FatalClient,
    KafkaFault,
    RecordRejected,
    Retriable,
    UnknownOutcome,
)
from postdate.kafka.interface import Headers, OnDelivery
from postdate.kafka.secrets import Renewal
from postdate.kafka.settings import ClientConf, KafkaSettings, log

events = logging.getLogger(__name__)

#: Seconds: how long one wait for space in the client's queue lasts.
_QUEUE_WAIT_S = 0.05
#: Seconds: how long one wait for delivery reports lasts before the state of the transaction is checked.
_REPORT_WAIT_S = 0.02
#: Seconds: how long one request for metadata may take before a producer takes its transactional id.
_MEET_S = 1.0
#: Seconds: how long to wait before a retriable call is repeated, since some of these calls fail immediately.
_RETRY_PAUSE_S = 0.02


class ConfluentPlainProducer:
    """PlainProducer over confluent_kafka, and the base of the transactional one."""

    def __init__(self, settings: KafkaSettings, created_ms: int = 0) -> None:
        self._connect(settings, settings.producer_conf(None, limits.MESSAGE_BYTES_MAX))
        self._created_ms = created_ms

    def _connect(self, settings: KafkaSettings, conf: ClientConf) -> None:
        self._transport_failed = False
        self._queue_timeout_s = float(conf["message.timeout.ms"]) / 1000 + 1
        try:
            producer = Producer(conf | {"error_cb": self._on_error}, logger=log)
        except KafkaException as error:
            raise classify(error, "create a producer") from error
        self._producer: Producer | None = producer
        self._renewal: Renewal | None = settings.renewal(producer, settings.producer)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        partition: int = -1,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        producer = self._open()
        report = None if on_delivery is None else _reporter(on_delivery)
        given_headers: list[tuple[str, str | bytes | None]] = headers  # type: ignore[assignment]  # it is only read
        deadline = 0.0
        created_ms = self._created_ms
        while True:
            try:
                producer.produce(
                    topic, value, key, partition, on_delivery=report, timestamp=created_ms, headers=given_headers
                )
                return
            except BufferError as error:
                now = time.monotonic()
                deadline = deadline or now + self._queue_timeout_s
                if now >= deadline:
                    raise Retriable("The producer's queue stays full.", KafkaError._QUEUE_FULL) from error
                with _serving(f"wait for room to produce to {topic}"):
                    producer.poll(_QUEUE_WAIT_S)
            except KafkaException as error:
                code = error_of(error).code()
                if code in RECORD_CODES:
                    raise RecordRejected(f"A record for {topic} is refused: {error_of(error).str()}", code) from error
                # _STATE: the transaction has failed meanwhile; abort() reports the cause.
                otherwise = AbortRequired if code == KafkaError._STATE else FatalClient
                raise classify(error, f"produce to {topic}", otherwise) from error

    def flush(self, timeout_s: float) -> int:
        producer = self._open()
        if self._renewal is not None:
            self._renewal.follow()
        with _serving("flush"):
            return producer.flush(timeout_s)

    def destroy(self) -> None:
        producer, self._producer = self._producer, None
        self._renewal = None  # otherwise it would keep the client alive
        if producer is not None:
            # Without this, the library would wait for delivery reports that no longer matter.
            producer.purge(in_queue=True, in_flight=True, blocking=False)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in TRANSPORT_CODES:
            self._transport_failed = True
        # Each fatal error is logged. Of repeated lines of the client library, the sidecar logs only the number.
        logger = events if is_fatal(error) else log
        logger.info("the producer reports: %s (%s)", error.str(), error.name())

    def _open(self) -> Producer:
        if self._producer is None:
            raise FatalClient("This producer is destroyed.")
        return self._producer


class ConfluentTransactionalProducer(ConfluentPlainProducer):
    """TransactionalProducer over confluent_kafka. The interface documents its methods."""

    def __init__(
        self, settings: KafkaSettings, transactional_id: str, message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    ) -> None:
        self._id = transactional_id
        self._created_ms = 0
        self._budget_s = settings.transaction_timeout_ms / 1000
        self._end_took_s = 0.0
        self._connect(settings, settings.producer_conf(transactional_id, message_bytes_max))

    def init(self, timeout_s: float, topic: str = "") -> None:
        producer = self._open()
        deadline = time.monotonic() + timeout_s
        if topic:
            self._meet_brokers(topic, min(timeout_s, _MEET_S))
        while True:
            try:
                producer.init_transactions(max(0.1, deadline - time.monotonic()))
                return
            except KafkaException as error:
                fault = classify(error, f"take the transactional id {self._id}")
                if not fault.retriable or time.monotonic() >= deadline:
                    raise fault from error
                time.sleep(_RETRY_PAUSE_S)

    def _meet_brokers(self, topic: str, timeout_s: float) -> None:
        """Waits until the client knows its brokers. If that fails, `init_transactions` raises the cause.

        Measured: `init_transactions` of a new client took 500 ms instead of 60 in half of all cases. The library (2.16,
        `rd_kafka_txn_coord_query`) waits that long if it asks for the coordinator before it knows the brokers. During
        the second request, the client is connected to the brokers that the answer to the first one named.
        """
        for _ in range(2):
            with suppress(KafkaException):
                self._open().list_topics(topic, timeout_s)

    def begin(self, created_ms: int = 0) -> None:
        producer = self._open()
        self._created_ms = created_ms
        if self._renewal is not None:
            self._renewal.follow()
        # Earlier reports belong to transactions that have ended. A new producer often reports a bootstrap address that
        # does not answer. If this report were served later, `settle` would return False after the first transaction.
        self._serve_events()
        self._transport_failed = False
        self._end_took_s = 0.0
        try:
            producer.begin_transaction()
        except KafkaException as error:
            raise classify(error, f"begin a transaction of {self._id}") from error

    def flush(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        left = super().flush(min(timeout_s, _REPORT_WAIT_S))
        while left and (wait_s := deadline - time.monotonic()) > 0:
            before, left = left, super().flush(min(wait_s, _REPORT_WAIT_S))
            if left == before:
                self._check_open()
        return left

    def _check_open(self) -> None:
        """Raises the fault that has failed the open transaction, if there is one.

        The library has no call for this, so the method tries to begin another transaction. The library refuses that and
        changes nothing. Its error is _STATE while the open transaction is sound, otherwise the error that failed it
        (`rd_kafka_txn_require_states0` in rdkafka_txnmgr.c).
        """
        try:
            self._open().begin_transaction()
        except KafkaException as error:
            if error_of(error).code() != KafkaError._STATE:
                raise classify(error, f"continue a transaction of {self._id}") from error
        else:
            raise AssertionError("no transaction was open")

    def commit(self) -> None:
        self._end(self._open().commit_transaction, "commit")

    def abort(self) -> None:
        try:
            self._end(self._open().abort_transaction, "abort")
        except AbortRequired as fault:  # librdkafka sets this flag for every unknown error of EndTxn, even for an abort
            raise UnknownOutcome(str(fault), fault.code) from fault

    def settle(self) -> bool:
        self._serve_events()
        return not self._transport_failed and self._end_took_s <= limits.SUSPICIOUS_END_S

    def _serve_events(self) -> None:
        """Runs the callbacks of all reported events."""
        producer = self._open()
        with _serving("serve what is reported"):
            while producer.poll(0) > 0:
                pass

    def _end(self, call: Callable[[float], None], what: str) -> None:
        """Repeats the call until the outcome is known, or the transaction time-out has passed (then it is unknown).

        The argument -1 lets the library use the rest of the transaction time-out. After a shorter wait, the client's
        state could differ from the coordinator's.
        """
        started = time.monotonic()
        try:
            while True:
                try:
                    with _serving(f"{what} a transaction of {self._id}"):
                        call(-1)
                    return
                except KafkaFault as fault:
                    if not fault.retriable:
                        raise
                    self._transport_failed = True  # a request without an answer may still be in flight
                    if time.monotonic() - started >= self._budget_s:
                        raise UnknownOutcome(str(fault), fault.code) from fault
                    time.sleep(_RETRY_PAUSE_S)
        finally:
            self._end_took_s += time.monotonic() - started


@contextmanager
def _serving(doing: str) -> Iterator[None]:
    """Converts errors that the library raises while it serves events, during `doing`, to faults.

    A client that has become unusable raises from the next call, including `poll` and `flush`. If callbacks run after
    that in the same call, they find the exception set, and Python turns it into a SystemError with that cause.
    """
    try:
        yield
    except KafkaException as error:
        raise classify(error, doing) from error
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise classify(error.__cause__, doing) from error
        raise


def _reporter(on_delivery: OnDelivery) -> Callable[[KafkaError | None, Any], None]:
    """Returns the library's callback that calls ours. `Any`: the library's type does not promise a timestamp.

    A record has no offset if the answer to its batch was lost and a later batch was acknowledged: the library then
    takes both as acknowledged (librdkafka 2.16, `rd_kafka_dr_implicit_ack`). Its timestamp is then not the broker's.
    """

    def report(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            on_delivery(classify_delivery(error, message.topic()), -1, -1)
        elif (offset := message.offset()) is None:
            on_delivery(None, -1, -1)
        else:
            on_delivery(None, offset, message.timestamp()[1])

    return report
