"""Goal: by default, a share group (KIP-932) reads aborted records. `postdate topics check --consumers` warns about it.
After the remedy that it prints, the group reads only committed records, and the check passes.

Method: Kafka's Java client joins a share group on a real broker, and consumes a topic with an aborted and a committed
record. The test runs the printed remedy with Kafka's tool.
"""

from __future__ import annotations

import json
import shlex

from click.testing import CliRunner, Result
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package does not mark its re-exports
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from postdate.cli import postdate as program
from postdate.kafka.client import ConfluentKafka
from postdate.kafka.settings import KafkaSettings
from support.brokers.broker import unique_name
from support.brokers.kafka_steps import abort_values, commit_values, open_producer
from support.clients.foreign_clients import configure_with_java, share_consume_with_java
from support.deployments.sidecar_deployment import SidecarDeployment
from support.waiting.timeouts import WAIT_TIMEOUT_S


def read_from_the_start(bootstrap: str, group_id: str) -> None:
    """Lets the share group begin at the start of a topic. By default, it begins at the end."""
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group_id, incremental_configs=[earliest])
    client = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = client.incremental_alter_configs([resource]).values()
    future.result(WAIT_TIMEOUT_S)


def check(deployment: SidecarDeployment, group_id: str, *options: str) -> Result:
    arguments = [
        "topics",
        "check",
        "-b",
        deployment.bootstrap,
        "--requests",
        deployment.requests[0],
        "--consumers",
        group_id,
    ]
    result = CliRunner().invoke(program, [*arguments, *options])
    assert result.exit_code == 0, result.output
    return result


def test_a_share_group_reads_aborted_records_by_default(deployment: SidecarDeployment) -> None:
    deployment.new_requests()
    target, group_id = deployment.new_target(), unique_name("share")
    read_from_the_start(deployment.bootstrap, group_id)
    producer = open_producer(ConfluentKafka(KafkaSettings(deployment.bootstrap)))
    abort_values(producer, target, [b"aborted"])
    commit_values(producer, target, [b"committed"])
    read = share_consume_with_java(deployment.bootstrap, group_id, target, "committed")
    assert read == ["aborted", "committed"]
    shown = check(deployment, group_id).stdout
    assert f"warning [reads-aborted] share group {group_id} " in shown
    as_json = json.loads(check(deployment, group_id, "--output", "json").stdout.splitlines()[-1])
    (violation,) = as_json["violations"]
    assert (as_json["consumers"], as_json["isolation"], as_json["ok"]) == (group_id, "read_uncommitted", False)

    remedy = shlex.split(violation["remedy"])
    assert f"remedy: {violation['remedy']}\n" in shown
    configure_with_java(*remedy)
    assert check(deployment, group_id).stdout.endswith(f"ok: share group {group_id} reads only committed records\n")
    abort_values(producer, target, [b"aborted again"])
    commit_values(producer, target, [b"committed again"])
    producer.destroy()
    read = share_consume_with_java(deployment.bootstrap, group_id, target, "committed again")
    assert read == ["committed again"]


def test_the_isolation_of_a_consumer_group_is_not_shown(deployment: SidecarDeployment) -> None:
    deployment.new_requests()
    deployment.new_sidecar().start()
    deployment.sidecars[0].wait_for_shards(1)
    assert f"not checked: {deployment.group_id} is not a share group" in check(deployment, deployment.group_id).stdout
    as_json = json.loads(check(deployment, deployment.group_id, "--output", "json").stdout.splitlines()[-1])
    assert as_json == {"consumers": deployment.group_id, "isolation": None, "ok": False, "violations": []}
