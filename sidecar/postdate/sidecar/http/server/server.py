"""The HTTP server of one port of a process, on a separate thread. Delivery never waits for it.

If the port is in use, `port` has logged a warning. The process then delivers without the port, and the server retries
the bind.

Thread rule: the main thread calls `start` and `stop`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any, cast

import uvicorn

from postdate.sidecar.http.access.access import Hosts
from postdate.sidecar.http.access.tls import PortCertificate
from postdate.sidecar.http.api.app import make_app, make_probes
from postdate.sidecar.http.limits import (
    HTTP_BIND_RETRY_S,
    HTTP_HEAD_BYTES_MAX,
    HTTP_KEEP_ALIVE_S,
    HTTP_QUEUE_MAX,
    HTTP_STOP_S,
)
from postdate.sidecar.http.port import listen
from postdate.sidecar.http.process_state import ProcessState
from postdate.sidecar.http.server.acceptor import Acceptor
from postdate.sidecar.http.server.admission import AdmissionMiddleware
from postdate.sidecar.http.server.connections import BoundedConnection

log = logging.getLogger(__name__)


class HttpServer:
    """One port and its thread. `bound`: the socket, which the server closes; None if the port is still in use.
    `probes_only`: True for the probe port, which has no TLS. Raises ConfigError if the files of the certificate are
    unusable."""

    def __init__(self, process: ProcessState, bound: socket.socket | None, *, probes_only: bool = False) -> None:
        http = process.config.http
        self._host, self._port = http.host, http.probe_port if probes_only else http.port
        self._first = bound
        self._probes_only = probes_only
        certificate = None if probes_only else PortCertificate.of(http)
        self._scheme = "http" if certificate is None else "https"
        connection = functools.partial(BoundedConnection, certificate=certificate)
        config = uvicorn.Config(
            AdmissionMiddleware(make_probes(process) if probes_only else make_app(process), Hosts(http)),
            http=cast(Any, connection),  # uvicorn only calls it
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            h11_max_incomplete_event_size=HTTP_HEAD_BYTES_MAX,
            timeout_keep_alive=HTTP_KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._threads = process.http_threads

    def start(self) -> None:
        """Starts the thread. If the port is in use, the thread waits until the port is free, and then serves it."""
        self._thread.start()
        self._threads.append(self._thread)

    def stop(self) -> None:
        """Stops gracefully, even while requests are being answered. Waits at most HTTP_STOP_S for the thread."""
        if self._thread in self._threads:
            self._threads.remove(self._thread)
        self._stopping.set()
        self._server.should_exit = True
        self._thread.join(HTTP_STOP_S)

    def _run(self) -> None:
        bound, note = self._first, ""
        while bound is None:
            if self._stopping.wait(HTTP_BIND_RETRY_S):
                return
            bound, note = (
                listen(self._host, self._port),
                "; the other processes query it after a restart of this process",
            )
        where = f"{self._scheme}://{self._host}:{bound.getsockname()[1]}"
        if self._probes_only:
            log.info("probes: %s", where)
        else:
            log.info("metrics, probes and the API: %s%s", where, note)
        with bound:
            self._server.run(sockets=[bound])


class _Server(uvicorn.Server):
    """Uvicorn with our acceptor: the acceptor of asyncio would start each connection immediately."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._acceptors = [self._accept(bound) for bound in sockets or []]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        await super().shutdown(sockets)

    def _accept(self, bound: socket.socket) -> Acceptor:
        bound.listen(HTTP_QUEUE_MAX)
        return Acceptor(bound, self._new_connection)

    def _new_connection(self) -> asyncio.Protocol:
        connection = cast(Callable[..., asyncio.Protocol], self.config.http_protocol_class)
        return connection(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
