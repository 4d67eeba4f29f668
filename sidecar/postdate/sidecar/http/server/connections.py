"""The connections of the HTTP port: their number, their deadlines, and their TLS.

A connection starts with its first bytes (`acceptor`). After the start, and after each answer, the client has
HTTP_REQUEST_S_MAX to send a complete request, and then HTTP_ANSWER_S_MAX to receive the answer. If more than
HTTP_CONNECTIONS_MAX are open, the port closes one that awaits no answer: the oldest of the address with the most such
connections. It closes a new connection only if all others await an answer. A client that opens thousands of connections
displaces only its own, not a probe.

These bounds must include the handshake. So TLS begins here and not in the listening socket: asyncio would report a
connection only after its handshake, and a connection that never finishes the handshake would have no bounds.

Thread rule: the event loop of the server.
Source of the idea: the server time-outs of nginx (`client_header_timeout`, `client_body_timeout`), and its `reusable
connections`, which nginx closes if it has too few free ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from postdate.sidecar.http.access.tls import PortCertificate
from postdate.sidecar.http.limits import (
    HTTP_ANSWER_S_MAX,
    HTTP_CONNECTIONS_MAX,
    HTTP_REQUEST_S_MAX,
    HTTP_TLS_CLOSE_S,
)


class BoundedConnection(H11Protocol):
    """One connection. Uvicorn parses the requests and serves them; this class adds the bounds, and TLS if the port has
    a certificate."""

    def __init__(self, *args: Any, certificate: PortCertificate | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._certificate = certificate
        self._handshake: asyncio.Task[None] | None = None
        self._early: bytes | None = None  # received before `_secure` continues; None if no handshake is in progress
        self._opened_s = self.loop.time()
        self._deadline: asyncio.TimerHandle | None = None
        self._has_request = False

    @property
    def address(self) -> str:
        """The address of the client; empty if the client has already gone."""
        return self.client[0] if self.client else ""

    @property
    def is_idle(self) -> bool:
        """True if the client awaits no answer."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the deadline of the first request, closes a connection if there are too many, and begins TLS if the
        port has a certificate."""
        super().connection_made(transport)
        self._must_end_in(HTTP_REQUEST_S_MAX)
        if len(self.connections) > HTTP_CONNECTIONS_MAX:
            self._displace()
        if self._certificate is not None and not transport.is_closing():
            transport.pause_reading()
            self._early = b""
            self._handshake = self.loop.create_task(self._secure(self._certificate, transport))

    async def _secure(self, certificate: PortCertificate, transport: asyncio.Transport) -> None:
        try:
            secured = await self.loop.start_tls(
                transport,
                self,
                certificate.context(),
                server_side=True,
                ssl_handshake_timeout=HTTP_ANSWER_S_MAX,  # the deadline of the connection ends it sooner
                ssl_shutdown_timeout=HTTP_TLS_CLOSE_S,
            )
        except OSError:  # no TLS, or another version of it, or the client has gone
            secured = None
        early, self._early = self._early, None
        if secured is None:  # asyncio does not report the loss if this side has ended the connection
            self.connection_lost(None)
            return
        super().connection_made(secured)
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        """Parses the data. During the TLS handshake, keeps them until the handshake is over."""
        if self._early is not None:
            self._early += data
            return
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Starts the deadline of the answer once the request is complete."""
        super().handle_events()
        if not self._has_request and not self.is_idle and self.conn.their_state in (h11.DONE, h11.MUST_CLOSE):
            self._has_request = True
            self._must_end_in(HTTP_ANSWER_S_MAX)

    def on_response_complete(self) -> None:
        """Starts the deadline of the next request; it is HTTP_ANSWER_S_MAX if part of the answer is still to be
        sent."""
        self._has_request = False
        self._must_end_in(HTTP_ANSWER_S_MAX if self.transport.get_write_buffer_size() else HTTP_REQUEST_S_MAX)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers 400 to data that is not HTTP. If an earlier request is still in progress, aborts the connection
        instead."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and self.is_idle:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def _must_end_in(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _displace(self) -> None:
        bounded = (connection for connection in self.connections if isinstance(connection, BoundedConnection))
        idle = [connection for connection in bounded if connection.is_idle]
        counts = Counter(connection.address for connection in idle)
        closed = max(idle, key=lambda connection: (counts[connection.address], -connection._opened_s), default=self)
        self.connections.discard(closed)  # the loop reports the loss only in its next iteration
        closed.transport.abort()
