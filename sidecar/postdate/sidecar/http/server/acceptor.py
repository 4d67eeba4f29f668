"""Accepts connections of the HTTP port as fast as clients open them, and starts them at a bounded rate.

Starting a connection (a transport, a parser) costs ten times as much as accepting it. So a connection waits as a bare
socket until its client has sent something. In each turn, every HTTP_TURN_S, HTTP_STARTS_MAX of the waiting connections
start: the oldest of each address, then the second oldest of each, and so on. HTTP_PROBE_STARTS_MAX more are reserved
for connections whose first bytes request a probe. If more than HTTP_WAITING_MAX connections wait, the oldest of the
address with the most of them is closed; probes of that address are closed last. So a client that opens thousands of
connections a second displaces only its own, and costs the event loop little. With TLS, the first bytes of a probe look
like those of any request, so the reserved starts do not apply.

Thread rule: the event loop of the server.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from postdate.sidecar.http.limits import (
    HTTP_ACCEPT_RETRY_S,
    HTTP_ACCEPTS_MAX,
    HTTP_PROBE_STARTS_MAX,
    HTTP_REQUEST_S_MAX,
    HTTP_STARTS_MAX,
    HTTP_TURN_S,
    HTTP_WAITING_MAX,
)
from postdate.sidecar.http.server.admission import PROBES

log = logging.getLogger(__name__)

_FIRST: Final = tuple(f"GET {path} ".encode() for path in sorted(PROBES))
_FIRST_BYTES: Final = max(map(len, _FIRST))


@dataclass(slots=True, eq=False)
class _Waiting:
    connection: socket.socket
    address: str
    accepted_s: float
    has_sent: bool = False
    is_probe: bool = False
    is_watched: bool = False


class Acceptor:
    """The connections of one listening socket until they start. `new_protocol` makes the protocol of a connection."""

    def __init__(self, listener: socket.socket, new_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._new_protocol = new_protocol
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, _Waiting] = {}  # by descriptor, oldest first
        self._counts: Counter[str] = Counter()  # waiting connections by address
        self._starting: set[asyncio.Task[object]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Stops accepting, and closes the waiting connections. The listening socket stays open."""
        self._loop.remove_reader(self._listener)
        for handle in (self._pause, self._expiry, self._retry):
            if handle is not None:
                handle.cancel()
        for descriptor in list(self._waiting):
            self._remove(descriptor).close()

    def _listen(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(HTTP_ACCEPTS_MAX):
            try:
                connection, (address, *_port) = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:  # out of descriptors or memory
                log.warning("the HTTP port accepts no connections for %g s: %s", HTTP_ACCEPT_RETRY_S, error.strerror)
                self._loop.remove_reader(self._listener)
                self._retry = self._loop.call_later(HTTP_ACCEPT_RETRY_S, self._listen)
                break
            connection.setblocking(False)
            self._wait(connection, address)
        self._turn()

    def _wait(self, connection: socket.socket, address: str) -> None:
        if len(self._waiting) >= HTTP_WAITING_MAX:
            self._displace()
        descriptor = connection.fileno()
        self._waiting[descriptor] = _Waiting(connection, address, self._loop.time())
        self._counts[address] += 1
        if self._expiry is None:
            self._expiry = self._loop.call_later(HTTP_REQUEST_S_MAX, self._expire)
        self._peek(descriptor)

    def _peek(self, descriptor: int) -> None:
        """Peeks at the first bytes from the client. Closes the connection if the client has closed it."""
        waiting = self._waiting[descriptor]
        try:
            first = waiting.connection.recv(_FIRST_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            if not waiting.is_watched:
                waiting.is_watched = True
                self._loop.add_reader(descriptor, self._peek_and_turn, descriptor)
            return
        except OSError:
            first = b""
        if not first:
            self._remove(descriptor).close()
            return
        waiting.has_sent, waiting.is_probe = True, first.startswith(_FIRST)
        self._unwatch(descriptor)

    def _peek_and_turn(self, descriptor: int) -> None:
        self._peek(descriptor)
        self._turn()

    def _turn(self) -> None:
        """Starts some of the connections that have sent something, and schedules the next turn."""
        if self._pause is not None:
            return
        ready = [descriptor for descriptor, waiting in self._waiting.items() if waiting.has_sent]
        if not ready:
            return
        probes = [descriptor for descriptor in ready if self._waiting[descriptor].is_probe]
        others = [descriptor for descriptor in ready if not self._waiting[descriptor].is_probe]
        for descriptor in (*self._fair(probes, HTTP_PROBE_STARTS_MAX), *self._fair(others, HTTP_STARTS_MAX)):
            self._start(self._remove(descriptor))
        self._pause = self._loop.call_later(HTTP_TURN_S, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._turn()

    def _fair(self, descriptors: list[int], most: int) -> list[int]:
        """Returns at most `most` of the connections: the oldest of each address, then the second oldest, and so on."""
        seen: Counter[str] = Counter()
        rank_by_socket = dict[int, int]()
        for descriptor in descriptors:
            address = self._waiting[descriptor].address
            rank_by_socket[descriptor] = seen[address]
            seen[address] += 1
        return sorted(descriptors, key=lambda descriptor: rank_by_socket[descriptor])[:most]

    def _start(self, connection: socket.socket) -> None:
        starting = self._loop.create_task(self._loop.connect_accepted_socket(self._new_protocol, connection))
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)

    def _displace(self) -> None:
        address = max(self._counts, key=self._counts.__getitem__)
        own = (descriptor for descriptor, waiting in self._waiting.items() if waiting.address == address)
        oldest = next(own)
        if self._waiting[oldest].is_probe:
            oldest = next((descriptor for descriptor in own if not self._waiting[descriptor].is_probe), oldest)
        self._remove(oldest).close()

    def _expire(self) -> None:
        """Closes the connections that have waited for HTTP_REQUEST_S_MAX."""
        self._expiry = None
        until_s = self._loop.time() - HTTP_REQUEST_S_MAX
        for descriptor, waiting in list(self._waiting.items()):
            if waiting.accepted_s > until_s:
                self._expiry = self._loop.call_later(waiting.accepted_s - until_s, self._expire)
                return
            self._remove(descriptor).close()

    def _remove(self, descriptor: int) -> socket.socket:
        self._unwatch(descriptor)
        waiting = self._waiting.pop(descriptor)
        self._counts[waiting.address] -= 1
        if not self._counts[waiting.address]:
            del self._counts[waiting.address]
        if not self._waiting and self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        return waiting.connection

    def _unwatch(self, descriptor: int) -> None:
        if self._waiting[descriptor].is_watched:
            self._waiting[descriptor].is_watched = False
            self._loop.remove_reader(descriptor)
