"""Injects faults one after the other, waits for the recovery from each, and measures its cost.

A round contains every fault once, in an order that follows from the seed. SIGKILLs are inserted between them,
`kills_between` per fault on average. Failed checks are recorded, and the run continues.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from support.faults import deeds_disk, deeds_network, deeds_process, deeds_stranger
from support.faults.deed import FAULTS, Fault
from support.faults.scene import Scene, now_ms

#: Imported because they register their faults.
DEEDS = (deeds_disk, deeds_network, deeds_process, deeds_stranger)
KILL = "kill"

#: s. No fault is injected for this long after each recovery, to measure the lateness without faults.
CALM_S = 1.0

Tell = Callable[[str], None]


@dataclass
class CourseStep:
    """One injected fault and its outcome."""

    fault: Fault
    what: str
    lasted_s: float
    recovery_ms: int
    """The maximum lateness of a message, counted from the end of the fault."""
    outage_ms: int
    """The maximum lateness of a message, counted from its due time."""
    calm_ms: tuple[int, int]
    """The time span after the recovery in which no fault was injected."""
    wrong: list[str] = field(default_factory=list)


def order(scene: Scene, names: Iterable[str], kills_between: float) -> Iterator[Fault]:
    """An infinite sequence of rounds of the named faults, with SIGKILLs inserted at random."""
    left = sorted(names)
    while True:
        scene.chance.shuffle(left)
        for name in left:
            yield FAULTS[name]
            if name != KILL and scene.chance.random() < kills_between:
                yield FAULTS[KILL]


def run_step(scene: Scene, fault: Fault) -> CourseStep:
    """Injects one fault, repairs its effects, and waits until the scene has recovered."""
    scene.wrong.clear()
    scene.ended_ms = 0
    begun_ms, what = now_ms(), ""
    try:
        what = fault.deed(scene)
    except AssertionError as error:
        scene.wrong.append(f"{type(error).__name__}: {error}")
    scene.ended_ms = scene.ended_ms or now_ms()
    lasted_s = (scene.ended_ms - begun_ms) / 1000
    try:
        scene.repair()
        scene.recover()
    except AssertionError as error:
        scene.wrong.append(f"no recovery: {error}")
    outage_ms, recovery_ms = scene.book.outage_ms(begun_ms, scene.ended_ms)
    wrong = [*scene.wrong, *scene.look_through_logs()]
    return CourseStep(fault, what, lasted_s, recovery_ms, outage_ms, (now_ms(), now_ms()), wrong)


def run_course(
    scene: Scene, names: Iterable[str], minutes: float, each: int, kills_between: float, tell: Tell
) -> list[CourseStep]:
    """Injects faults for `minutes`, and until every named fault was injected `each` times. Prints each step by
    `tell`."""
    until, steps = time.monotonic() + minutes * 60, list[CourseStep]()
    done = Counter(dict.fromkeys(names, 0))
    began = time.monotonic()
    for fault in order(scene, names, kills_between):
        if time.monotonic() >= until and min(done.values()) >= each:
            break
        step = run_step(scene, fault)
        scene.wait(CALM_S)
        step.calm_ms = (step.calm_ms[0], now_ms())
        steps.append(step)
        done[fault.name] += 1
        tell(
            f"{time.monotonic() - began:6.0f} s  {fault.name}: {step.what}; lasted {step.lasted_s:.1f} s, "
            f"recovery {step.recovery_ms} ms, outage {step.outage_ms} ms, asked {scene.load.acknowledged}"
        )
        for line in step.wrong:
            tell(f"          WRONG: {line}")
    return steps
