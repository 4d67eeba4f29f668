"""A local broker behind proxies: each proxy forwards to a separate listener of the broker.

A client connects to the address that a broker advertises. So the broker has one listener for each proxy, and advertises
the proxy's port there: a client that first connects to a proxy uses it for all connections. Load and judge use a
listener without a proxy.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from postdate.tools.dev_broker.local_broker import LocalBroker
from support.deployments.ports import free_port
from support.faults.proxy import Proxy
from support.waiting.timeouts import WAIT_TIMEOUT_S


@dataclass
class ProxiedBroker:
    """The broker and its proxies; `bootstrap` is the address without a proxy."""

    local: LocalBroker
    proxies: list[Proxy]

    @property
    def bootstrap(self) -> str:
        return self.local.bootstrap_servers

    def way(self, number: int) -> str:
        """Returns the bootstrap address of a proxy."""
        return f"{self.local.host}:{self.proxies[number].port}"

    def heal(self) -> None:
        for proxy in self.proxies:
            proxy.heal()


@contextmanager
def proxied_broker(count: int, chance: random.Random | None = None, **settings: str) -> Iterator[ProxiedBroker]:
    """Yields a new broker behind `count` proxies; underscores in the names of `settings` stand for dots."""
    with ExitStack() as stack:
        directory = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="postdate-broker-", ignore_cleanup_errors=True)
        )
        proxies = [stack.enter_context(Proxy(chance)) for _ in range(count)]
        port, controller, inner = free_port(), free_port(), [free_port() for _ in proxies]
        ways = [f"PATH{number}" for number in range(count)]
        properties = {
            "listeners": ",".join(
                [f"PLAINTEXT://127.0.0.1:{port}", f"CONTROLLER://localhost:{controller}"]
                + [f"{way}://127.0.0.1:{at}" for way, at in zip(ways, inner, strict=True)]
            ),
            "advertised.listeners": ",".join(
                [f"PLAINTEXT://127.0.0.1:{port}"]
                + [f"{way}://127.0.0.1:{proxy.port}" for way, proxy in zip(ways, proxies, strict=True)]
            ),
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "CONTROLLER", *ways)
            ),
            **{name.replace("_", "."): value for name, value in settings.items()},
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"localhost:{controller}",
        }
        broker = LocalBroker(port, Path(directory), properties=properties)
        for proxy, at in zip(proxies, inner, strict=True):
            proxy.serve(at)
        broker.start(WAIT_TIMEOUT_S)
        try:
            yield ProxiedBroker(broker, proxies)
        finally:
            broker.kill()  # its data is not needed again
