"""Goal: a rolling upgrade and its rollback lose nothing, repeat nothing and deliver nothing early: two versions serve
one deployment side by side, hand partitions to each other, and each continues with the other's disk.

Method: two places with a data directory each, on one group. An earlier version, built from the history of this
repository, begins in both; each place is upgraded and rolled back, in good order or after a SIGKILL, and once its
partitions are with the other version meanwhile. Requests are due all the time, near and far enough to be stored,
and some are cancelled, moved or replaced, mostly by another version than the one that took them. The oracle judges all
that Kafka holds; the dispatch log tells which version did what.

A second test follows docs/operations.md: it upgrades both places, permits the headers of format 2 in one after the
other, uses every one of them through a SIGKILL, and withdraws them again. Each request must end once, as its headers
require.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from postdate.wire.dispatch_log import (
    APPLIED,
    CANCELLED,
    DEAD,
    DELIVERED,
    DROPPED,
    KEPT,
    MOVED,
    REPLACED,
    STORED,
)
from postdate.wire.headers import (
    ACTION,
    AT,
    DELAY,
    ID,
    IF_ENDED,
    IF_PENDING,
    LATEST,
    RETRY,
    SELECT_ID,
    SPREAD,
    TOPIC,
    WINDOW,
    Headers,
)
from support.deployments.releases import install_earlier
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import Sidecar
from support.oracles.exactly_once import Outcome, Sent, gather

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

    def __init__(self, env: SidecarDeployment, requests: str, target: str) -> None:
        self.expected: list[Sent] = []
        self.silent: list[Sent] = []
        self._requests, self._target, self._sender = requests, target, env.sender()
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


def test_old_and_new_hand_over_to_each_other_and_back(
    env: SidecarDeployment, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old, new = install_earlier(tmp_path_factory.mktemp("earlier")), None
    requests = env.new_requests(_PARTITIONS)
    target = env.new_target(_PARTITIONS, message_timestamp_type="LogAppendTime")
    versions: dict[str, str] = {}
    settings: dict[str, object] = {"store_after_ms": _STORE_AFTER_MS}
    first, second = (_Place(env.new_sidecar(topic=settings), versions) for _ in range(2))
    for place in (first, second):
        place.start(old)
    _settled(first, second)
    traffic = _Traffic(env, requests, target)
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
    env.wait_for_ends(len(traffic.expected) + len(traffic.silent))
    outcome = env.judge(traffic.expected, silent=traffic.silent)
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


class _Asked:
    """Requests, each with the final fate that it must have."""

    def __init__(self, env: SidecarDeployment, requests: str, target: str) -> None:
        self.wanted: list[tuple[Sent, str]] = []
        self._requests, self._target, self._sender = requests, target, env.sender()

    def ask(self, fate: str, partition: int, *headers: tuple[str, bytes]) -> None:
        """Sends one request. A control names no target."""
        given: Headers = list(headers) if ACTION in dict(headers) else [(TOPIC, self._target.encode()), *headers]
        sent = self._sender.send(self._requests, Sent(self._target, b"%d" % partition, b"value", given), partition)
        self.wanted.append((sent, fate))

    def plain(self) -> None:
        """Requests of format 1."""
        for number in range(5 * _PARTITIONS):
            self.ask(DELIVERED, number % _PARTITIONS, (DELAY, b"%d" % (number * 100)))
        self._sender.flush()

    def returned(self, fate: str) -> None:
        """A return for each partition."""
        for partition in range(_PARTITIONS):
            self.ask(fate, partition, (RETRY, b"base=1s, jitter=10%"))
        self._sender.flush()

    def once(self, fate: str) -> None:
        """A message for each partition that is dropped if it was delivered before."""
        for partition in range(_PARTITIONS):
            self.ask(fate, partition, (ID, b"once"), (IF_ENDED, b"drop"), (DELAY, b"0"))
        self._sender.flush()

    def of_format_2(self) -> None:
        """Every header of format 2 that needs no earlier delivery."""
        even, soon, far = (SPREAD, b"even"), (DELAY, b"1s"), (DELAY, b"1h")
        for partition in range(_PARTITIONS):
            for more in ((), (even,)):
                self.ask(DELIVERED, partition, soon, (WINDOW, b"3s"), *more)
            for fate in (DELIVERED, KEPT):
                self.ask(fate, partition, (ID, b"first"), (IF_PENDING, b"keep"), (DELAY, b"3s"))
            for fate in (REPLACED, DELIVERED):
                self.ask(fate, partition, (ID, b"last"), (LATEST, b"3s"), (DELAY, b"2s"))
            for number in range(20):
                self.ask(CANCELLED, partition, (ID, b"customer/%d" % number), far)
            self.ask(APPLIED, partition, (ACTION, b"cancel"), (SELECT_ID, b"customer/"))
        self._sender.flush()

    def judge(self, outcome: Outcome) -> None:
        """Each request has ended once, as it must; records agree with that, and none is early."""
        found = {origin: [name for name, _ in ends] for origin, ends in outcome.fates.items()}
        assert found == {sent.origin: [fate] for sent, fate in self.wanted}
        for fate, records in ((DELIVERED, outcome.delivered), (DEAD, outcome.dead)):
            counts = Counter(seen.origin for seen in records)
            assert counts == {sent.origin: 1 for sent, wanted in self.wanted if wanted == fate}
        for seen in outcome.delivered:
            assert outcome.fates[seen.origin][0][1] >= int(seen.last("postdate-due"))


def test_new_headers_are_permitted_after_the_upgrade(
    env: SidecarDeployment, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old, new = install_earlier(tmp_path_factory.mktemp("earlier")), None
    requests, target = env.new_requests(_PARTITIONS), env.new_target(_PARTITIONS)
    first, second = places = [_Place(env.new_sidecar(), {}) for _ in range(2)]
    asked = _Asked(env, requests, target)

    def go_on() -> None:
        _settled(first, second)
        asked.plain()

    for place in places:
        place.start(old)
    go_on()
    for place in places:  # step 1
        place.replace(new)
        go_on()
    asked.returned(DEAD)
    env.wait_for_ends(len(asked.wanted))
    for place in places:  # step 2
        place.sidecar.format_version = 2
        place.replace(new)
        go_on()
    asked.of_format_2()  # step 3
    second.sidecar.kill()
    asked.returned(DELIVERED)
    asked.once(DELIVERED)
    second.start(new)
    go_on()
    env.wait_for_ends(len(asked.wanted))
    asked.once(DROPPED)
    env.wait_for_ends(len(asked.wanted))
    for place in places:  # and back
        place.sidecar.format_version = 1
        place.replace(new)
        go_on()
    asked.returned(DEAD)
    env.wait_for_ends(len(asked.wanted))
    outcome = gather(env.bootstrap, env.requests, env.targets)
    asked.judge(outcome)
    assert outcome.reasons() == {"unknown-header": 2 * _PARTITIONS}
    assert {record.v for _, record in outcome.log} == {1, 2}
    for place in places:
        assert place.sidecar.stop() == 0
        logged = place.sidecar.all_logs()
        assert not [word for word in ("HALTED", "Traceback") if word in logged], logged[-4000:]
