"""Runs the cases of a target. Each case has a separate random generator, so its number alone reproduces it.

Uses one thread. A slow case is a finding as well: foreign input must not stop a shard.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random

from support.fuzzing.targets import TARGETS, FuzzTarget

#: Seconds of CPU time: the limit for one case. A case takes less than a hundredth of it, unless the cost of a parser
#: grows faster than its input.
CASE_S_MAX = 5.0
#: Characters: the maximum length of an input in a finding.
_SHOWN = 2_000


@dataclass(frozen=True)
class FuzzFinding:
    """A case with an undeclared result: its input and the observed result."""

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
    """The numbers of accepted and refused cases: if one of them is zero, the fuzzer proves little."""

    taken: int = 0
    refused: int = 0


def run_case(target: FuzzTarget, seed: int, number: int, tally: Tally) -> FuzzFinding | None:
    """Runs one case; returns None if its result is as declared."""
    case = target.make(Random(f"{target.name}/{seed}/{number}"))
    return judge(target, case, seed, number, tally)


def judge(target: FuzzTarget, case: object, seed: int, number: int, tally: Tally) -> FuzzFinding | None:
    """Parses one input; returns None if the parser accepted or refused it as declared, and in time."""
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
    """Runs the cases [first, first + cases) of a target for up to `seconds`; returns the findings and the tally."""
    findings, tally, deadline = [], Tally(), time.monotonic() + seconds
    for number in range(first, first + cases):
        if time.monotonic() >= deadline:
            break
        found = run_case(TARGETS[name], seed, number, tally)
        if found is not None:
            findings.append(found)
    return findings, tally
