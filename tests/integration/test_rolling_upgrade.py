"""Goal: a rolling upgrade and its rollback lose nothing, repeat nothing and deliver nothing early: two versions serve
one deployment side by side, hand partitions to each other, and each continues with the other's disk.

Method: two places with a data directory each, on one group. An earlier version, built from the history of this
repository, begins in both; each place is upgraded and rolled back, in good order or after a SIGKILL, and once its
partitions are with the other version meanwhile. Requests are due all the time, near and far enough to be stored,
and some are cancelled, moved or replaced, mostly by another version than the one that took them. The oracle judges all
that Kafka holds; the dispatch log tells which version did what.
"""

from __future__ import annotations

import random
import re
import threading
import time
from pathlib import Path

import pytest

from postdate.wire.dispatch_log import DELIVERED, MOVED, STORED
from postdate.wire.headers import ACTION, AT, ID, TOPIC, Headers
from support.bed import Bed
from support.oracle import Outcome, Sent
from support.releases import install_earlier
from support.sidecars import Sidecar

_PARTITIONS = 4
_STORE_AFTER_MS = 2_000
#: ms. Far enough for no process to deliver it before a control has come.
_FAR_MS = 3_600_000
#: s. Between two requests: a hundred a second are enough for something to be due at every moment.
_PACE_S = 0.01
_SEED = 11


def _now_ms() -> int:
    return int(time.time() * 1000)


class _Traffic:
    """Requests without an end until `stop`, from a thread of its own; each group of eight is due soon, is due soon and
    is replaced, or waits for a control that comes while other processes are there."""

    def __init__(self, bed: Bed, requests: str, target: str) -> None:
        self.expected: list[Sent] = []
        self.silent: list[Sent] = []
        self._requests, self._target, self._sender = requests, target, bed.sender()
        self._chance = random.Random(_SEED)
        self._waiting: list[tuple[int, Sent]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Ends it; every request is acknowledged, and every one that waited for a control has been told."""
        self._over.set()
        self._thread.join()
        self._sender.flush()
        for number, sent in self._waiting:
            self._control(number, sent)
        self._sender.flush()

    def _run(self) -> None:
        number = 0
        while not self._over.wait(_PACE_S):
            self._one(number)
            number += 1
            if len(self._waiting) > 60:  # it waited for some five seconds, and is stored by then
                self._control(*self._waiting.pop(0))

    def _one(self, number: int) -> None:
        if number % 8 == 0:
            self._waiting.append((number, self._schedule(number, _now_ms() + _FAR_MS)))
        else:
            self.expected.append(self._schedule(number, _now_ms() + self._chance.randrange(5_000)))

    def _schedule(self, number: int, due_ms: int) -> Sent:
        given: Headers = [(TOPIC, self._target.encode()), (AT, b"%d" % due_ms), (ID, b"%d" % number), ("n", b"x")]
        sent = Sent(self._target, b"%d" % (number % 31), b"value %d" % number, given, due_ms)
        return self._sender.send(self._requests, sent, number % _PARTITIONS)

    def _control(self, number: int, waiting: Sent) -> None:
        """Cancels, moves or replaces a request that waits."""
        kind, due_ms = number // 8 % 3, _now_ms() + self._chance.randrange(3_000)
        if kind == 2:
            self.silent.append(waiting)
            self.expected.append(self._schedule(number, due_ms))
            return
        told: Headers = [(ACTION, b"cancel"), (ID, b"%d" % number)]
        if kind == 1:
            told = [(ACTION, b"reschedule"), (ID, b"%d" % number), (AT, b"%d" % due_ms)]
            waiting.due_ms = due_ms
        (self.silent, self.expected)[kind].append(waiting)
        self.silent.append(self._sender.send(self._requests, Sent("", b"", b"", told), number % _PARTITIONS))


class _Place:
    """A data directory and the processes that serve it one after the other, of either version."""

    def __init__(self, sidecar: Sidecar, versions: dict[str, str]) -> None:
        self.sidecar, self._versions = sidecar, versions

    def start(self, release: Path | None) -> None:
        self.sidecar.release = release
        self.sidecar.start()
        self._versions[self.sidecar.instance] = "new" if release is None else "old"

    def replace(self, release: Path | None) -> None:
        """What an upgrade does: the process ends in good order, and the next one starts on its disk."""
        assert self.sidecar.stop() == 0, self.sidecar.log_text()[-4000:]
        self.start(release)


def test_old_and_new_hand_over_to_each_other_and_back(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> None:
    old, new = install_earlier(tmp_path_factory.mktemp("earlier")), None
    requests = bed.new_requests(_PARTITIONS)
    target = bed.new_target(_PARTITIONS, message_timestamp_type="LogAppendTime")
    versions: dict[str, str] = {}
    settings: dict[str, object] = {"store_after_ms": _STORE_AFTER_MS}
    first, second = (_Place(bed.new_sidecar(topic=settings), versions) for _ in range(2))
    for place in (first, second):
        place.start(old)
    _settled(first, second)
    traffic = _Traffic(bed, requests, target)
    try:
        first.replace(new)
        _settled(first, second)
        second.sidecar.kill()  # the new version takes what the old one left half done
        first.sidecar.wait_for_shards(_PARTITIONS)
        second.start(old)  # and gives it back, to a disk from before
        _settled(first, second)
        second.replace(new)
        _settled(first, second)
        first.replace(old)  # the way back
        _settled(first, second)
        second.replace(old)
        _settled(first, second)
    finally:
        traffic.stop()
    bed.wait_for_ends(len(traffic.expected) + len(traffic.silent))
    outcome = bed.judge(traffic.expected, silent=traffic.silent)
    _judge_hand_overs(outcome, versions)
    for place in (first, second):
        assert place.sidecar.stop() == 0
        logged = place.sidecar.all_logs()
        assert not [word for word in ("HALTED", "Traceback", "kept as") if word in logged], logged[-4000:]
        # Rebuilt is what a place has never had; from what a process of the other version has left there, it goes on.
        rebuilt = re.findall(r"shard (\S+): rebuilding from", logged)
        assert len(rebuilt) == len(set(rebuilt)), logged


def _settled(first: _Place, second: _Place) -> None:
    """Returns when each serves half of the partitions."""
    for place in (first, second):
        place.sidecar.wait_for_shards(_PARTITIONS // 2)


def _judge_hand_overs(outcome: Outcome, versions: dict[str, str]) -> None:
    """Both versions took over from each other, ended something after it, and ended what the other one had stored."""
    did: set[tuple[str, str]] = set()
    owner: dict[int, str] = {}
    took: dict[tuple[int, int], str] = {}
    for seen, record in sorted(outcome.log, key=lambda pair: (pair[0].partition, pair[0].offset)):
        version = versions[record.instance]
        before = owner.get(seen.partition, version)
        if before != version:
            did.add((version, f"took over from {before}"))
        owner[seen.partition] = version
        for fate in record.fates:
            did.add((version, fate.name))
            origin = (seen.partition, fate.offset)
            if fate.name == STORED:
                took[origin] = version
            elif took.get(origin, version) != version:
                did.add((version, f"{fate.name} what the other stored"))
    for version, other in (("old", "new"), ("new", "old")):
        for deed in (f"took over from {other}", STORED, MOVED, f"{DELIVERED} what the other stored"):
            assert (version, deed) in did, f"no process of the {version} version {deed}: the run proves little"
