"""Postdate's topics: which ones a request topic needs, their settings, and problems of the existing ones.

The checks use `Admin.describe`, so `postdate topics`, the start of the daemon and its check every ten minutes agree. A
violation names the rule and the command that corrects it; `refuses` means that it prevents the start of a process.
The rules are those of docs/protocol.md, "Rules for the topics".
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from postdate.kafka.errors import NotAuthorized
from postdate.kafka.interface import Admin, Isolation, NewTopic, TopicInfo
from postdate.sidecar.cluster import limits
from postdate.sidecar.config.limits import DISPATCH_LOG_RETENTION_MARGIN_MS
from postdate.sidecar.config.settings import TopicsConfig
from postdate.sidecar.dispatch.limits import CLIENT_BATCH_BYTES
from postdate.wire.topics import OwnTopics
from postdate.wire.values.durations import format_duration
from postdate.wire.values.texts import counted

RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
SEGMENT_MS = "segment.ms"
CLEANUP = "cleanup.policy"
TIMESTAMP_TYPE = "message.timestamp.type"
MESSAGE_BYTES = "max.message.bytes"
LOG_APPEND_TIME = "LogAppendTime"
SETTINGS_READ = (RETENTION_MS, RETENTION_BYTES, SEGMENT_MS, CLEANUP, TIMESTAMP_TYPE, MESSAGE_BYTES)
UNLIMITED = -1


class TopicRule(StrEnum):
    """The rules for live topics. Closed."""

    MISSING = "missing-topic"
    MISSING_RIGHT = "missing-right"
    PARTITIONS = "too-few-partitions"
    FATES_OUTLIVE = "dispatch-log-retention"
    COMPACTED = "compacted"
    NOT_COMPACTED = "not-compacted"
    RETENTION_BYTES = "retention-bytes"
    CREATE_TIME = "create-time"
    MESSAGE_SIZE = "message-size"
    READS_ABORTED = "reads-aborted"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule or missing right: the problem, the command that corrects it, and whether it prevents the start.
    `topic`: the topic, or another resource such as a group."""

    rule: TopicRule
    topic: str
    detail: str
    remedy: str
    refuses: bool

    def __str__(self) -> str:
        return f"{self.topic} {self.detail}; fix it with: {self.remedy}"


def explained(found: Iterable[Violation]) -> list[str]:
    """Returns one line for each run of violations that have the same remedy."""
    return [
        "; ".join([*(f"{violation.topic} {violation.detail}" for violation in same), f"fix it with: {remedy}"])
        for remedy, same in groupby(found, lambda violation: violation.remedy)
    ]


def in_order(own: OwnTopics) -> tuple[str, ...]:
    """Returns the names of the five topics in the order in which they are reported, the request topic first."""
    return (own.requests, own.dispatch_log, own.store, own.dead_letters, own.verdicts)


def request_topic(name: str, settings: TopicsConfig) -> NewTopic:
    """Returns the definition for creating the request topic `name`."""
    return NewTopic(
        name,
        settings.partitions,
        settings.replication_factor,
        {
            CLEANUP: "delete",
            TIMESTAMP_TYPE: LOG_APPEND_TIME,
            RETENTION_MS: str(settings.retention_ms),
            RETENTION_BYTES: str(UNLIMITED),
            SEGMENT_MS: str(settings.segment_ms),
            "min.insync.replicas": str(settings.min_insync_replicas),
        },
    )


def own_topics(requests: TopicInfo, settings: TopicsConfig) -> list[NewTopic]:
    """Returns definitions for the four topics of Postdate that belong to a live request topic. They have as many
    partitions as the request topic, and settings derived from those of the request topic."""
    own = OwnTopics.of(requests.name)
    fates_ms = max(least_fate_retention_ms(requests), settings.dispatch_log_retention_ms)
    if least_fate_retention_ms(requests) == UNLIMITED:
        fates_ms = UNLIMITED
    shared = {
        MESSAGE_BYTES: str(least_message_bytes(requests)),
        "min.insync.replicas": str(settings.min_insync_replicas),
    }
    log = {CLEANUP: "delete", TIMESTAMP_TYPE: LOG_APPEND_TIME, RETENTION_BYTES: str(UNLIMITED)}
    configs: dict[str, dict[str, str]] = {
        own.dispatch_log: {**log, RETENTION_MS: str(fates_ms)},
        own.store: {CLEANUP: "compact", "min.cleanable.dirty.ratio": "0.1"},
        own.dead_letters: {**log, RETENTION_MS: str(fates_ms)},
        own.verdicts: {**log, RETENTION_MS: str(fates_ms)},
    }
    count = len(requests.partitions)
    return [NewTopic(name, count, settings.replication_factor, config | shared) for name, config in configs.items()]


