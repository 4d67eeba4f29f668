"""Descriptions of topics: two requests of the admin client, and a look-up that the caller polls for their results.

A thread of the library completes the futures, so a look-up needs no thread: each poll waits for the futures of its
current request, for at most the given time.

Thread rule: a look-up belongs to one thread; the functions may be called from any.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not mark its re-exports
    AclOperation,
    AdminClient,
    ConfigResource,
    ResourceType,
)

from postdate.kafka.classification import result_of
from postdate.kafka.errors import NotAuthorized, Unreachable
from postdate.kafka.interface import LookedUp, Operation, TopicInfo

#: Seconds by which our waits exceed the library's time-out, so that its error, which names the cause, arrives first.
_GRACE_S = 1.0

_OPERATIONS = {
    AclOperation.READ: Operation.READ,
    AclOperation.WRITE: Operation.WRITE,
    AclOperation.ALTER: Operation.ALTER,
    AclOperation.DESCRIBE_CONFIGS: Operation.DESCRIBE_CONFIGS,
}


class ConfluentLookUp:
    """A look-up over confluent_kafka: first the topics, then the settings of those that are visible."""

    def __init__(self, client: AdminClient, timeout_s: float, topics: Iterable[str], config: Iterable[str]) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._wanted = frozenset(config)
        self._found: dict[str, TopicInfo] | None = None
        self._begin(ask_topics(client, topics, timeout_s))

    def poll(self, wait_s: float) -> LookedUp:
        deadline = time.monotonic() + wait_s
        while True:
            late = time.monotonic() >= self._late_at
            if wait(self._pending.values(), 0 if late else max(0.0, deadline - time.monotonic())).not_done:
                if late:
                    raise Unreachable("Could not describe topics: no answer in time")
                return None
            if self._found is not None:
                configs = topic_configs(self._pending, self._wanted, self._timeout_s)
                for name in self._pending.keys() - configs.keys():
                    del self._found[name]
                for name, values in configs.items():
                    self._found[name] = self._found[name]._replace(config=values or {})
                return self._found
            self._found = _infos(described_topics(self._pending, self._timeout_s))
            visible = [name for name, info in self._found.items() if info.topic_id] if self._wanted else []
            self._begin(ask_configs(self._client, visible, self._timeout_s))

    def _begin(self, pending: Mapping[str, Future[Any]]) -> None:
        self._pending = pending
        self._late_at = time.monotonic() + self._timeout_s + _GRACE_S


def ask_topics(client: AdminClient, topics: Iterable[str], timeout_s: float) -> dict[str, Future[Any]]:
    """Requests the descriptions of these topics; returns the futures by name. `Any`: the library has no types."""
    names = sorted(set(topics))
    if not names:
        return {}
    futures = client.describe_topics(
        TopicCollection(names), include_authorized_operations=True, request_timeout=timeout_s
    )
    return dict(futures)


def described_topics(pending: Mapping[str, Future[Any]], timeout_s: float) -> dict[str, Any]:
    """Waits for the results, and returns the library's description of each existing topic, or None for a topic that
    ACLs hide."""
    found: dict[str, Any] = {}
    for name, future in pending.items():
        try:
            described = result_of(
                future, f"describe {name}", timeout_s + _GRACE_S, absent=KafkaError.UNKNOWN_TOPIC_OR_PART
            )
        except NotAuthorized as fault:
            if fault.code != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            found[name] = None
            continue
        if described is not None:
            found[name] = described
    return found


def ask_configs(client: AdminClient, topics: Sequence[str], timeout_s: float) -> dict[str, Future[Any]]:
    """Requests the settings of these topics; returns the futures by name."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    if not resources:
        return {}
    futures = client.describe_configs(resources, request_timeout=timeout_s)
    return {str(resource.name): future for resource, future in futures.items()}


def topic_configs(
    pending: Mapping[str, Future[Any]], wanted: frozenset[str], timeout_s: float
) -> dict[str, dict[str, str] | None]:
    """Returns the wanted settings of each topic, or None for a topic whose ACL hides them. A topic that the broker does
    not know is missing: it was just deleted, or was just created and is still unknown to some brokers."""
    configs: dict[str, dict[str, str] | None] = {}
    for name, future in pending.items():
        try:
            entries = result_of(
                future,
                f"read the settings of {name}",
                timeout_s + _GRACE_S,
                absent=KafkaError.UNKNOWN_TOPIC_OR_PART,
            )
        except NotAuthorized as fault:
            if fault.code != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            configs[name] = None
            continue
        if entries is not None:
            configs[name] = {setting: str(entry.value) for setting, entry in entries.items() if setting in wanted}
    return configs


def operations_of(allowed: Sequence[AclOperation] | None) -> frozenset[Operation]:
    """Returns the operations that the broker allows, or all of them if `allowed` is None."""
    if allowed is None:
        return frozenset(Operation)
    return frozenset(_OPERATIONS[operation] for operation in allowed if operation in _OPERATIONS)


def _infos(described: Mapping[str, Any]) -> dict[str, TopicInfo]:
    infos: dict[str, TopicInfo] = {}
    for name, each in described.items():
        if each is None:
            infos[name] = TopicInfo(name, "", {}, {}, writable=False)
            continue
        leaders = {part.id: part.leader is not None for part in each.partitions}
        writable = Operation.WRITE in operations_of(each.authorized_operations)
        infos[name] = TopicInfo(name, str(each.topic_id), leaders, {}, writable)
    return infos
