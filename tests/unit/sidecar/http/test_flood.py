"""Goal: no load on the HTTP port delays a probe, and no client holds a connection for longer than it may.

Method: the real server on a port of this machine. A flood (`support/web/flooding.py`) opens 2,000 connections of one
kind, sends on them, and reopens some of the connections that the server closes. Meanwhile probes connect, one after the
other. Their durations are compared with durations without a flood. The time in which other programs used the processors
(`support/waiting/contention.py`) does not count.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from postdate.sidecar.http.server import acceptor, connections
from postdate.sidecar.http.server import admission as gate
from support.deployments.sidecars import wait_until
from support.waiting.contention import watch_contention
from support.waiting.timeouts import WAIT_TIMEOUT_S
from support.web import flooding
from support.web.http_server import TOKEN, HttpServerUnderTest, is_closed
from support.web.http_steps import Client

_PROBES = 60
_MORE_MS = 100.0

_KINDS = flooding.kinds(TOKEN)
_HEAD, _POST = _KINDS["slow head"][0], _KINDS["slow body"][0]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    with ExitStack() as stack:
        yield Client(HttpServerUnderTest(stack).serve(path).port, TOKEN)


@pytest.fixture
def no_request_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the server wait for requests for longer than a test lasts, so that only a bound ends a connection."""
    for module in (acceptor, connections):
        monkeypatch.setattr(module, "HTTP_REQUEST_S_MAX", 2 * WAIT_TIMEOUT_S)


