"""Goal: a rolling upgrade and its rollback lose nothing, repeat nothing and deliver nothing early. Two versions serve
one deployment side by side, hand partitions over to each other, and continue with each other's disks.

Method: two hosts of one group have a data directory each. Both start with an earlier version, built from the history of
this repository. Each host is upgraded and rolled back, after a clean end or a SIGKILL. In one case, the other version
owns the partitions of the host meanwhile. Requests are due all the time, soon or so late that they are stored. Some are
cancelled, moved or replaced, mostly after the version that serves their shard has changed. The oracle checks all
records that Kafka holds, and the dispatch log shows which version wrote each fate.

A second test follows docs/operations.md. It upgrades both hosts, permits the headers of format 2 on one host after the
other, uses all of them while a host is killed, and forbids them again. Each request must end once, as its headers
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
#: Milliseconds: so late that no process delivers the message before its control.
_FAR_MS = 3_600_000
#: Seconds: the pause between two requests. At a hundred requests a second, a message is due nearly all the time.
_PACE_S = 0.01
_SEED = 11


def _now_ms() -> int:
    return int(time.time() * 1000)


class _Traffic:
    """A thread that sends requests until `stop`.

    Of each eight requests, seven are due soon. The eighth is due late and gets a control some five seconds later, when
    another process may own its shard.
    """

    def __init__(self, deployment: SidecarDeployment, requests: str, target: str) -> None:
        self.expected: list[Sent] = []
        self.silent: list[Sent] = []
        self._requests, self._target, self._sender = requests, target, deployment.sender()
        self._chance = random.Random(_SEED)
        self._waiting: list[tuple[int, Sent]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, and sends all outstanding controls. Returns after all requests are acknowledged."""
        self._over.set()
        self._thread.join()
        self._sender.flush()
        for number, sent in self._waiting:
            self._control(number, sent)
        self._sender.flush()

    def _run(self) -> None:
        number = 0
        while not self._over.wait(_PACE_S):
            self._send_next(number)
            number += 1
            if len(self._waiting) > 60:  # the oldest one was sent about five seconds ago, and is stored
                self._control(*self._waiting.pop(0))

    def _send_next(self, number: int) -> None:
        if number % 8 == 0:
            self._waiting.append((number, self._schedule(number, _now_ms() + _FAR_MS)))
        else:
            self.expected.append(self._schedule(number, _now_ms() + self._chance.randrange(5_000)))

    def _schedule(self, number: int, due_ms: int) -> Sent:
        headers: Headers = [(TOPIC, self._target.encode()), (AT, b"%d" % due_ms), (ID, b"%d" % number), ("n", b"x")]
        sent = Sent(self._target, b"%d" % (number % 31), b"value %d" % number, headers, due_ms)
        return self._sender.send(self._requests, sent, number % _PARTITIONS)

    def _control(self, number: int, waiting: Sent) -> None:
        """Cancels, moves or replaces a waiting request."""
        kind, due_ms = number // 8 % 3, _now_ms() + self._chance.randrange(3_000)
        if kind == 2:
            self.silent.append(waiting)
            self.expected.append(self._schedule(number, due_ms))
            return
        headers: Headers = [(ACTION, b"cancel"), (ID, b"%d" % number)]
        if kind == 1:
            headers = [(ACTION, b"reschedule"), (ID, b"%d" % number), (AT, b"%d" % due_ms)]
            waiting.due_ms = due_ms
        (self.silent, self.expected)[kind].append(waiting)
        self.silent.append(self._sender.send(self._requests, Sent("", b"", b"", headers), number % _PARTITIONS))


class _Host:
    """A data directory, and the processes of either version that use it one after the other."""

    def __init__(self, sidecar: Sidecar, versions: dict[str, str]) -> None:
        self.sidecar, self._versions = sidecar, versions

    def start(self, release: Path | None) -> None:
        self.sidecar.release = release
        self.sidecar.start()
        self._versions[self.sidecar.instance] = "new" if release is None else "old"

    def replace(self, release: Path | None) -> None:
        """Stops the process cleanly, and starts the next one on its disk, as an upgrade does."""
        assert self.sidecar.stop() == 0, self.sidecar.log_text()[-4000:]
        self.start(release)


