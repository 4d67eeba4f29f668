"""Goal: after faults of network, broker, disk, members and other clients, delivery resumes, and no message is lost,
repeated or changed.

Method: all tests share one rig with processes behind proxies, four partitions, and a steady load that includes controls
and bad requests. Each test injects one fault and waits until nothing is overdue. It prints the longest time in which no
due message was delivered, computed from the records on Kafka. The last test checks all records. POSTDATE_FAULTS_SEED
repeats the printed seed, and `make soak` injects all faults for any length of time.

docs/testing.md states the aims for group changes. They hold for the measured time less the time that other programs
took (`support/waiting/contention.py`). Each shard that a change concerns moves once, and no other shard moves.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.deployments.sidecars import wait_until
from support.faults.fault import FAULTS
from support.faults.judgement import judge
from support.faults.process_faults import is_stopped, wait_for_all_shards
from support.faults.rig import FaultRig, new_rig, now_ms
from support.faults.sequence import run_step
from support.waiting.contention import Watch, watch_contention

_PER_SECOND = 100
_DELAY_MS_MAX = 3_000
#: Seconds: the time-out of transactions. It is short, since some network cuts must last longer.
_TRANSACTION_S = 3.0
#: Milliseconds: the session time-out of a member. The group removes a dead member after this time.
_SESSION_MS = 6_000


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with watch_contention() as running:
        yield running


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultRig]:
    seed = int(os.environ.get("POSTDATE_FAULTS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    print(f"seed {seed}")
    directory: Path = tmp_path_factory.mktemp("rig")
    with new_rig(directory, seed, _PER_SECOND, _DELAY_MS_MAX, _TRANSACTION_S) as running:
        running.start()
        yield running


@pytest.mark.parametrize("name", ["held EndTxn", "short cut", "long cut", "id taken", "broker killed", "disk full"])
def test_delivery_resumes_without_an_operator_after(rig: FaultRig, name: str) -> None:
    step = run_step(rig, FAULTS[name])
    print(f"{name}: {step.what}; recovery {step.recovery_ms} ms, outage {step.outage_ms} ms")
    assert step.wrong == []


def test_a_planned_hand_over_between_members_of_one_machine(rig: FaultRig, watch: Watch) -> None:
    """A third member joins, takes over a shard and leaves. It shares a data directory with another member."""
    third = rig.extras[0]
    since_ms, owners = _before_change(rig)
    third.start()
    third.wait_for_shards(1)
    _recover(rig, watch, since_ms, "a member joins", 2_000)
    joined = _handed_over(rig, owners)
    assert [new for _, _, new in joined] == [third.instance]
    since_ms, owners = _before_change(rig)
    assert third.stop() == 0
    _recover(rig, watch, since_ms, "a member leaves", 2_000)
    assert [(part, old) for part, old, _ in _handed_over(rig, owners)] == [(joined[0][0], third.instance)]


def test_a_static_member_that_comes_back_keeps_its_shards(rig: FaultRig, watch: Watch) -> None:
    since_ms, owners = _before_change(rig)
    shards, before = rig.static.shards(), rig.static.instance
    rig.static.kill()
    rig.static.start()
    rig.static.wait_for_shards(shards)
    _recover(rig, watch, since_ms, "a static member is killed and comes back", 5_000)
    handed_over = _handed_over(rig, owners)
    assert {(old, new) for _, old, new in handed_over} == {(before, rig.static.instance)}
    assert len(handed_over) == shards


def test_a_dead_member_loses_its_shards_after_its_session(rig: FaultRig, watch: Watch) -> None:
    since_ms, owners = _before_change(rig)
    shards = rig.dynamic.shards()
    rig.dynamic.kill()
    outage_ms = _recover(rig, watch, since_ms, "a dynamic member dies", _SESSION_MS + 2_000)
    assert outage_ms > 1_000, "the dead member had no shards"
    handed_over = _handed_over(rig, owners)
    assert {(old, new) for _, old, new in handed_over} == {(rig.dynamic.instance, rig.static.instance)}
    assert len(handed_over) == shards


def test_no_partition_is_left_paused_by_a_storm_of_rebalances(rig: FaultRig, watch: Watch) -> None:
    """Members join, leave and die within about a second of each other, while one is stopped during its recovery."""
    stopped, since_ms = rig.dynamic, now_ms()
    stopped.failpoints = "takeover.bounded=stop"
    stopped.start()
    wait_until(lambda: is_stopped(stopped), "a member stops in the middle of recovery")
    stopped.failpoints = ""
    rig.extras[0].start()
    rig.wait(rig.chance.uniform(0.0, 2.0))
    stopped.resume()
    for _ in range(4):
        extra = rig.chance.choice(rig.extras)
        if not extra.is_alive():
            extra.start()
        elif rig.chance.random() < 0.5:
            assert extra.stop() in (
                0,
                -signal.SIGTERM,
            )  # the signal ends a member that has no handler for it yet
        else:
            extra.kill()
        rig.wait(rig.chance.uniform(0.2, 1.0))
    for extra in rig.extras:
        extra.kill()
    _recover(rig, watch, since_ms, "a storm of rebalances", 4 * _SESSION_MS)


def test_every_request_ended_exactly_once(rig: FaultRig) -> None:
    """Must be the last test of this module, since it stops the rig and checks the records of all tests."""
    exits = rig.finish()
    judged = judge(rig.ledger)
    print(
        f"{judged.requests} requests, {judged.delivered} delivered, {judged.dead} dead letters, {judged.controls} "
        f"controls, {len(rig.ledger.owners)} takeovers; lateness {judged.late_ms}"
    )
    assert judged.wrong == []
    assert rig.count_fault(judged.requests) == ""
    assert exits == [0, 0]
    assert rig.look_through_logs() == []
    assert min(judged.delivered, judged.dead, judged.controls, len(rig.ledger.owners)) > 0


def _before_change(rig: FaultRig) -> tuple[int, int]:
    """Waits until earlier hand-overs are complete. Returns the time (epoch ms) and the number of owner records."""
    wait_for_all_shards(rig)
    return now_ms(), len(rig.ledger.owners)


def _recover(rig: FaultRig, watch: Watch, since_ms: int, event: str, aim_ms: int) -> int:
    """Waits until every partition is served and nothing is overdue, and returns the longest time (ms) without delivery.

    Fails unless this time, less the time that other programs took, is below the aim.
    """
    wait_for_all_shards(rig)
    rig.fault_ends()
    rig.recover()
    wanted, late = rig.ledger.lateness()
    chosen = wanted + late >= since_ms
    wanted, late = wanted[chosen], late[chosen]
    undisturbed = watch.average().undisturbed(wanted.tolist(), (wanted + late).tolist())
    outage_ms = int(undisturbed.max())
    print(f"{event}: {late.max()} ms without a delivery, {outage_ms} without other programs; the aim is {aim_ms} ms")
    assert outage_ms < aim_ms
    return int(late.max())


def _handed_over(rig: FaultRig, since: int) -> list[tuple[int, str, str]]:
    """Returns partition, old and new owner of each hand-over after the first `since` owner records.

    Takeovers by the process that already owns the shard are not counted.
    """
    owner: dict[int, str] = {}
    hand_overs = []
    with rig.ledger.lock:
        owners = list(rig.ledger.owners)
    for number, (part, _, instance, _) in enumerate(owners):
        if number >= since and owner[part] != instance:
            hand_overs.append((part, owner[part], instance))
        owner[part] = instance
    return hand_overs
