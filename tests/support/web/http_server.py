"""The real HTTP server on a port of this machine, over a poll loop and shards that the test sets up."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from postdate.kafka.interface import Partition
from postdate.sidecar.clock import SystemClock
from postdate.sidecar.config.settings import Config, HttpConfig
from postdate.sidecar.context.holds import HoldState
from postdate.sidecar.context.index_queries import IndexQueries
from postdate.sidecar.counts import ShardCounts
from postdate.sidecar.group.poller import Poller
from postdate.sidecar.http import process_state
from postdate.sidecar.http.port import claim
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.server.server import HttpServer
from postdate.sidecar.shard.inbox import Inbox
from postdate.sidecar.states import State, Stateful
from support.deployments.ports import free_port
from support.deployments.sidecars import wait_until
from support.kafka_simulator import SimBroker, SimKafka
from support.web.http_steps import Client

TOKEN = "a-token-of-some-length"  # noqa: S105
"""A token that the server accepts if the test writes it to the token file."""


class _StoppedClock(SystemClock):
    """A clock whose steady time stands still, so nothing in a process becomes overdue on a slow machine."""

    def __init__(self) -> None:
        self._steady_ms = super().steady_ms()

    def steady_ms(self) -> float:
        return self._steady_ms


@dataclass
class HttpServerUnderTest:
    """A process whose poll loop and shards the test sets up, and the server over it. Its clock stands still, so only
    the test determines ages."""

    stack: ExitStack
    shards: dict[Partition, SimpleNamespace] = field(default_factory=dict)
    counts: dict[Partition, ShardCounts] = field(default_factory=dict)
    format_version: int = 1

    def __post_init__(self) -> None:
        self.kafka = SimKafka(SimBroker())
        self.clock, self.now_s = _StoppedClock(), time.monotonic()
        stopped = SimpleNamespace(monotonic=lambda: self.now_s)
        self.stack.enter_context(pytest.MonkeyPatch.context()).setattr(process_state, "time", stopped)
        self.poller = SimpleNamespace(
            shards=self.shards,
            turned_at=self.now_s,
            is_member=True,
            is_stopping=False,
            is_drained=False,
            failure=None,
            waits_for="",
            stands_by="",
            statistics=(),
        )

    def process(self, config: HttpConfig) -> ProcessState:
        """Returns the process as a server with this configuration sees it."""
        poller = cast(Poller, self.poller)
        settings = Config(http=config, format_version=self.format_version)
        return ProcessState(settings, poller, self.counts, {}, self.kafka, self.kafka.admin(), self.clock)

    def serve(self, token_file: Path | None = None, host: str = "127.0.0.1", **options: Any) -> Client:
        """Starts a server on a free port, and returns a client without a token. Closing `stack` stops the server."""
        config = HttpConfig(port=free_port(), host=host, token_file=token_file, **options)
        self.stack.enter_context(running(HttpServer(self.process(config), claim(config))))
        client = Client(config.port, ca=config.tls_ca_file)
        wait_until(client.listens, "the server listens")
        return client

    def add_shard(self, part: Partition, state: State, why: str = "", since_s: float = 0.0) -> None:
        """Adds a shard that has been in this state for `since_s`."""
        counts = self.counts[part] = ShardCounts()
        shard = Stateful(
            counts.states, SimpleNamespace(steady_ms=lambda: self.clock.steady_ms() - since_s * 1000, wall_ms=int)
        )
        shard.state = state
        index_queries = SimpleNamespace(index_queries=IndexQueries(), held=HoldState())
        held = SimpleNamespace(state=state, why=why, ctx=index_queries)
        self.shards[part] = SimpleNamespace(shard=held, inbox=Inbox())


@contextmanager
def running(http: HttpServer) -> Iterator[None]:
    """Starts the server, and stops it at the end of the block."""
    http.start()
    try:
        yield
    finally:
        http.stop()


def is_closed(connection: socket.socket) -> bool:
    """Reads until the server closes the connection, and returns True. Raises TimeoutError if that takes longer than the
    time-out of the socket."""
    with suppress(ConnectionResetError):
        while connection.recv(65_536):
            pass
    return True
