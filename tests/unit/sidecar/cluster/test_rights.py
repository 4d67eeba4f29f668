"""Goal: the printed ACLs of a deployment follow from its configuration, and a missing one is reported with the command
that grants it.

Method: the tests of the table and the commands use made-up configurations; the tests of missing rights use a simulated
cluster that denies topics. Only a real broker can show that the table is sufficient and minimal:
tests/integration/test_security.py.
"""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from postdate.cli import postdate
from postdate.kafka.interface import NewTopic, Operation
from postdate.sidecar.cluster import rights
from postdate.sidecar.cluster.rights import Right
from postdate.sidecar.cluster.topics import TopicRule, own_topics, request_topic
from postdate.sidecar.config.settings import Config, KafkaConfig, RequestTopicConfig, TopicsConfig
from support.kafka_simulator import SimBroker, SimKafka
from support.repository import ROOT


def _targets(*allow: str) -> list[tuple[str, bool]]:
    return [(r.name, r.prefixed) for r in rights.needed("g", RequestTopicConfig("r", allow=allow)) if r.of_target]


def test_names_and_prefixes_of_an_allow_list_become_acls() -> None:
    assert _targets("orders", "mail.*") == [("orders", False), ("mail.", True)]
    assert _targets("*", "a?c*", "*-late", "x[12]") == []


def test_every_right_is_needed_once() -> None:
    wanted = rights.needed("g", RequestTopicConfig("r", allow=("orders",)))
    assert len({(r.resource, r.name, r.operation) for r in wanted}) == len(wanted)
    assert {r.operation for r in wanted if r.name == "r"} == {Operation.READ, Operation.DESCRIBE_CONFIGS}
    assert {r.operation for r in wanted if r.name == "r.store"} == {
        Operation.READ,
        Operation.WRITE,
        Operation.DESCRIBE_CONFIGS,
    }


@pytest.fixture
def kafka() -> SimKafka:
    """A cluster with the topics of `r` and a target."""
    kafka = SimKafka(SimBroker())
    admin, settings = kafka.admin(), TopicsConfig(replication_factor=1, min_insync_replicas=1)
    admin.create_topics([request_topic("r", settings), NewTopic("orders", 1, 1, {})])
    names = ("retention.ms", "segment.ms", "max.message.bytes")
    admin.create_topics(own_topics(admin.describe(["r"], names)["r"], settings))
    return kafka


def test_a_missing_right_prevents_the_start_unless_it_is_for_a_target(kafka: SimKafka) -> None:
    topic = RequestTopicConfig("r", allow=("orders",))
    config = Config(kafka=KafkaConfig("broker:1", {"sasl.username": "sidecar"}), request_topics=(topic,))
    assert rights.violations(config, topic, kafka.admin()) == []
    kafka.broker.denied.update(("orders", "r.dispatch-log"))
    log, target = rights.violations(config, topic, kafka.admin())
    assert (log.rule, log.topic, log.refuses) == (TopicRule.MISSING_RIGHT, "r.dispatch-log", True)
    assert str(log) == (
        "r.dispatch-log lacks an ACL that allows Write: fates go there; fix it with: kafka-acls.sh --bootstrap-server"
        " broker:1 --add --allow-principal User:sidecar --operation Write --topic r.dispatch-log"
    )
    assert (target.rule, target.topic, target.refuses) == (TopicRule.MISSING_RIGHT, "orders", False)


def test_the_commands_that_grant_everything() -> None:
    arguments = ["topics", "acls", "--principal", "User:postdate", "--requests", "r", "--group-id", "g"]
    done = CliRunner().invoke(postdate, [*arguments, "--target", "orders", "-b", "broker:1"])
    assert done.exit_code == 0, done.stderr
    wanted = rights.needed("g", RequestTopicConfig("r", allow=("orders",)))
    assert done.stdout.splitlines() == [right.command("broker:1", "User:postdate") for right in wanted]
    prefixed = Right("transactional-id", "postdate/r/", Operation.WRITE, "", prefixed=True)
    assert prefixed.command("broker:1", "User:postdate") in done.stdout
    as_json = CliRunner().invoke(postdate, [*arguments, "--output", "json"])
    assert "names no target" in as_json.stderr
    objects = [json.loads(line) for line in as_json.stdout.splitlines()]
    assert {(o["resource"], o["name"], o["pattern"]) for o in objects} >= {
        ("group", "g", "literal"),
        ("transactional-id", "postdate/r/", "prefixed"),
    }


def test_the_document_shows_this_table_and_no_other() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z-]+) \| (.+?) \| ([A-Z][\w, ]+?) \|", text.partition("## ACLs")[2], re.MULTILINE)
    named = {"`group_id`": "g", "`postdate/R/` (prefixed)": "postdate/R/", "each target": "orders"}
    shown = {
        (resource, named.get(name, name.strip("`")), operation)
        for resource, name, operations in rows
        for operation in operations.split(", ")
    }
    wanted = rights.needed("g", RequestTopicConfig("R", allow=("orders",)))
    assert shown == {(right.resource, right.name, right.operation.value) for right in wanted}