def connect(client: Client, first: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", client.port), WAIT_TIMEOUT_S)
    connection.sendall(first)
    return connection


def probe(client: Client) -> list[tuple[float, float]]:
    """Sends _PROBES probes, each on a new connection as Kubernetes does. Returns the start and the end of each probe,
    epoch ms."""
    times = []
    for number in range(_PROBES):
        began = time.time() * 1000
        answer = client.get(("/healthz", "/readyz")[number % 2])
        times.append((began, time.time() * 1000))
        assert answer.status == 200, answer.text
    return times


@pytest.mark.parametrize(
    ("kind", "reopened"),
    [
        *((kind, flooding.REOPENED) for kind in _KINDS if kind != "pipelined"),
        *((kind, flooding.FLOOD) for kind in ("silent", "slow head", "no HTTP")),
    ],
)
def test_no_flood_keeps_a_probe_from_its_answer(client: Client, kind: str, reopened: int) -> None:
    with watch_contention() as watch:
        quiet = probe(client)
        with flooding.flood(client.port, TOKEN, kind, reopened=reopened):
            flooded = probe(client)
        waits = watch.most()
    quiet_ms, flooded_ms = (
        np.percentile(waits.undisturbed([began for began, _ in times], [ended for _, ended in times]), (50, 99, 100))
        for times in (quiet, flooded)
    )
    print(f"ms, p50, p99, most: {quiet_ms.round(1)} without the flood, {flooded_ms.round(1)} in it")
    assert flooded_ms[1] < quiet_ms[1] + _MORE_MS
    assert client.get("/api/v1/pending").status == 200


def test_probes_are_answered_while_whole_requests_flood_the_port(client: Client) -> None:
    """The answers to the requests of the flood use the processor, so the duration of a probe has no bound here."""
    with flooding.flood(client.port, TOKEN, "pipelined"):
        probe(client)
    wait_until(lambda: client.get("/api/v1/pending").status == 200, "the flood is over")


@pytest.mark.usefixtures("no_request_timeout")
@pytest.mark.parametrize(
    ("where", "bound", "first"),
    [(acceptor, "HTTP_WAITING_MAX", b""), (connections, "HTTP_CONNECTIONS_MAX", _HEAD)],
    ids=["that wait", "that have started"],
)
def test_a_client_with_many_connections_displaces_only_its_own(
    client: Client, monkeypatch: pytest.MonkeyPatch, where: ModuleType, bound: str, first: bytes
) -> None:
    """A connection waits until its client sends the first bytes, and then starts. Waiting and started connections have
    separate bounds."""
    monkeypatch.setattr(where, bound, 20)
    rest = (_HEAD + b"\r\n").removeprefix(first)
    with ExitStack() as stack:
        other = stack.enter_context(connect_from_elsewhere(client))
        other.sendall(first)
        many = [stack.enter_context(connect(client, first)) for _ in range(100)]
        assert is_closed(many[0])
        for connection in (other, many[-1]):
            connection.sendall(rest)
            assert connection.recv(100).startswith(b"HTTP/1.1 200")


def connect_from_elsewhere(client: Client) -> socket.socket:
    """Returns a connection from a second client address."""
    connection = socket.socket()
    connection.bind(("127.0.0.2", 0))
    connection.settimeout(WAIT_TIMEOUT_S)
    connection.connect(("127.0.0.1", client.port))
    return connection


@dataclass
class Turns:
    """Controls the turns of the acceptor: no connection starts before `begin` is set. `waiting`: how many waiting
    clients have sent bytes. `ports`: the ports of the clients, in the order in which they started."""

    begin: threading.Event = field(default_factory=threading.Event)
    waiting: int = 0
    ports: list[int] = field(default_factory=list)


@pytest.fixture
def turns(client: Client, monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Holds the turns of the acceptor. REQUIRES: the server has started, since its start takes one turn."""
    turns, turn, start = Turns(), acceptor.Acceptor._turn, acceptor.Acceptor._start

    def held_turn(self: acceptor.Acceptor) -> None:
        turns.waiting = sum(waiting.has_sent for waiting in self._waiting.values())
        if turns.begin.is_set():
            turn(self)

    def noted_start(self: acceptor.Acceptor, connection: socket.socket) -> None:
        turns.ports.append(connection.getpeername()[1])
        start(self, connection)

    monkeypatch.setattr(acceptor.Acceptor, "_turn", held_turn)
    monkeypatch.setattr(acceptor.Acceptor, "_start", noted_start)
    return turns


@pytest.mark.usefixtures("no_request_timeout")
@pytest.mark.parametrize("who", ["a probe", "another address"])
def test_a_probe_and_another_address_overtake_a_queue_of_connections(client: Client, turns: Turns, who: str) -> None:
    """Each turn starts four connections and all probes, so a hundred connections of one address take 25 turns. The
    newcomer connects last and starts in the first turn."""
    with ExitStack() as stack:
        many = [stack.enter_context(connect(client, _HEAD + b"\r\n")) for _ in range(100)]
        if who == "a probe":
            newcomer = connect(client, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        else:
            newcomer = connect_from_elsewhere(client)
            newcomer.sendall(_HEAD + b"\r\n")
        stack.enter_context(newcomer)
        wait_until(lambda: turns.waiting == 101, "all wait")
        turns.begin.set()
        stack.enter_context(connect(client))  # begins a turn
        assert newcomer.recv(100).startswith(b"HTTP/1.1 200")
        assert turns.ports.index(newcomer.getsockname()[1]) < 5
        many[-1].settimeout(WAIT_TIMEOUT_S)
        assert many[-1].recv(100).startswith(b"HTTP/1.1 200"), "the queue is served after the newcomer"


@pytest.mark.usefixtures("no_request_timeout")
def test_probes_keep_their_places_in_a_full_queue(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "HTTP_TURN_S", 0.5)
    monkeypatch.setattr(acceptor, "HTTP_WAITING_MAX", 20)
    with ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(connect(client, _HEAD))
        probing = stack.enter_context(connect(client, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        for _ in range(30):
            stack.enter_context(connect(client, _HEAD))
        assert probing.recv(100).startswith(b"HTTP/1.1 200")


def test_a_port_without_descriptors_accepts_again_when_some_are_free(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(acceptor, "HTTP_ACCEPT_RETRY_S", 0.1)
    accepts = [0]
    real_accept = socket.socket.accept

    def accept(self: socket.socket) -> object:
        accepts[0] += 1
        if accepts[0] <= 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return real_accept(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    assert client.get("/healthz").status == 200
    assert sum("accepts no connections" in record.message for record in caplog.records) == 2


# ---- time-outs -------------------------------------------------------------------------------------------------------


def drip(connection: socket.socket, piece: bytes, *, reads: bool = True) -> bool:
    """Sends the piece again and again. True if the server closes the connection within WAIT_TIMEOUT_S."""
    connection.setblocking(False)
    deadline = time.monotonic() + WAIT_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            connection.send(piece)
            if reads and not connection.recv(65_536):
                return True
        except BlockingIOError:
            pass
        except OSError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("first", "more"),
    [
        *_KINDS.values(),
        (b"", b"\r\n"),
        (_POST.replace(b"hold", b"pending"), b"x"),  # answered 405 before its body
        (_POST.replace(b"Bearer", b"Basic"), b"x"),  # answered 401 before its body
    ],
)
def test_the_connection_of_a_request_that_is_not_complete_in_time_is_closed(
    client: Client, monkeypatch: pytest.MonkeyPatch, first: bytes, more: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "HTTP_REQUEST_S_MAX", 0.3)
    monkeypatch.setattr(acceptor, "HTTP_REQUEST_S_MAX", 0.3)
    with connect(client, first) as connection:
        assert is_closed(connection) if not more or more == (_HEAD + b"\r\n") * 20 else drip(connection, more)
    assert not [record for record in caplog.records if record.exc_info], "no client causes a traceback in the log"


def test_the_connection_of_a_client_that_does_not_read_its_answer_is_closed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HTTP_ANSWER_S_MAX", 0.3)
    request = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(client) as connection:
        assert drip(connection, request * 100, reads=False)


# ---- bounds of requests ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_request_timeout")
@pytest.mark.parametrize(("bound", "status"), [("HTTP_REQUESTS_PER_ADDRESS_MAX", 429), ("HTTP_REQUESTS_MAX", 503)])
def test_requests_beyond_a_bound_are_refused_and_probes_are_not(
    client: Client, monkeypatch: pytest.MonkeyPatch, bound: str, status: int
) -> None:
    monkeypatch.setattr(gate, bound, 3)
    with ExitStack() as stack:
        busy = [stack.enter_context(connect(client, _POST)) for _ in range(3)]
        wait_until(lambda: client.get("/api/v1/openapi.json").status == status, "three are in progress")
        refused = client.get("/api/v1/pending")
        assert (refused.status, refused.headers["retry-after"]) == (status, "1")
        assert "in progress; try again" in refused.json["error"]
        assert [client.get(path).status for path in ("/healthz", "/readyz")] == [200, 200]
        if status == 429:
            with connect_from_elsewhere(client) as other:
                other.sendall(_HEAD + b"\r\n")
                assert other.recv(100).startswith(b"HTTP/1.1 200")
        for connection in busy:
            connection.close()
        wait_until(lambda: client.get("/api/v1/pending").status == 200, "the three have ended")
