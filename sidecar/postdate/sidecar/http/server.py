"""The HTTP server of a process: a thread of its own beside the poll loop, which serves nothing that delivery waits for.

A port that is taken does not keep a process from delivering: it says so once and tries again. On a machine with
several processes each needs its own.

Thread rule: `start` and `stop` from the main thread.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading

import uvicorn

from postdate.sidecar.errors import ConfigError
from postdate.sidecar.http.app import make_app
from postdate.sidecar.http.limits import HTTP_BIND_RETRY_S, HTTP_CONNECTIONS_MAX, HTTP_STOP_S
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
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._first: socket.socket | None = None

    def start(self) -> None:
        """Begin to serve, or to try. Raises ConfigError: no address of this machine is meant."""
        self._first = self._bind()
        if self._first is None:
            log.warning(
                "port %d of %s is taken: nothing is served over HTTP until it is free; another one by --http-port, "
                "none by --http-port 0",
                self._port,
                self._host,
            )
        self._thread.start()

    def stop(self) -> None:
        """End in good order, whatever is being answered."""
        self._stopping.set()
        self._server.should_exit = True
        self._thread.join(HTTP_STOP_S)

    def _run(self) -> None:
        bound = self._first
        while bound is None:
            if self._stopping.wait(HTTP_BIND_RETRY_S):
                return
            bound = self._bind()
        log.info("metrics, probes and the API: http://%s:%d", self._host, bound.getsockname()[1])
        with bound:
            self._server.run(sockets=[bound])

    def _bind(self) -> socket.socket | None:
        """The listening socket, or None: somebody else has the port."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            return socket.create_server((self._host, self._port), family=family)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise ConfigError(f"http: cannot listen on {self._host}:{self._port} ({error.strerror})") from error
