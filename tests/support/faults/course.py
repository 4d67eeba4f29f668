"""Runs faults one after the other, each to its end and recovery, and measures their cost.

A round has every fault once, in an order that follows from the seed, with kills in between: `kills_between` of them on
average. What goes wrong is noted, and the course goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from support.faults import deeds_disk, deeds_network, deeds_process, deeds_stranger
from support.faults.deed import FAULTS, Fault
from support.faults.scene import Scene, now_ms

#: Imported for the faults that they register.
DEEDS = (deeds_disk, deeds_network, deeds_process, deeds_stranger)
KILL = "kill"

#: s. Nothing is done for so long after each recovery, to see what lateness is like then.
CALM_S = 1.0

Tell = Callable[[str], None]


@dataclass
class CourseStep:
    """One fault as it went."""

    fault: Fault
    what: str
    lasted_s: float
    recovery_ms: int
    """From the end of the fault, how late the latest message was."""
    outage_ms: int
    """The same from when it was due: the longest time in which something due was not delivered."""
    calm_ms: tuple[int, int]
    """From when to when nothing was done after it."""
    wrong: list[str] = field(default_factory=list)


def order(scene: Scene, names: Iterable[str], kills_between: float) -> Iterator[Fault]:
    """Faults without end: rounds of all that are named, with kills strewn in."""
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
    """Run for this long, and until every named fault was done `each` times; print each step by `tell`."""
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
