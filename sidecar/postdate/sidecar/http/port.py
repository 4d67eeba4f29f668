"""Binds the sockets of a process's ports, and determines the address at which other processes reach the process.

The socket is bound before the process joins its group. The process appends its address to the client id of its group
consumer only if it owns the port; otherwise other processes would query the program that uses the port.

Thread rule: the module has no state. The main thread calls `claim` and `claim_probes`. The thread of the server calls
`listen` if the port was in use. Any thread may call `advertised_address`, which may look up host names and routes.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from contextlib import closing, suppress

from postdate.sidecar.config.settings import Config, HttpConfig
from postdate.sidecar.errors import ConfigError

log = logging.getLogger(__name__)


def claim(http: HttpConfig) -> socket.socket | None:
    """Returns the listening socket; None if no port is configured. If the port is in use, logs a warning and returns
    None. Raises ConfigError if the socket cannot be bound for another reason, such as an address of another machine."""
    if not http.port:
        return None
    bound = listen(http.host, http.port)
    if bound is None:
        log.warning(
            "port %d of %s is taken: this process delivers, but serves no metrics, probes and API until the port is "
            "free, and the others do not query it until it is restarted; choose another port with --http-port, or none "
            "with --http-port 0",
            http.port,
            http.host,
        )
    return bound


def claim_probes(http: HttpConfig) -> socket.socket | None:
    """Does the same as `claim` for the probe port."""
    if not http.probe_port:
        return None
    bound = listen(http.host, http.probe_port)
    if bound is None:
        log.warning("port %d of %s is taken: probes are not answered until it is free", http.probe_port, http.host)
    return bound


def listen(host: str, port: int) -> socket.socket | None:
    """Returns the listening socket; None if the port is in use. Raises ConfigError as `claim` does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise ConfigError(f"http: cannot listen on {host}:{port} ({error.strerror})") from error


def advertised_address(config: Config) -> str:
    """Returns HOST:PORT of this process for other processes; empty if `http.port` is 0.

    The host is `http.advertise` if set, otherwise `http.host`. If the host is a wildcard address, the result has the
    local address of the route to Kafka instead, or the host name of the machine if there is no route.
    """
    http = config.http
    if not http.port:
        return ""
    host = http.advertise or http.host
    if _is_wildcard(host):
        host = _route_to(config.kafka.bootstrap_servers) or socket.gethostname()
    return f"[{host}]:{http.port}" if ":" in host else f"{host}:{http.port}"


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _route_to(servers: str) -> str:
    """Returns the local address of the route to the first server in a list that has one; empty if no server has a
    route."""
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        with suppress(OSError, ValueError):
            info = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
            with closing(socket.socket(info[0], socket.SOCK_DGRAM)) as probe:
                probe.connect(info[4])  # queries the routing table; a datagram socket sends nothing here
                address: str = probe.getsockname()[0]
                return address
    return ""
