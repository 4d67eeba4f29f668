"""A TCP proxy between a sidecar and the broker. It delays, stalls or cuts connections, in one or both directions, and
can hold a single request.

Kafka's requests are frames: a length of 4 bytes, then the API key in 2 bytes. In the direction of the broker the proxy
detects the start of each frame, so that it can hold one. While it holds a frame, either the connection waits, or the
client loses its connection. In the second case the proxy later sends the frame on its old connection to the broker,
like a copy that was delayed in the network (KAFKA-17754).

During a cut the proxy neither reads nor writes: the kernel's buffers fill, and their content arrives after the cut, as
after a retransmission. The proxy cannot lose packets. A stall of 200 ms, TCP's minimum retransmission time-out, has the
same effect on a receiver.

Thread rule: one separate thread serves all connections; the methods may be called from any other.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

PRODUCE, END_TXN = 0, 26

_CHUNK_BYTES = 256 * 1024
#: The proxy stops reading a direction while this many bytes wait to be sent.
_WAITING_BYTES_MAX = 4 * 1024 * 1024
_STALL_S = 0.2
_RESET = struct.pack("ii", 1, 0)


@dataclass
class Hold:
    """Holds one request: the next one with this API key, after the first `skip` of them have passed."""

    api_key: int
    lose_client: bool
    skip: int = 0
    caught: threading.Event = field(default_factory=threading.Event)
    answered: threading.Event = field(default_factory=threading.Event)
    error_code: int = -1
    """The error code of the broker's response to the late copy of an EndTxn; 0: success."""
    released: bool = False


@dataclass(eq=False)
class _Pipe:
    """One direction of a connection."""

    source: socket.socket
    sink: socket.socket
    to_broker: bool
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    waiting_bytes: int = 0
    ended: bool = False
    partial: bytearray = field(default_factory=bytearray)
    passing: int = 0
    """The number of bytes still to forward of a frame whose first bytes have been forwarded."""
    held: Hold | None = None
    behind: list[bytes] = field(default_factory=list)
    """The held frame, and the bytes after it."""


class _Link:
    """A client's connection, and the corresponding connection to the broker."""

    def __init__(self, client: socket.socket, broker: socket.socket) -> None:
        self.client, self.broker = client, broker
        self.up = _Pipe(client, broker, True)
        self.down = _Pipe(broker, client, False)
        self.kept: tuple[Hold, bytes] | None = None


