"""The sidecar's image beside a Kafka in containers, by testcontainers, which this module alone needs.

    with PostdateContainer("registry.example.com/postdate:0.1.0", "kafka:9092").with_network(network) as postdate:
        ...

The image is that of the repository's Dockerfile. Kafka must be reachable from the container by the address that it
advertises: give both the same network.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from testcontainers.core.container import DockerContainer

from postdate.client import RequestTopic
from postdate.testing.local import START_TIMEOUT_S, NotDelivered

_POLL_S: Final = 0.2
_LOG_CHARS_SHOWN: Final = 4_000


class PostdateContainer(DockerContainer):
    """A sidecar in a container, with the topics that it needs. `requests` is its request topic, ready for
    `postdate.client`.

    `bootstrap_servers`: Kafka as the containers reach it. `options`: further ones of `postdate run`. Starting returns
    when every shard is served, and raises NotDelivered where that does not happen in time.
    """

    def __init__(
        self,
        image: str,
        bootstrap_servers: str,
        *,
        request_topic: str = "",
        partitions: int = 1,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(image)
        self.bootstrap_servers = bootstrap_servers
        self.requests = RequestTopic(request_topic or f"postdate-test-{uuid4().hex[:10]}", partitions)
        name = self.requests.name
        create = f"postdate topics create -b {bootstrap_servers} --requests {name} --allow-existing"
        create += f" --partitions {partitions} --replication-factor 1"
        run = ["exec postdate run", "-b", bootstrap_servers, "--requests", name, "--group-id", name, "--http-port", "0"]
        self.with_command([f"{create} && {' '.join([*run, *options])}"])

    def start(self) -> Self:
        """Starts the container and waits until it serves."""
        self._kwargs = {**self._kwargs, "entrypoint": ["sh", "-c"]}  # the image's own runs one command alone
        super().start()
        served, deadline = f"running: {self.requests.partitions} shards", time.monotonic() + START_TIMEOUT_S
        while served not in self.log():
            self.get_wrapped_container().reload()
            if self.get_wrapped_container().status == "exited" or time.monotonic() >= deadline:
                said = self.log()
                self.stop()
                raise NotDelivered(f"the container of {self.image} does not serve {self.requests.name}:\n{said}")
            time.sleep(_POLL_S)
        return self

    def log(self) -> str:
        """The end of what the sidecar has said."""
        stdout, stderr = self.get_logs()
        return (stderr.decode(errors="replace")[-_LOG_CHARS_SHOWN:] + stdout.decode(errors="replace"))[
            -2 * _LOG_CHARS_SHOWN :
        ]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
