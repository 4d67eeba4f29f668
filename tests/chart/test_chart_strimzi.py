"""Goal: Strimzi accepts the chart's KafkaTopic and KafkaUser resources, and they meet the requirements of the program.
Method: Helm renders them; a schema checks their specifications, with unknown fields forbidden. The schema follows the
CustomResourceDefinitions of Strimzi 1.3.0 (kafka.strimzi.io/v1). The test then compares topics and rights with those of
`postdate topics create` and `postdate topics acls`.
"""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest

from postdate.kafka.interface import TopicInfo
from postdate.sidecar.cluster.rights import needed
from postdate.sidecar.cluster.topics import own_topics, request_topic
from postdate.sidecar.config.settings import DAY_MS, HOUR_MS, RequestTopicConfig, TopicsConfig
from support.deployments.helm import NEEDED, RELEASE, ChartRefused, Helm, Values, merged, of_kind

REQUESTS = "shop.Requests_eu"
ALLOW = ["orders", "mail.*", "a?b", "*"]
VALUES: Values = merged(
    NEEDED,
    {
        "requestTopics": [{"name": REQUESTS, "allow": ALLOW}],
        "config": {
            "group_id": "delays",
            "topics": {"partitions": 12, "min_insync_replicas": 1, "retention_ms": "1d12h", "segment_ms": 1_800_000},
        },
        "topics": {"create": False},
        "strimzi": {
            "cluster": "events",
            "namespace": "kafka",
            "topics": {"create": True},
            "user": {
                "create": True,
                "acls": [{"resource": {"type": "topic", "name": "aXb"}, "operations": ["Write"]}],
            },
        },
    },
)
#: The default limit of brokers; the chart cannot query them.
MESSAGE_BYTES = 1_048_588

TEXT = {"type": "string"}


def _table(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


_OPERATIONS = ["Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction", "AlterConfigs"]
_OPERATIONS += ["DescribeConfigs", "IdempotentWrite", "All"]
_RESOURCE = _table(
    ["type"],
    type={"enum": ["topic", "group", "cluster", "transactionalId"]},
    name=TEXT,
    patternType={"enum": ["literal", "prefix"]},
)
_ACL = _table(
    ["resource", "operations"],
    type={"enum": ["allow", "deny"]},
    resource=_RESOURCE,
    host=TEXT,
    operations={"type": "array", "items": {"enum": _OPERATIONS}},
)
SPECS: dict[str, dict[str, Any]] = {
    "KafkaTopic": _table(
        [],
        topicName=TEXT,
        partitions={"type": "integer", "minimum": 1},
        replicas={"type": "integer", "minimum": 1, "maximum": 32_767},
        config={"type": "object"},
    ),
    "KafkaUser": _table(
        [],
        authentication=_table(["type"], type={"enum": ["tls", "tls-external", "scram-sha-512"]}),
        authorization=_table(["acls", "type"], type={"enum": ["simple"]}, acls={"type": "array", "items": _ACL}),
    ),
}


def _rendered(helm: Helm, values: Values = VALUES) -> list[dict[str, Any]]:
    return [each for each in helm.render(values) if each["kind"] in SPECS]


def test_strimzi_takes_every_resource(helm: Helm) -> None:
    rendered = _rendered(helm)
    assert [each["kind"] for each in rendered] == ["KafkaTopic"] * 5 + ["KafkaUser"]
    for each in rendered:
        jsonschema.validate(each["spec"], SPECS[each["kind"]])
        assert each["apiVersion"] == "kafka.strimzi.io/v1"
        assert each["metadata"]["namespace"] == "kafka"
        assert each["metadata"]["labels"]["strimzi.io/cluster"] == "events"
        assert set(each["metadata"]["name"]) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
        broken = copy.deepcopy(each["spec"]) | {"unknown": 1}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, SPECS[each["kind"]])


@pytest.mark.parametrize("keep_fates", [{}, {"dispatch_log_retention_ms": "30d"}])
def test_the_topics_are_those_that_the_command_creates(helm: Helm, keep_fates: dict[str, Any]) -> None:
    rendered = of_kind(_rendered(helm, merged(VALUES, {"config": {"topics": keep_fates}})), "KafkaTopic")
    settings = TopicsConfig(
        partitions=12,
        min_insync_replicas=1,
        retention_ms=DAY_MS + 12 * HOUR_MS,
        segment_ms=1_800_000,
        dispatch_log_retention_ms=30 * DAY_MS if keep_fates else 8 * DAY_MS,
    )
    wanted = request_topic(REQUESTS, settings)
    config = {**wanted.config, "max.message.bytes": str(MESSAGE_BYTES)}
    live = TopicInfo(REQUESTS, "id", dict.fromkeys(range(12), True), config)
    created = {
        each["spec"]["topicName"]: (each["spec"]["partitions"], each["spec"]["replicas"], each["spec"]["config"])
        for each in rendered
    }
    assert created == {
        topic.name: (topic.partitions, topic.replication, topic.config)
        for topic in [wanted, *own_topics(live, settings)]
    }


def test_the_user_has_the_rights_that_the_program_needs_and_those_of_the_values(helm: Helm) -> None:
    (user,) = of_kind(_rendered(helm), "KafkaUser")
    assert user["metadata"]["name"] == f"{RELEASE}-postdate"
    names = {"transactionalId": "transactional-id"}
    granted = {
        (names.get(kind := acl["resource"]["type"], kind), acl["resource"]["name"], operation, is_prefix)
        for acl in user["spec"]["authorization"]["acls"]
        for operation in acl["operations"]
        for is_prefix in [acl["resource"].get("patternType") == "prefix"]
    }
    topic = RequestTopicConfig(name=REQUESTS, allow=tuple(ALLOW))
    required = {(each.resource, each.name, each.operation.value, each.prefixed) for each in needed("delays", topic)}
    assert granted == required | {("topic", "aXb", "Write", False)}


@pytest.mark.parametrize(
    ("further", "words"),
    [
        ({"strimzi": {"cluster": ""}}, "strimzi.cluster is required"),
        ({"topics": {"create": True}}, "topics.create and strimzi.topics.create"),
        ({"config": {"topics": {"retention_ms": "P7D"}}}, "write durations of config.topics as in 7d"),
        ({"strimzi": {"user": {"authentication": "password"}}}, "at '/strimzi/user/authentication'"),
    ],
)
def test_a_mistake_is_refused_by_name(helm: Helm, further: Values, words: str) -> None:
    with pytest.raises(ChartRefused, match=words):
        helm.render(merged(VALUES, further))


def test_nothing_is_created_by_default(helm: Helm) -> None:
    assert _rendered(helm, NEEDED) == []
