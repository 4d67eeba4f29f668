"""The HTTP server of a process: a thread of its own beside the poll loop, which serves nothing that delivery waits for.

A port that stays taken ends the process at its start, before it joins its group: it would tell the others an address
at which somebody else answers for it. On a machine with several processes each needs its own.

Thread rule: `start` and `stop` from the main thread.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time

import uvicorn

from postdate.sidecar.errors import ConfigError
from postdate.sidecar.http.app import make_app
from postdate.sidecar.http.limits import HTTP_BIND_RETRY_S, HTTP_BIND_WAIT_S, HTTP_CONNECTIONS_MAX, HTTP_STOP_S
from postdate.sidecar.http.process import Process

log = logging.getLogger(__name__)


class HttpServer:
    """One port, and the thread behind it."""

    def __init__(self, process: Process) -> None:
        self._host, self._port = process.config.http.host, process.config.http.port
        config = uvicorn.Config(
            make_app(process),
            log_config=None,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            limit_concurrency=HTTP_CONNECTIONS_MAX,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to serve. Raises ConfigError: the port stays taken, or no address of this machine is meant."""
        bound = self._bind()
        if bound is None:
            log.warning("port %d of %s is taken: waiting for it, %g s", self._port, self._host, HTTP_BIND_WAIT_S)
        deadline = time.monotonic() + HTTP_BIND_WAIT_S
        while bound is None:
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"http.port: {self._port} of {self._host} is taken by another process, perhaps a second sidecar: "
                    "give this one another with --http-port PORT, or none with --http-port 0"
                )
            time.sleep(HTTP_BIND_RETRY_S)
            bound = self._bind()
        self._thread = threading.Thread(target=self._run, args=(bound,), name="http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End in good order, whatever is being answered. REQUIRES: it was started."""
        assert self._thread is not None, "a server that was not started is not stopped"
        self._server.should_exit = True
        self._thread.join(HTTP_STOP_S)

    def _run(self, bound: socket.socket) -> None:
        log.info("metrics, probes and the API: http://%s:%d", self._host, bound.getsockname()[1])
        with bound:
            self._server.run(sockets=[bound])

    def _bind(self) -> socket.socket | None:
        """The listening socket, or None: somebody else has the port. Raises ConfigError."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            return socket.create_server((self._host, self._port), family=family)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise ConfigError(f"http: cannot listen on {self._host}:{self._port} ({error.strerror})") from error
