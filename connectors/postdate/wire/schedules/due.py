"""Decides which due occurrences of a schedule are delivered, and which are skipped, with the reason.

An occurrence is due from its chosen time on. Without `postdate-window`, this is its nominal time; otherwise it is a
time within the window and before the next nominal time. So occurrences become due in the order of their numbers.
Lateness counts from the chosen time. If a pause has no resume yet, the first occurrence in the pause and all later ones
stay undecided. The first rule that applies decides:

    paused    the occurrence lies in a pause that has ended
    gap       the occurrence lies in a gap, and the schedule skips such occurrences
    missed    the occurrence is late by more than postdate-catch-up; or postdate-missed is `last`, and a newer
              occurrence is due that neither a gap nor a pause skips; or postdate-missed is `none`, and the occurrence
              is more than 60 s late
    grace     the occurrence is late by more than postdate-grace
    deliver   otherwise

Pure functions of the schedule, a position and the time of the decision.
"""

from __future__ import annotations

from typing import NamedTuple

from postdate.wire.limits import LATE_MS_MAX, OCCURRENCES_MAX
from postdate.wire.schedules.occurrences import Occurrence, SkipReason, next_occurrence, skip_to
from postdate.wire.schedules.pauses import OPEN_MS, Pause, Switches, pause_at, pauses_of
from postdate.wire.schedules.schedule import Missed, Schedule
from postdate.wire.values.windows import draw_ms


class Skip(NamedTuple):
    """Occurrences that are skipped for the same reason: the numbers `first` to `last`, both included."""

    first: int
    last: int
    reason: SkipReason


class OccurrenceDecision(NamedTuple):
    """The decision on due occurrences. Each decided occurrence is in `delivered` or in one of the `skips`."""

    delivered: list[Occurrence]
    """By number; at most OCCURRENCES_MAX."""
    skips: list[Skip]
    """By number."""
    position: Occurrence | None
    """The first undecided occurrence, which may already be due; None if the schedule is completed."""
    nominals_ms: dict[int, int]
    """The nominal times of all decided occurrences and of `position`, by number."""


class _Due(NamedTuple):
    """A due occurrence, its chosen time, and whether it lies in a pause."""

    occurrence: Occurrence
    chosen_ms: int
    is_paused: bool


def chosen_ms(schedule: Schedule, origin: bytes, occurrence: Occurrence) -> int:
    """Returns the time from which an occurrence is due. `origin`: the origin of the schedule's request.

    The time lies in [nominal, nominal + window], and before the next nominal time.
    """
    if not schedule.window_ms:
        return occurrence.nominal_ms
    return _chosen_ms(schedule, origin, occurrence, next_occurrence(schedule, occurrence))


def decide(
    schedule: Schedule,
    origin: bytes,
    position: Occurrence,
    now_ms: int,
    switches: Switches = (),
    until_ms: int | None = None,
) -> OccurrenceDecision:
    """Returns the decision at `now_ms` on the due occurrences from `position` on.

    `switches`: the settled pauses and resumes of the schedule. `until_ms`: occurrences that are due later stay
    undecided, but count as newer occurrences for `postdate-missed: last`. None decides all due occurrences.

    Decides at most OCCURRENCES_MAX occurrences; the next call decides the rest. Cost: one search for the next
    occurrence for each due occurrence.
    """
    pauses = pauses_of(switches) if switches else []
    is_last = schedule.missed is Missed.LAST
    due_by_ms = now_ms if until_ms is None or is_last else until_ms
    due, undecided, is_more_due = _due_occurrences(schedule, origin, position, due_by_ms, pauses)
    newest = _newest(due) if is_last else -1
    if is_last and is_more_due and _may_leave(schedule, origin, undecided, now_ms, pauses):
        newest = -1
    if until_ms is not None:
        decided = sum(1 for item in due if item.chosen_ms <= until_ms)
        due, undecided = due[:decided], due[decided].occurrence if decided < len(due) else undecided
    delivered: list[Occurrence] = []
    skips: list[Skip] = []
    for index, (occurrence, at_ms, is_paused) in enumerate(due):
        reason = SkipReason.PAUSED if is_paused else _skip_reason(schedule, occurrence, now_ms - at_ms, index == newest)
        if reason is None:
            delivered.append(occurrence)
        elif skips and skips[-1].last == occurrence.number - 1 and skips[-1].reason is reason:
            skips[-1] = skips[-1]._replace(last=occurrence.number)
        else:
            skips.append(Skip(occurrence.number, occurrence.number, reason))
    nominals_ms = {item.occurrence.number: item.occurrence.nominal_ms for item in due}
    if undecided is not None:
        nominals_ms[undecided.number] = undecided.nominal_ms
    return OccurrenceDecision(delivered, skips, undecided, nominals_ms)


