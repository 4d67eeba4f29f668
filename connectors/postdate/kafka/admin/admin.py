"""Queries and changes of the cluster. Thread-safe, as the library's admin client is.

Each method sends its requests and waits for the library's futures. Requests to the coordinator of a group use other
clients: see groups.py. If a request of `_answer` or `look_up` ends with a fatal or transient error, the client is
dropped, and the next request creates a new one. The caller gets a transient error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as Tp
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not mark its re-exports
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions
from confluent_kafka.cimpl import NewTopic as ConfluentNewTopic

from postdate.kafka.admin.descriptions import (
    ConfluentLookUp,
    ask_configs,
    ask_topics,
    described_topics,
    operations_of,
    topic_configs,
)
from postdate.kafka.admin.groups import (
    assign_again,
    committed_offset,
    describe_group,
    group_members,
    knows_consumer_group,
)
from postdate.kafka.classification import classify, error_of, result_of
from postdate.kafka.errors import FatalClient, NotAuthorized, Retriable, Unreachable
from postdate.kafka.interface import GroupMember, Isolation, LookedUp, NewTopic, Operation, Partition, TopicInfo
from postdate.kafka.secrets import Renewal
from postdate.kafka.settings import KafkaSettings, log

#: Seconds: the interval of checks for a created topic, and of retries after a transient error.
_RETRY_INTERVAL_S = 0.05
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
#: The result of a search by time that finds nothing; librdkafka's OFFSET_END.
_NOT_FOUND = -1
_SHARE_ISOLATION = "share.isolation.level"


class ConfluentAdmin:
    """Admin over confluent_kafka. The interface documents its methods."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._timeout_s = settings.admin_timeout_s
        self._lock = threading.Lock()
        self._is_closed = False
        self._made: tuple[AdminClient, Renewal] | None = self._make()

    def cluster_id(self) -> str:
        described = self._answer(self._open().describe_cluster(request_timeout=self._timeout_s), "describe the cluster")
        return str(described.cluster_id)

    def start_offsets(self, parts: Iterable[Partition]) -> dict[Partition, int]:
        return self._list_offsets(parts, _EARLIEST, Isolation.READ_UNCOMMITTED)

    def end_offsets(
        self, parts: Iterable[Partition], isolation: Isolation, timeout_s: float | None = None
    ) -> dict[Partition, int]:
        return self._list_offsets(parts, _LATEST, isolation, timeout_s)

    def offset_for_time(self, part: Partition, timestamp_ms: int) -> int | None:
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        offset = self._list_offsets([part], spec, Isolation.READ_UNCOMMITTED)[part]
        return offset if offset >= 0 else None

    def describe(self, topics: Iterable[str], config: Iterable[str] = ()) -> dict[str, TopicInfo]:
        pending = self.look_up(topics, config)
        while (infos := pending(self._timeout_s)) is None:
            continue
        return infos

    def look_up(self, topics: Iterable[str], config: Iterable[str] = ()) -> Callable[[float], LookedUp]:
        look_up = ConfluentLookUp(self._open(), self._timeout_s, topics, config)

        def poll(wait_s: float) -> LookedUp:
            with self._replacing():
                return look_up.poll(wait_s)

        return poll

    def topic_rights(self, topics: Iterable[str]) -> dict[str, frozenset[Operation]]:
        rights: dict[str, frozenset[Operation]] = {}
        described = self._described(topics)
        hidden = [name for name, each in described.items() if each is None]
        readable = self._topic_configs(hidden, frozenset())  # DescribeConfigs may be allowed without Describe
        for name, each in described.items():
            if each is not None:
                rights[name] = operations_of(each.authorized_operations)
            else:
                is_readable = readable.get(name) is not None
                rights[name] = frozenset({Operation.DESCRIBE_CONFIGS}) if is_readable else frozenset()
        return rights

    def group_rights(self, group_id: str) -> frozenset[Operation]:
        self._open()
        try:
            group = describe_group(self._settings, group_id, with_rights=True)
        except NotAuthorized as fault:
            if fault.code != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise
            return frozenset()
        return operations_of(None if group is None else group.authorized_operations)

    def create_topics(self, topics: Sequence[NewTopic]) -> list[str]:
        if not topics:
            return []
        new = [
            ConfluentNewTopic(
                topic.name, num_partitions=topic.partitions, replication_factor=topic.replication, config=topic.config
            )
            for topic in topics
        ]
        created: list[str] = []
        for name, future in self._open().create_topics(new, request_timeout=self._timeout_s).items():
            try:
                future.result(self._timeout_s)
                created.append(name)
            except KafkaException as error:
                if error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise classify(error, f"create the topic {name}", otherwise=Unreachable) from error
            except FutureTimeout as error:
                raise Unreachable(f"Could not create the topic {name}: no answer in time") from error
        self._wait_for({topic.name: topic.partitions for topic in topics if topic.name in created})
        return created

    def add_partitions(self, counts: Mapping[str, int]) -> None:
        if not counts:
            return
        new = [NewPartitions(name, count) for name, count in counts.items()]
        for name, future in self._open().create_partitions(new, request_timeout=self._timeout_s).items():
            self._answer(future, f"add partitions to {name}")
        self._wait_for(dict(counts))

    def delete_topics(self, topics: Sequence[str]) -> None:
        if not topics:
            return
        for name, future in self._open().delete_topics(list(topics), request_timeout=self._timeout_s).items():
            self._answer(future, f"delete the topic {name}", absent=KafkaError.UNKNOWN_TOPIC_OR_PART)

    def group_members(self, group_id: str) -> list[GroupMember]:
        self._open()
        return group_members(self._settings, group_id)

    def group_offset(self, group_id: str, part: Partition) -> int | None:
        self._open()
        committed = committed_offset(self._settings, group_id, part)
        return None if committed is None else int(committed.offset)

    def group_note(self, group_id: str, part: Partition) -> str:
        self._open()
        committed = committed_offset(self._settings, group_id, part)
        return "" if committed is None else committed.metadata or ""

    def assign_again(self, group_id: str, topic: str) -> None:
        self._open()
        assign_again(self._settings, group_id, topic)

    def share_isolation(self, group_id: str) -> Isolation | None:
        client = self._open()
        if knows_consumer_group(self._settings, group_id):
            return None
        resource = ConfigResource(ResourceType.GROUP, group_id)
        (future,) = client.describe_configs([resource], request_timeout=self._timeout_s).values()
        setting = self._answer(future, f"read the settings of the group {group_id}").get(_SHARE_ISOLATION)
        return None if setting is None else Isolation(setting.value)

    def close(self) -> None:
        with self._lock:
            self._is_closed, self._made = True, None

    def _described(self, topics: Iterable[str]) -> dict[str, Any]:
        """Returns the library's description of each existing topic, or None for a topic that ACLs hide. `Any`: the
        library has no types."""
        return described_topics(ask_topics(self._open(), topics, self._timeout_s), self._timeout_s)

    def _list_offsets(
        self, parts: Iterable[Partition], spec: OffsetSpec, isolation: Isolation, timeout_s: float | None = None
    ) -> dict[Partition, int]:
        """Queries the leaders, and repeats the query while leadership moves. The library does not retry here, and keeps
        using the leader epoch that it cached. So its metadata is refreshed before each retry (*measured*: otherwise
        every retry after a pause of a broker fails with FENCED_LEADER_EPOCH)."""
        wanted = {Tp(part.topic, part.index): spec for part in parts}
        level = IsolationLevel[isolation.name]
        offsets: dict[Partition, int] = {}
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while wanted:
            futures = self._open().list_offsets(wanted, isolation_level=level, request_timeout=timeout_s)
            for tp, future in futures.items():
                try:
                    offset = self._listed(future, f"ask for offsets of {tp.topic}/{tp.partition}")
                except Retriable:
                    if time.monotonic() >= deadline:
                        raise
                    continue
                offsets[Partition(tp.topic, tp.partition)] = offset
                del wanted[Tp(tp.topic, tp.partition)]
            if wanted:
                time.sleep(_RETRY_INTERVAL_S)
                self._refresh({tp.topic for tp in wanted})
        return offsets

    def _listed(self, future: Future[Any], doing: str) -> int:
        """Returns one result of a list request.

        *Measured*: if a leader does not answer in time, the library reports success and the offset -1001, which must
        not become the end offset of a recovery. (-1 is a valid result: no record at or after that time.)
        """
        offset = int(self._answer(future, doing).offset)
        if offset < _NOT_FOUND:
            raise Retriable(f"Could not {doing}: no answer in time", KafkaError._TIMED_OUT)
        return offset

    def _refresh(self, topics: Iterable[str]) -> None:
        """Makes the library refresh its metadata of these topics' leaders."""
        for topic in topics:
            try:
                self._open().list_topics(topic, timeout=self._timeout_s)
            except KafkaException as error:
                raise classify(error, f"look up {topic}", otherwise=Unreachable) from error

    def _topic_configs(self, topics: Sequence[str], wanted: frozenset[str]) -> dict[str, dict[str, str] | None]:
        return topic_configs(ask_configs(self._open(), topics, self._timeout_s), wanted, self._timeout_s)

    def _wait_for(self, partitions: Mapping[str, int]) -> None:
        """Waits until each topic has at least that many partitions and all have leaders, since the brokers learn of a
        change only some time after the controller's answer. Raises Retriable after the time-out."""
        deadline = time.monotonic() + self._timeout_s
        missing = dict(partitions)
        while missing:
            for name, info in self.describe(missing).items():
                if len(info.partitions) >= missing[name] and all(info.partitions.values()):
                    del missing[name]
            if missing:
                if time.monotonic() >= deadline:
                    raise Retriable(f"Topics do not appear: {', '.join(sorted(missing))}")
                time.sleep(_RETRY_INTERVAL_S)

    def _answer(self, future: Future[Any], doing: str, absent: int | None = None) -> Any:
        """Waits as `result_of` does, for a second longer than the library, whose error names the cause."""
        with self._replacing():
            return result_of(future, doing, self._timeout_s + 1, absent)

    @contextmanager
    def _replacing(self) -> Iterator[None]:
        """Drops the client after a fatal or transient error within this context, and raises Unreachable instead of
        FatalClient. The library sends requests to the broker that it considers the controller. While that
        broker hangs or is down, the library does not search for another one (librdkafka 2.16,
        `rd_kafka_broker_controller_async`)."""
        try:
            yield
        except FatalClient as fault:
            log.error("the admin client failed, and the next request makes a new one: %s", fault)
            self._replace()
            raise Unreachable(str(fault), fault.code) from fault
        except Unreachable:
            self._replace()
            raise

    def _replace(self) -> None:
        with self._lock:
            self._made = None

    def _make(self) -> tuple[AdminClient, Renewal]:
        try:
            client = AdminClient(self._settings.admin_conf())
        except KafkaException as error:
            raise classify(error, "create an admin client") from error
        return client, self._settings.renewal(client, self._settings.admin)

    def _open(self) -> AdminClient:
        with self._lock:
            if self._is_closed:
                raise FatalClient("This admin client is closed.")
            self._made = self._made or self._make()
            client, renewal = self._made
        renewal.follow()
        return client
