"""`postdate topics create|check|acls`: creates and checks the topics of a request topic, and prints its ACLs."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Iterable
from typing import Final

import click

from postdate.cli.commands import listed, print_note, warn
from postdate.cli.options import Loader, configured, output_option, requests_option
from postdate.kafka.errors import Retriable, SettingRefused
from postdate.kafka.interface import Admin, NewTopic, TopicInfo
from postdate.sidecar.cluster import rights
from postdate.sidecar.cluster import topics as rules
from postdate.sidecar.cluster.limits import COMMAND_TIMEOUT_S
from postdate.sidecar.errors import Exit, PostdateError
from postdate.wire.topics import OwnTopics
from postdate.wire.values.texts import counted

# The pause between two queries for the metadata of a new topic, which every broker has within a second.
_POLL_INTERVAL_S: Final = 0.1

REPLICATION_OPTION = "topics.replication_factor"


@click.group()
def topics() -> None:
    """Create and check Postdate's topics."""


@topics.command(short_help="Create a request topic and the four topics beside it.")
@configured
@requests_option(multiple=True)
@click.option("--partitions", type=int, metavar="N", help="Partitions of a new request topic, one shard each. [4]")
@click.option(
    "--replication-factor", type=int, metavar="N", help="Replicas of each topic. [3, or as many as there are brokers]"
)
@click.option("--allow-existing", is_flag=True, help="Keep topics that exist, and add what is missing.")
def create(
    loader: Loader,
    requests: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    allow_existing: bool,
) -> None:
    """Create each request topic and the four topics beside it, with the settings that the protocol requires.

    Prints the name of each new topic, and each violated rule; the exit code is 4 if a violation prevents the start of a
    sidecar. With --allow-existing the command can be repeated: it keeps the settings of existing topics, and adds
    missing partitions to the four topics.
    """
    from postdate.sidecar.cluster.connection import admin_of, kafka_of

    values: dict[str, object] = {"request_topics": requests, "topics.partitions": partitions}
    if replication_factor is not None:
        values[REPLICATION_OPTION] = replication_factor
        if replication_factor == 1:
            values["topics.min_insync_replicas"] = 1
    loaded = loader(values)
    config = loaded.config
    creator = _TopicCreator(may_fall_back=loaded.source(REPLICATION_OPTION) == "default")
    violations: list[rules.Violation] = []
    with admin_of(kafka_of(config)) as admin:
        _refuse_existing(admin, config.request_topic_names, allow_existing)
        for name in config.request_topic_names:
            created = creator.create(admin, [rules.request_topic(name, config.topics)])
            live = _seen(admin, [name])[name]
            if partitions is not None and len(live.partitions) != partitions:
                warn(f"{name} already exists and keeps its {counted(len(live.partitions), 'partition')}")
            created += creator.create(admin, rules.own_topics(live, config.topics))
            _add_partitions(admin, name)
            for topic in created:
                click.echo(topic)
            violations += _violations(OwnTopics.of(name), admin, config.kafka.bootstrap_servers)
    for violation in violations:
        warn(f"{violation.topic} {violation.detail}\n  remedy: {violation.remedy}")
    if any(violation.refuses for violation in violations):
        sys.exit(Exit.VIOLATION)


@topics.command(short_help="Compare the live topics with the rules.")
@configured
@requests_option(multiple=True)
@click.option(
    "--consumers", multiple=True, metavar="GROUP", help="Warn if this share group reads aborted records; repeatable."
)
@output_option
def check(loader: Loader, requests: tuple[str, ...], consumers: tuple[str, ...], output: str) -> None:
    """Check the live topics against the rules of the protocol, and the rights of these credentials against those that a
    sidecar needs. Print the command that corrects each violation.

    Run it with the sidecar's credentials and group. Exit code 4 if a violation would prevent a start; warnings do not
    change the exit code.

    --consumers names a group that consumes targets. The isolation level of a share group is a setting of the group.
    That of a consumer group is a setting of each member, which Kafka does not show.
    """
    from postdate.sidecar.cluster.connection import admin_of, kafka_of

    config = loader({"request_topics": requests}).config
    kafka, refused = kafka_of(config), False
    with admin_of(kafka) as admin:
        for topic in config.request_topics:
            found = rights.transactional_id_violations(config, topic, kafka)
            found += rights.violations(config, topic, admin)
            refused = refused or any(violation.refuses for violation in found)
            _report(topic.name, found, output)
        for group_id in consumers:
            _report_consumers(group_id, admin, config.kafka.bootstrap_servers, output)
    if refused:
        sys.exit(Exit.VIOLATION)


@topics.command(short_help="Print the ACLs that a sidecar needs, as commands.")
@configured
@requests_option(multiple=True)
@click.option("--group-id", metavar="ID", help="Consumer group of the sidecars. [postdate]")
@click.option("--principal", required=True, metavar="USER", help="Principal of the sidecars, such as User:postdate.")
@click.option("--target", "targets", multiple=True, metavar="TOPIC", help="Target to deliver to; repeatable.")
@output_option
def acls(
    loader: Loader,
    requests: tuple[str, ...],
    group_id: str | None,
    principal: str,
    targets: tuple[str, ...],
    output: str,
) -> None:
    """Print the commands that grant a sidecar exactly the rights that it needs. Does not connect to Kafka.

    Without --target, the commands cover the topic names and prefixes of the allow-lists.
    """
    config = loader({"request_topics": requests, "group_id": group_id}).config
    for topic in config.request_topics:
        named = dataclasses.replace(topic, allow=targets) if targets else topic
        needed = rights.needed(config.group_id, named)
        if not any(right.of_target for right in needed):
            warn(f"the allow-list of {topic.name} names no target: grant Write on each, or name them by --target")
        for right in needed:
            command = right.command(config.kafka.bootstrap_servers or "HOST:PORT", principal)
            click.echo(command if output == "text" else _right_object(right, command))


