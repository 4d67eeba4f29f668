"""Serves HTTP while a process runs. A process without a port does not load the libraries.

Thread rule: entered and left by the main thread.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from postdate.sidecar.config.settings import HttpConfig
from postdate.sidecar.http.process import Process


def check(http: HttpConfig) -> None:
    """Raises ConfigError if the token or the certificate of this configuration cannot be read."""
    if http.port:
        from postdate.sidecar.http.access import require_token
        from postdate.sidecar.http.tls import require_tls

        require_token(http)
        require_tls(http)


@contextmanager
def serving(process: Process, bound: socket.socket | None) -> Iterator[None]:
    """Serve while the block runs, if a port is configured. `bound`: the result of `port.claim`."""
    if not process.config.http.port:
        yield
        return
    from postdate.sidecar.http.server import HttpServer

    server = HttpServer(process, bound)
    server.start()
    try:
        yield
    finally:
        server.stop()
        process.controls.close()
