"""The connections of the HTTP port: how many are open, how long each may take, and their TLS.

A connection starts with its first bytes (`acceptor`). It has HTTP_REQUEST_S_MAX from then, or from its last answer, to
send a complete request, and HTTP_ANSWER_S_MAX to take the answer. If more than HTTP_CONNECTIONS_MAX are open, the port
closes one that awaits no answer: the oldest of the address that has most of them. So a new connection is always served,
and a client that opens thousands of them displaces its own, not a probe.

All this counts from the accepted connection. TLS therefore begins here and not in the listening socket: there asyncio
would announce a connection only after its handshake, and connections that never finish it would have no bounds.

Thread rule: the event loop of the server.
Source of the idea: the server time-outs of nginx (`client_header_timeout`, `client_body_timeout`), and its
`reusable connections`, which it closes if it runs short of them.
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
        self._early: bytes | None = None  # received before the handshake task continued; None: it is over
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
        """Starts the deadline of the first request, makes room if there are too many connections, and begins TLS."""
        super().connection_made(transport)
        self._must_end_in(HTTP_REQUEST_S_MAX)
        if len(self.connections) > HTTP_CONNECTIONS_MAX:
            self._make_room()
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
                ssl_handshake_timeout=HTTP_ANSWER_S_MAX,  # the deadline ends it sooner
                ssl_shutdown_timeout=HTTP_TLS_CLOSE_S,
            )
        except OSError:  # no TLS, or another version of it, or the client has gone
            secured = None
        early, self._early = self._early, None
        if secured is None:  # also if this side has ended the connection, which asyncio then does not report
            self.connection_lost(None)
            return
        super().connection_made(secured)
        if early:
            self.data_received(early)

    def data_received(self, data: bytes) -> None:
        """Parses the data, once the handshake is over."""
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
        """Starts the deadline of the next request; a client that still reads the answer has the time of an answer."""
        self._has_request = False
        self._must_end_in(HTTP_ANSWER_S_MAX if self.transport.get_write_buffer_size() else HTTP_REQUEST_S_MAX)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuses data that is not HTTP; if an answer is already being sent, the connection ends without another
        one."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and self.is_idle:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def _must_end_in(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _make_room(self) -> None:
        idle = [each for each in self.connections if isinstance(each, BoundedConnection) and each.is_idle]
        counts = Counter(each.address for each in idle)
        closed = max(idle, key=lambda each: (counts[each.address], -each._opened_s), default=self)
        self.connections.discard(closed)  # its transport reports the loss only in the next iteration
        closed.transport.abort()
