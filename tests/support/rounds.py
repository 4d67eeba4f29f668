"""What depends on how fast a machine is, judged by rounds: it holds if one round of a few keeps it.

Whatever else runs on a machine can only add to a time, and only bring somebody too late; a defect of ours shows in
every round. The first round that keeps what was expected is the last one, so a machine that is quick plays only one.
Each further round takes the machine to be slower, and the play gives its steps so much more time, or asks so much less
of the machine in a second; what it expects stays what it was.

Only what hangs on speed goes through `expect`. What must hold at any speed (once, never early, for this reason) is
asserted in every round, and fails at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

#: How much slower than this project's own machines each round takes the machine to be: for a play that gives time.
LONGER: Sequence[int] = (1, 4, 16)
#: The same for a play that asks for less in a second: a bound is kept soon where there is little to do.
LIGHTER: Sequence[int] = (1, 1, 2, 4, 8)

_Played = TypeVar("_Played")


class TooSlow(Exception):
    """A round missed what it expected of the machine; another may keep it."""


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