def test_old_and_new_hand_over_to_each_other_and_back(
    deployment: SidecarDeployment, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old, new = install_earlier(tmp_path_factory.mktemp("earlier")), None
    requests = deployment.new_requests(_PARTITIONS)
    target = deployment.new_target(_PARTITIONS, message_timestamp_type="LogAppendTime")
    versions: dict[str, str] = {}
    settings: dict[str, object] = {"store_after_ms": _STORE_AFTER_MS}
    first, second = (_Host(deployment.new_sidecar(topic=settings), versions) for _ in range(2))
    for host in (first, second):
        host.start(old)
    _wait_until_balanced(first, second)
    traffic = _Traffic(deployment, requests, target)
    try:
        first.replace(new)
        _wait_until_balanced(first, second)
        second.sidecar.kill()  # the new version takes over the open transactions of the old one
        first.sidecar.wait_for_shards(_PARTITIONS)
        second.start(old)  # the old version takes the shards back with an older disk
        _wait_until_balanced(first, second)
        second.replace(new)
        _wait_until_balanced(first, second)
        first.replace(old)  # the rollback
        _wait_until_balanced(first, second)
        second.replace(old)
        _wait_until_balanced(first, second)
    finally:
        traffic.stop()
    deployment.wait_for_ends(len(traffic.expected) + len(traffic.silent))
    outcome = deployment.judge(traffic.expected, silent=traffic.silent)
    _judge_hand_overs(outcome, versions)
    for host in (first, second):
        assert host.sidecar.stop() == 0
        logged = host.sidecar.all_logs()
        assert not [word for word in ("HALTED", "Traceback", "kept as") if word in logged], logged[-4000:]
        # A host rebuilds the index of each shard only once. Later it continues from the index of the other version.
        rebuilt = re.findall(r"shard (\S+): rebuilding from", logged)
        assert len(rebuilt) == len(set(rebuilt)), logged


def _wait_until_balanced(first: _Host, second: _Host) -> None:
    """Returns when each host serves half of the partitions."""
    for host in (first, second):
        host.sidecar.wait_for_shards(_PARTITIONS // 2)


def _judge_hand_overs(outcome: Outcome, versions: dict[str, str]) -> None:
    """Fails unless each version took over from the other, stored and moved messages, and delivered messages that the
    other version had stored."""
    deeds: set[tuple[str, str]] = set()
    owner: dict[int, str] = {}
    took: dict[tuple[int, int], str] = {}
    for seen, record in sorted(outcome.log, key=lambda pair: (pair[0].partition, pair[0].offset)):
        version = versions[record.instance]
        before = owner.get(seen.partition, version)
        if before != version:
            deeds.add((version, f"took over from {before}"))
        owner[seen.partition] = version
        for fate in record.fates:
            deeds.add((version, fate.name))
            origin = (seen.partition, fate.offset)
            if fate.name == STORED:
                took[origin] = version
            elif took.get(origin, version) != version:
                deeds.add((version, f"{fate.name} what the other stored"))
    for version, other in (("old", "new"), ("new", "old")):
        for deed in (f"took over from {other}", STORED, MOVED, f"{DELIVERED} what the other stored"):
            assert (version, deed) in deeds, f"no process of the {version} version {deed}: the run proves little"


class _Requests:
    """Requests, each with the final fate that it must have."""

    def __init__(self, deployment: SidecarDeployment, requests: str, target: str) -> None:
        self.wanted: list[tuple[Sent, str]] = []
        self._requests, self._target, self._sender = requests, target, deployment.sender()

    def send(self, fate: str, partition: int, *headers: tuple[str, bytes]) -> None:
        """Sends one request. A control names no target."""
        all_headers: Headers = list(headers) if ACTION in dict(headers) else [(TOPIC, self._target.encode()), *headers]
        sent = self._sender.send(
            self._requests, Sent(self._target, b"%d" % partition, b"value", all_headers), partition
        )
        self.wanted.append((sent, fate))

    def send_format_1(self) -> None:
        """Sends requests with headers of format 1 alone."""
        for number in range(5 * _PARTITIONS):
            self.send(DELIVERED, number % _PARTITIONS, (DELAY, b"%d" % (number * 100)))
        self._sender.flush()

    def send_returns(self, fate: str) -> None:
        """Sends a return to each partition."""
        for partition in range(_PARTITIONS):
            self.send(fate, partition, (RETRY, b"base=1s, jitter=10%"))
        self._sender.flush()

    def send_once(self, fate: str) -> None:
        """Sends a message to each partition that is dropped if its id was delivered before."""
        for partition in range(_PARTITIONS):
            self.send(fate, partition, (ID, b"once"), (IF_ENDED, b"drop"), (DELAY, b"0"))
        self._sender.flush()

    def send_format_2(self) -> None:
        """Sends requests with every header of format 2 that needs no earlier delivery."""
        even, soon, far = (SPREAD, b"even"), (DELAY, b"1s"), (DELAY, b"1h")
        for partition in range(_PARTITIONS):
            for more in ((), (even,)):
                self.send(DELIVERED, partition, soon, (WINDOW, b"3s"), *more)
            for fate in (DELIVERED, KEPT):
                self.send(fate, partition, (ID, b"first"), (IF_PENDING, b"keep"), (DELAY, b"3s"))
            for fate in (REPLACED, DELIVERED):
                self.send(fate, partition, (ID, b"last"), (LATEST, b"3s"), (DELAY, b"2s"))
            for number in range(20):
                self.send(CANCELLED, partition, (ID, b"customer/%d" % number), far)
            self.send(APPLIED, partition, (ACTION, b"cancel"), (SELECT_ID, b"customer/"))
        self._sender.flush()

    def judge(self, outcome: Outcome) -> None:
        """Fails unless each request has its expected fate once, the records on the topics agree, and none is early."""
        fates = {origin: [name for name, _ in ends] for origin, ends in outcome.fates.items()}
        assert fates == {sent.origin: [fate] for sent, fate in self.wanted}
        for fate, records in ((DELIVERED, outcome.delivered), (DEAD, outcome.dead)):
            counts = Counter(seen.origin for seen in records)
            assert counts == {sent.origin: 1 for sent, wanted in self.wanted if wanted == fate}
        for seen in outcome.delivered:
            assert outcome.fates[seen.origin][0][1] >= int(seen.last("postdate-due"))


def test_new_headers_are_permitted_after_the_upgrade(
    deployment: SidecarDeployment, tmp_path_factory: pytest.TempPathFactory
) -> None:
    old, new = install_earlier(tmp_path_factory.mktemp("earlier")), None
    requests, target = deployment.new_requests(_PARTITIONS), deployment.new_target(_PARTITIONS)
    first, second = hosts = [_Host(deployment.new_sidecar(), {}) for _ in range(2)]
    sent = _Requests(deployment, requests, target)

    def continue_traffic() -> None:
        _wait_until_balanced(first, second)
        sent.send_format_1()

    for host in hosts:
        host.start(old)
    continue_traffic()
    for host in hosts:  # step 1
        host.replace(new)
        continue_traffic()
    sent.send_returns(DEAD)
    deployment.wait_for_ends(len(sent.wanted))
    for host in hosts:  # step 2
        host.sidecar.format_version = 2
        host.replace(new)
        continue_traffic()
    sent.send_format_2()  # step 3
    second.sidecar.kill()
    sent.send_returns(DELIVERED)
    sent.send_once(DELIVERED)
    second.start(new)
    continue_traffic()
    deployment.wait_for_ends(len(sent.wanted))
    sent.send_once(DROPPED)
    deployment.wait_for_ends(len(sent.wanted))
    for host in hosts:  # back to format 1
        host.sidecar.format_version = 1
        host.replace(new)
        continue_traffic()
    sent.send_returns(DEAD)
    deployment.wait_for_ends(len(sent.wanted))
    outcome = gather(deployment.bootstrap, deployment.requests, deployment.targets)
    sent.judge(outcome)
    assert outcome.reasons() == {"unknown-header": 2 * _PARTITIONS}
    assert {record.v for _, record in outcome.log} == {1, 2}
    for host in hosts:
        assert host.sidecar.stop() == 0
        logged = host.sidecar.all_logs()
        assert not [word for word in ("HALTED", "Traceback") if word in logged], logged[-4000:]
