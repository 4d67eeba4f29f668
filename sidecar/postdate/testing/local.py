"""A sidecar as a child process, with topics of its own, on a given broker or on one that it starts.

Everything that was started ends with the block; the timer indexes and the broker's data lie in a temporary directory
that goes with it. Topics made on a given broker stay there; their names are new each time, and keep runs apart.

Thread rule: one thread; children are known by their process ids.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from postdate.client import RequestTopic
from postdate.connectors.kafka.client import ConfluentKafka
from postdate.connectors.kafka.dev.jars import Progress, quiet
from postdate.connectors.kafka.dev.local import LocalBroker
from postdate.connectors.kafka.seam import NewTopic
from postdate.connectors.kafka.settings import KafkaSettings
from postdate.sidecar.children import Child
from postdate.testing.reading import Delivered, read_delivered

START_TIMEOUT_S: Final = 120.0
"""A cold start on a slow machine, a broker not included; it takes some seconds on a quick one."""
_POLL_S: Final = 0.05


class NotDelivered(AssertionError):
    """What a test waited for did not come, or the sidecar did not start; the text ends with what the sidecar logged."""


class LocalPostdate:
    """A request topic and a sidecar that serves it, for the length of a `with` block.

    `bootstrap_servers`: a broker that runs; None starts one, which needs Java 17 and fetches Kafka's jars once.
    `allow`: the targets that requests may name. `options`: further ones of `postdate run`. `broker_settings`: of the
    broker that is started. `requests` is the topic as `postdate.client` wants it.

    Entering raises what the broker raises, and NotDelivered where the sidecar does not start in time.
    """

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        *,
        partitions: int = 1,
        allow: Sequence[str] = ("*",),
        options: Sequence[str] = (),
        broker_settings: Mapping[str, str] | None = None,
        progress: Progress = quiet,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers or ""
        self.requests = RequestTopic(f"postdate-test-{uuid4().hex[:10]}", partitions)
        self._allow = tuple(allow)
        self._options = tuple(options)
        self._broker_settings = broker_settings
        self._progress = progress
        self._stack = ExitStack()
        self._sidecar: Child | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            directory = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="postdate-", ignore_cleanup_errors=True))
            )
            if not self.bootstrap_servers:
                broker = LocalBroker(0, directory / "kafka", properties=self._broker_settings, progress=self._progress)
                stack.enter_context(broker)
                self.bootstrap_servers = broker.bootstrap_servers
            self._create_own_topics(directory)
            self._sidecar = self._start(directory)
            stack.callback(self._sidecar.stop)
            self._wait_until_it_serves(self._sidecar)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Makes a topic, such as a target; nothing happens where it exists. A target that does not exist makes a dead
        letter of its request."""
        admin = self._kafka().admin()
        admin.create_topics([NewTopic(name, partitions, -1, dict(config or {}))])
        admin.close()

    def delivered(self, topic: str, count: int, timeout_s: float = 60.0) -> list[Delivered]:
        """All that requests of this block brought to a topic, in order of time, once there are `count`; a delay
        counts into `timeout_s`. Raises NotDelivered: there are fewer."""
        found = read_delivered(self._kafka(), self.requests.name, topic, count, timeout_s)
        if len(found) < count:
            raise NotDelivered(f"{topic} has {len(found)} of {count} records after {timeout_s:.0f} s.\n{self.log()}")
        return found

    def dead_letters(self, count: int, timeout_s: float = 60.0) -> list[Delivered]:
        """As `delivered`, of the requests that were refused or could not be delivered."""
        return self.delivered(f"{self.requests.name}.dead-letters", count, timeout_s)

    def log(self) -> str:
        """The end of what the sidecar has logged."""
        return "" if self._sidecar is None else self._sidecar.last_words()

    def _kafka(self) -> ConfluentKafka:
        return ConfluentKafka(KafkaSettings(self.bootstrap_servers))

    def _create_own_topics(self, directory: Path) -> None:
        size = ("--partitions", str(self.requests.partitions), "--replication-factor", "1")
        named = ("-b", self.bootstrap_servers, "--requests", self.requests.name)
        child = Child("topics", directory, ["topics", "create", *named, *size])
        child.start()
        try:
            made = child.exit_code(START_TIMEOUT_S) == 0
        except subprocess.TimeoutExpired:
            made = False
        finally:
            child.stop()
        if not made:
            raise NotDelivered(f"the topics of {self.requests.name} could not be made:\n{child.last_words()}")

    def _start(self, directory: Path) -> Child:
        config = directory / "postdate.toml"
        allow = ", ".join(f'"{pattern}"' for pattern in self._allow)
        config.write_text(f'[[request_topics]]\nname = "{self.requests.name}"\nallow = [{allow}]\n')
        command = ["run", "-b", self.bootstrap_servers, "--config", str(config), "--data", str(directory / "data")]
        command += ["--group-id", self.requests.name, "--http-port", "0", *self._options]
        child = Child("sidecar", directory, command)
        child.start()
        return child

    def _wait_until_it_serves(self, sidecar: Child) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while sidecar.shards() < self.requests.partitions:
            if not sidecar.is_running() or time.monotonic() >= deadline:
                raise NotDelivered(f"the sidecar does not serve {self.requests.name}:\n{sidecar.last_words()}")
            time.sleep(_POLL_S)
