"""The admin client of the simulated cluster: look-ups and changes.

Thread rule: one thread; time advances only in the waits of the link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from postdate.kafka import limits
from postdate.kafka.classification import classify
from postdate.kafka.errors import FatalClient, Unreachable
from postdate.kafka.interface import GroupMember, Isolation, LookedUp, NewTopic, Operation, Partition, TopicInfo
from support.kafka_simulator.broker import SimBroker
from support.kafka_simulator.brokers import Node
from support.kafka_simulator.error_responses import code_of
from support.kafka_simulator.link import Link
from support.kafka_simulator.log import PartitionLog
from support.kafka_simulator.metadata import Metadata, StaleLog
from support.kafka_simulator.silence import Server, Silence
from support.kafka_simulator.topics import SETTINGS

T = TypeVar("T")

#: Milliseconds: the pause before a request is repeated.
_RETRY_MS = 50.0
#: Milliseconds: the duration of a request that is refused, since the library repeats it several times.
_REFUSED_MS = 500.0


class SimLookUp:
    """A look-up of the simulated cluster: each poll sends the request, and repeats it after retriable errors."""

    def __init__(
        self, silence: Silence, link: Link, deadline_ms: float, request: Callable[[], dict[str, TopicInfo]]
    ) -> None:
        self._silence = silence
        self._link = link
        self._deadline_ms = deadline_ms
        self._request = request

    def poll(self, wait_s: float) -> LookedUp:
        until_ms = self._link.time.now_ms + wait_s * 1000
        while self._silence.covers(Server.CONTROLLER):
            if self._silence.refuses or self._link.time.now_ms >= self._deadline_ms:
                raise Unreachable("Could not describe topics: no answer in time", KafkaError._TIMED_OUT)
            if self._link.time.now_ms >= until_ms:
                return None
            self._link.wait(min(_RETRY_MS, until_ms - self._link.time.now_ms))
        while True:
            try:
                return self._link.ask("admin", self._request)
            except KafkaException as error:
                fault = classify(error, "describe topics", otherwise=Unreachable)
                if not fault.retriable or self._link.time.now_ms >= self._deadline_ms:
                    raise fault from error
            if self._link.time.now_ms + _RETRY_MS > until_ms:
                return None
            self._link.wait(_RETRY_MS)


class SimAdmin:
    """Admin of the simulated cluster. The interface describes the methods."""

    def __init__(self, broker: SimBroker, link: Link, timeout_s: float = limits.ADMIN_TIMEOUT_S) -> None:
        self._broker = broker
        self._link = link
        self._metadata = Metadata(broker)
        self._timeout_ms = timeout_s * 1000
        self._closed = False

    def cluster_id(self) -> str:
        return self._ask("describe the cluster", lambda: self._broker.cluster_id)

    def start_offsets(self, parts: Iterable[Partition]) -> dict[Partition, int]:
        return self._ask_leaders("ask for offsets", parts, lambda log: log.start)

    def end_offsets(
        self, parts: Iterable[Partition], isolation: Isolation, timeout_s: float | None = None
    ) -> dict[Partition, int]:
        timeout_ms = None if timeout_s is None else timeout_s * 1000
        return self._ask_leaders("ask for offsets", parts, lambda log: log.end_for(isolation), timeout_ms)

    def offset_for_time(self, part: Partition, timestamp_ms: int) -> int | None:
        return self._ask_leaders("ask for a time", [part], lambda log: log.offset_for_time(timestamp_ms))[part]

    def describe(self, topics: Iterable[str], config: Iterable[str] = ()) -> dict[str, TopicInfo]:
        names, wanted = sorted(set(topics)), sorted(set(config))
        return self._ask("describe topics", lambda: self._look(names, wanted)) if names else {}

    def look_up(self, topics: Iterable[str], config: Iterable[str] = ()) -> Callable[[float], LookedUp]:
        names, wanted = sorted(set(topics)), sorted(set(config))
        deadline_ms = self._link.time.now_ms + self._timeout_ms
        return SimLookUp(self._broker.silence, self._link, deadline_ms, lambda: self._look(names, wanted)).poll

    def _look(self, names: list[str], wanted: list[str]) -> dict[str, TopicInfo]:
        known = self._broker.topics
        return {
            name: TopicInfo(
                name,
                known[name].topic_id,
                {index: log.has_leader for index, log in enumerate(known[name].logs)},
                {setting: known[name].setting(setting) for setting in wanted if setting in SETTINGS},
                name not in self._broker.denied,
            )
            for name in names
            if name in known
        }

    def topic_rights(self, topics: Iterable[str]) -> dict[str, frozenset[Operation]]:
        every = frozenset(Operation)
        return {
            name: every if info.writable else every - {Operation.WRITE} for name, info in self.describe(topics).items()
        }

    def group_rights(self, group_id: str) -> frozenset[Operation]:
        return self._ask(f"describe the group {group_id}", lambda: frozenset(Operation), server=Server.COORDINATOR)

    def create_topics(self, topics: Sequence[NewTopic]) -> list[str]:
        created: list[str] = []
        for new in topics:
            try:
                self._ask(
                    f"create the topic {new.name}",
                    lambda new=new: self._broker.create(new),  # type: ignore[misc]  # bound at once
                    absent=KafkaError.TOPIC_ALREADY_EXISTS,
                )
                created.append(new.name)
            except _Absent:
                continue
        return created

    def add_partitions(self, counts: Mapping[str, int]) -> None:
        def add() -> None:
            for name, count in counts.items():
                self._broker.topic(name).grow(count)

        self._ask("add partitions", add)

    def alter_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        self._ask(f"change the settings of {topic}", lambda: self._broker.topic(topic).configure(config))

    def delete_topics(self, topics: Sequence[str]) -> None:
        def delete() -> None:
            for name in self._broker.topics.keys() & set(topics):
                self._broker.delete(name)

        self._ask("delete topics", delete)

    def delete_records(self, before: Mapping[Partition, int]) -> dict[Partition, int]:
        def delete() -> dict[Partition, int]:
            starts: dict[Partition, int] = {}
            for part, offset in before.items():
                log = self._broker.log(part)
                log.delete_before(log.end if offset < 0 else offset)
                starts[part] = log.start
            return starts

        return self._ask("delete records", delete)

    def group_offset(self, group_id: str, part: Partition) -> int | None:
        return self._ask(
            "read a committed offset", lambda: self._broker.groups.offset(group_id, part), server=Server.COORDINATOR
        )

    def group_note(self, group_id: str, part: Partition) -> str:
        return self._ask(
            "read a committed offset", lambda: self._broker.groups.note(group_id, part), server=Server.COORDINATOR
        )

    def group_members(self, group_id: str) -> list[GroupMember]:
        return self._ask(
            f"describe the group {group_id}", lambda: self._broker.groups.described(group_id), server=Server.COORDINATOR
        )

    def assign_again(self, group_id: str, topic: str) -> None:
        """Changes nothing: simulated groups assign every partition to a member."""
        self._ask(f"assign the partitions of {group_id} again", lambda: None, server=Server.COORDINATOR)

    def share_isolation(self, group_id: str) -> Isolation | None:
        """Returns None for a consumer group, and Kafka's default for any other group."""

        def read() -> Isolation | None:
            return None if self._broker.groups.knows(group_id) else Isolation.READ_UNCOMMITTED

        return self._ask(f"read the settings of the group {group_id}", read, server=Server.COORDINATOR)

    def close(self) -> None:
        self._closed = True

    def _ask_leaders(
        self,
        doing: str,
        parts: Iterable[Partition],
        read: Callable[[PartitionLog | StaleLog], T],
        timeout_ms: float | None = None,
    ) -> dict[Partition, T]:
        """Sends a request to each leader, according to this client's metadata cache."""
        wanted, found = list(parts), dict[Partition, T]()
        deadline_ms = self._link.time.now_ms + (self._timeout_ms if timeout_ms is None else timeout_ms)
        while missing := [part for part in wanted if part not in found]:
            node, requested = next(iter(self._metadata.by_leader(missing).values()))

            def request(node: Node = node, requested: list[Partition] = requested) -> dict[Partition, T]:
                return {part: read(self._metadata.log(part, node)) for part in requested}

            try:
                found |= self._ask_once(doing, request, Server.LEADERS, deadline_ms, node)
            except Unreachable:
                for part in requested:
                    self._metadata.forget(part)
                if self._is_over(Server.LEADERS, deadline_ms):
                    raise
                self._link.wait(_RETRY_MS)
        return found

    def _ask(
        self, doing: str, request: Callable[[], T], absent: int | None = None, server: Server = Server.CONTROLLER
    ) -> T:
        """Sends a request, and repeats it after retriable errors. Raises _Absent for the error code `absent`."""
        deadline_ms = self._link.time.now_ms + self._timeout_ms
        while True:
            try:
                return self._ask_once(doing, request, server, deadline_ms, absent=absent)
            except Unreachable:
                if self._is_over(server, deadline_ms):
                    raise
            self._link.wait(_RETRY_MS)

    def _is_over(self, server: Server, deadline_ms: float) -> bool:
        return self._link.time.now_ms >= deadline_ms or self._broker.silence.covers(server)

    def _ask_once(
        self,
        doing: str,
        request: Callable[[], T],
        server: Server,
        deadline_ms: float,
        node: Node | None = None,
        absent: int | None = None,
    ) -> T:
        if self._closed:
            raise FatalClient("This admin client is closed.")
        left_ms = max(deadline_ms - self._link.time.now_ms, 0.0)
        if self._broker.silence.covers(server):
            self._link.wait(_REFUSED_MS if self._broker.silence.refuses else left_ms)
            raise Unreachable(f"Could not {doing}: no answer in time", KafkaError._TIMED_OUT)
        try:
            return self._link.ask("admin", request, node, left_ms)
        except KafkaException as error:
            if absent is not None and code_of(error) == absent:
                raise _Absent from error
            raise classify(error, doing, otherwise=Unreachable) from error


class _Absent(Exception):
    """The error that the caller expects and ignores."""
