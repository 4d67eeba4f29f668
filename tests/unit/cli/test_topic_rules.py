"""Goal: each violated rule of live topics is reported, and nothing else. Topics from `topics create` violate no rule.

Method: the descriptions that a cluster returns for created topics. Each test changes one setting.
"""

from __future__ import annotations

import pytest

from postdate.kafka.interface import Isolation, NewTopic, TopicInfo
from postdate.sidecar.cluster import topics as rules
from postdate.sidecar.cluster.topics import TopicRule, Violation
from postdate.sidecar.config.settings import DAY_MS, HOUR_MS, TopicsConfig
from postdate.wire.topics import OwnTopics

OWN = OwnTopics.of("r")
BROKER_DEFAULTS = {
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "segment.ms": "604800000",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": "1048588",
}


def as_live(topic: NewTopic) -> TopicInfo:
    """Returns the description of a topic that was just created, as a cluster returns it."""
    return TopicInfo(
        topic.name, "id", dict.fromkeys(range(topic.partitions), True), {**BROKER_DEFAULTS, **topic.config}
    )


def created(settings: TopicsConfig | None = None) -> dict[str, TopicInfo]:
    settings = settings or TopicsConfig()
    requests = as_live(rules.request_topic("r", settings))
    return {"r": requests} | {topic.name: as_live(topic) for topic in rules.own_topics(requests, settings)}


def judged(live: dict[str, TopicInfo]) -> list[Violation]:
    return rules.broken_rules(OWN, live, "broker:9092")


def with_setting(topic: str, name: str, value: str) -> dict[str, TopicInfo]:
    live = created()
    live[topic] = live[topic]._replace(config={**live[topic].config, name: value})
    return live


def test_created_topics_violate_no_rule() -> None:
    assert judged(created()) == []


@pytest.mark.parametrize("retention_ms", [HOUR_MS, 30 * DAY_MS, -1])
def test_the_dispatch_log_follows_the_retention_of_an_existing_request_topic(retention_ms: int) -> None:
    requests = as_live(rules.request_topic("r", TopicsConfig()))
    requests = requests._replace(config={**requests.config, "retention.ms": str(retention_ms)})
    live = {"r": requests} | {topic.name: as_live(topic) for topic in rules.own_topics(requests, TopicsConfig())}
    assert judged(live) == []


def test_created_topics_have_the_settings_of_the_wire_format() -> None:
    live = created()
    assert set(live) == OWN.names()
    assert {len(info.partitions) for info in live.values()} == {4}
    assert live["r"].config["message.timestamp.type"] == "LogAppendTime"
    assert live["r"].config["retention.ms"] == str(7 * DAY_MS)
    assert live["r"].config["segment.ms"] == str(HOUR_MS)
    assert live["r.dispatch-log"].config["retention.ms"] == str(8 * DAY_MS)
    assert live["r.dispatch-log"].config["message.timestamp.type"] == "LogAppendTime"
    assert live["r.store"].config["cleanup.policy"] == "compact"
    assert live["r.store"].config["min.cleanable.dirty.ratio"] == "0.1"
    assert {live[name].config["max.message.bytes"] for name in OWN.names() - {"r"}} == {str(1_048_588 + 65_536)}


@pytest.mark.parametrize(
    ("topic", "setting", "value", "rule", "refuses", "remedy"),
    [
        ("r.dispatch-log", "retention.ms", str(7 * DAY_MS), TopicRule.FATES_OUTLIVE, True, "retention.ms=612000000"),
        ("r", "retention.ms", "-1", TopicRule.FATES_OUTLIVE, True, "retention.ms=-1"),
        ("r", "segment.ms", str(7 * DAY_MS), TopicRule.FATES_OUTLIVE, True, "retention.ms=1213200000"),
        ("r", "cleanup.policy", "compact", TopicRule.COMPACTED, True, "cleanup.policy=delete"),
        ("r.dispatch-log", "cleanup.policy", "compact,delete", TopicRule.COMPACTED, True, "cleanup.policy=delete"),
        ("r.dead-letters", "cleanup.policy", "compact", TopicRule.COMPACTED, True, "cleanup.policy=delete"),
        ("r.store", "cleanup.policy", "delete", TopicRule.NOT_COMPACTED, True, "cleanup.policy=compact"),
        ("r", "retention.bytes", "1000", TopicRule.RETENTION_BYTES, True, "retention.bytes=-1"),
        ("r.dispatch-log", "retention.bytes", "1000", TopicRule.RETENTION_BYTES, True, "retention.bytes=-1"),
        ("r.dispatch-log", "message.timestamp.type", "CreateTime", TopicRule.CREATE_TIME, True, "LogAppendTime"),
        ("r", "message.timestamp.type", "CreateTime", TopicRule.CREATE_TIME, False, "LogAppendTime"),
        ("r.dead-letters", "max.message.bytes", "1048588", TopicRule.MESSAGE_SIZE, False, "max.message.bytes=1114124"),
    ],
)
def test_a_violated_rule_is_reported_with_the_command_that_corrects_it(
    topic: str, setting: str, value: str, rule: TopicRule, refuses: bool, remedy: str
) -> None:
    (violation,) = judged(with_setting(topic, setting, value))
    assert (violation.rule, violation.refuses) == (rule, refuses)
    assert "--bootstrap-server broker:9092" in violation.remedy
    assert f"--entity-name {violation.topic} " in violation.remedy
    assert remedy in violation.remedy
    assert violation.remedy in str(violation)


def test_the_remedy_for_a_missing_topic_is_topics_create() -> None:
    live = created()
    del live["r.dispatch-log"], live["r.verdicts"]
    log, verdicts = judged(live)
    assert (log.topic, log.rule, log.refuses) == ("r.dispatch-log", TopicRule.MISSING, True)
    assert (verdicts.topic, verdicts.refuses) == ("r.verdicts", True)
    assert log.remedy == "postdate topics create -b broker:9092 --requests r --allow-existing"


def test_without_any_topic_each_missing_topic_is_reported() -> None:
    assert [violation.topic for violation in judged({})] == list(rules.in_order(OWN))


def test_own_topics_need_a_partition_for_each_of_the_request_topic() -> None:
    live = created()
    live["r"] = live["r"]._replace(partitions=dict.fromkeys(range(5), True))
    found = judged(live)
    assert {violation.topic for violation in found} == OWN.names() - {"r"}
    assert {violation.rule for violation in found} == {TopicRule.PARTITIONS}
    assert found[0].detail == "has 4 partitions, r has 5"


def test_a_share_group_that_reads_aborted_records_is_a_warning() -> None:
    assert rules.isolation_violation("g", Isolation.READ_COMMITTED, "broker:9092") is None
    found = rules.isolation_violation("g", Isolation.READ_UNCOMMITTED, "broker:9092")
    assert found is not None
    assert (found.rule, found.topic, found.refuses) == (TopicRule.READS_ABORTED, "share group g", False)
    assert found.remedy.endswith(
        "--entity-type groups --entity-name g --add-config share.isolation.level=read_committed"
    )
