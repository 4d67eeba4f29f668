"""Goal: the proxy forwards all bytes unchanged, and applies exactly the faults that a test sets.

Method: a local server that echoes each frame, and clients that connect through the proxy. Frames are like Kafka's: a
length, then an API key.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from support.deployments.sidecars import wait_until
from support.faults.proxy import END_TXN, PRODUCE, Proxy
from support.waiting.timeouts import WAIT_TIMEOUT_S


@dataclass
class _Server:
    """Records every frame that arrives, and echoes it."""

    frames: list[bytes] = field(default_factory=list)
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    def run(self) -> None:
        while True:
            try:
                accepted, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                while True:
                    frame = _read_frame(sock)
                    self.frames.append(frame)
                    sock.sendall(frame)
            except OSError:
                return


def _read_frame(sock: socket.socket) -> bytes:
    head = _read(sock, 4)
    return head + _read(sock, int.from_bytes(head, "big"))


def _read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data


def _frame(api_key: int, body: bytes) -> bytes:
    content = api_key.to_bytes(2, "big") + body
    return len(content).to_bytes(4, "big") + content


@pytest.fixture
def server() -> Iterator[_Server]:
    server = _Server()
    threading.Thread(target=server.run, daemon=True).start()
    yield server
    server.listener.close()


@pytest.fixture
def proxy(server: _Server) -> Iterator[Proxy]:
    with Proxy() as proxy:
        proxy.serve(server.port)
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with _connect(proxy) as sock:
        yield sock


def _connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=WAIT_TIMEOUT_S)


@pytest.mark.parametrize("armed", [False, True])
def test_frames_of_all_sizes_pass_in_any_chunks(
    proxy: Proxy, server: _Server, client: socket.socket, armed: bool
) -> None:
    chance = random.Random(3)
    if armed:
        proxy.hold(END_TXN, lose_client=False)
    frames = [_frame(PRODUCE, chance.randbytes(chance.choice((0, 1, 100, 70_000, 600_000)))) for _ in range(30)]
    stream = b"".join(frames)

    def send() -> None:
        at = 0
        while at < len(stream):
            at += client.send(stream[at : at + chance.choice((1, 5, 1_000, 100_000))])

    sending = threading.Thread(target=send)
    sending.start()
    assert [_read_frame(client) for _ in frames] == frames
    sending.join()
    assert server.frames == frames


def test_a_cut_holds_all_data_which_arrives_when_it_ends(proxy: Proxy, server: _Server, client: socket.socket) -> None:
    proxy.cut()
    client.sendall(_frame(PRODUCE, b"1"))
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(1)
    assert server.frames == []
    client.settimeout(WAIT_TIMEOUT_S)
    proxy.heal()
    assert _read_frame(client) == _frame(PRODUCE, b"1")


def test_a_cut_of_the_responses_lets_requests_arrive(proxy: Proxy, server: _Server, client: socket.socket) -> None:
    proxy.cut(to_broker=False)
    client.sendall(_frame(PRODUCE, b"1"))
    wait_until(lambda: server.frames == [_frame(PRODUCE, b"1")], "the request arrives", WAIT_TIMEOUT_S)
    client.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.recv(1)


def test_a_delay_applies_in_each_direction(proxy: Proxy, client: socket.socket) -> None:
    proxy.delay(100, 101)
    began = time.monotonic()
    client.sendall(_frame(PRODUCE, b"1"))
    assert _read_frame(client) == _frame(PRODUCE, b"1")
    assert time.monotonic() - began >= 0.2


def test_a_held_request_holds_the_requests_after_it(proxy: Proxy, server: _Server, client: socket.socket) -> None:
    hold = proxy.hold(PRODUCE, lose_client=False, skip=1)
    frames = [_frame(key, b"x") for key in (PRODUCE, END_TXN, PRODUCE, END_TXN)]
    client.sendall(b"".join(frames))
    assert hold.caught.wait(WAIT_TIMEOUT_S)
    wait_until(lambda: server.frames == frames[:2], "those before it arrive", WAIT_TIMEOUT_S)
    proxy.release(hold)
    wait_until(lambda: server.frames == frames, "the others arrive when it is released", WAIT_TIMEOUT_S)


def test_a_request_whose_client_was_lost_arrives_late(proxy: Proxy, server: _Server, client: socket.socket) -> None:
    hold = proxy.hold(END_TXN, lose_client=True)
    late = _frame(END_TXN, bytes(6) + (47).to_bytes(2, "big"))
    client.sendall(_frame(PRODUCE, b"before") + late)
    assert hold.caught.wait(WAIT_TIMEOUT_S)
    with pytest.raises(ConnectionResetError):
        _read(client, 1_000)
    # Frames of two connections may arrive in any order.
    wait_until(lambda: server.frames == [_frame(PRODUCE, b"before")], "what was sent before it arrives", WAIT_TIMEOUT_S)
    with _connect(proxy) as again:
        again.sendall(_frame(END_TXN, b"again"))
        assert _read_frame(again) == _frame(END_TXN, b"again")
        proxy.release(hold)
        assert hold.answered.wait(WAIT_TIMEOUT_S)
    assert server.frames == [_frame(PRODUCE, b"before"), _frame(END_TXN, b"again"), late]
    assert hold.error_code == 47


def test_connections_are_reset_and_new_ones_pass(proxy: Proxy, client: socket.socket) -> None:
    client.sendall(_frame(PRODUCE, b"1"))
    assert _read_frame(client) == _frame(PRODUCE, b"1")
    proxy.drop()
    with pytest.raises(ConnectionResetError):
        _read(client, 1)
    with _connect(proxy) as again:
        again.sendall(_frame(PRODUCE, b"2"))
        assert _read_frame(again) == _frame(PRODUCE, b"2")


def test_the_proxy_refuses_connections_while_the_broker_is_down(server: _Server) -> None:
    server.listener.close()
    with Proxy() as proxy:
        proxy.serve(1)
        with _connect(proxy) as sock:
            assert sock.recv(1) == b""
