"""Goal: after every fault, each live member soon serves shards again, even if all members are static and the broker
fences one of them permanently.

Method: the rig of the fault tests with two static members. A client of the test joins the group with the instance id of
one member. Then random faults follow; the test prints their seed. POSTDATE_TEST_FAULT_CYCLES=N injects N faults while
three processes keep the machine busy, and each member must serve again within a minute after each fault.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from support.deployments.sidecars import Sidecar, wait_until
from support.faults.fault import FAULTS
from support.faults.judgement import judge
from support.faults.rig import PARTITIONS, SESSION_S, FaultRig, new_rig
from support.faults.sequence import FAULT_MODULES
from support.waiting.timeouts import WAIT_TIMEOUT_S

_CYCLES = int(os.environ.get("POSTDATE_TEST_FAULT_CYCLES", "0"))
_BUSY_LOOPS = 3
#: Seconds: the aim after each fault in the large form. In the small form, the load of the machine is unknown, and this
#: is only a time-out.
_SERVED_WITHIN_S = 60.0 if _CYCLES else WAIT_TIMEOUT_S
_NAMES = ("broker killed", "held EndTxn", "id taken", "kill", "long cut", "paused", "short cut", "terminated")
_PER_SECOND = 50
_DELAY_MS_MAX = 3_000
_TRANSACTION_S = 3.0

assert FAULT_MODULES, "the faults are registered"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[FaultRig]:
    seed = int(os.environ.get("POSTDATE_FAULTS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    print(f"seed {seed}")
    with new_rig(tmp_path, seed, _PER_SECOND, _DELAY_MS_MAX, _TRANSACTION_S) as running:
        for member in running.base:
            member.static = True
        running.start()
        yield running


@pytest.fixture
def busy() -> Iterator[None]:
    """In the large form, processes at normal priority that keep all cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(_BUSY_LOOPS if _CYCLES else 0)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


def test_every_member_that_lives_serves_again_soon_after_each_fault(rig: FaultRig, busy: None) -> None:
    _take_name(rig, rig.static)
    print(f"name taken: served again after {_served_again_s(rig):.1f} s")
    for number in range(_CYCLES or 1):
        fault = FAULTS[_NAMES[0] if not _CYCLES else rig.chance.choice(_NAMES)]
        detail = fault.inject(rig)
        rig.repair()
        print(f"{number + 1} {fault.name}: {detail}; served again after {_served_again_s(rig):.1f} s", flush=True)
        rig.wait(rig.chance.uniform(0.0, 5.0))
    assert rig.wrong == [], "no member ended unexpectedly"
    assert rig.finish() == [0, 0]
    assert judge(rig.ledger).wrong == []
    assert rig.look_through_logs() == []


def _served_again_s(rig: FaultRig) -> float:
    """Waits until every member serves shards and all partitions are served, and returns the time that this took."""
    began = time.monotonic()

    def served() -> bool:
        counts = [member.shards() for member in rig.base]
        return min(counts) > 0 and sum(counts) == PARTITIONS

    wait_until(served, f"every member serves shards ({rig.deployment.directory})", _SERVED_WITHIN_S)
    return time.monotonic() - began


def _take_name(rig: FaultRig, member: Sidecar) -> None:
    """Joins the group with the instance id of the member, until the member has noticed that it is fenced."""
    conf: dict[str, str | int] = {
        "bootstrap.servers": rig.deployment.bootstrap,
        "group.id": member.group_id,
        "group.instance.id": member.name,
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": int(SESSION_S * 1000),
    }
    rival = Consumer(conf)

    def noticed() -> bool:
        rival.poll(0.1)
        return "Static consumer fenced" in member.log_text() and member.shards() == 0

    try:
        rival.subscribe([rig.requests])
        wait_until(noticed, f"{member.name} is fenced")
    finally:
        rival.close()
