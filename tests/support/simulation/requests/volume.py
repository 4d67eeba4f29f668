"""Runs with thousands of requests, which reach limits that a hundred requests never reach.

Each has all of these parts, in a random order, while processes die: more due messages than one record has fates; more
controls than key 0 may have, one of which moves a message far; more entries in STORE than a rebuild takes in one batch;
and more bytes under key 0 than rule 1 allows. At the end all disks are lost.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from postdate.kafka.interface import Partition
from support.simulation.requests.traffic import REQUESTS, SimulatedRequest, SimulatedTraffic

if TYPE_CHECKING:
    from support.simulation.faults.process_events import RunEvents
    from support.simulation.runtime.simulated_run import SimulatedRun

VOLUME = "volume"
#: The limits of key 0, by docs/protocol.md: rule 1.
ENTRIES_MAX, BYTES_MAX = 4_999, 16 * 1024 * 1024
#: More than a record of the dispatch log can hold, and enough to make the next transactions as large as permitted.
_DUE = 14_001
#: The number of controls with two fates each. A control that moves a message far follows them and has three fates:
#: together as many fates as a record may hold, or one more entry than key 0 may have.
_CONTROLS = (ENTRIES_MAX - 1, ENTRIES_MAX)
#: The number of controls after the far move, in the same batch or not.
_FOLLOWERS = (100, 3_000)
_STORED = 1_200
#: Bytes: the size of a large message. Then the number of large messages: every second one is under key 0, together more
#: than 16 MiB.
_LARGE_BYTES, _LARGE = 700_000, 52
#: Milliseconds: the interval between two parts, so that each is read and applied before the next.
_APART_MS = 6_000.0
#: Milliseconds: the delay of the message that is moved repeatedly. It is short, so that the message does not prevent
#: the deletion of later requests.
_NEAR_MS = 5_000
_AMBUSHED = ("dispatch.flushed", "dispatch.committed", "dispatch.written", "ingest.written", "takeover.record-applied")
#: Milliseconds: the time after which a resting shard publishes a new low-water mark, and a margin.
_SETTLED_MS = 63_000.0


class Volume:
    """The requests and faults of one run of this theme."""

    def __init__(self, run: SimulatedRun, random: Random, traffic: SimulatedTraffic, events: RunEvents) -> None:
        self._run = run
        self._random = random
        self._traffic = traffic
        self._events = events
        self._large = bytes(_LARGE_BYTES)

    def plan(self) -> float:
        """Plans the parts; returns their duration in ms."""
        time, choose = self._run.time, self._random
        parts: list[Callable[[], None]] = [self._due, self._controls]
        others = [self._stored, self._bulky]
        choose.shuffle(others)
        parts += others
        if choose.random() < 0.3:
            choose.shuffle(parts)
        for number, part in enumerate(parts):
            time.at(time.now_ms + 1_000.0 + number * _APART_MS, part)
        for _ in range(choose.choice([0, 1, 3])):
            self._ambush()
        empty_out_ms = len(parts) * _APART_MS + choose.choice([0.0, _SETTLED_MS])
        time.at(time.now_ms + empty_out_ms, self._events.empty_out)
        return empty_out_ms + _APART_MS

    def _ambush(self) -> None:
        choose = self._random
        step = choose.choice(_AMBUSHED)
        self._run.ambushes[step, choose.randrange(2, 25)] = "kill"

    def _schedule(self, delay_ms: int, value: bytes | None = b"v") -> SimulatedRequest:
        request = SimulatedRequest(
            Partition(REQUESTS, 0), b"k", value, [], target="orders", target_key=b"k", delay_ms=delay_ms
        )
        request.headers = [("postdate-topic", b"orders"), ("postdate-delay", b"%d" % delay_ms)]
        self._traffic.append(request)
        return request

    def _reschedule(self, names: SimulatedRequest, delay_ms: int) -> None:
        request = SimulatedRequest(
            Partition(REQUESTS, 0), None, None, [], "reschedule", names=names.offset, delay_ms=delay_ms
        )
        origin = f"{REQUESTS}/0/{names.offset}".encode()
        request.headers = [("postdate-action", b"reschedule"), ("postdate-origin", origin)]
        request.headers.append(("postdate-delay", b"%d" % delay_ms))
        self._traffic.append(request)

    def _due(self) -> None:
        """Sends messages that are due at the same time."""
        at_ms = self._run.broker.now_ms() + 3_000
        for _ in range(_DUE):
            self._schedule(at_ms - self._run.broker.now_ms())

    def _controls(self) -> None:
        """Sends controls together: they move one message repeatedly, and another message far."""
        near, far = self._schedule(_NEAR_MS), self._schedule(600_000)
        time = self._run.time
        time.at(time.now_ms + 1_000.0, lambda: self._move(near, far))

    def _move(self, near: SimulatedRequest, far: SimulatedRequest) -> None:
        for _ in range(self._random.choice(_CONTROLS)):
            self._reschedule(near, _NEAR_MS)
        self._reschedule(far, 5 * 3_600_000)
        for _ in range(self._random.choice(_FOLLOWERS)):
            self._reschedule(near, _NEAR_MS)

    def _stored(self) -> None:
        for _ in range(_STORED):
            self._schedule(self._random.randrange(4_000_000, 5_000_000))

    def _bulky(self) -> None:
        """Sends large messages, half of which are stored."""
        for number in range(_LARGE):
            self._schedule(4_500_000 if number % 2 else 2_000, self._large)
