"""Injects faults one after the other, waits for the recovery from each, and measures its cost.

A round contains every fault once, in an order that follows from the seed, with SIGKILLs in between: `kills_between` per
fault on average. Failed checks are recorded, and the run continues.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from support.faults import disk_faults as disk_faults
from support.faults import intruder_faults as intruder_faults
from support.faults import network_faults as network_faults
from support.faults import process_faults as process_faults
from support.faults.fault import FAULTS, Fault
from support.faults.rig import FaultRig, now_ms

#: Their import registers the faults.
FAULT_MODULES = (disk_faults, network_faults, process_faults, intruder_faults)
KILL = "kill"

#: Seconds: pause without a fault after each recovery, to measure the lateness without faults.
CALM_S = 1.0

Tell = Callable[[str], None]


@dataclass
class FaultStep:
    """One injected fault and its outcome."""

    fault: Fault
    what: str
    lasted_s: float
    recovery_ms: int
    """The maximum lateness of a message, counted from the end of the fault."""
    outage_ms: int
    """The maximum lateness of a message, counted from its due time."""
    calm_ms: tuple[int, int]
    """The interval after the recovery in which no fault was injected."""
    wrong: list[str] = field(default_factory=list)


def order(rig: FaultRig, names: Iterable[str], kills_between: float) -> Iterator[Fault]:
    """Yields an infinite sequence of rounds of the named faults, with SIGKILLs inserted at random."""
    left = sorted(names)
    while True:
        rig.chance.shuffle(left)
        for name in left:
            yield FAULTS[name]
            if name != KILL and rig.chance.random() < kills_between:
                yield FAULTS[KILL]


def run_step(rig: FaultRig, fault: Fault) -> FaultStep:
    """Injects one fault, repairs its effects, and waits until the rig has recovered."""
    rig.wrong.clear()
    rig.ended_ms = 0
    begun_ms, what = now_ms(), ""
    try:
        what = fault.inject(rig)
    except AssertionError as error:
        rig.wrong.append(f"{type(error).__name__}: {error}")
    rig.ended_ms = rig.ended_ms or now_ms()
    lasted_s = (rig.ended_ms - begun_ms) / 1000
    try:
        rig.repair()
        rig.recover()
    except AssertionError as error:
        rig.wrong.append(f"no recovery: {error}")
    outage_ms, recovery_ms = rig.ledger.outage_ms(begun_ms, rig.ended_ms)
    wrong = [*rig.wrong, *rig.look_through_logs()]
    return FaultStep(fault, what, lasted_s, recovery_ms, outage_ms, (now_ms(), now_ms()), wrong)


def run_faults(
    rig: FaultRig, names: Iterable[str], minutes: float, each: int, kills_between: float, tell: Tell
) -> list[FaultStep]:
    """Injects faults for `minutes`, and until every named fault was injected `each` times. Reports each step with
    `tell`."""
    until, steps = time.monotonic() + minutes * 60, list[FaultStep]()
    done = Counter(dict.fromkeys(names, 0))
    began = time.monotonic()
    for fault in order(rig, names, kills_between):
        if time.monotonic() >= until and min(done.values()) >= each:
            break
        step = run_step(rig, fault)
        rig.wait(CALM_S)
        step.calm_ms = (step.calm_ms[0], now_ms())
        steps.append(step)
        done[fault.name] += 1
        tell(
            f"{time.monotonic() - began:6.0f} s  {fault.name}: {step.what}; lasted {step.lasted_s:.1f} s, "
            f"recovery {step.recovery_ms} ms, outage {step.outage_ms} ms, asked {rig.load.acknowledged}"
        )
        for line in step.wrong:
            tell(f"          WRONG: {line}")
    return steps
