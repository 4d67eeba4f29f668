"""A sidecar in a container. Only this module needs testcontainers (pip install testcontainers).

    with PostdateContainer("kafka:9092", kafka.get_bootstrap_server(), image=IMAGE).with_network(network) as postdate:
        ...

The Dockerfile of the repository builds the image. The container connects to the address that Kafka advertises to
containers, and the test to the address that Kafka advertises to this machine. So Kafka needs two listeners, unless the
test and the containers share a network.

Thread rule: one thread.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from typing import Any, Final, Self
from uuid import uuid4

from testcontainers.core.container import DockerContainer

from postdate.client import RequestTopic
from postdate.testing.local_postdate import START_TIMEOUT_S
from postdate.testing.observing import NotDelivered, Observed

IMAGE_VARIABLE: Final = "POSTDATE_TEST_IMAGE"
"""The variable with the default image. Postdate ignores variables with the prefix POSTDATE_TEST_."""
_POLL_S: Final = 0.2
_LOG_CHARS_SHOWN: Final = 4_000


class PostdateContainer(DockerContainer, Observed):
    """A sidecar in a container, with a new request topic and the topics beside it.

    `kafka`: the address of Kafka for the container. `bootstrap_servers`: the address for the test, if it differs.
    `image`: the default is the value of POSTDATE_TEST_IMAGE. `options`: further options of `postdate run`. Raises
    ValueError if no image is given. Pass settings with `with_env` (POSTDATE_…), and the network with `with_network`.

    `start` returns when every shard is served. It raises NotDelivered if the container exits, and after a time-out.
    """

    def __init__(
        self,
        kafka: str,
        bootstrap_servers: str = "",
        *,
        image: str = "",
        partitions: int = 1,
        options: Sequence[str] = (),
        **more: Any,
    ) -> None:
        image = image or os.environ.get(IMAGE_VARIABLE, "")
        if not image:
            raise ValueError(
                f"no image is given. Build the Dockerfile, and name its image: image=…, or {IMAGE_VARIABLE}"
            )
        super().__init__(image, **more)
        self.bootstrap_servers = bootstrap_servers or kafka
        self.requests = RequestTopic(f"postdate-test-{uuid4().hex[:10]}", partitions)
        named = ["-b", kafka, "--requests", self.requests.name]
        size = ["--partitions", str(partitions), "--replication-factor", "1"]
        self._create = ["postdate", "topics", "create", *named, *size]
        self._run = ["postdate", "run", *named, "--group-id", self.requests.name, "--http-port", "0", *options]

    def start(self) -> Self:
        """Starts the container, and waits until it serves every shard. Removes the container if the wait fails."""
        super().start()
        try:
            self._wait_until_it_serves()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Kills and removes the container, if there is one. Its topics stay."""
        super().stop(force, delete_volume)
        self._container = None

    def log(self) -> str:
        """Returns the end of the container's output: stderr, then stdout."""
        if self._container is None:
            return ""
        stdout, stderr = self.get_logs()
        return "\n".join(stream.decode(errors="replace")[-_LOG_CHARS_SHOWN:] for stream in (stderr, stdout))

    def _configure(self) -> None:
        """Sets command and entry point. testcontainers calls this method before it creates the container. The entry
        point of the image runs only one command, so it could not create the topics too."""
        self.with_command([f"{shlex.join(self._create)} && exec {shlex.join(self._run)}"])
        self._kwargs = {**self._kwargs, "entrypoint": ["sh", "-c"]}

    def _wait_until_it_serves(self) -> None:
        served, deadline = f"running: {self.requests.partitions} shard", time.monotonic() + START_TIMEOUT_S
        while served not in self.log():
            self.reload()
            if self.status == "exited" or time.monotonic() >= deadline:
                raise NotDelivered(f"the container of {self.image} does not serve {self.requests.name}:\n{self.log()}")
            time.sleep(_POLL_S)
