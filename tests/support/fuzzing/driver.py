"""Going through cases of a target: each is made by a generator of its own, so its number alone replays it.

One thread. A case that takes long is a finding as well: what strangers send must not stop a shard.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random

from support.fuzzing.targets import TARGETS, FuzzTarget

#: s of CPU time. No case takes a hundredth of it; a parser whose cost is not in proportion to its input takes more.
CASE_S_MAX = 5.0
#: characters. How much of an input a finding shows.
_SHOWN = 2_000


@dataclass(frozen=True)
class FuzzFinding:
    """A case that ended as no caller expects, and what there was to see."""

    target: str
    seed: int
    number: int
    what: str
    shown: str

    def __str__(self) -> str:
        again = f"PYTHONPATH=tests python -m support.fuzzing --target {self.target} --seed {self.seed}"
        return f"{self.target}: {self.what}\n  input: {self.shown}\n  again: {again} --first {self.number} --cases 1"


@dataclass
class Tally:
    """How many cases were taken, and how many refused: a fuzzer that reaches one side only proves little."""

    taken: int = 0
    refused: int = 0


def run_case(target: FuzzTarget, seed: int, number: int, tally: Tally) -> FuzzFinding | None:
    """One case; None where it ended as declared."""
    case = target.make(Random(f"{target.name}/{seed}/{number}"))
    return judge(target, case, seed, number, tally)


def judge(target: FuzzTarget, case: object, seed: int, number: int, tally: Tally) -> FuzzFinding | None:
    """Reads one input; None where it was taken or refused as declared, and in time."""
    started = time.thread_time()
    try:
        target.read(case)
        tally.taken += 1
    except target.declared:
        tally.refused += 1
    except Exception as error:
        return FuzzFinding(target.name, seed, number, f"{type(error).__name__}: {error}"[:500], repr(case)[:_SHOWN])
    took_s = time.thread_time() - started
    if took_s > CASE_S_MAX:
        return FuzzFinding(target.name, seed, number, f"took {took_s:.1f} s of CPU time", repr(case)[:_SHOWN])
    return None


def run(name: str, seed: int, first: int, cases: int, seconds: float = float("inf")) -> tuple[list[FuzzFinding], Tally]:
    """Cases [first, first + cases) of a target, until `seconds` have passed: what was found, and what was reached."""
    findings, tally, deadline = [], Tally(), time.monotonic() + seconds
    for number in range(first, first + cases):
        if time.monotonic() >= deadline:
            break
        found = run_case(TARGETS[name], seed, number, tally)
        if found is not None:
            findings.append(found)
    return findings, tally
