"""Repeats scenarios that have a deadline, such as a cancel before the due time, and allows them more time in each
round.

Each further round assumes a slower machine and allows its steps more time; the expectations stay the same. The first
round that meets its deadlines is the last one, so a fast machine runs only one. To check speed itself, use
`contention.py` or `lateness_in_commits.py` instead.

Only conditions that depend on the speed of the machine go through `expect`. Conditions that hold at any speed, such as
"delivered once" or "never early", are asserted in every round and fail immediately.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

#: For each round, the factor by which the machine is assumed to be slower than this project's own machines.
LONGER: Sequence[int] = (1, 4, 16)

_Played = TypeVar("_Played")


class TooSlow(Exception):
    """The machine was too slow for this round; another round may succeed."""


def expect(kept: bool, missed: str) -> None:
    """Ends the round with the message `missed` unless a condition that depends on speed was met."""
    if not kept:
        raise TooSlow(missed)


def first_round_in_time(play: Callable[[int], _Played], slower: Sequence[int]) -> _Played:
    """Returns the result of the first round that meets all its expectations; fails with the message of every round if
    none does.

    Calls `play` with each of `slower` in turn. `play` must be able to start again after a round that ended midway.
    """
    missed: list[str] = []
    for times in slower:
        try:
            return play(times)
        except TooSlow as short:
            missed.append(f"round {len(missed) + 1} (for a machine {times} times slower): {short}")
            print(missed[-1])
    raise AssertionError("no round was kept\n" + "\n".join(missed))
