"""Postdate: one sidecar process with four shards, and one Kafka broker with the JVM options of Kafka's own scripts.

The sidecar delays the messages, so it is the process that is killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.peers.system import CLIENTS, Clients, environment, need
from postdate.kafka.client import ConfluentKafka
from postdate.kafka.settings import KafkaSettings
from postdate.tools.bench.environment import BenchEnvironment, BenchSidecar
from postdate.tools.dev_broker.jars import KAFKA_VERSION
from postdate.tools.dev_broker.local_broker import Jvm, LocalBroker

#: The broker's heap in MB, as in Kafka's own scripts.
HEAP_MB = 1_024


class Postdate:
    """A broker and the sidecar of the current target in `directory`; both end with the stack."""

    name = "Postdate"

    def __init__(self, directory: Path, stack: ExitStack, commit: str, report: Callable[[str], None]) -> None:
        need("java")
        self.version = f"{commit}, Kafka {KAFKA_VERSION}"
        os.environ.setdefault("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+UseG1GC -XX:MaxGCPauseMillis=20")
        broker = LocalBroker(0, directory / "broker", jvm=Jvm(HEAP_MB))
        stack.callback(broker.kill)  # its data is not needed again
        broker.start()
        self._bootstrap = broker.bootstrap_servers
        self._environment = BenchEnvironment(
            ConfluentKafka(KafkaSettings(self._bootstrap)), self._bootstrap, directory, stack, report
        )
        self._sidecar: BenchSidecar | None = None

    @contextmanager
    def target(self) -> Iterator[Clients]:
        """A request topic and a target of four partitions each, and a sidecar that serves them."""
        with self._environment.run():
            requests, (target,) = self._environment.new_topics()
            self._sidecar = self._environment.sidecar(requests)
            self._sidecar.start_and_wait()
            client = [sys.executable, str(CLIENTS / "kafka_client.py"), self._bootstrap]
            paths = environment(PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
            yield Clients([*client, "send", requests, target], [*client, "receive", target], paths)

    def pending(self) -> int | None:
        """Returns the number of messages in the timer index."""
        return self._running().pending()

    def kill(self) -> None:
        """Kills the sidecar."""
        self._running().kill()

    def restart(self) -> None:
        """Starts the sidecar again."""
        self._running().start()

    def _running(self) -> BenchSidecar:
        assert self._sidecar is not None, "no target is served"
        return self._sidecar
