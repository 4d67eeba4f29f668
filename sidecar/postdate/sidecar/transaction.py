"""One dispatch transaction: the messages on their targets and, last, the one dispatch-log record that names them.

Steps 1 to 5 of docs/protocol.md, "Running". A `Tenure` is the right to run them: only `takeover` makes one, after the
fence and the recovery, and it is dropped with its producer at the first sign of doubt.

Thread rule: a tenure belongs to the thread of its shard.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import UNSET

from postdate.connectors.kafka.errors import AbortRequired, KafkaFault, RecordRejected, Unreachable
from postdate.connectors.kafka.seam import OnDelivery, Partition, TransactionalProducer
from postdate.connectors.wire.dispatch_log import Accepted, DispatchRecord, Fate, encode_record
from postdate.connectors.wire.requests import Headers
from postdate.sidecar import failpoints
from postdate.sidecar.clock import BrokerClock, Clock
from postdate.sidecar.limits import FLUSH_TIMEOUT_S
from postdate.wheel.index import TimerIndex

#: Instead of a request offset: a record of Postdate's own, for whose failure no entry is to blame.
NOBODY = -1

#: One record that a transaction produces: the offset of the request that it ends (or NOBODY), topic, partition (-1: by
#: key), key, value, headers. A plain tuple: there is one for every message.
Message = tuple[int, str, int, bytes | None, bytes | None, Headers]


class AppendedEarly(AbortRequired):
    """The broker stamped the dispatch-log record before a due time that it names: its clock went back."""


@dataclass(slots=True)
class Tenure:
    """The right of this process to act for a shard, from the fence to the first doubt."""

    producer: TransactionalProducer
    log: Partition
    takeover: int
    seq: int
    instance: str
    group: str
    clock: Clock
    broker_clock: BrokerClock
    accepted: list[Accepted] = field(default_factory=list)
    """Losses that the takeover went on in spite of: the owner record, the first of the tenure, tells them."""
    blamed: dict[int, KafkaFault] = field(default_factory=dict)
    low_water: int = -1
    """That of the last record of this tenure."""
    low_water_floor: int = 0
    """The highest that was committed before it: an index that comes from an older disk must not take it back."""
    acknowledged_ms: float = 0.0
    """How long the records of the last transaction took from the first produce to the last acknowledgement."""
    took_ms: float = 0.0
    """How long it took from its begin to its commit."""
    _log_offset: int = -1
    _log_appended: int = -1
    _log_fault: KafkaFault | None = None

    def run(
        self,
        messages: list[Message],
        fates: list[Fate],
        kind: str,
        next_request: int,
        low_water: int,
        due_max_ms: int,
        report: bool = False,
    ) -> int:
        """Commit `messages` together with one dispatch-log record; returns the record's offset.

        `due_max_ms` is the latest due time among the messages: a record that the broker stamps before it is aborted
        (invariant I6). With `report`, each message reports for itself and `blamed` holds those that Kafka refused.

        Raises AbortRequired (the transaction is aborted, nothing of it is visible; `blamed` and `log_failed` say more),
        UnknownOutcome, Fenced, FatalClient: drop the tenure, and let the dispatch log decide.
        """
        self.blamed.clear()
        self._log_offset, self._log_appended, self._log_fault = -1, -1, None
        self.producer.begin(self.broker_clock.now_ms() if self.broker_clock.known() else 0)
        failpoints.reached("dispatch.begun")
        began = self.clock.steady_ms()
        try:
            self._produce(messages, report)
            record = DispatchRecord(
                v=1,
                seq=self.seq + 1,
                takeover=self.takeover,
                instance=self.instance,
                group=self.group,
                at=self.clock.wall_ms(),
                next_request=max(next_request, low_water),  # an older disk is still catching up with L
                low_water=low_water,
                kind=kind,
                fates=fates,
                accepted=self.accepted or UNSET,
            )
            self.producer.produce(self.log.topic, encode_record(record), None, [], self.log.index, self._log_delivered)
            failpoints.reached("dispatch.produced")
            left = self.producer.flush(FLUSH_TIMEOUT_S)
            self.acknowledged_ms = self.clock.steady_ms() - began
            failpoints.reached("dispatch.flushed")
            self._check(left, due_max_ms)
            self.producer.commit()
            self.took_ms = self.clock.steady_ms() - began
        except (AbortRequired, Unreachable) as fault:
            self.producer.abort()
            if isinstance(fault, AbortRequired):
                raise
            raise AbortRequired(str(fault), fault.code) from fault
        failpoints.reached("dispatch.committed")
        self.seq += 1
        self.low_water, self.accepted = low_water, []
        return self._log_offset

    def low_water_of(self, index: TimerIndex) -> int:
        """L, for the next record."""
        return max(index.low_water(), self.low_water_floor)

    @property
    def log_failed(self) -> bool:
        """True where the dispatch-log record itself was refused: then no entry is to blame."""
        return self._log_fault is not None

    def _produce(self, messages: list[Message], report: bool) -> None:
        offset, produce = NOBODY, self.producer.produce
        try:
            if not report:
                for message in messages:
                    offset, topic, partition, key, value, headers = message
                    produce(topic, value, key, headers, partition)
            else:
                for offset, topic, partition, key, value, headers in messages:
                    produce(topic, value, key, headers, partition, self._blame(offset))
        except RecordRejected as fault:
            if offset != NOBODY:
                self.blamed[offset] = fault
            raise

    def _blame(self, offset: int) -> OnDelivery:
        def delivered(fault: KafkaFault | None, _offset: int, _timestamp_ms: int) -> None:
            if isinstance(fault, RecordRejected) and offset != NOBODY:
                self.blamed[offset] = fault

        return delivered

    def _log_delivered(self, fault: KafkaFault | None, offset: int, timestamp_ms: int) -> None:
        self._log_offset, self._log_appended, self._log_fault = offset, timestamp_ms, fault
        if fault is None:
            self.broker_clock.sample(timestamp_ms, self.clock.steady_ms())

    def _check(self, left: int, due_max_ms: int) -> None:
        if self._log_fault is not None:
            raise AbortRequired(f"the dispatch-log record was not accepted: {self._log_fault}", self._log_fault.code)
        if left or self._log_offset < 0:
            raise AbortRequired(f"{left} records without an answer after {FLUSH_TIMEOUT_S:.0f} s")
        if self._log_appended < due_max_ms:
            self.broker_clock.forget()
            raise AppendedEarly(f"the broker's clock went back: {self._log_appended} is before {due_max_ms}")

    def settled(self) -> bool:
        """True where the next transaction may begin on this producer (the recycle rule)."""
        return self.producer.settle()