def least_fate_retention_ms(requests: TopicInfo) -> int:
    """Returns how long the dispatch log must keep fates, in ms; -1 for ever. Retention deletes whole segments, and a
    request must not exist longer than its fate."""
    retention_ms = _number(requests, RETENTION_MS)
    if retention_ms == UNLIMITED:
        return UNLIMITED
    return retention_ms + _number(requests, SEGMENT_MS) + DISPATCH_LOG_RETENTION_MARGIN_MS


def least_message_bytes(requests: TopicInfo) -> int:
    """Returns the least `max.message.bytes` of Postdate's own topics: the largest request or the client's batch size,
    whichever is larger, plus the added headers. The limit of a topic applies to batches."""
    return max(_number(requests, MESSAGE_BYTES), CLIENT_BATCH_BYTES) + limits.OWN_TOPIC_MESSAGE_MARGIN_BYTES


def violations(own: OwnTopics, admin: Admin, bootstrap_servers: str = "HOST:PORT") -> list[Violation]:
    """Returns every rule that the live topics of a request topic break, those that prevent the start first.

    `bootstrap_servers` appears in the correcting commands. Raises as `Admin.describe`, and NotAuthorized if a topic or
    its settings cannot be read. Sends two requests to Kafka.
    """
    live = admin.describe(own.names(), SETTINGS_READ)
    hidden = sorted(name for name, info in live.items() if not info.topic_id or not info.config)
    if hidden:
        raise NotAuthorized(f"the settings of {', '.join(hidden)} cannot be read: allow Describe and DescribeConfigs")
    found = broken_rules(own, live, bootstrap_servers)
    return sorted(found, key=lambda violation: not violation.refuses)


def isolation_violation(group_id: str, isolation: Isolation, bootstrap_servers: str) -> Violation | None:
    """Returns the warning about a share group that reads aborted records; None if the group does not read them.
    `isolation`: the result of `Admin.share_isolation`. The warning never prevents a start."""
    if isolation is Isolation.READ_COMMITTED:
        return None
    setting = "share.isolation.level"
    why = (
        f"{setting} is {isolation.value}: it also reads records of aborted transactions, which Postdate delivers again"
    )
    alter = f"kafka-configs.sh --bootstrap-server {bootstrap_servers} --alter --entity-type groups --entity-name"
    remedy = f"{alter} {shlex.quote(group_id)} --add-config {setting}={Isolation.READ_COMMITTED.value}"
    return Violation(TopicRule.READS_ABORTED, f"share group {group_id}", why, remedy, refuses=False)


def broken_rules(own: OwnTopics, live: Mapping[str, TopicInfo], bootstrap_servers: str) -> list[Violation]:
    """Returns the violations: first missing topics, then missing partitions, then wrong settings. If the request topic
    is missing, returns only missing topics. `live`: the result of `Admin.describe` of all five topics with
    SETTINGS_READ."""
    info = live.get(own.requests)
    create = f"postdate topics create -b {bootstrap_servers} --requests {own.requests} --allow-existing"
    found = [
        Violation(TopicRule.MISSING, name, "does not exist", create, refuses=True)
        for name in in_order(own)
        if name not in live
    ]
    if info is None:
        return found
    found += _count_violations(own, info, live, create)
    alter = f"kafka-configs.sh --bootstrap-server {bootstrap_servers} --alter --entity-type topics --entity-name"
    for name in in_order(own):
        if name in live:
            found += _setting_violations(own, info, live[name], alter)
    return found


