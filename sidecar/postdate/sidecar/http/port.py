"""Binds the HTTP socket before the process joins its group, so that it never advertises an address that it does not
own.

If another program has the port, the other processes would send their queries to that program. So a process that could
not bind its port joins without an address.

Thread rule: no state but the socket; called by the main thread, and by the server's thread if the port was in use.
"""

from __future__ import annotations

import errno
import logging
import socket

from postdate.sidecar.config.settings import HttpConfig
from postdate.sidecar.errors import ConfigError

log = logging.getLogger(__name__)


def claim(http: HttpConfig) -> socket.socket | None:
    """The listening socket; None if no port is configured, or, with a warning, if the port is in use. Raises
    ConfigError if the address is not one of this machine."""
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
    """The listening socket, or None if the port is in use. Raises ConfigError as `claim`."""
    family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
    try:
        return socket.create_server((http.host, http.port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise ConfigError(f"http: cannot listen on {http.host}:{http.port} ({error.strerror})") from error
