"""A word for a person who waits: none of the addresses given for Kafka takes a connection.

The client library tries for as long as it was given, which is right for a broker that is about to start and looks like
nothing at all where an address is mistyped. So while a first question waits, somebody else looks once at the addresses
and says why they cannot be reached. He decides nothing: the question goes on, and its own error ends it.

Thread rule: the look has a thread of its own, which is over, or has become silent, when the `with` block ends.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LOOK_AFTER_S: Final = 1.0
"""A cluster that runs has answered by then, and nobody is told of a broker that was only just not up."""
CONNECT_TIMEOUT_S: Final = 3.0
"""For each address: what drops packets instead of refusing answers never."""


@contextmanager
def told_of_silence(bootstrap_servers: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Tells what is wrong with the addresses where the block takes longer than a moment and none of them can be
    connected to."""
    over = threading.Event()

    def look() -> None:
        if over.wait(LOOK_AFTER_S):
            return
        why = unreachable(bootstrap_servers.split(","))
        if why and not over.is_set():
            tell(f"no connection to Kafka yet, still trying: {why}")

    if bootstrap_servers:
        threading.Thread(target=look, name="silence", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def unreachable(addresses: list[str]) -> str:
    """Why none of these takes a connection, one reason for each; empty where one does."""
    reasons = []
    for address in addresses:
        host, _, port = address.strip().rpartition("://")[2].rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
        except ValueError:
            reasons.append(f"{address.strip()} is no HOST:PORT")
        except OSError as error:
            reasons.append(f"{address.strip()}: {error.strerror or error}")
        else:
            return ""
    return "; ".join(reasons)
