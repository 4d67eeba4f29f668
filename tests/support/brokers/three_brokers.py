"""Three Kafka nodes on this machine as one cluster: each is a broker and a controller, and any one may fail.

Every topic has three replicas, of which two must hold a write. The nodes keep Kafka's defaults; `_SETTINGS` lists the
exceptions, each with its reason. What the cluster looks like is asked of the nodes that can answer, by a new client for
each question, so an answer never comes from a client's memory. For one caller at a time, on the main thread.
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
    # Every topic survives the loss of one broker, also one that is created without saying how. Both are 1 by default;
    # the internal topics have three replicas anyway.
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    # Three processes share one machine. The default of 128 MiB is a quarter of the heap that each of them gets.
    "log.cleaner.dedupe.buffer.size": "16777216",
}
#: s. How long one question to one node may take; a frozen node does not answer.
_ASK_S = 5.0
#: s. Between two looks at all nodes: each makes a client for each node.
_POLL_INTERVAL_S = 0.5


def _nothing() -> None:
    """What is done meanwhile by default."""


class ThreeBrokers:
    """The cluster; `start` before anything else. A node is known by its id: 1, 2 or 3."""

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
        """All three, as clients are given them."""
        return ",".join(broker.bootstrap_servers for broker in self._nodes.values())

    @property
    def answering(self) -> list[int]:
        """The nodes that run and are not frozen."""
        return [node for node, broker in self._nodes.items() if broker.is_running() and node not in self._frozen]

    def start(self) -> None:
        """Starts all three; returns when they are whole."""
        for broker in self._nodes.values():
            broker.launch()
        broker = self._nodes[NODES[0]]
        wait_until_ready(broker.host, broker.port, WAIT_TIMEOUT_S, lambda: None)
        self.wait_until_whole()

    def close(self) -> None:
        """Kills all three; nobody reads their data again."""
        for broker in self._nodes.values():
            broker.kill()

    def kill(self, node: int) -> None:
        """SIGKILL."""
        self._nodes[node].kill()

    def launch(self, node: int) -> None:
        """Starts a node that was killed or stopped; returns at once."""
        self._nodes[node].launch()

    def terminate(self, node: int) -> None:
        """SIGTERM: the node gives up what it leads, then ends. Returns when it has ended."""
        self._nodes[node].stop(WAIT_TIMEOUT_S)

    def freeze(self, node: int) -> None:
        """SIGSTOP: nothing answers, and connections stay open."""
        self._nodes[node].pause()
        self._frozen.add(node)

    def thaw(self, node: int) -> None:
        """SIGCONT."""
        self._nodes[node].resume()
        self._frozen.discard(node)

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads a partition; -1 if none does."""
        return _leaders(self._metadata(self.answering[0], WAIT_TIMEOUT_S)).get((topic, partition), -1)

    def group_coordinator(self, group_id: str) -> int:
        """The node that coordinates a group; waits until there is one."""
        found: list[int] = []

        def known() -> bool:
            servers = self._nodes[self.answering[0]].bootstrap_servers
            with suppress(KafkaFault):
                # The product asks in a way that does not end the process when a broker is away (groups.py).
                group = describe_group(KafkaSettings(servers, admin_timeout_s=2 * _ASK_S), group_id)
                found.append(int(group.coordinator.id))
            return bool(found)

        wait_until(known, f"{group_id} has a coordinator")
        return found[0]

    def open_transactions(self, topics: Iterable[str]) -> dict[str, str]:
        """Topic and partition -> last stable offset and high watermark, if they differ: a transaction is open there."""
        node = self.answering[0]
        parts = [part for part in _leaders(self._metadata(node)) if part[0] in {*topics}]
        admin = AdminClient({"bootstrap.servers": self._nodes[node].bootstrap_servers})
        stable = end_offsets(admin, parts, IsolationLevel.READ_COMMITTED, _ASK_S)
        high = end_offsets(admin, parts, timeout_s=_ASK_S)
        return {f"{part[0]}/{part[1]}": f"{stable[part]} < {high[part]}" for part in parts if stable[part] < high[part]}

    def controller(self) -> int:
        """The active controller, by the votes that each node has on disk: a broker's answer names any live broker."""
        votes = []
        for node in NODES:
            state = self._nodes[node].data_dir / "kafka" / "__cluster_metadata-0" / "quorum-state"
            if state.exists():
                vote = json.loads(state.read_text())
                votes.append((int(vote["leaderEpoch"]), int(vote["leaderId"])))
        return max(votes)[1]

    def wait_until_deposed(self, node: int, meanwhile: Callable[[], None] = _nothing) -> None:
        """Returns when another node leads each partition that `node` led, in the view of every other node."""

        def deposed() -> bool:
            meanwhile()
            time.sleep(_POLL_INTERVAL_S)
            try:
                views = [_leaders(self._metadata(asked)) for asked in self.answering if asked != node]
            except KafkaException:  # no answer in time
                return False
            return bool(views) and all(-1 < leader != node for view in views for leader in view.values())

        wait_until(deposed, f"broker {node} leads nothing any more")

    def wait_until_whole(self, meanwhile: Callable[[], None] = _nothing) -> None:
        """Returns when every node sees three live brokers, and three replicas in sync of every partition."""

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
        """What the node logs."""
        return self._nodes[node].log_file

    def _metadata(self, node: int, timeout_s: float = _ASK_S) -> ClusterMetadata:
        """What this node takes the cluster to be. Raises KafkaException if it does not answer."""
        admin = self._admin(node)
        return admin.list_topics(timeout=timeout_s)

    def _admin(self, node: int) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._nodes[node].bootstrap_servers, "log_level": 0})


@contextmanager
def three_brokers() -> Iterator[ThreeBrokers]:
    """A cluster that runs as long as the block."""
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
