"""Floods of the HTTP port: many connections from one address, each held for as long as the server allows.

A flood runs in a separate process, so it does not delay the threads of the server and of the test.

    PYTHONPATH=tests python -m support.web.flooding PORT TOKEN REOPENED KIND...
"""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from support.waiting.timeouts import WAIT_TIMEOUT_S

#: Connections of one flood.
FLOOD = 2_000

#: Seconds: the time between two rounds. In a round, each connection sends more bytes, and some of the connections that
#: the server closed are opened again.
_ROUND_S = 0.5

#: Connections that are opened again in one round, unless the caller asks for more.
REOPENED = 50


def kinds(token: str) -> dict[str, tuple[bytes, bytes]]:
    """Returns, for each kind of connection, the bytes that it sends when it opens, and in each round. `token`: a valid
    token."""
    head = b"GET /api/v1/pending HTTP/1.1\r\nHost: localhost\r\n"
    post = (
        b"POST /api/v1/hold HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
        + token.encode()
        + b"\r\nContent-Length: 16000\r\n\r\n"
    )
    return {
        "silent": (b"", b""),
        "slow head": (head, b"X-A: b\r\n"),
        "slow body": (post, b" "),
        "long head": (head + b"X-A: " + b"a" * 100_000, b"a" * 100_000),
        "long body": (post.replace(b"16000", b"1000000000"), b"x" * 100_000),
        "pipelined": (head + b"\r\n", (head + b"\r\n") * 20),
        "no HTTP": (b"\x16\x03\x01\r\n\r\n", b"\r\n\r\n"),
    }


@contextmanager
def flood(port: int, token: str, *names: str, reopened: int = REOPENED) -> Iterator[None]:
    """Keeps FLOOD connections of these kinds, in turn, to a port of this machine, until the block ends. `reopened`: the
    number of closed connections that are opened again in each round."""
    flooding = subprocess.Popen(
        [sys.executable, "-m", "support.web.flooding", str(port), token, str(reopened), *names],
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with flooding:
        assert flooding.stdout is not None
        assert flooding.stdout.readline() == b"flooding\n"
        yield
        assert flooding.poll() is None, "it floods to the end"
        _, _ = flooding.communicate(timeout=WAIT_TIMEOUT_S)
    assert flooding.returncode == 0


class _Flood:
    def __init__(self, port: int, sends: Sequence[tuple[bytes, bytes]], reopened: int) -> None:
        self._port = port
        self._reopened = reopened
        self._sends = sends
        self._open: list[socket.socket | None] = [None] * FLOOD

    def open(self, most: int) -> None:
        """Opens at most `most` of the closed connections."""
        closed = (number for number in range(FLOOD) if self._open[number] is None)
        for number in islice(closed, most):
            self._open[number] = self._connect(self._sends[number % len(self._sends)][0])

    def round(self) -> None:
        """Sends more on the open connections, and reopens some of the closed ones."""
        for number in range(FLOOD):
            more = self._sends[number % len(self._sends)][1]
            connection = self._open[number]
            if connection is not None and not self._goes_on(connection, more):
                connection.close()
                self._open[number] = None
        self.open(self._reopened)

    def _connect(self, first: bytes) -> socket.socket | None:
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", self._port), WAIT_TIMEOUT_S)
            connection.setblocking(False)
            with suppress(OSError):
                connection.send(first)
            return connection
        return None

    def _goes_on(self, connection: socket.socket, more: bytes) -> bool:
        """Sends `more`. False if the server has closed the connection. Its answers
        stay unread, so that the flood holds the connection for as long as the server allows."""
        try:
            connection.send(more)
            return connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


def main(port: str, token: str, reopened: str, *names: str) -> None:
    """Floods until standard input ends."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 2 * FLOOD), limit))
    sends = [kinds(token)[name] for name in names]
    connections, over = _Flood(int(port), sends, int(reopened)), threading.Event()

    def end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=end, daemon=True).start()
    connections.open(FLOOD)
    print("flooding", flush=True)
    while not over.is_set():
        began = time.monotonic()
        connections.round()
        over.wait(max(_ROUND_S - (time.monotonic() - began), 0.0))


if __name__ == "__main__":
    main(*sys.argv[1:])
