"""NATS JetStream: a server with a file store, and schedules of single messages (`Nats-Schedule: @at …`).

The settings are the defaults of the server. The server stores and delays, so it is the process that is killed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from benchmarks.peers.system import CLIENTS, FETCH_TIMEOUT_S, Clients, Server, environment, need, run
from postdate.tools.dev_broker.jars import cache_dir
from postdate.tools.dev_broker.local_broker import free_port

VERSION = "2.15.2"


class Nats:
    """One server in `directory`; it ends with the stack."""

    name = "NATS JetStream"
    version = VERSION

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        directory.mkdir()
        server, client, port = _server(), directory / "nats-client", free_port()
        command = [need("go"), "build", "-mod=readonly", "-o", str(client), "."]
        run(
            command,
            "go build",
            directory=CLIENTS / "nats",
            environment=environment(GOMODCACHE=str(cache_dir() / "go-modules"), GOFLAGS="-modcacherw -buildvcs=false"),
            timeout_s=FETCH_TIMEOUT_S,
        )
        self._client = [str(client), f"nats://127.0.0.1:{port}"]
        self._numbers = count()
        command = [str(server), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(directory / "store")]
        self._server = Server("the NATS server", command, port, directory / "server.log", environment())
        stack.callback(self._server.kill)
        self._server.start()

    @contextmanager
    def target(self) -> Iterator[Clients]:
        """A stream with a subject for each schedule and a subject for deliveries. The receiver creates the stream."""
        stream = f"target-{next(self._numbers)}"
        yield Clients([*self._client, "send", stream], [*self._client, "receive", stream], environment())

    def pending(self) -> int | None:
        """Returns None: NATS does not report this number."""
        return None

    def kill(self) -> None:
        """Kills the server."""
        self._server.kill()

    def restart(self) -> None:
        """Starts the server again."""
        self._server.start()


def _server() -> Path:
    """Returns the path of the server's binary. If this machine has none, builds it with Go, from the module proxy."""
    home = cache_dir() / f"nats-server-{VERSION}"
    if not home.is_dir():
        partial = home.with_name(home.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        modules = str(cache_dir() / "go-modules")
        settings = environment(GOBIN=str(partial), GOMODCACHE=modules, GOFLAGS="-modcacherw -buildvcs=false")
        command = [need("go"), "install", f"github.com/nats-io/nats-server/v2@v{VERSION}"]
        run(command, "go install", directory=partial, environment=settings, timeout_s=FETCH_TIMEOUT_S)
        partial.rename(home)
    return home / "nats-server"