def _count_violations(
    own: OwnTopics, requests: TopicInfo, live: Mapping[str, TopicInfo], create: str
) -> Iterator[Violation]:
    """Yields a violation for each of Postdate's own topics that has fewer partitions than the request topic; a shard
    without its partitions cannot run."""
    wanted = len(requests.partitions)
    for name in in_order(own):
        info = live.get(name)
        if info is not None and len(info.partitions) < wanted:
            detail = f"has {counted(len(info.partitions), 'partition')}, {requests.name} has {wanted}"
            yield Violation(TopicRule.PARTITIONS, name, detail, create, refuses=False)


def _setting_violations(own: OwnTopics, requests: TopicInfo, info: TopicInfo, alter: str) -> Iterator[Violation]:
    name = info.name
    change = f"{alter} {name} --add-config"
    compacted = "compact" in info.config.get(CLEANUP, "")
    if name == own.store:
        if info.config.get(CLEANUP) != "compact":
            why = f"{CLEANUP} is {info.config.get(CLEANUP)}: what is stored would be deleted by age"
            yield Violation(TopicRule.NOT_COMPACTED, name, why, f"{change} {CLEANUP}=compact", refuses=True)
    elif compacted:
        why = f"{CLEANUP} is {info.config.get(CLEANUP)}: compaction drops records, and refuses those without a key"
        yield Violation(TopicRule.COMPACTED, name, why, f"{change} {CLEANUP}=delete", refuses=True)
    if name in (own.requests, own.dispatch_log):
        yield from _log_violations(own, requests, info, change)
    if name != own.requests:
        least_bytes = least_message_bytes(requests)
        if _number(info, MESSAGE_BYTES) < least_bytes:
            why = f"{MESSAGE_BYTES} is {_number(info, MESSAGE_BYTES)}: a request of the largest size would not fit"
            yield Violation(TopicRule.MESSAGE_SIZE, name, why, f"{change} {MESSAGE_BYTES}={least_bytes}", refuses=False)


def _log_violations(own: OwnTopics, requests: TopicInfo, info: TopicInfo, change: str) -> Iterator[Violation]:
    """Yields the broken rules of a topic that must not lose a record: requests or fates."""
    name = info.name
    if _number(info, RETENTION_BYTES) != UNLIMITED:
        why = f"{RETENTION_BYTES} is {_number(info, RETENTION_BYTES)}: a burst would delete records before their time"
        yield Violation(TopicRule.RETENTION_BYTES, name, why, f"{change} {RETENTION_BYTES}=-1", refuses=True)
    if info.config.get(TIMESTAMP_TYPE) != LOG_APPEND_TIME:
        remedy = f"{change} {TIMESTAMP_TYPE}={LOG_APPEND_TIME}"
        if name == own.dispatch_log:
            why = f"{TIMESTAMP_TYPE} is {info.config.get(TIMESTAMP_TYPE)}: the broker's clock must stamp fates"
            yield Violation(TopicRule.CREATE_TIME, name, why, remedy, refuses=True)
        else:
            why = f"{TIMESTAMP_TYPE} is {info.config.get(TIMESTAMP_TYPE)}: delays count from the producer's clock"
            yield Violation(TopicRule.CREATE_TIME, name, why, remedy, refuses=False)
    least_ms = least_fate_retention_ms(requests)
    kept_ms = _number(info, RETENTION_MS)
    if name == own.dispatch_log and kept_ms != UNLIMITED and (least_ms == UNLIMITED or kept_ms < least_ms):
        least = "-1 (no limit)" if least_ms == UNLIMITED else f"at least {least_ms} ({format_duration(least_ms)})"
        why = f"{RETENTION_MS} is {kept_ms} ({format_duration(kept_ms)}), and must be {least}"
        why += ": a request must never outlive its fate"
        yield Violation(TopicRule.FATES_OUTLIVE, name, why, f"{change} {RETENTION_MS}={least_ms}", refuses=True)


def _number(info: TopicInfo, setting: str) -> int:
    """Returns a setting as a number. Raises KeyError if it was not requested."""
    return int(info.config[setting])
