"""The pending extra deliveries of a schedule, and their changes.

An extra stands for the pending deliveries of one control. It has the offset of the control, the number of the next
delivery, the nominal time of this delivery, the last possible nominal time, and the timestamp of the control. The
deliveries may leave from this timestamp on. They consume no occurrence number.

    (9, 1, 12:00, 12:00, 12:00)     a trigger at 12:00, which delivers once
    (9, 4, 03:00, 08:00, 12:00)     a backfill at 12:00, whose first three deliveries have left

Pure functions.
"""

from __future__ import annotations

from typing import TypeAlias

from postdate.wire.schedules.occurrences import count_nominal, next_after
from postdate.wire.schedules.schedule import Schedule

Extra: TypeAlias = tuple[int, int, int, int, int]
"""The offset of a control, the number of its next delivery, the nominal time of this delivery, the last possible
nominal time, and the timestamp of the control."""

Extras: TypeAlias = tuple[Extra, ...]


def requested_ms(extra: Extra) -> int:
    """Returns the timestamp of the control. Its deliveries may leave from this time on."""
    _, _, _, _, at_ms = extra
    return at_ms


def extended(extras: Extras, control: int, first_ms: int, end_ms: int, at_ms: int) -> Extras:
    """Returns the extras with the deliveries of a further control, or unchanged if they contain this control already.
    O(extras)."""
    if any(extended_by == control for extended_by, *_ in extras):
        return extras
    return tuple(sorted((*extras, (control, 1, first_ms, end_ms, at_ms))))


def after_extra(extras: Extras, control: int, number: int, next_ms: int) -> Extras:
    """Returns the extras after delivery `number` of a control. `next_ms`: the nominal time of the control's next
    delivery, or 0 if there is none. An extra that is already beyond this delivery stays unchanged. O(extras)."""
    kept: list[Extra] = []
    for extra in extras:
        extended_by, next_number, _, end_ms, at_ms = extra
        if extended_by != control or next_number > number:
            kept.append(extra)
        elif next_ms:
            kept.append((control, number + 1, next_ms, end_ms, at_ms))
    return tuple(kept)


def first_filled(schedule: Schedule, start_ms: int, end_ms: int) -> int:
    """Returns the first nominal time that a backfill from `start_ms` to `end_ms`, both included, delivers, or 0 if
    there is none.

    The start and the end in the request of the schedule limit these times, if given. The count and the timestamp of the
    request do not. Times in a gap that the schedule skips are left out.
    """
    return next_filled(schedule, max(start_ms, schedule.start_ms) - 1, end_ms)


def next_filled(schedule: Schedule, after_ms: int, end_ms: int) -> int:
    """Returns the next nominal time of a backfill after `after_ms`, at most `end_ms`, or 0 if there is none. Cost: that
    of `next_occurrence`."""
    end_ms = min(end_ms, schedule.last_ms)
    while after_ms < end_ms:
        following = next_after(schedule, after_ms)
        if following is None or following[0] > end_ms:
            return 0
        after_ms, is_in_gap = following
        if not is_in_gap:
            return after_ms
    return 0


def fills_more(schedule: Schedule, first_ms: int, end_ms: int, count_max: int) -> bool:
    """Returns True if a backfill from `first_ms` to `end_ms` has more than `count_max` nominal times. Cost: that of
    `count_nominal`, which does not compute each time."""
    return count_nominal(schedule, first_ms, end_ms, count_max) > count_max
