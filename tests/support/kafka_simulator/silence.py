"""Requests of admin clients fail or get no response, while producers and consumers are served.

The client library sends each request to a server: those about topics and settings to the controller, those about
offsets to the leaders, those about groups to the coordinator. Any of these may not respond.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from support.kafka_simulator.time import SimTime


class Server(Enum):
    """The server of a request of an admin client."""

    CONTROLLER = "controller"
    LEADERS = "leaders"
    COORDINATOR = "coordinator"


class Silence:
    """The servers that do not serve admin clients for some time. With `refuses`, requests fail at once; otherwise they
    hang."""

    def __init__(self, time: SimTime) -> None:
        self._time = time
        self._servers: frozenset[Server] = frozenset()
        self._until_ms = 0.0
        self.refuses = False

    def begin(self, servers: Collection[Server], for_ms: float, refuses: bool) -> None:
        """Makes these servers stop serving admin clients for this long."""
        self._servers, self.refuses = frozenset(servers), refuses
        self._until_ms = self._time.now_ms + for_ms

    def end(self) -> None:
        """Makes all servers serve again."""
        self._until_ms = 0.0

    def covers(self, server: Server) -> bool:
        """True while this server does not serve admin clients."""
        return self._time.now_ms < self._until_ms and server in self._servers
