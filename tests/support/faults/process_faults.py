"""Faults of processes: killed at any time and at each step, terminated, stopped and resumed, joining and leaving."""

from __future__ import annotations

import re
import time
from collections import Counter
from pathlib import Path

from postdate.sidecar.failpoints import NAMES
from support.deployments.sidecars import Sidecar, wait_until
from support.faults import damage
from support.faults.fault import fault
from support.faults.rig import PARTITIONS, FaultRig
from support.waiting.timeouts import WAIT_TIMEOUT_S

_SAYS_WHY = re.compile(r"fenced|lost to another member")
_FENCED = 3


@fault("kill")
def kill(rig: FaultRig) -> str:
    """Kills a process with SIGKILL at random times; each kill is followed by an immediate restart."""
    for _ in range(count := rig.chance.randint(3, 6)):
        rig.wait(rig.chance.uniform(0.2, 5.0))
        victim = rig.one()
        victim.kill()
        victim.start()
    return f"{count} kills"


@fault("kill at a step")
def kill_at_a_step(rig: FaultRig) -> str:
    """Lets a process kill itself at a named step of the protocol."""
    member, step, at = _armed(rig, "kill", _steps(rig))
    try:
        wait_until(lambda: not member.is_alive(), f"{member.name} reaches {step}")
    finally:
        member.failpoints = ""
    rig.fault_ends()
    member.start()
    return f"{step}@{at}"


@fault("stopped at a step")
def stopped_at_a_step(rig: FaultRig) -> str:
    """Stops a process at a named step, for less or more than its session time-out."""
    member, step, at = _armed(rig, "stop", ("takeover.fenced", "takeover.bounded", "dispatch.flushed", *_COMMITTED))
    wait_until(lambda: is_stopped(member), f"{member.name} stops at {step}")
    rig.wait(seconds := rig.chance.uniform(0.5, 12.0))
    member.failpoints = ""
    member.resume()
    return f"{step}@{at} for {seconds:.1f} s"


_COMMITTED = ("dispatch.committed", "dispatch.committed")


@fault("terminated")
def terminated(rig: FaultRig) -> str:
    """Sends SIGTERM while transactions are in flight: the process must exit in time, with exit code 0."""
    member = rig.one()
    began = time.monotonic()
    code = member.stop()
    took_s = time.monotonic() - began
    if code != 0:
        rig.wrong.append(f"{member.name} ended with {code} when asked to")
    rig.fault_ends()
    member.start()
    return f"ended in {took_s:.1f} s"


@fault("paused")
def paused(rig: FaultRig) -> str:
    """Stops a process for longer than its session time-out: its shards move, and it must log this when it resumes."""
    member = rig.one()
    before = len(_SAYS_WHY.findall(member.log_text()))
    shards = member.shards()
    member.pause()
    rig.wait(seconds := rig.chance.uniform(8.0, 11.0))
    member.resume()
    rig.fault_ends()
    if shards:
        wait_until(lambda: len(_SAYS_WHY.findall(member.log_text())) > before, f"{member.name} says why it stopped")
    return f"{seconds:.1f} s with {shards} shards"


@fault("two deployments")
def two_deployments(rig: FaultRig) -> str:
    """Starts a process of another group on the same topic: one group continues; the other exits with code 3 and names
    the first one."""
    other = rig.extras[0]
    group = other.group_id
    other.group_id = rig.chance.choice((f"{group}-other", f"a-{group}"))  # the group whose name sorts first continues
    try:
        other.start()
        wait_until(lambda: not other.is_alive() or not all(member.is_alive() for member in rig.base), "one side stops")
        if other.is_alive():
            stopped = next(member for member in rig.base if not member.is_alive())
            foreign = other.group_id
        else:
            stopped, foreign = other, group
        code = stopped.wait()
        if code != _FENCED or f"group {foreign}" not in stopped.log_text():
            rig.wrong.append(f"{stopped.name} stopped with {code} before another deployment and does not say so")
        gave_way = rig.base if other.is_alive() else []
        other.kill()
    finally:
        other.group_id = group
    for member in gave_way:  # if one of them has exited, so must the other
        member.kill()
        member.start()
    rig.fault_ends()
    return f"{stopped.name} gave way"


@fault("joining and leaving")
def joining_and_leaving(rig: FaultRig) -> str:
    """Starts and stops other members every 2 to 5 s, with SIGTERM or SIGKILL."""
    changes = 0
    until = time.monotonic() + 16.0
    while time.monotonic() < until:
        extra = rig.chance.choice(rig.extras)
        if not extra.is_alive():
            extra.start()
        elif rig.chance.random() < 0.5:
            extra.stop()
        else:
            extra.kill()
        changes += 1
        rig.wait(rig.chance.uniform(2.0, 5.0))
    return f"{changes} changes"


@fault("joining in mid-recovery")
def joining_in_mid_recovery(rig: FaultRig) -> str:
    """Stops a member after it has fenced the former owner, while others join and leave."""
    member, step, _ = _armed(rig, "stop", ("takeover.bounded", "takeover.record-applied"))
    wait_until(lambda: is_stopped(member), f"{member.name} stops at {step}")
    rig.extras[0].start()
    rig.wait(rig.chance.uniform(1.0, 4.0))
    member.failpoints = ""
    member.resume()
    rig.wait(rig.chance.uniform(0.0, 3.0))
    rig.extras[1].start()
    rig.wait(rig.chance.uniform(0.0, 3.0))
    return step


def _steps(rig: FaultRig) -> tuple[str, ...]:
    return tuple(sorted(NAMES - {"takeover.opened"}))


def _armed(rig: FaultRig, action: str, steps: tuple[str, ...]) -> tuple[Sidecar, str, int]:
    """Kills one of the two members, and restarts it so that it exits or stops at one of these steps."""
    member, step = rig.one(), rig.chance.choice(steps)
    at = 1 if step.startswith("takeover") else rig.chance.randint(1, 40)
    member.kill()
    if step == "takeover.record-applied":  # a takeover with the disk would apply no records
        for shard in damage.shards(member.data_dir):
            damage.lose_disk(shard, rig.chance)
    member.failpoints = f"{step}={action}@{at}"
    member.start()
    return member, step, at


def is_stopped(member: Sidecar) -> bool:
    """True if the process is stopped by SIGSTOP."""
    try:
        stat = Path(f"/proc/{member.pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] == "T"


def wait_for_all_shards(rig: FaultRig, timeout_s: float = WAIT_TIMEOUT_S) -> None:
    """Waits until no shard is moving: the running members together serve each partition once, and the ledger contains
    their owner records."""

    def served() -> bool:
        live = [member for member in [*rig.base, *rig.extras] if member.is_alive()]
        held = Counter(rig.ledger.holders().values())
        return held.total() == PARTITIONS and held == Counter({member.instance: member.shards() for member in live})

    wait_until(served, "every partition is served", timeout_s)
