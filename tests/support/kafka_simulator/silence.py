"""Which requests of admin clients the cluster leaves unanswered, while it serves producers and consumers.

The client library sends each request to whoever serves it: those about topics and settings to the controller, those
about offsets to the leaders, those about groups to the coordinator. Any of these may be silent.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from support.kafka_simulator.time import SimTime


class Server(Enum):
    """Who serves a request of an admin client."""

    CONTROLLER = "controller"
    LEADERS = "leaders"
    COORDINATOR = "coordinator"


class Silence:
    """Which servers ignore admin clients, and until when. With `refuses` they refuse at once, without it they hang."""

    def __init__(self, time: SimTime) -> None:
        self._time = time
        self._servers: frozenset[Server] = frozenset()
        self._until_ms = 0.0
        self.refuses = False

    def begin(self, servers: Collection[Server], for_ms: float, refuses: bool) -> None:
        """From now on these do not serve, for that long."""
        self._servers, self.refuses = frozenset(servers), refuses
        self._until_ms = self._time.now_ms + for_ms

    def end(self) -> None:
        """All of them serve again."""
        self._until_ms = 0.0

    def covers(self, server: Server) -> bool:
        """True while this one does not serve."""
        return self._time.now_ms < self._until_ms and server in self._servers
