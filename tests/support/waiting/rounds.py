"""Scenarios with a deadline, such as a cancel before the due time: a slow machine gets another round with more time.

Each further round takes the machine to be slower, and the play gives its steps so much more time; what it expects stays
what it was. The first round that is in time is the last one, so a machine that is quick plays only one. Do not use
rounds for claims about speed, but `contention.py` or `lateness_in_commits.py`.

Only what hangs on being in time goes through `expect`. What must hold at any speed (once, never early, for this reason)
is asserted in every round, and fails at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

#: How much slower than this project's own machines each round takes the machine to be.
LONGER: Sequence[int] = (1, 4, 16)

_Played = TypeVar("_Played")


class TooSlow(Exception):
    """The machine was too slow for this round; another may succeed."""


def expect(kept: bool, missed: str) -> None:
    """Ends the round with `missed` where what hangs on speed was not kept."""
    if not kept:
        raise TooSlow(missed)


def first_kept(play: Callable[[int], _Played], slower: Sequence[int]) -> _Played:
    """What the first round returns that keeps all it expects; fails with what each round missed where none does.

    `play` is called with each of `slower` in turn. It must be able to begin anew after a round that it left midway.
    """
    missed: list[str] = []
    for times in slower:
        try:
            return play(times)
        except TooSlow as short:
            missed.append(f"round {len(missed) + 1} (for a machine {times} times slower): {short}")
            print(missed[-1])
    raise AssertionError("no round was kept\n" + "\n".join(missed))
