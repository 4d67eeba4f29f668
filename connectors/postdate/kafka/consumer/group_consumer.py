"""A member of the consumer group on the request topics; partitions are assigned paused, and started at a given offset.

The behaviour of the client library shapes this module (librdkafka 2.16, read in `rdkafka_partition.c` and
`rdkafka_assignment.c`):

- A partition needs an offset when it is assigned, otherwise no later seek works. A fetch from this offset may start
  before the pause takes effect, and a fetch outside the log would stop the partition. So the offset is the beginning of
  the log, and the records of such a fetch are dropped.
- If a seek overtakes the look-up of that beginning, the answer to the look-up may undo the seek (librdkafka issue 2256;
  *measured*: in five of eight starts on a busy machine). The partition is then read from its beginning. The first batch
  reveals this, and the seek is repeated.
- A thread of the library assigns partitions. A seek that comes too early, or after the partition stopped on an error,
  fails with _STATE. Later polls repeat the seek. If that does not help, they assign the partition again (librdkafka
  issues 2961, 5591).
- `consume(n, timeout)` waits for all n. So `poll` waits for one record, and then takes the records that have arrived.
  It waits for more records only until `GATHER_INTERVAL_S` has passed since the previous batch.
- With the group protocol consumer (KIP-848) the broker assigns partitions, and members learn of it by their heartbeats.
  Assignments arrive through the same callbacks and are incremental, too. A second member with the same static name is
  refused with UNRELEASED_INSTANCE_ID, which is fatal to its client, until the first member has left or its session has
  timed out. With the classic protocol, the first member is fenced. With the protocol consumer, a static member that
  unsubscribes keeps its partitions until its session has timed out (`rdkafka_cgrp.c`).
- A broker converts a group of classic members only if their assignments have no user data (KAFKA-18134), but the
  library copies the user data of its sticky assignor into them (`rd_kafka_group_MemberState_consumer_write`). So the
  first member of the protocol consumer is refused with GROUP_ID_NOT_FOUND, also fatal, until the last classic member
  has left. The reverse works: classic members may join a group of the protocol consumer.
- A broker that has just started may answer a client with an empty list of brokers. A client that has lost its
  connections then forgets the addresses of all brokers, `bootstrap.servers` included, without an error (librdkafka
  issue 5301; reproduced with a broker that gives such answers for a second). Only its statistics show this; `poll`
  raises it as fatal.
- A fatal error may arrive in any call and any callback: as an event of a poll, in the error callback, as the answer to
  a commit, or as the refusal of an assignment. Except in `subscribe` and `close`, `_fault` keeps it,
  and the next `poll` raises it.

All methods run on the poll thread, except `confirm`.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from msgspec import MsgspecError

from postdate.kafka import limits
from postdate.kafka.admin.groups import group_members
from postdate.kafka.classification import UNSUPPORTED_CODES, classify, error_of, has_reason, is_fatal
from postdate.kafka.consumer.records import MessageError, group_records
from postdate.kafka.errors import FatalClient, Fenced, KafkaFault, Unreachable, UnsupportedByBroker
from postdate.kafka.interface import GroupListener, Partition, Record
from postdate.kafka.settings import KafkaSettings, log
from postdate.kafka.statistics import BrokerLoss, BrokerStatistics, decode_statistics

_NEEDS_BROKERS = "group_protocol = consumer needs Kafka 4.0 on all brokers: upgrade them, or set it to classic"

#: The text of a fatal error that gives no reason, as `classify` quotes it.
_NO_REASON = f"{KafkaError(KafkaError._FATAL).str()} ("

#: The beginning of the library's description of a membership; the generation follows it.
_GENERATION_AT = b"CGMDv2:"


class _Start:
    """A start that the library has not accepted yet."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.since = time.monotonic()
        self.reassigned_at = self.since
        self.report_at: float | None = None  # None: nothing was reported yet, and every error was _STATE


