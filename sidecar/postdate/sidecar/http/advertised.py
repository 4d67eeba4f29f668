"""The address under which other processes of the deployment reach this process's HTTP port. It is appended to the
client id of the group consumer.

Thread rule: pure, except for one query to the system's routing table.
"""

from __future__ import annotations

import ipaddress
import socket
from contextlib import closing, suppress

from postdate.sidecar.config.settings import Config


def advertised_address(config: Config) -> str:
    """HOST:PORT of this process for others; empty if it serves no port.

    The host is `http.advertise` if set, otherwise `http.host`. If that means every address of the machine, it is the
    local address of the route to Kafka, since every group member can reach Kafka.
    """
    http = config.http
    if not http.port:
        return ""
    host = http.advertise or http.host
    if _is_wildcard(host):
        host = _way_to(config.kafka.bootstrap_servers) or socket.gethostname()
    return f"[{host}]:{http.port}" if ":" in host else f"{host}:{http.port}"


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _way_to(servers: str) -> str:
    """The local address of the route to the first server of a list that has a route; empty if none has."""
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        with suppress(OSError, ValueError):
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
            with closing(socket.socket(found[0], socket.SOCK_DGRAM)) as probe:
                probe.connect(found[4])  # queries the routing table; a datagram socket sends nothing here
                address: str = probe.getsockname()[0]
                return address
    return ""
