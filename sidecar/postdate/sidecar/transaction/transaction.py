"""Runs one dispatch transaction: it writes the messages to their targets and, last, the dispatch-log record with their
fates.

This is step 1 of docs/protocol.md, "Running"; the exceptions of `run` lead to steps 3 to 5. A `ShardOwnership` is the
right to run transactions. Only `takeover` creates one, after the fence, and the shard drops it with its producer as
soon as an outcome is in doubt. Every transaction of a shard is a call of `ShardOwnership.run`, which settles each
commit and each abort before it returns ("Recycle").

Thread rule: an ownership belongs to the thread of its shard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import UNSET

from postdate.kafka.classification import PURGED_CODES
from postdate.kafka.errors import AbortRequired, KafkaFault, RecordRejected, Unreachable
from postdate.kafka.interface import OnDelivery, Partition, TransactionalProducer
from postdate.kafka.limits import TRANSACTION_TIMEOUT_MS
from postdate.sidecar import failpoints
from postdate.sidecar.clock import BrokerClock, Clock
from postdate.sidecar.transaction.bound_check import UnverifiedBound
from postdate.sidecar.transaction.limits import (
    FLUSH_SLICE_S,
    FLUSH_TIMEOUT_S,
    FLUSH_UNCHECKED_S,
    GAP_TOPICS_MIN,
    SLOW_RECORD_MS,
)
from postdate.wheel.index import TimerIndex
from postdate.wire.dispatch_log import OWNER, AcceptedLoss, DispatchRecord, Fate, IdRow, encode_record
from postdate.wire.headers import Headers
from postdate.wire.limits import INTEGER_END
from postdate.wire.requests.retry_policies import NamedPolicies
from postdate.wire.requests.returns import NO_POLICIES

#: Stands for the request offset in a record that Postdate writes, if its failure must not be attributed to an entry.
NOBODY = -1

#: One record that a transaction produces: the offset of its request (or NOBODY), topic, partition (-1: by key), key,
#: value, headers. A plain tuple, since there is one for every message: a NamedTuple costs 0.3 us more.
OutgoingRecord = tuple[int, str, int, bytes | None, bytes | None, Headers]


@dataclass(frozen=True, slots=True)
class Content:
    """The content of one transaction. `kind`: the kind of its dispatch-log record. `due_max_ms`: the earliest valid
    timestamp of that record: the latest of the due times of messages, the ends of the graces of expired messages, and
    the time of the decisions about schedules. `ids`: the ids of delivered messages that are remembered. `grace_end_ms`:
    the earliest end of grace of a delivered message."""

    kind: str
    messages: list[OutgoingRecord] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    due_max_ms: int = 0
    ids: list[IdRow] = field(default_factory=list)
    grace_end_ms: int = INTEGER_END


@dataclass(slots=True)
class TopicOutcome:
    """The delivery reports of one transaction for one topic. `acknowledged`: the number of acknowledged records.
    `waits_ms`: for each of these records the time since the previous acknowledgement, if it is SLOW_RECORD_MS or
    longer. `faults`: the faults of refused records, by request offset. `is_first`: True if the first acknowledgement of
    the transaction was for this topic."""

    acknowledged: int = 0
    waits_ms: list[float] = field(default_factory=list)
    faults: dict[int, KafkaFault] = field(default_factory=dict)
    is_first: bool = False


class GivenUp(AbortRequired):
    """The transaction was aborted because its caller found that it could no longer succeed."""


class AppendedEarly(AbortRequired):
    """The broker's timestamp of the dispatch-log record is before the content's `due_max_ms`: the broker's clock went
    back."""


class GraceOver(AbortRequired):
    """The dispatch-log record was appended more than a transaction time-out after the end of a message's grace: the
    process was frozen after its decision. A smaller bound would abort transactions again and again while graces end."""


@dataclass(slots=True)
class ShardOwnership:
    """The right of this process to act for a shard, from the fence until an outcome is in doubt."""

    producer: TransactionalProducer
    log: Partition
    takeover: int
    seq: int
    """The seq of the shard's last committed record."""
    instance: str
    group: str
    clock: Clock
    broker_clock: BrokerClock
    verify: Callable[[int], None] | None
    """Called before the first commit, with the offset of the dispatch-log record; None once it has verified the bound.
    Raises UnverifiedBound."""
    before_commit: Callable[[int], None] | None
    """Called before each commit with the offset of the dispatch-log record; None: no call."""
    remembers: Callable[[], bool]
    """Returns True if the index remembers ids of delivered messages; each record states this."""
    accepted: list[AcceptedLoss] = field(default_factory=list)
    """The losses that an operator has accepted: the owner record, the first record of the ownership, lists them."""
    policies: NamedPolicies = NO_POLICIES
    """The named retry policies of the shard; each record repeats those that requests from its low-water mark on
    need."""
    tz: str = ""
    """The version of the time zones of this process, for the owner record; empty: the record contains none."""
    outcomes: dict[str, TopicOutcome] = field(default_factory=dict)
    """The outcomes of the last transaction by topic: for records with a delivery report, and for a record that the
    client refused immediately."""
    low_water: int = -1
    """The low-water mark of the last committed record of this ownership; -1 before the first."""
    ingested_to: int = 0
    """Earlier owners have ingested the requests below this offset; this owner may read some of them again."""
    low_water_floor: int = 0
    """The highest low-water mark committed before this ownership: an index from an older disk must not lower it."""
    acknowledged_ms: float = 0.0
    """The duration of the last transaction from its start to the end of its flush."""
    began_at: float = 0.0
    """The start of the last transaction, steady ms."""
    first_wait_ms: float = 0.0
    """The time for which the last transaction waited for its first acknowledgement: the round trips to the brokers and
    the coordinator."""
    log_waited_ms: float = 0.0
    """The time between the acknowledgement of the last transaction's log record and the previous acknowledgement."""
    took_ms: float = 0.0
    """The duration of the last committed transaction from its start to the end of its commit."""
    reusable: bool = True
    """False while a transaction is open, and after a transaction whose end was not settled cleanly: then the caller
    drops the ownership."""
    is_refuted: bool = False
    """True after the check of the recovery's bound failed; `reusable` then stays False."""
    _log_offset: int = -1
    _log_appended: int = -1
    _log_fault: KafkaFault | None = None
    _gave_up: bool = False
    _acknowledged_at: float = 0.0

    def run(
        self,
        content: Content,
        next_request: int,
        low_water: int,
        report_all: bool = False,
        must_give_up: Callable[[], bool] | None = None,
    ) -> int:
        """Commits messages together with one dispatch-log record. Returns the record's offset.

        If the broker stamps that record before `due_max_ms`, or long after `grace_end_ms`, the transaction is aborted
        (invariant I6). `next_request`, `low_water`: the next request offset (R) and the low-water mark (L) for the
        record. `report_all`: `outcomes` covers every message. `must_give_up`: called repeatedly while acknowledgements
        are late; True aborts the transaction. REQUIRES: `reusable`. `run` settles each commit and abort; afterwards
        `reusable` is True only if the next transaction may begin on this producer.

        Raises AbortRequired: the transaction is aborted, and no part of it is visible (see `outcomes` and
        `log_failed`); as UnverifiedBound if `verify` failed. Raises UnknownOutcome, Fenced, FatalClient, or
        TimerIndexError of `before_commit`: the caller drops the ownership, and the dispatch log decides.
        """
        assert self.reusable, "no transaction begins before the end of the last one was settled"
        self.reusable, self.outcomes = False, {}
        self._log_offset, self._log_appended, self._log_fault, self._gave_up = -1, -1, None, False
        self.producer.begin(self.broker_clock.now_ms() if self.broker_clock.known() else 0)
        failpoints.reached("dispatch.begun")
        began = self.began_at = self.clock.steady_ms()
        self.first_wait_ms = self.log_waited_ms = 0.0
        self.policies = self.policies.needed_from(low_water)
        try:
            self._produce(content.messages, report_all)
            reads_from = max(next_request, low_water)  # an index from an older disk may still be behind
            record = DispatchRecord(
                seq=self.seq + 1,
                takeover=self.takeover,
                instance=self.instance,
                group=self.group,
                at=self.clock.wall_ms(),
                next_request=reads_from,
                low_water=low_water,
                kind=content.kind,
                fates=content.fates,
                accepted=self.accepted or UNSET,
                policies=[*self.policies.rows] or UNSET,
                ids=content.ids or UNSET,
                remembers=self.remembers() or UNSET,
                ingested=self.ingested_to if self.ingested_to > reads_from else UNSET,
                tz=self.tz if self.tz and content.kind == OWNER else UNSET,
            )
            self.producer.produce(self.log.topic, encode_record(record), None, [], self.log.index, self._log_delivered)
            failpoints.reached("dispatch.produced")
            self._acknowledged_at = self.clock.steady_ms()
            left = self._flush(must_give_up)
            self.acknowledged_ms = self.clock.steady_ms() - began
            failpoints.reached("dispatch.flushed")
            self._check(left, content)
            self._prepare()
            self.producer.commit()
            self.took_ms = self.clock.steady_ms() - began
        except (AbortRequired, Unreachable) as fault:
            self.is_refuted = isinstance(fault, UnverifiedBound)
            self.producer.abort()
            self._settle(is_sound=not (self.is_refuted or self._has_gap(content.messages)))
            if isinstance(fault, AbortRequired):
                raise
            raise AbortRequired(str(fault), fault.code) from fault
        failpoints.reached("dispatch.committed")
        self.seq += 1
        self.low_water, self.accepted = low_water, []
        self._settle(is_sound=True)
        return self._log_offset

    def _prepare(self) -> None:
        """Calls `verify` and `before_commit` between the flush and the commit. Raises UnverifiedBound,
        TimerIndexError."""
        if self.verify is not None:
            self.verify(self._log_offset)
            self.verify = None
        if self.before_commit is not None:
            self.before_commit(self._log_offset)

    def low_water_of(self, index: TimerIndex) -> int:
        """Returns the low-water mark for the next record."""
        return max(index.timer_log.low_water(), self.low_water_floor)

    @property
    def logged_ms(self) -> int:
        """The broker's timestamp of the last dispatch-log record."""
        return self._log_appended

    @property
    def log_failed(self) -> bool:
        """True if the dispatch-log record failed, and not only because another error failed the transaction: then no
        entry is to blame."""
        return self._log_fault is not None

    @property
    def log_acknowledged(self) -> bool:
        """True if the dispatch-log record of the last transaction was acknowledged with an offset, even if the
        transaction was aborted."""
        return self._log_offset >= 0

    def _produce(self, messages: list[OutgoingRecord], report_all: bool) -> None:
        offset, topic, produce = NOBODY, "", self.producer.produce
        self._acknowledged_at = self.began_at
        try:
            for offset, topic, partition, key, value, headers in messages:
                on_delivery = self._report(offset, topic) if report_all else None
                produce(topic, value, key, headers, partition, on_delivery)
        except RecordRejected as fault:
            self.outcomes.setdefault(topic, TopicOutcome()).faults[offset] = fault
            raise

    def _report(self, offset: int, topic: str) -> OnDelivery:
        outcome = self.outcomes.setdefault(topic, TopicOutcome())

        def delivered(fault: KafkaFault | None, _offset: int, _timestamp_ms: int) -> None:
            if fault is None:
                outcome.acknowledged += 1
                outcome.is_first = outcome.is_first or not self.first_wait_ms
                wait_ms = self._wait_ms()
                if wait_ms >= SLOW_RECORD_MS:
                    outcome.waits_ms.append(wait_ms)
            elif isinstance(fault, RecordRejected):
                outcome.faults[offset] = fault
            self._note_report(fault)

        return delivered

    def _note_report(self, fault: KafkaFault | None) -> None:
        """Sets `_gave_up` if a report shows that the client dropped a record before the broker's decision."""
        self._gave_up = self._gave_up or (fault is not None and fault.code in PURGED_CODES)

    def _wait_ms(self) -> float:
        """Returns the time in ms since the previous acknowledgement. REQUIRES: a call at each acknowledgement. The
        first call returns 0, since this wait counts for no topic, and sets `first_wait_ms`."""
        before, self._acknowledged_at = self._acknowledged_at, self.clock.steady_ms()
        if not self.first_wait_ms:
            self.first_wait_ms = max(self._acknowledged_at - before, 0.001)
            return 0.0
        return self._acknowledged_at - before

    def _flush(self, must_give_up: Callable[[], bool] | None) -> int:
        """Waits until every record has its report, at most FLUSH_TIMEOUT_S. Returns the number of missing reports.
        Raises GivenUp, or the error of `flush`."""
        left_s, slice_s = FLUSH_TIMEOUT_S, FLUSH_UNCHECKED_S
        while must_give_up is not None and left_s > slice_s:
            left = self.producer.flush(slice_s)
            if not left:
                return 0
            if must_give_up():
                raise GivenUp("a transaction is aborted: one of its targets cannot be produced to any more")
            left_s, slice_s = left_s - slice_s, FLUSH_SLICE_S
        return self.producer.flush(left_s)

    def _log_delivered(self, fault: KafkaFault | None, offset: int, timestamp_ms: int) -> None:
        self._log_offset, self._log_appended = offset, timestamp_ms
        self._log_fault = fault if fault is None or fault.code not in PURGED_CODES else None
        self._note_report(fault)
        if fault is None:
            self.log_waited_ms = self._wait_ms()
            if offset >= 0:  # otherwise the timestamp is unknown, and `_check` aborts
                self.broker_clock.sample(timestamp_ms, self._acknowledged_at)

    def _check(self, left: int, content: Content) -> None:
        if self._log_fault is not None:
            raise AbortRequired(f"the dispatch-log record was not accepted: {self._log_fault}", self._log_fault.code)
        if left:
            raise AbortRequired(f"{left} records were not acknowledged within {FLUSH_TIMEOUT_S:.0f} s")
        if self._log_offset < 0:
            faults = [fault for outcome in self.outcomes.values() for fault in outcome.faults.values()]
            detail = (
                "the dispatch-log record has no offset: another record of the transaction failed, or an answer was lost"
            )
            raise RecordRejected(str(faults[0]), faults[0].code) if faults else AbortRequired(detail)
        appended_ms, due_max_ms = self._log_appended, content.due_max_ms
        if appended_ms < due_max_ms:
            self.broker_clock.forget()
            raise AppendedEarly(f"the broker's clock went back: {appended_ms} is before {due_max_ms}")
        if appended_ms > content.grace_end_ms + TRANSACTION_TIMEOUT_MS:
            raise GraceOver(f"a grace ended at {content.grace_end_ms}, but the record was appended at {appended_ms}")

    def _has_gap(self, messages: list[OutgoingRecord]) -> bool:
        """True if the sequence numbers may have a gap (GAP_TOPICS_MIN): then the brokers would also refuse the next
        transaction of this producer."""
        is_refused = any(outcome.faults for outcome in self.outcomes.values())
        return is_refused and self._gave_up and len({message[1] for message in messages}) >= GAP_TOPICS_MIN

    def _settle(self, is_sound: bool) -> None:
        """Settles the end of the transaction, after every commit and every abort (docs/protocol.md, "Recycle").
        `is_sound`: False if this producer must not be used again in any case."""
        self.reusable = self.producer.settle() and is_sound
