"""Schedules in the timer index: what follows from the headers of an entry and from its next occurrence.

An entry keeps the headers that describe its schedule as they were sent, so they are read again for each occurrence. All
times that a fate has published are final; only those behind them are computed here.

Pure functions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from postdate.wheel.entry import Entry, Next, control_headers, control_of
from postdate.wire.dispatch_log import OCCURRED, PAUSED, SKIPPED, Occurred, Skipped, Switched
from postdate.wire.headers import AT, GRACE, ID, SCHEDULE, WINDOW, Headers
from postdate.wire.limits import INTEGER_END
from postdate.wire.requests import sent_headers
from postdate.wire.schedules.due import chosen_ms, decide
from postdate.wire.schedules.occurrences import Occurrence, following, next_after, next_occurrence
from postdate.wire.schedules.pauses import OPEN_MS, Switch, pause_at, pauses_of, settled
from postdate.wire.schedules.schedule import Gap, Schedule, read_schedule

#: The due time of a schedule that is paused: none.
PAUSED_MS: Final = INTEGER_END - 1

_NOT_OF_ONE = SCHEDULE | {ID, WINDOW, GRACE}


class Decided(NamedTuple):
    """The fates of one transaction for a schedule, and its next occurrence; None: it is completed."""

    fates: list[Occurred | Skipped]
    following: Next | None


def schedule_of(control: msgspec.Raw) -> Schedule:
    """The schedule that the packed control headers of an entry describe. 7 us."""
    return read_schedule({name: value for _, name, value in control_headers(control)})


def leaves_ms(origin: bytes, control: msgspec.Raw, following: Next) -> int:
    """When an occurrence leaves: its nominal time, or the chosen time of its window; PAUSED_MS: not before a resume."""
    if following.switches and _is_held(following):
        return PAUSED_MS
    schedule = schedule_of(control)
    if not schedule.window_ms:
        return following.nominal_ms
    return chosen_ms(schedule, origin, Occurrence(following.number, following.nominal_ms))


def decide_due(entry: Entry, offset: int, origin: bytes, now_ms: int, surplus_max: int) -> Decided:
    """Decide the due occurrences of a schedule: at least one fate, and at most `surplus_max` more.

    REQUIRES: its next occurrence is due at `now_ms`.
    """
    assert entry.next is not None
    schedule = schedule_of(entry.control)
    position = _position(schedule, entry.next)
    if schedule.window_ms:  # by the rules of another owner for time zones, it may have been chosen earlier
        now_ms = max(now_ms, chosen_ms(schedule, origin, position))
    decision = decide(schedule, origin, position, now_ms, entry.next.switches)
    nominals = _nominals(schedule, position, decision.position)
    steps = sorted(
        [(each.number, each.number, "") for each in decision.delivered]
        + [(each.first, each.last, each.reason.value) for each in decision.skips]
    )
    fates: list[Occurred | Skipped] = []
    for first, last, reason in steps[: 1 + surplus_max]:
        next_ms = nominals.get(last + 1, 0)
        if reason:
            fates.append(Skipped(offset, entry.first_due, SKIPPED, first, last, reason, next_ms))  # type: ignore[arg-type]
        else:
            fates.append(Occurred(offset, entry.first_due, OCCURRED, first, nominals[first], next_ms))
    assert fates, "a due occurrence is delivered or skipped"
    return Decided(fates, behind(entry.next, fates[-1]))


def behind(following: Next | None, fate: Occurred | Skipped) -> Next | None:
    """The next occurrence after a fate; None: there is none. `following`: the one before the fate, None if unknown."""
    if not fate.next_ms:
        return None
    switches = following.switches if following is not None else ()
    return Next(fate.last + 1, fate.next_ms, settled(switches, fate.next_ms) if switches else ())


def switch_of(fate: Switched) -> Switch:
    """The switch that a fate adds."""
    return fate.control, fate.at_ms, fate.name == PAUSED


def switched(following: Next, *switches: Switch) -> Next:
    """The next occurrence after further pauses and resumes of its schedule."""
    settles = settled(following.switches, following.nominal_ms, *switches)
    return msgspec.structs.replace(following, switches=settles)


def _is_held(following: Next) -> bool:
    """True if an occurrence lies in a pause without a resume."""
    pause = pause_at(pauses_of(following.switches), following.nominal_ms)
    return pause is not None and pause.until_ms == OPEN_MS


def next_occurrences(entry: Entry, limit: int) -> list[Occurrence]:
    """Return the next occurrences of a schedule, at most `limit`, as this process computes them now."""
    assert entry.next is not None
    schedule = schedule_of(entry.control)
    return following(schedule, _position(schedule, entry.next), limit)


def undeliverable(entry: Entry, offset: int) -> Decided:
    """The next occurrence is skipped, since its message becomes a dead letter."""
    assert entry.next is not None
    number, nominal_ms = entry.next.number, entry.next.nominal_ms
    following = next_occurrence(schedule_of(entry.control), Occurrence(number, nominal_ms))
    next_ms = following.nominal_ms if following is not None else 0
    fate = Skipped(offset, entry.first_due, SKIPPED, number, number, "dead", next_ms)
    return Decided([fate], behind(entry.next, fate))


def single_headers(entry: Entry) -> Headers:
    """The headers of a request for the next occurrence alone: what a dead letter of it contains."""
    assert entry.next is not None
    sent = sent_headers(entry.headers, control_of(entry))
    kept = [(name, value) for name, value in sent if name not in _NOT_OF_ONE]
    return [*kept, (AT, b"%d" % entry.next.nominal_ms)]


def _position(schedule: Schedule, following: Next) -> Occurrence:
    """The next occurrence, and whether the schedule skips it as lying in a gap, by the rules of this process."""
    number, nominal_ms = following.number, following.nominal_ms
    if schedule.gap is not Gap.SKIP:
        return Occurrence(number, nominal_ms)
    found = next_after(schedule, nominal_ms - 1)
    return Occurrence(number, nominal_ms, found == (nominal_ms, True))


def _nominals(schedule: Schedule, position: Occurrence, end: Occurrence | None) -> dict[int, int]:
    """The nominal times from `position` to `end`, both included, by their numbers."""
    found: dict[int, int] = {}
    each: Occurrence | None = position
    while each is not None:
        found[each.number] = each.nominal_ms
        if end is not None and each.number >= end.number:
            break
        each = next_occurrence(schedule, each)
    return found
