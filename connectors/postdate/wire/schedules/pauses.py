"""Pauses of a schedule: the controls that paused and resumed it determine the nominal times that are skipped.

Each of these controls is a switch. In a settled sequence, offsets ascend, and pauses and resumes alternate, beginning
with a pause. A pause without a resume never ends.

    (7, 12:00, pause) (9, 12:10, resume)      nominal times in [12:00, 12:10) are skipped

Pure functions.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from postdate.wire.limits import INTEGER_END

Switch: TypeAlias = tuple[int, int, bool]
"""The offset of a control, its timestamp, and whether it pauses."""

Switches: TypeAlias = tuple[Switch, ...]

#: The end of a pause without a resume.
OPEN_MS: Final = INTEGER_END


class Pause(NamedTuple):
    """The nominal times in [from_ms, until_ms) are skipped."""

    from_ms: int
    until_ms: int


def settled(switches: Switches, nominal_ms: int, *more: Switch) -> Switches:
    """Returns the settled sequence of the switches and `more`: without switches that change nothing, and without pauses
    that end at or before `nominal_ms`, the next nominal time. O(switches)."""
    kept: list[Switch] = []
    for switch in sorted({*switches, *more}):
        if switch[2] != bool(kept and kept[-1][2]):
            kept.append(switch)
    ended = {index - index % 2 for index in range(1, len(kept), 2) if kept[index][1] <= nominal_ms}
    return tuple(switch for index, switch in enumerate(kept) if index - index % 2 not in ended)


def pauses_of(switches: Switches) -> list[Pause]:
    """Returns the pauses of settled switches, in the order of their offsets."""
    ends = [switch[1] for switch in switches[1::2]]
    ends += [OPEN_MS] * (len(switches) % 2)
    return [Pause(start[1], end) for start, end in zip(switches[::2], ends, strict=True)]


def pause_at(pauses: list[Pause], nominal_ms: int) -> Pause | None:
    """Returns the pause in which a nominal time lies, or None. Of several pauses, returns the one that ends last."""
    matching = [pause for pause in pauses if pause.from_ms <= nominal_ms < pause.until_ms]
    return max(matching, key=lambda pause: pause.until_ms, default=None)
