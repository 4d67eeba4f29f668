"""A sidecar as a child process, with new topics, on a given broker or on a new local broker.

All processes that the `with` block has started end with it. The timer indexes and the data of a local broker are in a
temporary directory, which is then removed. Topics on a given broker stay. Their names are unique, so runs do not affect
each other.

Thread rule: one thread.
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
from postdate.sidecar.process.children import Child
from postdate.testing.observing import NotDelivered, Observed
from postdate.tools.dev_broker.jars import Progress, quiet
from postdate.tools.dev_broker.local_broker import LocalBroker

START_TIMEOUT_S: Final = 120.0
"""Seconds: the longest wait for the creation of the topics, and again for the shards. A cold start on a slow machine
may take this long, without the broker; a fast machine needs some seconds."""
_POLL_S: Final = 0.05


class LocalPostdate(Observed):
    """A request topic and a sidecar that serves it, for the duration of a `with` block.

    `bootstrap_servers`: a running broker; None starts a broker, which needs Java 17 and downloads Kafka's jars once.
    `allow`: the allowed targets. `options`: further options of `postdate run`. `broker_settings`: the settings of a
    broker that the block starts. The attribute `requests` is the request topic for `postdate.client`.

    Entering the block raises the errors of the broker, and NotDelivered if the topics cannot be created or the sidecar
    does not start in time.
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

    def log(self) -> str:
        """Returns the end of the sidecar's log."""
        return "" if self._sidecar is None else self._sidecar.log_tail()

    def _create_own_topics(self, directory: Path) -> None:
        size = ("--partitions", str(self.requests.partitions), "--replication-factor", "1")
        named = ("-b", self.bootstrap_servers, "--requests", self.requests.name)
        child = Child("topics", directory, ["topics", "create", *named, *size])
        child.start()
        try:
            created = child.exit_code(START_TIMEOUT_S) == 0
        except subprocess.TimeoutExpired:
            created = False
        finally:
            child.stop()
        if not created:
            raise NotDelivered(f"the topics of {self.requests.name} could not be created:\n{child.log_tail()}")

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
                raise NotDelivered(f"the sidecar does not serve {self.requests.name}:\n{sidecar.log_tail()}")
            time.sleep(_POLL_S)
