"""Serves HTTP while a process runs, on one port or two. A process without a port does not load the HTTP server.

Thread rule: the main thread enters and leaves `serving`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from postdate.sidecar.config.settings import HttpConfig
from postdate.sidecar.http.port import claim_probes
from postdate.sidecar.http.process_state import ProcessState


def check(http: HttpConfig) -> None:
    """Raises ConfigError if the token or the TLS files of this configuration are unusable. Checks nothing if
    `http.port` is 0."""
    if http.port:
        from postdate.sidecar.http.access.access import require_token
        from postdate.sidecar.http.access.tls import require_tls

        require_token(http)
        require_tls(http)


@contextmanager
def serving(process: ProcessState, bound: socket.socket | None) -> Iterator[None]:
    """Serves the configured ports while the block runs. `bound`: the result of `port.claim`. Raises ConfigError as
    `port.claim_probes` does, and if the certificate is unusable."""
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
