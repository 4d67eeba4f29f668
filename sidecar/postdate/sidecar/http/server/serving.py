"""Serves HTTP while a process runs, on one port or two. A process without a port does not load the HTTP libraries.

Thread rule: entered and left by the main thread.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from postdate.sidecar.config.settings import HttpConfig
from postdate.sidecar.http.port import claim_probes
from postdate.sidecar.http.process_state import ProcessState


def check(http: HttpConfig) -> None:
    """Raises ConfigError if the token or the certificate of this configuration cannot be read."""
    if http.port:
        from postdate.sidecar.http.access.access import require_token
        from postdate.sidecar.http.access.tls import require_tls

        require_token(http)
        require_tls(http)


@contextmanager
def serving(process: ProcessState, bound: socket.socket | None) -> Iterator[None]:
    """Serves while the block runs, on the configured ports. `bound`: the result of `port.claim`. Raises ConfigError if
    the probe port cannot be used."""
    http = process.config.http
    if not http.port and not http.probe_port:
        yield
        return
    from postdate.sidecar.http.server.server import HttpServer

    servers = [HttpServer(process, claim_probes(http), probes_only=True)] if http.probe_port else []
    servers += [HttpServer(process, bound)] if http.port else []
    for server in servers:
        server.start()
    try:
        yield
    finally:
        for server in servers:
            server.stop()
        process.controls.close()
