"""Goal: of the occurrences that are due at the same time, each is delivered or skipped for the documented reason.

Method: intervals and one clock change, decided at literal times. The numbers of deliveries and skips must be complete.
"""

from __future__ import annotations

import pytest

from postdate.wire.limits import OCCURRENCES_MAX
from postdate.wire.schedules.due import OccurrenceDecision, Skip, chosen_ms, decide
from postdate.wire.schedules.occurrences import Occurrence, SkipReason, first_occurrence, following, next_occurrence
from postdate.wire.schedules.schedule import Gap, Missed, Schedule
from postdate.wire.values.instants import parse_instant_ms

ORIGIN = b"requests/3/17"
MINUTE_MS = 60_000
START = Occurrence(1, MINUTE_MS)


def every_minute(**more: object) -> Schedule:
    return Schedule(every_ms=MINUTE_MS, **more)  # type: ignore[arg-type]


def outcome(schedule: Schedule, now_ms: int, position: Occurrence = START) -> tuple[list[int], list[Skip], int]:
    """Returns the numbers of the delivered occurrences, the skips, and the next number, or 0 if the schedule is
    completed."""
    decision = decide(schedule, ORIGIN, position, now_ms)
    check_complete(decision, position)
    numbers = [occurrence.number for occurrence in decision.delivered]
    return numbers, decision.skips, decision.position.number if decision.position else 0


def check_complete(decision: OccurrenceDecision, position: Occurrence) -> None:
    numbers = [occurrence.number for occurrence in decision.delivered]
    for skip in decision.skips:
        numbers += range(skip.first, skip.last + 1)
    assert sorted(numbers) == list(range(position.number, position.number + len(numbers)))
    if decision.position is not None:
        assert decision.position.number == position.number + len(numbers)


def test_nothing_is_due_before_its_time() -> None:
    assert outcome(every_minute(), MINUTE_MS - 1) == ([], [], 1)
    assert outcome(every_minute(), MINUTE_MS) == ([1], [], 2)


@pytest.mark.parametrize("missed", Missed)
def test_a_punctual_occurrence_is_delivered_under_each_policy(missed: Missed) -> None:
    assert outcome(every_minute(missed=missed), MINUTE_MS + 5) == ([1], [], 2)


def test_an_outage_leaves_each_policy_its_documented_occurrences() -> None:
    now_ms = 10 * MINUTE_MS + 1
    assert outcome(every_minute(), now_ms) == ([*range(1, 11)], [], 11)
    assert outcome(every_minute(missed=Missed.LAST), now_ms) == ([10], [Skip(1, 9, SkipReason.MISSED)], 11)
    assert outcome(every_minute(missed=Missed.NONE), now_ms) == ([10], [Skip(1, 9, SkipReason.MISSED)], 11)
    assert outcome(every_minute(missed=Missed.NONE), now_ms - 1) == ([9, 10], [Skip(1, 8, SkipReason.MISSED)], 11)


def test_occurrences_beyond_the_catch_up_are_missed() -> None:
    now_ms = 10 * MINUTE_MS
    missed = [Skip(1, 6, SkipReason.MISSED)]
    assert outcome(every_minute(catch_up_ms=3 * MINUTE_MS), now_ms) == ([7, 8, 9, 10], missed, 11)
    assert outcome(every_minute(catch_up_ms=0, missed=Missed.LAST), now_ms + 1)[0] == []


def test_occurrences_beyond_the_grace_are_skipped() -> None:
    now_ms = 10 * MINUTE_MS
    grace = Skip(1, 7, SkipReason.GRACE)
    assert outcome(every_minute(grace_ms=2 * MINUTE_MS), now_ms) == ([8, 9, 10], [grace], 11)
    both = every_minute(grace_ms=2 * MINUTE_MS, catch_up_ms=4 * MINUTE_MS)
    assert outcome(both, now_ms)[1] == [Skip(1, 5, SkipReason.MISSED), Skip(6, 7, SkipReason.GRACE)]
    last = every_minute(grace_ms=0, missed=Missed.LAST)
    assert outcome(last, now_ms + 1)[1] == [Skip(1, 9, SkipReason.MISSED), Skip(10, 10, SkipReason.GRACE)]


