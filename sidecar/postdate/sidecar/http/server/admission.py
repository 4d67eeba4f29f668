"""Checks every request before the application handles it: first the host name, then the bounds of load.

A request with a foreign host name is answered with 421, on every path. A request beyond the bound for one client
address is answered with 429, and a request beyond the bound for the port with 503. The bounds do not apply to probes,
so a probe is answered under any load.

Thread rule: the event loop of the server.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from postdate.sidecar.http.access.access import Hosts
from postdate.sidecar.http.limits import HTTP_REQUESTS_MAX, HTTP_REQUESTS_PER_ADDRESS_MAX

PROBES: Final = frozenset({"/healthz", "/readyz"})
"""The paths to which the bounds do not apply. Their answers take microseconds and wait for nothing."""

_FOREIGN_HOST: Final = JSONResponse(
    {"error": "this port answers to its own names and addresses only; http.names lists further ones"}, 421
)


class AdmissionMiddleware:
    """An ASGI application that checks requests, and passes the admitted ones to `app`."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts
        self._requests: Counter[str] = Counter()  # in progress, by the address of the client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves or refuses one request."""
        if not self._hosts.knows(Headers(scope=scope).get("host", "")):
            await _FOREIGN_HOST(scope, receive, send)
            return
        if scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        address = scope["client"][0] if scope["client"] else ""
        refusal = self._refusal(address)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        self._requests[address] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._requests[address] -= 1
            if not self._requests[address]:
                del self._requests[address]

    def _refusal(self, address: str) -> JSONResponse | None:
        if self._requests[address] >= HTTP_REQUESTS_PER_ADDRESS_MAX:
            return _busy(429, f"{HTTP_REQUESTS_PER_ADDRESS_MAX} requests of your address are in progress; try again")
        if self._requests.total() >= HTTP_REQUESTS_MAX:
            return _busy(503, f"{HTTP_REQUESTS_MAX} requests are in progress; try again")
        return None


def _busy(status: int, why: str) -> JSONResponse:
    return JSONResponse({"error": why}, status, {"Retry-After": "1", "Connection": "close"})
