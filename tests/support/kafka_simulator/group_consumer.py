"""Members of a simulated consumer group: partitions are assigned paused, and started at an offset that the caller
chooses.

Everything happens inside `poll`: heartbeat, revocation, assignment, reading. So a process that does not poll for the
session time-out loses its partitions, and its next poll reports this.

Thread rule: one thread; time advances only in the waits of the link.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException

from postdate.kafka.classification import classify
from postdate.kafka.errors import FatalClient, Fenced, KafkaFault, Unreachable
from postdate.kafka.interface import GroupListener, Isolation, Partition, Record
from postdate.kafka.statistics import BrokerStatistics
from support.kafka_simulator.broker import SimBroker
from support.kafka_simulator.error_responses import code_of, refusal
from support.kafka_simulator.link import Link
from support.kafka_simulator.metadata import Metadata


class SimGroupConsumer:
    """GroupConsumer of the simulated cluster. The interface describes the methods."""

    def __init__(
        self, broker: SimBroker, link: Link, group_id: str, instance_id: str | None, address: str = ""
    ) -> None:
        self._broker = broker
        self._link = link
        self._metadata = Metadata(broker)
        self._group_id = group_id
        self._instance_id = instance_id or ""
        self._client_id = f"simulated@{address}" if address else "simulated"
        self._topics: tuple[str, ...] = ()
        self._listener: GroupListener | None = None
        self._member_id = ""
        self._assigned: set[Partition] = set()
        self._positions: dict[Partition, int] = {}  # for started partitions
        self._fetched: set[Partition] = set()
        self._paused: set[Partition] = set()
        self._errors: list[tuple[Partition | None, KafkaFault]] = []
        self._fatal: KafkaFault | None = None
        self._closed = False

    def subscribe(self, topics: Sequence[str], listener: GroupListener) -> None:
        self._open()
        self._topics, self._listener = tuple(topics), listener

    def poll(self, records_max: int, timeout_s: float) -> list[tuple[Partition, list[Record]]]:
        self._open()
        if self._fatal is not None:
            raise self._fatal
        found = self._poll(records_max)
        if not found and timeout_s > 0:
            self._link.wait(timeout_s * 1000)
            found = self._poll(records_max)
        return found

    def errors(self) -> list[tuple[Partition | None, KafkaFault]]:
        drained, self._errors = self._errors, []
        return drained

    def start(self, part: Partition, offset: int) -> None:
        if part not in self._assigned:
            raise KafkaFault(f"{part.topic}/{part.index} cannot be started: it is not assigned.")
        self._positions[part] = offset
        self._fetched.discard(part)
        self._paused.discard(part)

    def pause(self, parts: Iterable[Partition]) -> None:
        self._paused.update(part for part in parts if part in self._assigned)

    def resume(self, parts: Iterable[Partition]) -> None:
        self._paused.difference_update(parts)

    def commit(self, offsets: Mapping[Partition, int], notes: Mapping[Partition, str] | None = None) -> None:
        groups, kept = self._broker.groups, notes or {}
        for part, offset in offsets.items():
            if part in self._assigned and groups.holds(self._group_id, self._member_id, part):
                groups.commit(self._group_id, part, offset, kept.get(part, ""))

    def commit_note(self, part: Partition, offset: int, note: str) -> None:
        groups = self._broker.groups

        def commit() -> None:
            if part not in self._assigned or not groups.holds(self._group_id, self._member_id, part):
                raise refusal(KafkaError.UNKNOWN_MEMBER_ID, "this member has lost the partition")
            groups.commit(self._group_id, part, offset, note)

        try:
            self._link.ask("offsets", commit)
        except KafkaException as error:
            raise classify(error, f"keep a note for {part.topic}/{part.index}", otherwise=Unreachable) from error

    def leave(self) -> None:
        held, listener = sorted(self._assigned), self._listener
        self._listener = None
        if held and listener is not None:
            listener.revoked(held)
        self._broker.groups.give(self._group_id, self._member_id, held)
        self._broker.groups.leave(self._group_id, self._member_id, for_good=True)
        self._forget(held)
        self._member_id = ""

    def committed(self, parts: Sequence[Partition], timeout_s: float) -> dict[Partition, int | None]:
        groups = self._broker.groups
        try:
            return self._link.ask("offsets", lambda: {part: groups.offset(self._group_id, part) for part in parts})
        except KafkaException as error:
            raise classify(error, "read the group's committed offsets", otherwise=Unreachable) from error

    def positions(self, parts: Sequence[Partition]) -> dict[Partition, int]:
        return {part: self._positions[part] for part in parts if part in self._fetched}

    def confirm(self, parts: Sequence[Partition], timeout_s: float) -> frozenset[Partition]:
        mine = self._assigned.intersection(parts)
        if not mine:
            return frozenset()
        groups = self._broker.groups
        try:
            return self._link.ask(
                "confirm", lambda: frozenset(p for p in mine if groups.holds(self._group_id, self._member_id, p))
            )
        except KafkaException:
            return frozenset()

    def assignment(self) -> frozenset[Partition]:
        return frozenset(self._assigned)

    def member_id(self) -> str:
        return self._member_id

    def statistics(self) -> tuple[BrokerStatistics, ...]:
        return ()

    def close(self) -> None:
        if self._closed:
            return
        held = sorted(self._assigned)
        if held and self._listener is not None:
            self._listener.revoked(held)
        self._closed = True
        self._broker.groups.give(self._group_id, self._member_id, held)
        self._broker.groups.leave(self._group_id, self._member_id)
        self._forget(held)

    # ---- one poll --------------------------------------------------------------------------------------------------

    def _poll(self, records_max: int) -> list[tuple[Partition, list[Record]]]:
        if self._listener is None:
            return []
        try:
            self._rebalance(self._listener)
        except KafkaException as error:
            fault = classify(error, "reach the group's coordinator", otherwise=Unreachable)
            if isinstance(fault, Fenced):
                self._fatal = fault
                self._forget(sorted(self._assigned))
                raise fault from error
            self._errors.append((None, fault))
            return []
        found: list[tuple[Partition, list[Record]]] = []
        for part in sorted(self._positions.keys() - self._paused):
            records = self._fetch(part, records_max)
            if records:
                found.append((part, records))
                records_max -= len(records)
            if records_max <= 0:
                break
        return found

    def _rebalance(self, listener: GroupListener) -> None:
        groups = self._broker.groups
        if not self._member_id:
            self._member_id = self._link.ask(
                "join", lambda: groups.join(self._group_id, self._topics, self._instance_id, self._client_id)
            )
        try:
            meant = self._link.ask("beat", lambda: groups.heartbeat(self._group_id, self._member_id))
        except KafkaException as error:
            if code_of(error) != KafkaError.UNKNOWN_MEMBER_ID:
                raise
            lost = sorted(self._assigned)
            if lost:
                listener.lost(lost)
            self._forget(lost)
            self._member_id = ""
            return
        surplus = sorted(self._assigned - meant)
        if surplus:
            listener.revoked(surplus)
            groups.give(self._group_id, self._member_id, surplus)
            self._forget(surplus)
        gained = groups.take(self._group_id, self._member_id, meant - self._assigned)
        if gained:
            self._assigned.update(gained)
            self._paused.difference_update(gained)
            listener.assigned(gained)

    def _fetch(self, part: Partition, records_max: int) -> list[Record]:
        if self._metadata.is_silent(part):
            return []
        try:
            records, self._positions[part] = self._link.ask("fetch", lambda: self._look(part, records_max))
        except KafkaException as error:
            fault = classify(error, f"consume {part.topic}/{part.index}", otherwise=Unreachable)
            self._errors.append((part, fault))
            if not fault.retriable:  # the partition is not read until it is started again
                self._forget_position(part)
            return []
        self._fetched.add(part)
        return records

    def _look(self, part: Partition, records_max: int) -> tuple[list[Record], int]:
        log = self._metadata.log(part, self._metadata.leader(part))
        return log.read(self._positions[part], Isolation.READ_COMMITTED, records_max)

    def _forget(self, parts: Iterable[Partition]) -> None:
        for part in parts:
            self._assigned.discard(part)
            self._paused.discard(part)
            self._forget_position(part)

    def _forget_position(self, part: Partition) -> None:
        self._positions.pop(part, None)
        self._fetched.discard(part)

    def _open(self) -> None:
        if self._closed:
            raise FatalClient("This consumer is closed.")