class Proxy:
    """Listens on a new port as soon as it is constructed; `serve` sets the address of the broker."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._broker_port = 0
        self._chance = chance or random.Random(0)
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_in.setblocking(False)
        self._links: set[_Link] = set()
        self._holds: list[Hold] = []
        self._cut_up = self._cut_down = False
        self._delay_s = (0.0, 0.0)
        self._stall_share = 0.0
        self._throttled: dict[bytes, float] = {}
        self._free_at: dict[bytes, float] = {}
        self._drop = self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"proxy {self.port}", daemon=True)

    def serve(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join(10)
        for closing in (self._listener, self._wake_in, self._wake_out):
            closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- faults ----------------------------------------------------------------------------------------------------

    def cut(self, to_broker: bool = True, to_client: bool = True) -> None:
        """Cuts these directions; connections stay open."""
        self._cut_up, self._cut_down = to_broker, to_client
        self._wake()

    def delay(self, least_ms: float, most_ms: float, stall_share: float = 0.0) -> None:
        """Delays each direction by `least_ms` to `most_ms`; the share `stall_share` of the chunks stalls as after a
        lost packet."""
        self._delay_s, self._stall_share = (least_ms / 1000, most_ms / 1000), stall_share

    def throttle(self, topic: str, bytes_per_second: float) -> None:
        """Limits the rate of produce requests for this topic. Later requests on the same connection wait as well, as
        they do if a broker is slow for one partition."""
        self._throttled[topic.encode()] = bytes_per_second

    def heal(self) -> None:
        """Ends cuts, delays and throttling; held requests stay held."""
        self._throttled.clear()
        self._cut_up = self._cut_down = False
        self._delay_s, self._stall_share = (0.0, 0.0), 0.0
        self._wake()

    def drop(self) -> None:
        """Resets all connections."""
        self._drop = True
        self._wake()

    def hold(self, api_key: int, *, lose_client: bool, skip: int = 0) -> Hold:
        """Holds one request; sets `caught` when it arrives. With `lose_client` the proxy closes the client's connection
        at once; otherwise the connection waits."""
        hold = Hold(api_key, lose_client, skip)
        self._holds.append(hold)
        return hold

    def release(self, hold: Hold) -> None:
        """Forwards the held request. If its client was disconnected, sets `answered` when the broker has responded."""
        hold.released = True
        self._wake()

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        with suppress(OSError):
            self._wake_out.send(b"x")

    def _run(self) -> None:
        while not self._closing:
            readers, writers, wait_s = self._wanted()
            ready = set(select.select(readers, writers, (), wait_s)[0])
            if self._wake_in in ready:
                with suppress(BlockingIOError):
                    self._wake_in.recv(4096)
            if self._drop:
                self._drop = False
                for link in list(self._links):
                    self._end(link)
                continue
            if self._listener in ready:
                self._accept()
            self._serve_links(ready)
        for link in list(self._links):
            self._end(link)

    def _wanted(self) -> tuple[list[socket.socket], list[socket.socket], float]:
        """Returns the sockets to wait for, and the maximum time to wait."""
        now, wait_s = time.monotonic(), 0.5
        readers = [self._wake_in, self._listener]
        writers: list[socket.socket] = []
        for link in self._links:
            if link.kept is not None:
                readers.append(link.broker)
                continue
            for pipe in (link.up, link.down):
                if self._cut_up if pipe.to_broker else self._cut_down:
                    continue
                if not pipe.ended and pipe.waiting_bytes < _WAITING_BYTES_MAX:
                    readers.append(pipe.source)
                if pipe.waiting and pipe.waiting[0][0] <= now:
                    writers.append(pipe.sink)
                elif pipe.waiting:
                    wait_s = min(wait_s, pipe.waiting[0][0] - now)
        return readers, writers, wait_s

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # the client has closed the connection already
            return
        try:
            broker = socket.create_connection(("127.0.0.1", self._broker_port), timeout=2)
        except OSError:  # the broker is down, so the proxy refuses the connection too
            client.close()
            return
        for each in (client, broker):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._links.add(_Link(client, broker))

    def _serve_links(self, ready: set[socket.socket]) -> None:
        for link in list(self._links):
            try:
                if link.kept is not None:
                    self._serve_kept(link, link.kept, link.broker in ready)
                    continue
                for pipe in (link.up, link.down):
                    self._serve_pipe(link, pipe, ready)
            except OSError:
                self._end(link)

    def _serve_pipe(self, link: _Link, pipe: _Pipe, ready: set[socket.socket]) -> None:
        if pipe.held is not None and pipe.held.released:
            pipe.held = None
            behind, pipe.behind = pipe.behind, []
            for frame in behind:
                self._push(pipe, frame, self._throttled_until(frame))
        cut = self._cut_up if pipe.to_broker else self._cut_down
        if not cut and not pipe.ended and pipe.source in ready:
            try:
                data = pipe.source.recv(_CHUNK_BYTES)
            except BlockingIOError:
                data = None
            if data == b"":
                pipe.ended = True
            elif data and not pipe.to_broker:
                self._push(pipe, data)
            elif data and self._take_requests(link, pipe, data):
                return
        if not cut:
            _flush(pipe)
        if pipe.ended and not pipe.waiting and not pipe.behind:
            self._end(link)

    def _take_requests(self, link: _Link, pipe: _Pipe, data: bytes) -> bool:
        """Forwards a client's requests, frame by frame; returns True if it disconnected the client to hold a
        request."""
        if pipe.passing:
            taken = data[: pipe.passing]
            pipe.passing -= len(taken)
            self._push(pipe, taken)
            data = data[len(taken) :]
        pipe.partial += data
        while len(pipe.partial) >= 6:
            size = 4 + int.from_bytes(pipe.partial[:4], "big")
            if len(pipe.partial) < size and (self._holds or pipe.held or self._throttled):
                break
            frame = bytes(pipe.partial[:size])
            del pipe.partial[:size]
            pipe.passing = size - len(frame)
            hold = self._hold_for(int.from_bytes(frame[4:6], "big")) if pipe.held is None else None
            if hold is not None and hold.lose_client:
                self._keep(link, hold, frame)
                return True
            if hold is not None:
                pipe.held = hold
                hold.caught.set()
            if pipe.held is not None:
                pipe.behind.append(frame)
            else:
                self._push(pipe, frame, self._throttled_until(frame))
        return False

    def _throttled_until(self, frame: bytes) -> float:
        """Returns the time at which the rate of its topic lets a request pass; 0: immediately."""
        if not self._throttled or int.from_bytes(frame[4:6], "big") != PRODUCE:
            return 0.0
        until = 0.0
        for topic, bytes_per_second in self._throttled.items():
            if topic in frame:
                until = max(self._free_at.get(topic, 0.0), time.monotonic()) + len(frame) / bytes_per_second
                self._free_at[topic] = until
        return until

    def _hold_for(self, api_key: int) -> Hold | None:
        for hold in self._holds:
            if hold.api_key == api_key:
                if hold.skip == 0:
                    self._holds.remove(hold)
                    return hold
                hold.skip -= 1
                return None
        return None

    def _keep(self, link: _Link, hold: Hold, frame: bytes) -> None:
        """Closes the client's side, and keeps the broker's side open for the current frame."""
        while link.up.waiting:  # earlier data must arrive before the held frame
            _flush(link.up, at_once=True)
        _reset(link.client)
        link.kept = (hold, frame)
        hold.caught.set()

    def _serve_kept(self, link: _Link, kept: tuple[Hold, bytes], readable: bool) -> None:
        hold, frame = kept
        if hold.released and frame:
            if readable:  # a response to an earlier request
                link.broker.recv(_CHUNK_BYTES)
            link.broker.sendall(frame)
            link.kept = (hold, b"")
            return
        if not readable:
            return
        answer = link.broker.recv(_CHUNK_BYTES)
        if hold.released:  # length 4, correlation id 4, throttle time 4, error code 2
            hold.error_code = int.from_bytes(answer[12:14], "big", signed=True) if len(answer) >= 14 else -1
            hold.answered.set()
        if hold.released or not answer:
            hold.answered.set()
            self._end(link)

    def _push(self, pipe: _Pipe, data: bytes, not_before: float = 0.0) -> None:
        least, most = self._delay_s
        wait_s = self._chance.uniform(least, most) if most else 0.0
        if self._stall_share and self._chance.random() < self._stall_share:
            wait_s += _STALL_S
        at = max(time.monotonic() + wait_s if wait_s else 0.0, not_before)
        if pipe.waiting:
            at = max(at, pipe.waiting[-1][0])
        pipe.waiting.append((at, data))
        pipe.waiting_bytes += len(data)

    def _end(self, link: _Link) -> None:
        self._links.discard(link)
        for each in (link.client, link.broker):
            _reset(each)


def _flush(pipe: _Pipe, at_once: bool = False) -> None:
    """Sends as much of the data whose delay is over as the other side accepts."""
    now = time.monotonic()
    while pipe.waiting and (at_once or pipe.waiting[0][0] <= now):
        at, data = pipe.waiting[0]
        try:
            sent = pipe.sink.send(data)
        except BlockingIOError:
            return
        pipe.waiting_bytes -= sent
        if sent == len(data):
            pipe.waiting.popleft()
        else:
            pipe.waiting[0] = (at, data[sent:])


def _reset(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    sock.close()
