"""The requests that are sent, and the expected outcome of each.

One request in twenty has an id. After the first five seconds, one in twenty is a control, which acts on the request
with an id that was sent five seconds earlier. Four of five controls cancel their request, the fifth reschedules it. A
request with an id is due at least ten seconds after it is sent, so its control is in time. Delays are uniform.
Everything follows from the seed, except for the time at which a request is sent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

DELAY_MS_MIN = 1_000
#: Milliseconds: the shortest delay of a request with an id.
_CONTROLLED_MS = 10_000
#: Seconds: the time from a request to its control.
_CONTROL_AFTER_S = 5
GROUP = 20
_WITH_ID, _CONTROL = 10, 19
_MOVES_EACH = 5

MESSAGE, CANCEL, MOVE = 0, 1, 2


class Planned(NamedTuple):
    """One request. `acts_on`: for a control, the number of the request with the id; otherwise -1. `delay_ms`: -1 for a
    cancel."""

    kind: int
    has_id: bool
    acts_on: int
    delay_ms: int


def plan(rate: int, count: int, delay_ms_max: int, seed: int) -> Iterator[Planned]:
    """Yields the requests 0 to `count` - 1, of which `rate` are sent in a second. `delay_ms_max`: the longest delay."""
    uniform = random.Random(seed).randint  # noqa: S311  # not a secret: the same load every time
    back = _CONTROL - _WITH_ID + GROUP * max(1, rate * _CONTROL_AFTER_S // GROUP)
    least, most = DELAY_MS_MIN, delay_ms_max
    for number in range(count):
        place = number % GROUP
        if place == _CONTROL and number >= back:
            is_move = number // GROUP % _MOVES_EACH == 0
            yield Planned(MOVE if is_move else CANCEL, False, number - back, uniform(least, most) if is_move else -1)
        elif place == _WITH_ID:
            yield Planned(MESSAGE, True, -1, uniform(_CONTROLLED_MS, most))
        else:
            yield Planned(MESSAGE, False, -1, uniform(least, most))


class Outcomes:
    """Arrays in mapped files, with one element for each request. The load and the reader write them.

    The load writes `due_ms`: the final due time, -1 for a request that must not arrive, and 0 for a request that was
    not sent. The reader writes `arrived`, the number of arrivals. For the first arrival it also writes `due_said_ms`,
    the due time in the message, and `late_ms`, the lateness.
    """

    def __init__(self, directory: Path, count: int, create: bool = False) -> None:
        """Opens the files, or creates them with zeros."""

        def column(name: str, kind: type[np.generic]) -> npt.NDArray[np.generic]:
            path = directory / f"{name}.bin"
            return np.memmap(path, dtype=kind, mode="w+" if create else "r+", shape=(count,))

        self.due_ms: npt.NDArray[np.int64] = column("due", np.int64)  # type: ignore[assignment]
        self.arrived: npt.NDArray[np.uint8] = column("arrived", np.uint8)  # type: ignore[assignment]
        self.due_said_ms: npt.NDArray[np.int64] = column("due-said", np.int64)  # type: ignore[assignment]
        self.late_ms: npt.NDArray[np.float32] = column("late", np.float32)  # type: ignore[assignment]
