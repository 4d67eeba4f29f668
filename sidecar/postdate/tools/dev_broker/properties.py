"""The settings of a single KRaft node for development: one dictionary, used as a properties file or as a container's
environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def node_settings(host: str, port: int, controller_port: int) -> dict[str, str]:
    """Returns the settings of a single node: broker and controller in one, and every internal topic with one replica.

    The caller adds the bind addresses of the listeners and, outside a container, the data directory.
    """
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"localhost:{controller_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # Fifty partitions each (the default) are fifty log directories to create before the first transaction.
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.num.partitions": "8",
        # On one machine, there is no need to wait for more members.
        "group.initial.rebalance.delay.ms": "0",
        # With group.protocol = consumer, these settings determine when the broker considers a killed member dead (by
        # default after 45 s), and how often members learn of new assignments (by default every 5 s).
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.heartbeat.interval.ms": "300",
        "group.consumer.heartbeat.interval.ms": "300",
        # A broker that was killed is admitted again only when its old session has timed out (by default after 9 s).
        # With 2 s, the pauses of a busy machine looked like a dead broker.
        "broker.session.timeout.ms": "5000",
        "broker.heartbeat.interval.ms": "500",
        # By default the controller writes an empty record every 500 ms, which shows other nodes that it is alive. This
        # takes a third of the processor time of a broker at rest.
        "metadata.max.idle.interval.ms": "0",
        # The default of 128 MiB is a quarter of this broker's heap.
        "log.cleaner.dedupe.buffer.size": "16777216",
    }


def write_properties(path: Path, settings: Mapping[str, str]) -> None:
    """Writes a Java properties file. Escapes only backslashes, since the values need no other escape."""
    path.write_text("".join(f"{name}={value}\n".replace("\\", "\\\\") for name, value in settings.items()))


def container_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings as environment variables of the image apache/kafka: KAFKA_ and the name in capitals, with
    underscores for dots."""
    return {"KAFKA_" + name.upper().replace(".", "_"): value for name, value in settings.items()}
