"""Computes due times, fates and next occurrences of schedules from the headers of their entries.

An entry keeps the headers that describe its schedule as they were sent, and each occurrence reads them again. A time
that a fate has published is final; only later times are computed here.

Pure functions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from postdate.wheel.entry import Entry, Next, stripped_of, unpack_stripped
from postdate.wire.dispatch_log import (
    BACKFILLED,
    EXTRA,
    EXTRA_DEAD,
    OCCURRED,
    PAUSED,
    SKIPPED,
    Backfilled,
    ExtraFate,
    Occurred,
    PausedOrResumed,
    Skipped,
    Triggered,
)
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import AT, GRACE, ID, SCHEDULE, WINDOW, Headers
from postdate.wire.limits import BACKFILL_MAX, EXTRAS_MAX, INTEGER_END, SCHEDULES_REMEMBERED_MAX, SWITCHES_MAX
from postdate.wire.reasons import Reason
from postdate.wire.requests.parser import sent_headers
from postdate.wire.requests.request import EXTENDS, OF_SCHEDULES, Action, Request
from postdate.wire.schedules.due import chosen_ms, decide
from postdate.wire.schedules.extras import (
    Extra,
    after_extra,
    extended,
    fills_more,
    first_filled,
    next_filled,
    requested_ms,
)
from postdate.wire.schedules.occurrences import Occurrence, following, next_after, next_occurrence, skip_to
from postdate.wire.schedules.pauses import OPEN_MS, Switch, pause_at, pauses_of, settled
from postdate.wire.schedules.schedule import Gap, Schedule, read_schedule
from postdate.wire.values.instants import format_instant

#: The due time of a paused schedule, which means never.
PAUSED_MS: Final = INTEGER_END - 1

_SCHEDULE_HEADERS = SCHEDULE | {WINDOW, GRACE}
_NOT_IN_DEAD_LETTER = _SCHEDULE_HEADERS | {ID}

#: Packed stripped headers contain their names unchanged.
_WINDOW, _GRACE = WINDOW.encode(), GRACE.encode()


class Decided(NamedTuple):
    """The fates of one transaction for a schedule, and the state after them, which may be the end of the schedule
    (`is_over`)."""

    fates: list[Occurred | Skipped | ExtraFate]
    following: Next


def schedule_of(stripped: msgspec.Raw) -> Schedule:
    """Returns the schedule that the stripped headers of an entry describe. 2 us, or 9 us if the same headers were not
    read lately."""
    return _schedule(
        tuple([(name, value) for _, name, value in unpack_stripped(stripped) if name in _SCHEDULE_HEADERS])
    )


@lru_cache(maxsize=SCHEDULES_REMEMBERED_MAX)
def _schedule(described: tuple[tuple[str, bytes | None], ...]) -> Schedule:
    return read_schedule({ID: b"", **dict(described)})


def leaves_ms(origin: bytes, stripped: msgspec.Raw, following: Next) -> int:
    """Returns the time of the next delivery of a schedule, an extra delivery or its next occurrence; PAUSED_MS: not
    before a resume, or never."""
    occurs_ms = _occurs_ms(origin, stripped, following)
    return min(occurs_ms, *map(requested_ms, following.extras)) if following.extras else occurs_ms


def _occurs_ms(origin: bytes, stripped: msgspec.Raw, following: Next) -> int:
    """Returns the time at which the next occurrence leaves: its nominal time, or the chosen time of its window;
    PAUSED_MS: not before a resume, or never."""
    if not following.nominal_ms or (following.switches and is_held(following)):
        return PAUSED_MS
    if _WINDOW not in bytes(stripped):
        return following.nominal_ms
    return chosen_ms(schedule_of(stripped), origin, Occurrence(following.number, following.nominal_ms))


def grace_end_ms(entry: Entry, origin: bytes, number: int, nominal_ms: int) -> int:
    """Returns the end of grace of an occurrence of a schedule; INTEGER_END if it has no grace."""
    schedule = schedule_of(entry.stripped) if _GRACE in bytes(entry.stripped) else None
    if schedule is None or schedule.grace_ms < 0:
        return INTEGER_END
    return chosen_ms(schedule, origin, Occurrence(number, nominal_ms)) + schedule.grace_ms


def decide_due(entry: Entry, offset: int, origin: bytes, now_ms: int, until_ms: int, surplus_max: int) -> Decided:
    """Decides the occurrences of a schedule that are due up to `until_ms`, and then its extra deliveries. Returns at
    least one fate, and at most `surplus_max` more. Lateness is measured at `now_ms`.

    REQUIRES: the schedule is due at `until_ms`.
    """
    assert entry.next is not None
    fates: list[Occurred | Skipped | ExtraFate] = []
    due = [extra for extra in entry.next.extras if requested_ms(extra) <= until_ms]
    # If no extra delivery is due, the occurrence is due, even if this process computes a later time for it than the
    # previous owner did.
    if not due or _occurs_ms(origin, entry.stripped, entry.next) <= until_ms:
        fates += _decide_occurrences(entry, entry.next, offset, origin, now_ms, until_ms)[: 1 + surplus_max]
    for extra in due:
        fates += _decide_extras(entry, extra, offset, 1 + surplus_max - len(fates))
    assert fates, "what is due is delivered or skipped"
    return Decided(fates, after_fates(entry.next, *fates))


def _decide_occurrences(
    entry: Entry, following: Next, offset: int, origin: bytes, now_ms: int, until_ms: int
) -> list[Occurred | Skipped]:
    schedule, nominal_ms = schedule_of(entry.stripped), following.nominal_ms
    if schedule.delivers_all and not following.switches and nominal_ms <= until_ms:
        successor = next_occurrence(schedule, Occurrence(following.number, nominal_ms))
        next_ms = successor.nominal_ms if successor is not None else 0
        if not 0 < next_ms <= until_ms:  # the usual case; `decide` would return the same
            return [Occurred(offset, entry.first_due, OCCURRED, following.number, nominal_ms, next_ms)]
    position = _position(schedule, following)
    if schedule.window_ms:  # the previous owner may have chosen an earlier time
        until_ms = max(until_ms, chosen_ms(schedule, origin, position))
        now_ms = max(now_ms, until_ms)
    decision = decide(schedule, origin, position, now_ms, following.switches, until_ms)
    nominals = decision.nominals_ms
    steps = sorted(
        [(occurrence.number, occurrence.number, "") for occurrence in decision.delivered]
        + [(skip.first, skip.last, skip.reason.value) for skip in decision.skips]
    )
    fates: list[Occurred | Skipped] = []
    for first, last, reason in steps:
        next_ms = nominals.get(last + 1, 0)
        if reason:
            fates.append(Skipped(offset, entry.first_due, SKIPPED, first, last, reason, next_ms))  # type: ignore[arg-type]
        else:
            fates.append(Occurred(offset, entry.first_due, OCCURRED, first, nominals[first], next_ms))
    return fates


def _decide_extras(entry: Entry, extra: Extra, offset: int, fates_max: int) -> list[ExtraFate]:
    """Returns the fates of the next deliveries of one control, at most `fates_max`."""
    control, number, nominal_ms, end_ms, _ = extra
    schedule = schedule_of(entry.stripped) if fates_max > 0 and nominal_ms < end_ms else None
    fates: list[ExtraFate] = []
    while nominal_ms and len(fates) < fates_max:
        next_ms = next_filled(schedule, nominal_ms, end_ms) if schedule is not None else 0
        fates.append(ExtraFate(offset, entry.first_due, EXTRA, control, number + len(fates), nominal_ms, next_ms))
        nominal_ms = next_ms
    return fates


def after_fates(following: Next, *fates: Occurred | Skipped | ExtraFate) -> Next:
    """Returns the state after these fates. Fates that the state already contains have no effect."""
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


def control_refusal(entry: Entry, request: Request) -> RequestRefused | None:
    """Returns why a control cannot act on a pending entry, a schedule or a single message; None if it can."""
    name, following = Action(request.action).name.lower(), entry.next
    if following is None:
        if request.action not in OF_SCHEDULES:
            return None
        return RequestRefused(Reason.BAD_ACTION, f"a {name} acts on a recurring schedule, and this request is not one")
    if request.action == Action.RESCHEDULE:
        detail = "a schedule is not rescheduled: replace it by a request with the same id"
        return RequestRefused(Reason.BAD_ACTION, detail)
    if request.action == Action.PAUSE and len(following.switches) >= SWITCHES_MAX:
        detail = f"the schedule has {SWITCHES_MAX} pauses and resumes that still matter: pause it after its next time"
        return RequestRefused(Reason.LIMIT_EXCEEDED, detail)
    if request.action in EXTENDS and len(following.extras) >= EXTRAS_MAX:
        detail = f"{EXTRAS_MAX} triggers and backfills of the schedule are pending: {name} it after they have left"
        return RequestRefused(Reason.LIMIT_EXCEEDED, detail)
    return _backfill_refusal(entry, *request.times_ms) if request.action == Action.BACKFILL else None


def _backfill_refusal(entry: Entry, start_ms: int, end_ms: int) -> RequestRefused | None:
    """Returns why a schedule cannot be backfilled for these times; None if it can."""
    schedule = schedule_of(entry.stripped)
    first_ms = first_filled(schedule, start_ms, end_ms)
    times = f"{format_instant(start_ms)} to {format_instant(end_ms)}"
    if not first_ms:
        return RequestRefused(Reason.BAD_SCHEDULE, f"the schedule has no nominal time from {times}")
    if fills_more(schedule, first_ms, end_ms, BACKFILL_MAX):
        detail = f"the schedule has more than {BACKFILL_MAX:,} nominal times from {times}: backfill it in parts"
        return RequestRefused(Reason.LIMIT_EXCEEDED, detail)
    return None


def after_control_request(entry: Entry, control: int, at_ms: int, request: Request) -> tuple[Next, int]:
    """Returns the state after a control of a schedule, and the time that the fate of the control must have: the
    timestamp `at_ms`; for a backfill, its first nominal time. `control`: the offset of the control.

    REQUIRES: `control_refusal` returns None.
    """
    assert entry.next is not None
    if request.action not in EXTENDS:
        return with_switches(entry.next, (control, at_ms, request.action == Action.PAUSE)), at_ms
    first_ms, end_ms = at_ms, at_ms
    if request.action == Action.BACKFILL:
        start_ms, end_ms = request.times_ms
        first_ms = first_filled(schedule_of(entry.stripped), start_ms, end_ms)
    return _extended(entry.next, control, first_ms, end_ms, at_ms), first_ms


def compared_ms(fate: PausedOrResumed | Triggered | Backfilled) -> int:
    """Returns the time of a fate that must equal the time from `after_control_request`."""
    return fate.first_ms if isinstance(fate, Backfilled) else fate.at_ms


def after_control_fate(following: Next, fate: PausedOrResumed | Triggered | Backfilled) -> Next:
    """Returns the state after the fate of a control of a schedule."""
    if isinstance(fate, PausedOrResumed):
        return with_switches(following, (fate.control, fate.at_ms, fate.name == PAUSED))
    end_ms = fate.end_ms if isinstance(fate, Backfilled) else fate.at_ms
    return _extended(following, fate.control, compared_ms(fate), end_ms, fate.at_ms)


def backfill_fate(entry: Entry, offset: int, control: int) -> Backfilled:
    """Returns the fate of a schedule that the backfill at the offset `control` extends.

    REQUIRES: none of its deliveries has left.
    """
    assert entry.next is not None
    (times_ms,) = [times_ms for extended_by, _, *times_ms in entry.next.extras if extended_by == control]
    first_ms, end_ms, at_ms = times_ms
    return Backfilled(offset, entry.first_due, BACKFILLED, at_ms, control, first_ms, end_ms)


def _extended(following: Next, control: int, first_ms: int, end_ms: int, at_ms: int) -> Next:
    extras = extended(following.extras, control, first_ms, end_ms, at_ms)
    return msgspec.structs.replace(following, extras=extras)


def with_switches(following: Next, *switches: Switch) -> Next:
    """Returns the state after further pauses and resumes of a schedule. They have no effect without a next
    occurrence."""
    if not following.nominal_ms:
        return following
    settles = settled(following.switches, following.nominal_ms, *switches)
    return msgspec.structs.replace(following, switches=settles)


def is_held(following: Next) -> bool:
    """True if the next occurrence falls into a pause that has no end yet."""
    pause = pause_at(pauses_of(following.switches), following.nominal_ms)
    return pause is not None and pause.until_ms == OPEN_MS


def next_occurrences(entry: Entry, limit: int, now_ms: int = 0) -> list[Occurrence]:
    """Returns the next occurrences of a schedule, at most `limit`, as this process computes them now. For a paused
    schedule, they are not before `now_ms`, since a resume skips earlier ones."""
    assert entry.next is not None
    if not entry.next.nominal_ms:
        return []
    schedule = schedule_of(entry.stripped)
    position = _position(schedule, entry.next)
    return following(schedule, skip_to(schedule, position, now_ms) if is_held(entry.next) else position, limit)


def undeliverable(entry: Entry, fate: Occurred | ExtraFate) -> Decided:
    """Returns the fate of the next delivery of a schedule as a dead letter, and the state after it. `fate`: the fate
    that the delivery would have had."""
    assert entry.next is not None
    dead: Skipped | ExtraFate
    if isinstance(fate, ExtraFate):
        dead = msgspec.structs.replace(fate, name=EXTRA_DEAD)
    else:
        dead = Skipped(fate.offset, fate.first_due_ms, SKIPPED, fate.number, fate.number, "dead", fate.next_ms)
    return Decided([dead], after_fates(entry.next, dead))


def single_delivery_headers(entry: Entry, nominal_ms: int) -> Headers:
    """Returns the headers for the dead letter of one delivery of a schedule: those of a request for this delivery
    alone."""
    sent = sent_headers(entry.headers, stripped_of(entry))
    kept = [(name, value) for name, value in sent if name not in _NOT_IN_DEAD_LETTER]
    return [*kept, (AT, b"%d" % nominal_ms)]


def _position(schedule: Schedule, following: Next) -> Occurrence:
    """Returns the next occurrence. The occurrence is marked if the schedule skips gaps and, by the time zone rules of
    this process, the occurrence falls into a gap."""
    number, nominal_ms = following.number, following.nominal_ms
    if schedule.gap is not Gap.SKIP:
        return Occurrence(number, nominal_ms)
    occurrence = next_after(schedule, nominal_ms - 1)
    return Occurrence(number, nominal_ms, occurrence == (nominal_ms, True))