class ConfluentGroupConsumer:
    """GroupConsumer over confluent_kafka. The interface documents its methods."""

    def __init__(self, settings: KafkaSettings, group_id: str, instance_id: str | None, address: str = "") -> None:
        self._settings = settings
        self._group_id = group_id
        self._assigned: set[Partition] = set()
        self._paused: set[Partition] = set()
        self._starting: dict[Partition, _Start] = {}
        self._next: dict[Partition, int] = {}  # the first wanted offset of each started partition
        self._errors: deque[tuple[Partition | None, KafkaFault]] = deque(maxlen=limits.ERRORS_MAX)
        self._fatal: KafkaFault | None = None
        self._listener: GroupListener | None = None
        self._member_id = ""
        self._taken_at = 0.0
        self._join_report_at = inf
        conf = settings.group_consumer_conf(group_id, instance_id, address)
        self._statistics: tuple[BrokerStatistics, ...] = ()
        self._broker_loss = BrokerLoss()
        conf |= {"error_cb": self._on_error, "on_commit": self._on_commit, "stats_cb": self._on_statistics}
        try:
            consumer = Consumer(conf, logger=log)
        except KafkaException as error:
            raise classify(error, "create a consumer") from error
        self._consumer: Consumer | None = consumer
        self._renewal = settings.renewal(consumer, settings.consumer)

    def subscribe(self, topics: Sequence[str], listener: GroupListener) -> None:
        self._listener = listener
        if self._settings.group_protocol == "consumer":
            self._join_report_at = time.monotonic() + limits.JOIN_TIMEOUT_S
        try:
            self._open().subscribe(
                list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        except KafkaException as error:
            raise classify(error, f"subscribe to {', '.join(topics)}") from error

    def poll(self, records_max: int, timeout_s: float) -> list[tuple[Partition, list[Record]]]:
        consumer = self._open()
        self._renewal.follow()
        if self._starting:
            self._try_starting()
            timeout_s = min(timeout_s, 0.05)
        if time.monotonic() >= self._join_report_at:
            self._report_join()
        grouped, errors = self._polled(consumer, records_max, timeout_s)
        for message_error in errors:
            self._keep_error(message_error)
        if self._fatal is not None:
            self._forget(list(self._assigned))
            raise self._fatal
        wanted = [(part, records) for part, records in grouped.items() if self._is_wanted(part, records[0].offset)]
        for part, records in wanted:
            self._next[part] = records[-1].offset + 1
        return wanted

    def _polled(
        self, consumer: Consumer, records_max: int, timeout_s: float
    ) -> tuple[dict[Partition, list[Record]], list[MessageError]]:
        """Returns the records of one poll, grouped by partition, and its errors. Runs callbacks. If one raises a
        KafkaException, marks the client as unusable and returns nothing; any other exception propagates."""
        try:
            # The event that names the reason of a fatal error may still be on its way.
            first = consumer.poll(timeout_s if self._awaits_reason() else 0.0)
            if first is None:
                return {}, []
            gather_s = max(self._taken_at + limits.GATHER_INTERVAL_S - time.monotonic(), 0.0)
            messages = consumer.consume(records_max - 1, gather_s)
            self._taken_at = time.monotonic()
            return group_records([first, *messages])
        except KafkaException as error:  # it interrupted a callback, so the client's state may be incomplete
            fault = self._fault(error, "poll")
            self._fatal = self._fatal or FatalClient(str(fault), fault.code)
            return {}, []

    def errors(self) -> list[tuple[Partition | None, KafkaFault]]:
        drained = list(self._errors)
        self._errors.clear()
        return drained

    def start(self, part: Partition, offset: int) -> None:
        if part not in self._assigned:
            raise KafkaFault(f"{part.topic}/{part.index} cannot be started: it is not assigned.")
        self._paused.discard(part)
        self._start(part, offset)
        self._try_starting()

    def pause(self, parts: Iterable[Partition]) -> None:
        assigned = [part for part in parts if part in self._assigned]
        if assigned:
            self._paused.update(assigned)
            try:
                self._open().pause(_positions(assigned))
            except KafkaException as error:
                raise self._fault(error, "pause partitions") from error

    def resume(self, parts: Iterable[Partition]) -> None:
        paused = [part for part in parts if part in self._paused]
        self._paused.difference_update(paused)
        for part in paused:
            if part in self._next:
                self._start(part, self._next[part])
        self._try_starting()

    def commit(self, offsets: Mapping[Partition, int], notes: Mapping[Partition, str] | None = None) -> None:
        notes_by_partition = notes or {}
        positions = [
            _noted(part, offset, notes_by_partition.get(part, ""))
            for part, offset in offsets.items()
            if part in self._assigned
        ]
        if not positions:
            return
        try:
            self._open().commit(offsets=positions, asynchronous=True)
        except KafkaException as error:
            log.info("%s", self._fault(error, "commit group offsets"))

    def commit_note(self, part: Partition, offset: int, note: str) -> None:
        doing = f"keep a note for {part.topic}/{part.index}"
        if part not in self._assigned:
            raise KafkaFault(f"Could not {doing}: it is not assigned.")
        try:
            (answer,) = self._open().commit(offsets=[_noted(part, offset, note)], asynchronous=False)
        except KafkaException as error:
            raise self._fault(error, doing) from error
        if answer.error is not None:
            raise self._fault(answer.error, doing)

    def leave(self) -> None:
        try:
            self._open().unsubscribe()
        except KafkaException as error:
            raise self._fault(error, "leave the group") from error

    def committed(self, parts: Sequence[Partition], timeout_s: float) -> dict[Partition, int | None]:
        if not parts:
            return {}
        doing = "read the group's committed offsets"
        try:
            answers = self._open().committed(_positions(parts), timeout_s)
        except KafkaException as error:
            raise self._fault(error, doing) from error
        offsets: dict[Partition, int | None] = {}
        for answer in answers:
            if answer.error is not None:
                raise self._fault(answer.error, doing)
            offsets[Partition(answer.topic, answer.partition)] = answer.offset if answer.offset >= 0 else None
        return offsets

    def positions(self, parts: Sequence[Partition]) -> dict[Partition, int]:
        started = [part for part in parts if part in self._assigned and part not in self._starting]
        if not started:
            return {}
        try:
            positions = self._open().position(_positions(started))
        except KafkaException as error:
            raise self._fault(error, "read positions") from error
        return {part: at.offset for part, at in zip(started, positions, strict=True) if at.offset >= 0}

    def confirm(self, parts: Sequence[Partition], timeout_s: float) -> frozenset[Partition]:
        assigned, member_id = self._assigned.intersection(parts), self._member_id
        if not assigned or not member_id:
            return frozenset()
        try:
            members = group_members(replace(self._settings, admin_timeout_s=timeout_s), self._group_id)
        except KafkaFault as fault:
            log.info("the coordinator did not confirm partitions: %s", fault)
            return frozenset()
        held = {part for member in members if member.member_id == member_id for part in member.partitions}
        return frozenset(assigned & held)

    def assignment(self) -> frozenset[Partition]:
        return frozenset(self._assigned)

    def member_id(self) -> str:
        member_id = self._open().memberid() or ""
        return member_id if self._has_joined() else ""

    def statistics(self) -> tuple[BrokerStatistics, ...]:
        return self._statistics

    def close(self) -> None:
        consumer = self._consumer
        if consumer is None:
            return
        if self._fatal is not None:
            self._listener = None
        try:
            consumer.close()  # calls on_revoke for the partitions still held
        except KafkaException as error:
            raise classify(error, "leave the group") from error
        finally:
            self._consumer = None

    def _on_assign(self, consumer: Consumer, positions: list[TopicPartition]) -> None:
        parts = _partitions(positions)
        self._member_id = consumer.memberid() or ""
        consumer.incremental_assign([TopicPartition(p.topic, p.index, OFFSET_BEGINNING) for p in parts])
        if not parts:  # a rebalance that gives this member nothing new
            return
        consumer.pause(_positions(parts))
        self._assigned.update(parts)
        self._paused.difference_update(parts)
        if self._listener is not None:
            self._listener.assigned(parts)

    def _on_revoke(self, consumer: Consumer, positions: list[TopicPartition]) -> None:
        parts = _partitions(positions)
        if parts and self._listener is not None:
            self._listener.revoked(parts)
        self._forget(parts)  # the library unassigns them when this returns

    def _on_lost(self, consumer: Consumer, positions: list[TopicPartition]) -> None:
        parts = _partitions(positions)
        if parts and self._listener is not None:
            self._listener.lost(parts)
        self._forget(parts)

    def _forget(self, parts: Iterable[Partition]) -> None:
        for part in parts:
            self._assigned.discard(part)
            self._paused.discard(part)
            self._starting.pop(part, None)
            self._next.pop(part, None)

    def _has_joined(self) -> bool:
        """True if the coordinator knows this member. With the group protocol consumer, the client chooses its member id
        before it joins, so only the generation shows that the coordinator has answered."""
        membership = self._open().consumer_group_metadata()
        start = len(_GENERATION_AT)
        generation = int.from_bytes(membership[start : start + 4], sys.byteorder, signed=True)
        return membership.startswith(_GENERATION_AT) and generation > 0

    def _report_join(self) -> None:
        """Reports that the coordinator has not accepted this member for a while: the library repeats a request that
        older brokers do not know, without reporting an error."""
        if self._has_joined():
            self._join_report_at = inf
            return
        self._join_report_at += limits.JOIN_TIMEOUT_S
        waited_s = limits.JOIN_TIMEOUT_S
        why = f"The coordinator has not accepted this member for {waited_s:.0f} s. If brokers answer, they are too old"
        self._errors.append((None, Unreachable(f"{why}: {_NEEDS_BROKERS}")))

    def _is_wanted(self, part: Partition, offset: int) -> bool:
        """True if the partition is started, and a batch that begins at `offset` is not before the requested start. If
        the batch is before the start, repeats the seek."""
        wanted = self._next.get(part)
        if wanted is None:
            return False
        if offset < wanted:
            log.info(
                "%s/%d is read from offset %d instead of %d; seeking again", part.topic, part.index, offset, wanted
            )
            self._start(part, wanted)
            return False
        return True

    def _start(self, part: Partition, offset: int) -> None:
        """Queues a start. Until the start succeeds, `poll` returns no record of the partition."""
        self._next.pop(part, None)
        self._starting[part] = _Start(offset)

    def _try_starting(self) -> None:
        """Resumes and seeks each queued partition that is not paused. The next poll repeats a refused seek.

        The order matters: only the seek wakes the fetching thread, which then skips paused partitions. In the reverse
        order, or without a seek, the first record arrives up to a second later.
        """
        for part, start in [item for item in self._starting.items() if item[0] not in self._paused]:
            try:
                self._open().resume(_positions([part]))
                self._open().seek(TopicPartition(part.topic, part.index, start.offset))
            except KafkaException as error:
                self._seek_failed(part, start, error)
                continue
            del self._starting[part]
            self._next[part] = start.offset

    def _seek_failed(self, part: Partition, start: _Start, error: KafkaException) -> None:
        """Adds the failure to `errors` at intervals. Assigns the partition again if it has refused its seek for
        `SEEK_TIMEOUT_S`, since nothing else would start it."""
        now = time.monotonic()
        fault = self._fault(error, f"start {part.topic}/{part.index} at {start.offset}")
        if error_of(error).code() != KafkaError._STATE and start.report_at is None:
            start.report_at = now
        if now >= (start.since + limits.START_TIMEOUT_S if start.report_at is None else start.report_at):
            start.report_at = now + limits.START_TIMEOUT_S
            self._errors.append((part, fault))
        if now - start.reassigned_at > limits.SEEK_TIMEOUT_S:
            start.reassigned_at = now
            log.warning("%s/%d refuses a seek and is assigned again", part.topic, part.index)
            position = TopicPartition(part.topic, part.index, start.offset)
            for assign in (self._open().incremental_unassign, self._open().incremental_assign):
                try:
                    assign([position])
                except KafkaException as refusal:
                    log.warning("%s/%d was not assigned again: %s", part.topic, part.index, error_of(refusal).str())

    def _keep_error(self, message_error: MessageError) -> None:
        topic, index, error = message_error
        part = Partition(topic, index) if topic and index >= 0 else None
        where = f"{topic}/{index}" if part else "the request topics"
        self._errors.append((part, self._fault(error, f"consume {where}")))

    def _on_error(self, error: KafkaError) -> None:
        self._errors.append((None, self._fault(error, "reach the cluster")))

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        if error is not None:
            log.info("%s", self._fault(error, "commit group offsets"))

    def _fault(self, raised: KafkaException | KafkaError, doing: str) -> KafkaFault:
        """Returns the fault for an error that occurred while `doing` something. If it is fatal, the next poll raises
        it.

        After a fatal error, each call fails with the code _FATAL, which gives no reason. Only the event names the
        reason, and it may arrive later. So the first error with a reason is kept; later errors are its consequences.
        """
        fault = classify(raised, doing, otherwise=Unreachable)
        if is_fatal(raised) and has_reason(raised, UNSUPPORTED_CODES):
            fault = UnsupportedByBroker(f"{fault}. {_NEEDS_BROKERS}", fault.code)
        is_final = isinstance(fault, FatalClient | Fenced) or is_fatal(raised)
        if is_final and self._awaits_reason():
            self._fatal = fault
        return fault

    def _awaits_reason(self) -> bool:
        """True unless a fatal error with a reason is known."""
        return self._fatal is None or _NO_REASON in str(self._fatal)

    def _on_statistics(self, text: str) -> None:
        try:
            self._statistics = decode_statistics(text)
            self._broker_loss.observe(text)
        except MsgspecError as error:
            log.info("the client's statistics cannot be read: %s", error)
            return
        if self._broker_loss.is_lost:
            why = (
                "The client has lost the addresses of all brokers, and will contact no broker again "
                "(librdkafka issue 5301)."
            )
            self._fatal = self._fatal or FatalClient(why)

    def _open(self) -> Consumer:
        if self._consumer is None:
            raise FatalClient("This consumer is closed.")
        return self._consumer


def _noted(part: Partition, offset: int, note: str) -> TopicPartition:
    return TopicPartition(part.topic, part.index, offset, note)


def _positions(parts: Iterable[Partition]) -> list[TopicPartition]:
    return [TopicPartition(part.topic, part.index) for part in parts]


def _partitions(positions: Iterable[TopicPartition]) -> list[Partition]:
    return [Partition(position.topic, position.partition) for position in positions]