def test_the_last_occurrence_completes_a_schedule() -> None:
    assert outcome(every_minute(count=3), 10 * MINUTE_MS) == ([1, 2, 3], [], 0)
    assert outcome(every_minute(end_ms=2 * MINUTE_MS, missed=Missed.LAST), 10 * MINUTE_MS)[0] == [2]


@pytest.mark.parametrize("missed", [Missed.ALL, Missed.LAST])
def test_one_call_decides_a_bounded_number(missed: Missed) -> None:
    schedule, position = every_minute(missed=missed), START
    due = 2 * OCCURRENCES_MAX + 500
    delivered, calls = 0, 0
    while True:
        decision = decide(schedule, ORIGIN, position, due * MINUTE_MS)
        check_complete(decision, position)
        delivered += len(decision.delivered)
        calls += 1
        assert decision.position is not None
        position = decision.position
        if position.number == due + 1:
            break
    assert delivered == (due if missed is Missed.ALL else 1)
    assert calls == 3


def test_a_gap_is_skipped_for_itself_and_is_never_the_newest() -> None:
    schedule = Schedule(cron="30 2 * * *", zone="Europe/Berlin", gap=Gap.SKIP, missed=Missed.LAST)
    first = first_occurrence(schedule, parse_instant_ms("2026-03-27T12:00:00Z"))
    assert first is not None
    now_ms = parse_instant_ms("2026-03-29T12:00:00Z")
    assert outcome(schedule, now_ms, first) == ([1], [Skip(2, 2, SkipReason.GAP)], 3)


def test_a_window_chooses_a_moment_before_the_next_nominal_time() -> None:
    schedule = every_minute(window_ms=15 * MINUTE_MS)
    chosen = [(occurrence, chosen_ms(schedule, ORIGIN, occurrence)) for occurrence in following(schedule, START, 500)]
    assert all(occurrence.nominal_ms <= at_ms < occurrence.nominal_ms + MINUTE_MS for occurrence, at_ms in chosen)
    # The chosen times differ from occurrence to occurrence, and are spread over the minute.
    offsets = sorted(at_ms - occurrence.nominal_ms for occurrence, at_ms in chosen)
    assert offsets[25] < 10_000
    assert offsets[-25] > 50_000
    short = every_minute(window_ms=1_000)
    assert all(0 <= chosen_ms(short, ORIGIN, occurrence) - occurrence.nominal_ms <= 1_000 for occurrence, _ in chosen)


def test_an_occurrence_with_a_window_is_due_at_its_chosen_time() -> None:
    schedule = every_minute(window_ms=MINUTE_MS, grace_ms=0)
    at_ms = chosen_ms(schedule, ORIGIN, START)
    assert at_ms > START.nominal_ms
    assert outcome(schedule, at_ms - 1) == ([], [], 1)
    assert outcome(schedule, at_ms) == ([1], [], 2)
    second = next_occurrence(schedule, START)
    assert second is not None
    at_ms = chosen_ms(schedule, ORIGIN, second)
    assert outcome(schedule, at_ms, second) == ([2], [], 3)
    assert outcome(schedule, at_ms + 1, second) == ([], [Skip(2, 2, SkipReason.GRACE)], 3)


@pytest.mark.parametrize("later", [1, 999, 1_000, 2_500])
@pytest.mark.parametrize("is_behind", [False, True])
def test_the_newest_due_occurrence_leaves_before_a_long_pause(later: int, is_behind: bool) -> None:
    """All due occurrences after the newest lie in a pause of `later` occurrences. With `is_behind`, an occurrence after
    the pause is also due, and only that occurrence is delivered."""
    schedule, newest, position = every_minute(missed=Missed.LAST), 3, START
    until_ms = (newest + later + 1) * MINUTE_MS
    switches = ((7, (newest + 1) * MINUTE_MS, True), (8, until_ms, False))
    now_ms = until_ms if is_behind else until_ms - 1
    delivered: list[int] = []
    while position.nominal_ms <= now_ms:
        decision = decide(schedule, ORIGIN, position, now_ms, switches)
        check_complete(decision, position)
        delivered += [each.number for each in decision.delivered]
        assert decision.position is not None
        position = decision.position
    assert delivered == [newest + later + 1 if is_behind else newest]
