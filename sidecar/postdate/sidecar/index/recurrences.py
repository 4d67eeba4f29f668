"""Schedules in the timer index: computes due times, fates and next occurrences from the headers of an entry.

An entry keeps the headers that describe its schedule as they were sent, so they are read again for each occurrence. All
times that a fate has published are final; only those behind them are computed here.

Pure functions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from postdate.wheel.entry import Entry, Next, control_headers, control_of
from postdate.wire.dispatch_log import (
    EXTRA,
    EXTRA_DEAD,
    OCCURRED,
    PAUSED,
    SKIPPED,
    ExtraFate,
    Occurred,
    Skipped,
    Switched,
)
from postdate.wire.headers import AT, GRACE, ID, SCHEDULE, WINDOW, Headers
from postdate.wire.limits import INTEGER_END
from postdate.wire.requests import sent_headers
from postdate.wire.schedules.due import chosen_ms, decide
from postdate.wire.schedules.extras import after_extra, extended
from postdate.wire.schedules.occurrences import Occurrence, following, next_after, next_occurrence
from postdate.wire.schedules.pauses import OPEN_MS, Switch, pause_at, pauses_of, settled
from postdate.wire.schedules.schedule import Gap, Schedule, read_schedule

#: The due time of a paused schedule: never.
PAUSED_MS: Final = INTEGER_END - 1

_NOT_OF_ONE = SCHEDULE | {ID, WINDOW, GRACE}


class Decided(NamedTuple):
    """The fates of one transaction for a schedule, and the state after them, which may be its end (`is_over`)."""

    fates: list[Occurred | Skipped | ExtraFate]
    following: Next


def schedule_of(control: msgspec.Raw) -> Schedule:
    """The schedule that the packed control headers of an entry describe. 7 us."""
    return read_schedule({name: value for _, name, value in control_headers(control)})


def leaves_ms(origin: bytes, control: msgspec.Raw, following: Next) -> int:
    """When a schedule leaves: for an extra delivery, or for its next occurrence; PAUSED_MS: not before a resume."""
    occurs_ms = _occurs_ms(origin, control, following)
    return min(occurs_ms, *(extra[2] for extra in following.extras)) if following.extras else occurs_ms


def _occurs_ms(origin: bytes, control: msgspec.Raw, following: Next) -> int:
    """When the next occurrence leaves: at its nominal time, or at the chosen time of its window; PAUSED_MS: not before
    a resume, or never."""
    if not following.nominal_ms or (following.switches and is_held(following)):
        return PAUSED_MS
    schedule = schedule_of(control)
    if not schedule.window_ms:
        return following.nominal_ms
    return chosen_ms(schedule, origin, Occurrence(following.number, following.nominal_ms))


def decide_due(entry: Entry, offset: int, origin: bytes, now_ms: int, surplus_max: int) -> Decided:
    """Decide the due occurrences of a schedule, and then its due extra deliveries: at least one fate, and at most
    `surplus_max` more.

    REQUIRES: it is due at `now_ms`.
    """
    assert entry.next is not None
    fates: list[Occurred | Skipped | ExtraFate] = []
    due = [extra for extra in entry.next.extras if extra[2] <= now_ms]
    # If no extra delivery is due, the occurrence is, though another owner may have chosen an earlier time for it.
    if not due or _occurs_ms(origin, entry.control, entry.next) <= now_ms:
        fates += _decide_occurrences(entry, entry.next, offset, origin, now_ms)[: 1 + surplus_max]
    room = 1 + surplus_max - len(fates)
    fates += [ExtraFate(offset, entry.first_due, EXTRA, *extra[:3], 0) for extra in due[:room]]
    assert fates, "what is due is delivered or skipped"
    return Decided(fates, behind(entry.next, *fates))


def _decide_occurrences(
    entry: Entry, following: Next, offset: int, origin: bytes, now_ms: int
) -> list[Occurred | Skipped]:
    schedule = schedule_of(entry.control)
    position = _position(schedule, following)
    if schedule.window_ms:  # by the rules of another owner for time zones, it may have been chosen earlier
        now_ms = max(now_ms, chosen_ms(schedule, origin, position))
    decision = decide(schedule, origin, position, now_ms, following.switches)
    nominals = _nominals(schedule, position, decision.position)
    steps = sorted(
        [(each.number, each.number, "") for each in decision.delivered]
        + [(each.first, each.last, each.reason.value) for each in decision.skips]
    )
    fates: list[Occurred | Skipped] = []
    for first, last, reason in steps:
        next_ms = nominals.get(last + 1, 0)
        if reason:
            fates.append(Skipped(offset, entry.first_due, SKIPPED, first, last, reason, next_ms))  # type: ignore[arg-type]
        else:
            fates.append(Occurred(offset, entry.first_due, OCCURRED, first, nominals[first], next_ms))
    return fates


def behind(following: Next, *fates: Occurred | Skipped | ExtraFate) -> Next:
    """The state after these fates. Fates that it contains already change nothing."""
    for fate in fates:
        if isinstance(fate, ExtraFate):
            extras = after_extra(following.extras, fate.control, fate.number, fate.next_ms)
            following = msgspec.structs.replace(following, extras=extras)
        elif fate.last >= following.number:
            switches = following.switches if fate.next_ms else ()
            switches = settled(switches, fate.next_ms) if switches else ()
            following = Next(fate.last + 1, fate.next_ms, switches, following.extras)
    return following


def is_over(following: Next) -> bool:
    """True if a schedule is completed: it has neither a next occurrence nor an extra delivery."""
    return not following.nominal_ms and not following.extras


def triggered(following: Next, control: int, at_ms: int) -> Next:
    """The state after a trigger by the request at the offset `control`."""
    return msgspec.structs.replace(following, extras=extended(following.extras, control, at_ms, at_ms))


def switch_of(fate: Switched) -> Switch:
    """The switch that a fate adds."""
    return fate.control, fate.at_ms, fate.name == PAUSED


def switched(following: Next, *switches: Switch) -> Next:
    """The next occurrence after further pauses and resumes of its schedule, which do not matter if there is none."""
    if not following.nominal_ms:
        return following
    settles = settled(following.switches, following.nominal_ms, *switches)
    return msgspec.structs.replace(following, switches=settles)


def is_held(following: Next) -> bool:
    """True if an occurrence lies in a pause without a resume."""
    pause = pause_at(pauses_of(following.switches), following.nominal_ms)
    return pause is not None and pause.until_ms == OPEN_MS


def next_occurrences(entry: Entry, limit: int) -> list[Occurrence]:
    """Return the next occurrences of a schedule, at most `limit`, as this process computes them now."""
    assert entry.next is not None
    if not entry.next.nominal_ms:
        return []
    schedule = schedule_of(entry.control)
    return following(schedule, _position(schedule, entry.next), limit)


def undeliverable(entry: Entry, fate: Occurred | ExtraFate) -> Decided:
    """The fate of the next delivery of a schedule if it becomes a dead letter, from the fate that it would have had."""
    assert entry.next is not None
    dead: Skipped | ExtraFate
    if isinstance(fate, ExtraFate):
        dead = msgspec.structs.replace(fate, name=EXTRA_DEAD)
    else:
        dead = Skipped(fate.offset, fate.first_due_ms, SKIPPED, fate.number, fate.number, "dead", fate.next_ms)
    return Decided([dead], behind(entry.next, dead))


def single_headers(entry: Entry, nominal_ms: int) -> Headers:
    """The headers of a request for one delivery of a schedule, as its dead letter contains them."""
    sent = sent_headers(entry.headers, control_of(entry))
    kept = [(name, value) for name, value in sent if name not in _NOT_OF_ONE]
    return [*kept, (AT, b"%d" % nominal_ms)]


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