def _right_object(right: rights.Right, command: str) -> str:
    pattern = "prefixed" if right.prefixed else "literal"
    named = {"resource": right.resource, "name": right.name, "pattern": pattern, "operation": right.operation.value}
    return json.dumps(named | {"why": right.why, "command": command})


def _report(requests: str, found: list[rules.Violation], output: str) -> None:
    if output == "json":
        violations = [dataclasses.asdict(violation) for violation in found]
        click.echo(json.dumps({"requests": requests, "ok": not found, "violations": violations}))
        return
    for violation in found:
        _print_violation(violation)
    if not any(violation.refuses for violation in found):
        click.echo(f"ok: {requests} and the topics beside it follow the rules")


def _print_violation(violation: rules.Violation) -> None:
    severity = click.style("violation", fg="red") if violation.refuses else click.style("warning", fg="yellow")
    click.echo(f"{severity} [{violation.rule}] {violation.topic} {violation.detail}\n  remedy: {violation.remedy}")


def _report_consumers(group_id: str, admin: Admin, bootstrap_servers: str, output: str) -> None:
    """Prints the isolation level of a share group, or that it was not checked (`"isolation": null` in JSON), since the
    brokers do not report it."""
    isolation = admin.share_isolation(group_id)
    found = None if isolation is None else rules.isolation_violation(group_id, isolation, bootstrap_servers)
    if output == "json":
        shown = {"consumers": group_id, "isolation": isolation and isolation.value}
        violations = [] if found is None else [dataclasses.asdict(found)]
        click.echo(json.dumps({**shown, "ok": found is None and isolation is not None, "violations": violations}))
    elif isolation is None:
        click.echo(f"not checked: {group_id} is not a share group; set isolation.level=read_committed in each consumer")
    elif found is None:
        click.echo(f"ok: share group {group_id} reads only committed records")
    else:
        _print_violation(found)


def _refuse_existing(admin: Admin, requests: tuple[str, ...], allow_existing: bool) -> None:
    names = [own for name in requests for own in OwnTopics.of(name).names()]
    existing = sorted(admin.describe(names))
    if existing and not allow_existing:
        raise PostdateError(
            f"topics that already exist: {listed(existing)}; use --allow-existing to keep them and create"
            " the missing ones"
        )


def _add_partitions(admin: Admin, requests: str) -> None:
    """Adds partitions to Postdate's own topics that have fewer than the request topic."""
    live = _seen(admin, OwnTopics.of(requests).names())
    partitions = len(live[requests].partitions)
    too_few = {name: partitions for name, info in live.items() if len(info.partitions) < partitions}
    if too_few:
        admin.add_partitions(too_few)
        print_note(f"raised to {counted(partitions, 'partition')}: {listed(sorted(too_few))}")


def _seen(admin: Admin, names: Iterable[str]) -> dict[str, TopicInfo]:
    """Returns the descriptions of existing topics, with the settings SETTINGS_READ. Repeats the request while the
    answer lacks a topic: not every broker knows a new topic yet. Raises Retriable after COMMAND_TIMEOUT_S."""
    expected, deadline = set(names), time.monotonic() + COMMAND_TIMEOUT_S
    while True:
        live = admin.describe(expected, rules.SETTINGS_READ)
        missing = sorted(expected - live.keys())
        if not missing:
            return live
        if time.monotonic() >= deadline:
            raise Retriable(f"Topics do not appear: {listed(missing)}")
        time.sleep(_POLL_INTERVAL_S)


def _violations(own: OwnTopics, admin: Admin, bootstrap_servers: str) -> list[rules.Violation]:
    """Returns the violated rules of existing topics. Like `_seen`, repeats the request while the answer lacks a topic,
    at most for COMMAND_TIMEOUT_S."""
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    while True:
        found = rules.violations(own, admin, bootstrap_servers)
        if time.monotonic() >= deadline or all(violation.rule is not rules.TopicRule.MISSING for violation in found):
            return found
        time.sleep(_POLL_INTERVAL_S)


class _TopicCreator:
    """A creator of topics. If there are too few brokers, and the user has not set a replication factor, the topics get
    fewer replicas."""

    def __init__(self, *, may_fall_back: bool) -> None:
        self._may_fall_back = may_fall_back
        self._replicas_max = 0  # 0: not yet bounded by the number of brokers
        self._has_warned = True

    def create(self, admin: Admin, topics: list[NewTopic]) -> list[str]:
        """Creates the missing topics; returns their names. Raises SettingRefused if the cluster refuses a setting."""
        while True:
            try:
                created = admin.create_topics([self._bounded(topic) for topic in topics])
                self._warn()
                return created
            except SettingRefused as refusal:
                replicas = self._bounded(topics[0]).replication
                if not self._may_fall_back or replicas <= 1 or not _is_about_replication(refusal):
                    raise
                self._replicas_max = replicas - 1
                self._has_warned = False

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            warn(
                f"the cluster has {counted(self._replicas_max, 'broker')}, so topics get"
                f" {counted(self._replicas_max, 'replica')} each; to survive the loss of a broker, it needs 3 brokers"
            )

    def _bounded(self, topic: NewTopic) -> NewTopic:
        if not self._replicas_max:
            return topic
        replicas = min(topic.replication, self._replicas_max)
        in_sync = min(int(topic.config["min.insync.replicas"]), max(1, replicas - 1))
        return topic._replace(replication=replicas, config={**topic.config, "min.insync.replicas": str(in_sync)})


def _is_about_replication(refusal: SettingRefused) -> bool:
    invalid_replication_factor = 38
    return refusal.code == invalid_replication_factor
