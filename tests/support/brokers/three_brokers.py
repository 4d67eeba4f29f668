"""A cluster of three Kafka nodes on this machine. Each is a broker and a controller, and any one of them may fail.

Every topic has three replicas, of which two must acknowledge a write. The nodes use Kafka's defaults, except for
`_SETTINGS`, which gives a reason for each exception. Each query of the cluster's state uses a new client and a node
that responds, so cached metadata cannot distort the result. Thread rule: the main thread.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata

from postdate.kafka.admin.groups import describe_group
from postdate.kafka.errors import KafkaFault
from postdate.kafka.settings import KafkaSettings
from postdate.tools.dev_broker.local_broker import LocalBroker, new_cluster_id
from postdate.tools.dev_broker.readiness import wait_until_ready
from support.brokers.end_offsets import end_offsets
from support.deployments.ports import free_port
from support.deployments.sidecars import wait_until
from support.waiting.timeouts import WAIT_TIMEOUT_S

NODES = (1, 2, 3)

_SETTINGS: Mapping[str, str] = {
    # Every topic survives the loss of one broker, even one that is created with default settings. Both defaults are
    # 1; the internal topics have three replicas anyway.
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    # Three processes share one machine. The default of 128 MiB is a quarter of each node's heap.
    "log.cleaner.dedupe.buffer.size": "16777216",
}
#: Seconds: the limit for one request to one node; a frozen node does not respond.
_ASK_S = 5.0
#: Seconds: the pause between two rounds of requests, since each round makes a client for each node.
_POLL_INTERVAL_S = 0.5


def _nothing() -> None:
    """Does nothing; the default of `meanwhile`."""


class ThreeBrokers:
    """The cluster; call `start` first. Nodes have the ids 1, 2 and 3."""

    def __init__(self, directory: Path) -> None:
        cluster_id = new_cluster_id()
        ports = {node: (free_port(), free_port()) for node in NODES}
        voters = ",".join(f"{node}@127.0.0.1:{controller}" for node, (_, controller) in ports.items())
        self._nodes = {
            node: LocalBroker(
                port,
                directory / f"broker-{node}",
                properties=_node_settings(node, port, controller, voters),
                cluster_id=cluster_id,
            )
            for node, (port, controller) in ports.items()
        }
        self._frozen: set[int] = set()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all three nodes, as clients use them."""
        return ",".join(broker.bootstrap_servers for broker in self._nodes.values())

    @property
    def answering(self) -> list[int]:
        """The nodes that run and are not frozen."""
        return [node for node, broker in self._nodes.items() if broker.is_running() and node not in self._frozen]

    def start(self) -> None:
        """Starts all three nodes and waits until all replicas are in sync."""
        for broker in self._nodes.values():
            broker.launch()
        broker = self._nodes[NODES[0]]
        wait_until_ready(broker.host, broker.port, WAIT_TIMEOUT_S, lambda: None)
        self.wait_until_whole()

    def close(self) -> None:
        """Kills all three nodes; their data is not needed again."""
        for broker in self._nodes.values():
            broker.kill()

    def kill(self, node: int) -> None:
        """Sends SIGKILL to a node."""
        self._nodes[node].kill()

    def launch(self, node: int) -> None:
        """Starts a node that was killed or stopped; returns immediately."""
        self._nodes[node].launch()

    def terminate(self, node: int) -> None:
        """Sends SIGTERM: the node hands over its leaderships and exits. Returns once it has exited."""
        self._nodes[node].stop(WAIT_TIMEOUT_S)

    def freeze(self, node: int) -> None:
        """Sends SIGSTOP: the node does not respond, but its connections stay open."""
        self._nodes[node].pause()
        self._frozen.add(node)

    def thaw(self, node: int) -> None:
        """Sends SIGCONT to a frozen node."""
        self._nodes[node].resume()
        self._frozen.discard(node)

    def leader(self, topic: str, partition: int) -> int:
        """Returns the node that leads a partition; -1 if there is no leader."""
        return _leaders(self._metadata(self.answering[0], WAIT_TIMEOUT_S)).get((topic, partition), -1)

    def group_coordinator(self, group_id: str) -> int:
        """Returns the coordinator of a group; waits until there is one."""
        found: list[int] = []

        def known() -> bool:
            servers = self._nodes[self.answering[0]].bootstrap_servers
            with suppress(KafkaFault):
                # The product's function does not raise a fatal error while a broker is down (groups.py).
                group = describe_group(KafkaSettings(servers, admin_timeout_s=2 * _ASK_S), group_id)
                found.append(int(group.coordinator.id))
            return bool(found)

        wait_until(known, f"{group_id} has a coordinator")
        return found[0]

    def open_transactions(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns the partitions with an open transaction: topic and partition -> last stable offset and high
        watermark."""
        node = self.answering[0]
        parts = [part for part in _leaders(self._metadata(node)) if part[0] in {*topics}]
        admin = AdminClient({"bootstrap.servers": self._nodes[node].bootstrap_servers})
        stable = end_offsets(admin, parts, IsolationLevel.READ_COMMITTED, _ASK_S)
        high = end_offsets(admin, parts, timeout_s=_ASK_S)
        return {f"{part[0]}/{part[1]}": f"{stable[part]} < {high[part]}" for part in parts if stable[part] < high[part]}

    def controller(self) -> int:
        """Returns the active controller according to the votes on the nodes' disks; metadata responses name an
        arbitrary broker."""
        votes = []
        for node in NODES:
            state = self._nodes[node].data_dir / "kafka" / "__cluster_metadata-0" / "quorum-state"
            if state.exists():
                vote = json.loads(state.read_text())
                votes.append((int(vote["leaderEpoch"]), int(vote["leaderId"])))
        return max(votes)[1]

    def wait_until_deposed(self, node: int, meanwhile: Callable[[], None] = _nothing) -> None:
        """Waits until every other node reports a new leader for each partition that `node` led."""

        def deposed() -> bool:
            meanwhile()
            time.sleep(_POLL_INTERVAL_S)
            try:
                views = [_leaders(self._metadata(other)) for other in self.answering if other != node]
            except KafkaException:  # a time-out
                return False
            return bool(views) and all(-1 < leader != node for view in views for leader in view.values())

        wait_until(deposed, f"broker {node} leads nothing any more")

    def wait_until_whole(self, meanwhile: Callable[[], None] = _nothing) -> None:
        """Waits until every node reports three live brokers and three in-sync replicas of every partition."""

        def whole() -> bool:
            meanwhile()
            time.sleep(_POLL_INTERVAL_S)
            for node in NODES:
                try:
                    seen = self._metadata(node)
                except KafkaException:
                    return False
                parts = [part for topic in seen.topics.values() for part in topic.partitions.values()]
                if len(seen.brokers) < len(NODES) or any(len(part.isrs) < len(NODES) for part in parts):
                    return False
            return True

        wait_until(whole, f"all of {self.bootstrap_servers} are in sync")

    def log_of(self, node: int) -> Path:
        """Returns the path of a node's log."""
        return self._nodes[node].log_file

    def _metadata(self, node: int, timeout_s: float = _ASK_S) -> ClusterMetadata:
        """Returns the cluster metadata of one node. Raises KafkaException if it does not respond."""
        admin = self._admin(node)
        return admin.list_topics(timeout=timeout_s)

    def _admin(self, node: int) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._nodes[node].bootstrap_servers, "log_level": 0})


@contextmanager
def three_brokers() -> Iterator[ThreeBrokers]:
    """Yields a running cluster, which is killed when the context exits."""
    with tempfile.TemporaryDirectory(prefix="postdate-brokers-", ignore_cleanup_errors=True) as directory:
        cluster = ThreeBrokers(Path(directory))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()


def _node_settings(node: int, port: int, controller_port: int, voters: str) -> dict[str, str]:
    return {
        "node.id": str(node),
        "process.roles": "broker,controller",
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        **_SETTINGS,
    }


def _leaders(seen: ClusterMetadata) -> dict[tuple[str, int], int]:
    return {
        (name, index): part.leader for name, topic in seen.topics.items() for index, part in topic.partitions.items()
    }
