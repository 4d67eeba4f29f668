"""The ACLs that the user of a deployment needs, as one table. The start verifies the rights on the group and on topics
with an exact name; `postdate topics check` also verifies those on transactional ids. `postdate topics acls` prints all
as commands, and docs/security.md shows them.

Invariant: the table is minimal. If one of these rights is missing, a sidecar does not start or does not deliver some
messages, and names the right. A sidecar needs no other rights. Read, Write and Alter imply Describe, so Describe is
never listed.

Thread rule: functions over their arguments, callable from any thread.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from postdate.kafka.errors import NotAuthorized
from postdate.kafka.interface import Admin, Kafka, Operation
from postdate.sidecar.cluster import topics as rules
from postdate.sidecar.cluster.topics import TopicRule, Violation
from postdate.sidecar.config.settings import Config, RequestTopicConfig
from postdate.sidecar.takeover.limits import FENCE_TIMEOUT_S
from postdate.wire.topics import OwnTopics

TOPIC, GROUP, TRANSACTIONAL_ID = "topic", "group", "transactional-id"

_GLOB = re.compile(r"[*?\[]")


class Right(NamedTuple):
    """One ACL: an operation on a resource or, if `prefixed`, on all resources whose names begin with `name`.

    `of_target`: the right is for a target. Without it the requests for that target become dead letters, and all others
    are delivered.
    """

    resource: str
    name: str
    operation: Operation
    why: str
    prefixed: bool = False
    of_target: bool = False

    def command(self, bootstrap_servers: str, principal: str) -> str:
        """Returns the command of Kafka's own tools that grants the right."""
        words = ["kafka-acls.sh", "--bootstrap-server", bootstrap_servers, "--add", "--allow-principal", principal]
        words += ["--operation", self.operation.value, f"--{self.resource}", self.name]
        return shlex.join(words + (["--resource-pattern-type", "prefixed"] if self.prefixed else []))


def needed(group_id: str, topic: RequestTopicConfig) -> list[Right]:
    """Returns the rights for one request topic, and for the targets that its allow-list names exactly or by prefix.

    The result has no right for a pattern of another form: for such a pattern the operator must grant Write on each
    target.
    """
    own = OwnTopics.of(topic.name)
    why = {
        own.requests: {Operation.READ: "requests are read from it"},
        own.dispatch_log: {Operation.READ: "recovery reads what became of requests", Operation.WRITE: "fates go there"},
        own.store: {Operation.READ: "a rebuild reads long delays", Operation.WRITE: "long delays are kept there"},
        own.dead_letters: {Operation.WRITE: "undeliverable messages go there"},
        own.verdicts: {Operation.WRITE: "answers go there"},
    }
    found = [
        Right(TOPIC, name, operation, reason)
        for name in rules.in_order(own)
        for operation, reason in {**why[name], Operation.DESCRIBE_CONFIGS: "its settings are checked"}.items()
    ]
    found.append(Right(GROUP, group_id, Operation.READ, "the processes share the shards by it"))
    prefix = _transactional_ids(topic.name)
    found.append(Right(TRANSACTIONAL_ID, prefix, Operation.WRITE, "each shard delivers under one", prefixed=True))
    return found + [right for right in map(_target_right, topic.allow) if right is not None]


def violations(config: Config, topic: RequestTopicConfig, admin: Admin) -> list[Violation]:
    """Returns the missing rights and broken rules of one request topic, those that prevent the start first.

    If a right on the request topic or on one of Postdate's topics is missing, the rules are not checked, and only
    missing rights are reported. Sends about five requests to Kafka.
    """
    missing = _missing(config, topic, admin)
    found = [_violation(config, right) for right in missing]
    own = OwnTopics.of(topic.name)
    if not any(right.resource == TOPIC and not right.of_target for right in missing):
        found += rules.violations(own, admin, config.kafka.bootstrap_servers)
    return sorted(found, key=lambda violation: not violation.refuses)


def transactional_id_violations(config: Config, topic: RequestTopicConfig, kafka: Kafka) -> list[Violation]:
    """Returns the missing rights on transactional ids, as `violations`. Kafka does not list these rights, so the check
    initializes an id beside those of the shards, which fences nobody.

    Not needed at the start of a process: its shards initialize their own ids immediately, and report errors.
    """
    producer = kafka.producer(f"{_transactional_ids(topic.name)}check")
    try:
        producer.init(FENCE_TIMEOUT_S)
    except NotAuthorized:
        return [
            _violation(config, right) for right in needed(config.group_id, topic) if right.resource == TRANSACTIONAL_ID
        ]
    finally:
        producer.destroy()
    return []


def _transactional_ids(requests: str) -> str:
    return f"postdate/{requests}/"


def _target_right(pattern: str) -> Right | None:
    """Returns the ACL for a pattern of an allow-list that is an exact name, or a prefix followed by a single `*`;
    otherwise None."""
    stem = pattern.removesuffix("*")
    if not stem or _GLOB.search(stem):
        return None
    return Right(TOPIC, stem, Operation.WRITE, "messages are delivered to it", stem != pattern, of_target=True)


def _missing(config: Config, topic: RequestTopicConfig, admin: Admin) -> list[Right]:
    """Returns the needed rights that are missing on existing topics and the group.

    Of the targets, only those that the allow-list names exactly are checked.
    """
    wanted = [right for right in needed(config.group_id, topic) if not right.prefixed]
    allowed = admin.topic_rights(right.name for right in wanted if right.resource == TOPIC)
    group = admin.group_rights(config.group_id)
    every = frozenset(Operation)
    return [
        right
        for right in wanted
        if right.operation not in (group if right.resource == GROUP else allowed.get(right.name, every))
    ]


def _violation(config: Config, right: Right) -> Violation:
    """Returns a missing right in the form that `postdate topics check` prints."""
    principal = f"User:{config.kafka.common.get('sasl.username', 'NAME')}"
    resource = right.name if right.resource == TOPIC else f"{right.resource} {right.name}"
    return Violation(
        TopicRule.MISSING_RIGHT,
        f"{resource}..." if right.prefixed else resource,
        f"lacks an ACL that allows {right.operation.value}: {right.why}",
        right.command(config.kafka.bootstrap_servers, principal),
        refuses=not right.of_target,
    )
