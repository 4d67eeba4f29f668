"""Extra deliveries of a schedule: which are pending, and which follow one.

Each is one of a control: (its offset, the number of its next delivery, the nominal time of that, the last possible
time). They consume no occurrence number.

    (9, 1, 12:00, 12:00)      a trigger at 12:00, which delivers once

Pure functions.
"""

from __future__ import annotations

from typing import TypeAlias

Extra: TypeAlias = tuple[int, int, int, int]
"""The offset of a control, the number of its next delivery, its nominal time, and the last possible one."""

Extras: TypeAlias = tuple[Extra, ...]


def extended(extras: Extras, control: int, first_ms: int, end_ms: int) -> Extras:
    """Return the extras with the deliveries of one more control, unless they have it. O(extras)."""
    if any(extra[0] == control for extra in extras):
        return extras
    return tuple(sorted((*extras, (control, 1, first_ms, end_ms))))


def after_extra(extras: Extras, control: int, number: int, next_ms: int) -> Extras:
    """Return the extras after delivery `number` of a control; `next_ms`: the time of its next one, 0: there is none. If
    they are behind it already, they stay as they are. O(extras)."""
    kept: list[Extra] = []
    for extra in extras:
        if extra[0] != control or extra[1] > number:
            kept.append(extra)
        elif next_ms:
            kept.append((control, number + 1, next_ms, extra[3]))
    return tuple(kept)