def _due_occurrences(
    schedule: Schedule, origin: bytes, position: Occurrence, now_ms: int, pauses: list[Pause]
) -> tuple[list[_Due], Occurrence | None, bool]:
    """Returns at most OCCURRENCES_MAX due occurrences in order, the occurrence that follows them, and True if that
    occurrence is also due."""
    due: list[_Due] = []
    undecided: Occurrence | None = position
    while undecided is not None and undecided.nominal_ms <= now_ms:
        successor = next_occurrence(schedule, undecided)
        at_ms = _chosen_ms(schedule, origin, undecided, successor)
        pause = pause_at(pauses, undecided.nominal_ms) if pauses else None
        if at_ms > now_ms or (pause is not None and pause.until_ms == OPEN_MS):
            break
        if len(due) == OCCURRENCES_MAX:
            return due, undecided, True
        due.append(_Due(undecided, at_ms, pause is not None))
        undecided = successor
    return due, undecided, False


def _chosen_ms(schedule: Schedule, origin: bytes, occurrence: Occurrence, successor: Occurrence | None) -> int:
    nominal_ms, window_ms = occurrence.nominal_ms, schedule.window_ms
    if not window_ms:
        return nominal_ms
    if successor is not None:
        window_ms = min(window_ms, successor.nominal_ms - nominal_ms - 1)
    return nominal_ms + draw_ms(b"%b/%d" % (origin, occurrence.number), window_ms)


def _newest(due: list[_Due]) -> int:
    """Returns the index of the newest due occurrence that neither a gap nor a pause skips, or -1 if there is none."""
    may_leave = (index for index in range(len(due) - 1, -1, -1) if not due[index].is_paused)
    return next((index for index in may_leave if not due[index].occurrence.is_in_gap), -1)


def _may_leave(
    schedule: Schedule, origin: bytes, position: Occurrence | None, now_ms: int, pauses: list[Pause]
) -> bool:
    """Returns True if, from `position` on, there is a due occurrence that neither a gap nor a pause skips.

    Cost: one search for each gap and each pause, whatever the number of times in them.
    """
    while position is not None and position.nominal_ms <= now_ms:
        pause = pause_at(pauses, position.nominal_ms)
        if pause is not None:
            position = skip_to(schedule, position, pause.until_ms) if pause.until_ms != OPEN_MS else None
        elif position.is_in_gap:
            position = next_occurrence(schedule, position)
        else:
            return chosen_ms(schedule, origin, position) <= now_ms
    return False


def _skip_reason(schedule: Schedule, occurrence: Occurrence, late_ms: int, is_newest: bool) -> SkipReason | None:
    if occurrence.is_in_gap:
        return SkipReason.GAP
    if 0 <= schedule.catch_up_ms < late_ms:
        return SkipReason.MISSED
    if schedule.missed is Missed.LAST and not is_newest:
        return SkipReason.MISSED
    if schedule.missed is Missed.NONE and late_ms > LATE_MS_MAX:
        return SkipReason.MISSED
    if 0 <= schedule.grace_ms < late_ms:
        return SkipReason.GRACE
    return None
