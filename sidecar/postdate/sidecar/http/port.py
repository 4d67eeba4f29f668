"""The listening socket of a process, had before it joins its group: the group is told an address only where it is ours.

A port that somebody else has is not fit to be told: the others would ask whoever listens there, and pass on the token
of the question. So a process that did not get its port joins without an address.

Thread rule: pure but for the socket; called by the main thread, and by the server's own where the port was taken.
"""

from __future__ import annotations

import errno
import logging
import socket

from postdate.sidecar.config.settings import HttpConfig
from postdate.sidecar.errors import ConfigError

log = logging.getLogger(__name__)


def claim(http: HttpConfig) -> socket.socket | None:
    """The listening socket; None, with a warning, where somebody else has the port, and without one where none is
    configured. Raises ConfigError: no address of this machine is meant."""
    if not http.port:
        return None
    bound = listen(http)
    if bound is None:
        log.warning(
            "port %d of %s is taken: this process delivers, but serves no metrics, probes and API until the port is "
            "free, and the others do not ask it until it is started again; another port by --http-port, none by "
            "--http-port 0",
            http.port,
            http.host,
        )
    return bound


def listen(http: HttpConfig) -> socket.socket | None:
    """The listening socket, or None: somebody else has the port. Raises ConfigError as `claim`."""
    family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
    try:
        return socket.create_server((http.host, http.port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise ConfigError(f"http: cannot listen on {http.host}:{http.port} ({error.strerror})") from error
