"""Goal: a dead letter gives its time to an occurrence behind lost fates only if it can belong to no other fate. There
is no verdict while a dead letter or fate may still come. The later verdict is the same as if the dead letter or fate
had been there from the start.

Method: as in `test_schedule_lost_fates`, with fates that have left the dispatch log, dead letters that have left their
topic, and open transactions that hide dead letters. Each case without a violation stands beside a violation that
differs in one thing. Several cases are judged both in one run and in two runs; the second run reads the missing dead
letter or fate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from postdate.spark.limits import COMMIT_MS_MAX, OCCURRENCES_STEPPED_MAX
from postdate.spark.rules.schedules.schedule_events import (
    DeadOccurrence,
    DeliveredOccurrence,
    End,
    Fate,
    Judgement,
    Switch,
    Trigger,
    ZoneVersions,
)
from postdate.spark.rules.times.nominal_times import CronTimes, IntervalTimes
from support.audits.schedule_judgements import (
    BERLIN,
    FOLD,
    MINUTE,
    NEVER_MS,
    NIGHT,
    SECOND,
    Case,
    T,
    at,
    nightly,
    occurred,
    only,
    record,
    skipped,
    sound,
)

DAY_MS, HOUR_MS = 86_400_000, 60 * MINUTE
LOST = {"fates_lost_before_ms": NEVER_MS}
SUMMER_MS, THIRD = FOLD + DAY_MS, SECOND + DAY_MS
"""The third time by rules without winter time, and the third time by the rules of the audit."""
FOURTH = THIRD + DAY_MS
ONE = replace(nightly(BERLIN, NIGHT, (NIGHT, FOLD)), bounds=LOST)
"""The first of the occurrences was delivered; the fate of the second is lost."""
NO_BEGINNING = replace(ONE, fates=[], records=[], stored=None, zones=ZoneVersions("2026f", (0, 5), ("2025a", "2026f")))
"""The fates of the first two occurrences are lost."""
DEAD = skipped(3, 3, "dead", FOURTH, THIRD + 5, log_offset=9)


def verdicts(found: Judgement) -> list[str]:
    return [verdict for verdict, _ in found.position.problems]


def waiting(found: Judgement) -> list[int]:
    return [fate.number for fate in found.position.waiting_fates]


def then(
    case: Case, first: Judgement, *dead_letters: DeadOccurrence, fates: tuple[Fate, ...] = (), **bounds: Any
) -> Judgement:
    """Returns the judgement of the next run, which reads these dead letters and fates, and no open transaction."""
    read = [*(first.dead_letters or ()), *dead_letters]
    whole = {**case.bounds, "letters_capped_from_ms": NEVER_MS, "log_capped": False, **bounds}
    return replace(case, fates=fates, records=(), known=first.position, dead_letters=read, bounds=whole).judged()


def hidden(case: Case, from_ms: int) -> Judgement:
    """Returns the judgement of the first run, in which an open transaction hides dead letters."""
    return replace(case, bounds={**case.bounds, "letters_capped_from_ms": from_ms}).judged()


BEHIND_ONE = replace(ONE, fates=[*ONE.fates, DEAD])


@pytest.mark.parametrize(("due_ms", "next_ms", "verified"), [(SUMMER_MS, THIRD, 1), (THIRD, FOURTH, 2)])
def test_a_hidden_dead_letter_confirms_no_time(due_ms: int, next_ms: int, verified: int) -> None:
    """A lost fate may have published the time of the third occurrence by rules without winter time."""
    case = replace(ONE, fates=[*ONE.fates, DEAD._replace(at_ms=due_ms + 5, next_ms=next_ms)])
    first = hidden(case, due_ms)
    assert (verdicts(first), waiting(first)) == ([], [3])
    assert dict(first.position.reasons) == {"unsettled": 1}, "the lost one; the time of the dead one is unknown yet"
    for is_same, expected in ((True, []), (False, ["mismatch"])):
        dead_letter = DeadOccurrence(due_ms, is_same)
        for found in (replace(case, dead_letters=[dead_letter]).judged(), then(case, first, dead_letter)):
            assert (verdicts(found), waiting(found), found.dead_letters) == (expected, [], [])
            assert found.position.figures.verified == (1 if expected else verified)
            assert dict(found.position.reasons) == {"unsettled": 3 - verified}
    assert verdicts(then(case, first)) == ["missing"]


def test_the_time_that_a_hidden_dead_letter_confirms_is_judged() -> None:
    """The occurrence lay in a pause, or its fate leaves out the next time."""
    pause = [Switch(20, THIRD - HOUR_MS, True, 7, 0)]
    far = replace(ONE, fates=[*ONE.fates, DEAD._replace(next_ms=FOURTH + DAY_MS)])
    for case, verdict in ((replace(BEHIND_ONE, switches=pause), "wrong-skip"), (far, "missing")):
        dead_letter = DeadOccurrence(THIRD, True)
        assert verdicts(replace(case, dead_letters=[dead_letter]).judged()) == [verdict]
        first = hidden(case, THIRD)
        assert (verdicts(first), verdicts(then(case, first, dead_letter))) == ([], [verdict])


def test_an_occurrence_with_another_defect_is_not_verified() -> None:
    dead_letters, extra = [DeadOccurrence(THIRD, True)], record(occurred(3, THIRD, FOURTH))
    for changes, verdict in (
        ({"records": [*ONE.records, extra]}, "extra"),
        ({"fates": [*ONE.fates, DEAD._replace(log_offset=1)]}, "contradiction"),
    ):
        case = replace(BEHIND_ONE, **changes)
        found = replace(case, dead_letters=dead_letters).judged()
        assert (verdicts(found), found.added.verified) == ([verdict], 1)
        first = hidden(case, THIRD)
        assert (verdicts(then(case, first, *dead_letters)), first.added.verified) == ([verdict], 1)


@pytest.mark.parametrize("is_first_buried", [False, True])
def test_an_occurrence_at_an_unknown_time_waits_for_its_hidden_dead_letter(is_first_buried: bool) -> None:
    """A dead letter in the range of times may also be that of a lost occurrence, so it waits too."""
    far = OCCURRENCES_STEPPED_MAX + 2
    dead = skipped(far, far, "dead", at(far + 1), at(far) + 5)
    seen = [DeadOccurrence(at(2), True, offset=1)] * is_first_buried
    case = only(dead, dead_letters=seen, bounds={"fates_lost_before_ms": at(far - 1), "overdue_before_ms": 0})
    first = hidden(case, at(far))
    assert (verdicts(first), waiting(first), first.dead_letters) == ([], [far], seen)
    assert dict(first.position.reasons) == {"unsettled": far}
    assert verdicts(then(case, first, DeadOccurrence(at(far), True))) == []
    assert verdicts(then(case, first)) == ([] if is_first_buried else ["missing"])
    surplus = then(case, first, DeadOccurrence(at(far), True), DeadOccurrence(at(far) - 7, True))
    assert verdicts(surplus) == ["contradiction"]


TRIGGER = Trigger(30, THIRD + HOUR_MS // 2, 9, 0)
TRIGGERED = Fate(1, 1, "dead", TRIGGER.at_ms, 0, 10, 0, THIRD + HOUR_MS, False, 30)
LETTERS = [DeadOccurrence(THIRD, True, offset=1), DeadOccurrence(TRIGGER.at_ms, True, offset=2)]
LATE = replace(NO_BEGINNING, triggers=[TRIGGER], fates=[DEAD._replace(at_ms=THIRD + HOUR_MS)], dead_letters=LETTERS)
"""The target was away for an hour, in which the schedule was triggered."""


def test_the_dead_letter_of_a_trigger_is_not_that_of_an_unknown_occurrence() -> None:
    whole = replace(LATE, fates=[*LATE.fates, TRIGGERED]).judged()
    assert (verdicts(whole), whole.dead_letters, whole.added.verified) == ([], [], 1)
    ahead = LATE.judged()
    assert (verdicts(ahead), ahead.dead_letters) == ([], LETTERS), "one of both letters belongs to the pending trigger"
    behind = then(LATE, ahead, fates=(TRIGGERED,))
    assert (verdicts(behind), behind.dead_letters, behind.position.figures.verified) == ([], [], 1)
    assert behind.position.reasons == whole.position.reasons
    one = replace(LATE, fates=[*LATE.fates, TRIGGERED], dead_letters=LETTERS[1:]).judged()
    assert verdicts(one) == ["missing"], "one letter for two fates"


def test_a_fate_whose_dead_letter_may_be_gone_takes_that_of_no_other_fate() -> None:
    """The occurrence died before the first remaining dead letter, which may belong to it or to a trigger."""
    trigger = Trigger(30, THIRD - HOUR_MS, 8, 0)
    triggered = Fate(1, 1, "dead", trigger.at_ms, 0, 20, 0, THIRD + DAY_MS // 2, False, 30)
    bounds = {**LOST, "letters_lost_before_ms": THIRD + HOUR_MS}
    case = replace(
        NO_BEGINNING,
        triggers=[trigger],
        fates=[DEAD],
        dead_letters=[DeadOccurrence(trigger.at_ms, True)],
        bounds=bounds,
    )
    whole = replace(case, fates=[DEAD, triggered]).judged()
    assert (verdicts(whole), whole.added.verified) == ([], 1)
    first = case.judged()
    assert (verdicts(first), waiting(first), first.dead_letters) == ([], [3], case.dead_letters)
    behind = then(case, first, fates=(triggered,))
    assert (verdicts(behind), behind.position.reasons) == ([], whole.position.reasons)


def _dead_again_by_a_backfill(letters_lost_before_ms: int) -> tuple[Case, Fate, Fate]:
    """Returns a schedule with one dead letter, and two fates `dead` for it.

    One fate is that of its first occurrence, the other that of a backfill that repeats this occurrence.
    """
    fill = Trigger(30, at(2) + MINUTE, 8, 0, at(1), at(1))
    dead, filled = skipped(1, 1, "dead", at(2), at(1) + 5), Fate(1, 1, "dead", at(1), 0, 9, 0, at(4), False, 30)
    case = replace(
        sound(),
        records=sound().records[1:],
        triggers=[fill],
        dead_letters=[DeadOccurrence(at(1), True)],
        bounds={"letters_lost_before_ms": letters_lost_before_ms},
    )
    return case, dead, filled


@pytest.mark.parametrize("is_late", [False, True])
def test_of_fates_with_one_time_the_one_whose_dead_letter_may_be_gone_has_none(is_late: bool) -> None:
    """A backfill repeats an occurrence. There is one dead letter. Retention may have deleted the dead letter of the
    first fate."""
    case, dead, filled = _dead_again_by_a_backfill(letters_lost_before_ms=at(1))
    fates = [dead, *sound().fates[1:]]
    found = replace(case, fates=[*fates, filled._replace(late=is_late)]).judged()
    if is_late:
        assert (verdicts(found), waiting(found), found.dead_letters) == ([], [1], case.dead_letters)
        found = then(case, found, fates=(filled,))
    assert (verdicts(found), dict(found.position.reasons), found.dead_letters) == ([], {"target-expired": 1}, [])
    assert found.position.figures.verified == 3
    kept = replace(case, fates=[*fates, filled], bounds={}).judged()
    assert verdicts(kept) == ["missing"]


def test_a_dead_letter_is_not_gone_while_it_may_be_hidden() -> None:
    """The first remaining dead letter lies in an open transaction, and may be that of the fate."""
    dead = skipped(1, 1, "dead", at(2), at(1) + 5)
    case = only(dead, bounds={"letters_lost_before_ms": at(1), "overdue_before_ms": 0})
    first = hidden(case, at(1))
    assert (verdicts(first), waiting(first), first.position.reasons) == ([], [1], ())
    assert dict(then(case, first).position.reasons) == {"target-expired": 1}
    found = then(case, first, DeadOccurrence(at(1), True))
    assert (verdicts(found), found.position.reasons, found.added.verified) == ([], (), 1)


def test_a_fate_waits_for_no_transaction_if_a_visible_dead_letter_can_only_be_its_own() -> None:
    dead = skipped(1, 1, "dead", at(2), at(1) + 5)
    found = hidden(only(dead, dead_letters=[DeadOccurrence(at(1), True)], bounds={"overdue_before_ms": 0}), at(1))
    assert (verdicts(found), waiting(found), found.dead_letters, found.added.verified) == ([], [], [], 1)


def test_a_possibly_hidden_dead_letter_is_not_replaced_by_that_of_a_fate_with_a_gone_one() -> None:
    """A backfill repeats an occurrence, and the dead letter of the backfill stays hidden for two runs."""
    fill = Trigger(30, at(2) + MINUTE, 8, 0, at(1), at(1))
    dead, filled = skipped(1, 1, "dead", at(2), at(1) + 5), Fate(1, 1, "dead", at(1), 0, 9, 0, at(4), False, 30)
    case = replace(
        sound(), fates=[dead, *sound().fates[1:], filled], records=sound().records[1:], triggers=[fill],
        dead_letters=[DeadOccurrence(at(1), True)], bounds={"letters_lost_before_ms": at(1)},
    )  # fmt: skip
    first = hidden(case, at(4))
    again = then(case, first, letters_capped_from_ms=at(4))
    assert (verdicts(again), sorted(waiting(again)), again.dead_letters) == ([], [1, 1], case.dead_letters)
    for dead_letters, reasons in (([], {"target-expired": 1}), ([DeadOccurrence(at(1), True)], {})):
        found = then(case, again, *dead_letters)
        assert (verdicts(found), dict(found.position.reasons), found.dead_letters) == ([], reasons, [])


@pytest.mark.parametrize("has_dead_letter", [False, True])
def test_a_dead_letter_of_an_extra_delivery_may_be_ahead_of_its_fate(has_dead_letter: bool) -> None:
    """The log ends before the fate of the trigger."""
    dead_letters = [DeadOccurrence(at(2) + 7, True)] * has_dead_letter
    late = Fate(1, 1, "dead", at(2) + 7, 0, 20, 0, at(3), True, 30)
    case = sound(dead_letters=dead_letters)
    assert verdicts(case.judged()) == ["contradiction"] * has_dead_letter
    for changes in ({"bounds": {"log_capped": True}}, {"fates": [*case.fates, late]}):
        first = replace(case, **changes).judged()
        assert (verdicts(first), first.dead_letters) == ([], dead_letters), changes
        trigger = Trigger(30, late.nominal_ms, 19, 0)
        found = then(replace(case, triggers=[trigger]), first, fates=(late._replace(late=False),))
        assert verdicts(found) == ["missing"] * (not has_dead_letter)
        assert verdicts(then(case, first)) == ["contradiction"] * has_dead_letter, "no such fate"
    other = replace(case, fates=[*case.fates, late._replace(nominal_ms=at(2) + 8)])
    assert verdicts(other.judged()) == ["contradiction"] * has_dead_letter


@pytest.mark.parametrize("lost_before_ms", [0, SUMMER_MS - 1, SUMMER_MS + 3])
def test_the_dead_letter_of_a_later_fate_may_have_any_time_unless_the_first_is_published(lost_before_ms: int) -> None:
    """The owner that wrote the fate has rules without winter time, and the log ends before the fate."""
    late = skipped(1, 1, "dead", SUMMER_MS + DAY_MS, SUMMER_MS + 5, log_offset=9, late=True)
    request, zones = {**ONE.request, "request_ms": FOLD + 1}, ZoneVersions("2026f", (0,), ("2025a",))
    bounds = {"fates_lost_before_ms": lost_before_ms}
    case = replace(
        NO_BEGINNING, request=request, zones=zones, fates=[late], dead_letters=[DeadOccurrence(SUMMER_MS, True)]
    )
    first = replace(case, bounds=bounds).judged()
    assert (verdicts(first), first.dead_letters, first.position.reasons) == ([], case.dead_letters, ())
    stored = None if lost_before_ms else (SUMMER_MS, 8)
    found = then(replace(case, stored=stored, bounds=bounds), first, fates=(late._replace(late=False),))
    assert (verdicts(found), found.dead_letters) == ([], [])


@pytest.mark.parametrize("reason", ["missed", "grace"])
@pytest.mark.parametrize(("count_max", "expected"), [(3, ["extra"]), (4, [])])
def test_no_skip_at_an_unknown_time_goes_beyond_the_count(reason: str, count_max: int, expected: list[str]) -> None:
    skip = skipped(2, 4, reason, 0, THIRD + 5 * DAY_MS, log_offset=9)
    request = {**NO_BEGINNING.request, "count_max": count_max}
    case = replace(NO_BEGINNING, fates=[skip], request=request, end=End("completed", NIGHT, 9, 1))
    assert verdicts(case.judged()) == expected


def test_an_occurrence_at_an_unknown_time_has_a_dead_letter() -> None:
    case = replace(NO_BEGINNING, fates=[DEAD])
    assert verdicts(case.judged()) == ["missing"]
    for lost_ms, expected in ((THIRD, []), (THIRD + 5 - COMMIT_MS_MAX - 1, ["missing"])):
        found = replace(case, bounds={**LOST, "letters_lost_before_ms": lost_ms}).judged()
        assert (verdicts(found), dict(found.position.reasons)) == (expected, {"unsettled": 3})
    assert verdicts(replace(case, dead_letters=[DeadOccurrence(THIRD, False)]).judged()) == ["mismatch"]
    for due_ms in (THIRD + 6, NIGHT):
        found = replace(case, dead_letters=[DeadOccurrence(due_ms, True)]).judged()
        assert verdicts(found) == ["missing"], "later than its fate, or the first possible time of the schedule"
    late = replace(case, fates=[DEAD._replace(at_ms=FOURTH + 5)], dead_letters=[DeadOccurrence(FOURTH, True)]).judged()
    assert (verdicts(late), late.dead_letters) == (["missing"], [DeadOccurrence(FOURTH, True)]), (
        "it is that of the next occurrence"
    )


def test_the_last_of_several_dead_letters_is_that_of_the_occurrence_without_triggers() -> None:
    """The fates of the second and third occurrence are lost, and both became dead letters."""
    dead = skipped(4, 4, "dead", FOURTH + DAY_MS, FOURTH + 5, log_offset=9)
    case = replace(
        ONE, fates=[*ONE.fates, dead], dead_letters=[DeadOccurrence(ms, True) for ms in (FOLD, SUMMER_MS, FOURTH)]
    )
    assert (verdicts(case.judged()), case.judged().added.verified) == ([], 2)
    assert dict(case.judged().position.reasons) == {"unsettled": 2}
    triggered = replace(case, lost_controls=[30]).judged()
    assert (verdicts(triggered), triggered.added.verified) == ([], 1), "it may be that of the trigger"
    assert dict(triggered.position.reasons) == {"unsettled": 3}


def test_a_dead_letter_of_a_lost_fate_is_unsettled_though_a_later_backfill_repeats_its_time() -> None:
    """The log has only the backfill, which delivers the first time again."""
    fill = Trigger(30, FOURTH, 8, 0, NIGHT, NIGHT)
    filled = Fate(1, 1, None, NIGHT, 0, 9, 0, FOURTH + 5, False, 30)
    own = "postdate-origin,postdate-due,postdate-id,postdate-extra"
    found = DeliveredOccurrence(1, "orders", 3, 90, NIGHT, None, b"id", own, (b"k", b"v", b"h"), 30)
    end, lost = End("cancelled", NIGHT, 20, 0), {"fates_lost_before_ms": THIRD}
    case = replace(
        NO_BEGINNING, triggers=[fill], fates=[filled], records=[found], dead_letters=[DeadOccurrence(NIGHT, True)]
    )
    case = replace(case, end=end, bounds=lost)
    assert (verdicts(case.judged()), dict(case.judged().position.reasons)["unsettled"]) == ([], 1)
    # The log has all occurrences, so no lost fate explains the dead letter.
    whole = replace(
        nightly(BERLIN, NIGHT, (NIGHT, FOLD)), triggers=[fill], end=end, bounds=lost, dead_letters=case.dead_letters
    )
    whole = replace(whole, fates=[*whole.fates, filled], records=[*whole.records, found])
    assert verdicts(whole.judged()) == ["contradiction"]
    behind = replace(whole, records=[*whole.records, record(occurred(3, SECOND, THIRD))]).judged()
    assert (verdicts(behind), dict(behind.position.reasons)) == ([], {"unsettled": 2}), "a record has lost its fate"


def test_a_lost_trigger_explains_a_dead_letter_though_a_later_backfill_repeats_its_time() -> None:
    """The trigger has the time of an occurrence, and its fate is lost between two audits."""
    trigger, fill = Trigger(30, at(2), 5, 0), Trigger(31, at(4), 8, 0, at(2), at(2))
    filled = Fate(1, 1, "dead", at(2), 0, 9, 0, at(4) + 5, False, 31)
    case = sound(triggers=[trigger], bounds={"overdue_before_ms": 0})
    first, dead_letters = case.judged(), (DeadOccurrence(at(2), True),) * 2
    case = replace(case, triggers=[trigger, fill], end=End("cancelled", at(1), 20, 0))
    found = then(case, first, *dead_letters, fates=(filled,), fates_lost_before_ms=at(3) + 30_000)
    assert (verdicts(found), dict(found.position.reasons)) == ([], {"unsettled": 1})
    assert verdicts(then(case, first, *dead_letters, fates=(filled,))) == ["contradiction"], "nothing is lost"


DAILY = [IntervalTimes(DAY_MS), CronTimes("0 0 * * *", "UTC")]


@pytest.mark.parametrize("times", DAILY)
def test_the_first_time_is_certain_without_zone_rules_though_its_publication_is_lost(
    times: CronTimes | IntervalTimes,
) -> None:
    request, bounds = {"times": times, "count_max": 1}, {"fates_lost_before_ms": T + HOUR_MS, "overdue_before_ms": 0}
    case = Case(stored=None, request=request, bounds=bounds)
    found = replace(case, dead_letters=[DeadOccurrence(T + 2 * HOUR_MS, True)]).judged()
    assert (verdicts(found), found.dead_letters) == (["contradiction"], [])
    assert verdicts(replace(case, end=End("completed", 0, 5, 0)).judged()) == ["missing"], "the first one was not lost"


@pytest.mark.parametrize("times", [BERLIN, CronTimes("30 0 * * *", "UTC")])
@pytest.mark.parametrize("lost_before_ms", [NIGHT - 100, NIGHT + HOUR_MS])
def test_a_completion_without_a_fate_in_its_record_is_wrong_whatever_is_lost(
    times: CronTimes, lost_before_ms: int
) -> None:
    """The last fate, which may be that of a backfill, is in the record that completes the schedule."""
    request = {"times": times, "request_ms": NIGHT - 5 * HOUR_MS, "count_max": 1}
    bounds = {"fates_lost_before_ms": lost_before_ms, "overdue_before_ms": 0}
    case = Case(stored=None, request=request, bounds=bounds, end=End("completed", NIGHT, 5, 0))
    assert (verdicts(case.judged()), dict(case.judged().position.reasons)) == (["missing"], {})
    fill = Trigger(30, NIGHT + HOUR_MS, 3, 0, NIGHT, NIGHT)
    filled = Fate(1, 1, "dead", NIGHT, 0, 5, 0, NIGHT + HOUR_MS + 5, False, 30)
    filled_last = replace(case, triggers=[fill], fates=[filled], dead_letters=[DeadOccurrence(NIGHT, True)])
    if lost_before_ms > NIGHT:
        found = filled_last.judged()
        assert (verdicts(found), dict(found.position.reasons)) == ([], {"unsettled": 1})


@pytest.mark.parametrize("due_ms", [at(4) + 7, at(50)])
@pytest.mark.parametrize("is_same", [True, False])
def test_an_extra_delivery_of_a_paused_schedule_is_judged_by_the_first_remaining_dead_letter(
    due_ms: int, is_same: bool
) -> None:
    """The next occurrence is never decided. A dead letter may be that of an occurrence only if it names a later nominal
    time.
    """
    pause, trigger = [Switch(20, at(3) + 10, True, 5, 0)], Trigger(30, due_ms, 6, 0)
    triggered = Fate(1, 1, "dead", due_ms, 0, 7, 0, due_ms + 5, False, 30)
    bounds = {"overdue_before_ms": 0, "letters_lost_before_ms": due_ms + 5}
    case = sound(triggers=[trigger], switches=pause, dead_letters=[DeadOccurrence(due_ms, is_same)], bounds=bounds)
    case = replace(case, fates=[*case.fates, triggered])
    found = case.judged()
    assert verdicts(found) == ([] if is_same else ["mismatch"])
    assert waiting(found) == ([1] if due_ms == at(50) else [])
    assert found.position.figures.verified == (4 if is_same and due_ms != at(50) else 3)
    again = then(case, found)
    assert (verdicts(again), again.position.figures) == (verdicts(found), found.position.figures)


def test_a_later_occurrence_may_have_any_time_by_other_zone_rules() -> None:
    trigger, fates = Trigger(30, SUMMER_MS, 6, 0), nightly(BERLIN, NIGHT, (NIGHT, FOLD)).fates
    triggered = Fate(1, 1, "dead", SUMMER_MS, 0, 7, 0, SUMMER_MS + 5, False, 30)
    bounds = {"overdue_before_ms": 0, "letters_lost_before_ms": SUMMER_MS + 5}
    case = replace(
        ONE,
        triggers=[trigger],
        fates=[*fates, triggered],
        dead_letters=[DeadOccurrence(SUMMER_MS, True)],
        bounds=bounds,
    )
    assert (verdicts(case.judged()), waiting(case.judged())) == ([], [1])


def test_a_dead_letter_that_is_surplus_to_known_fates_is_not_that_of_a_lost_fate() -> None:
    """The time of the dead occurrence is unsettled, but no fate is lost behind it. A backfill repeats this time."""
    zones = ZoneVersions("2026f", (0,), ("2026f",))
    fill = Trigger(30, NIGHT + HOUR_MS, 3, 0, NIGHT, NIGHT)
    filled = Fate(1, 1, "dead", NIGHT, 0, 4, 0, NIGHT + HOUR_MS + 5, False, 30)
    dead = skipped(1, 1, "dead", FOLD, NIGHT + 5, log_offset=2)
    case = Case(
        [dead, filled], triggers=[fill], stored=None, request={"times": BERLIN, "request_ms": NIGHT - 1}, zones=zones,
        bounds={"fates_lost_before_ms": NIGHT + 5, "overdue_before_ms": 0},
    )  # fmt: skip
    for count, expected in ((2, []), (3, ["contradiction"])):
        found = replace(case, dead_letters=[DeadOccurrence(NIGHT, True)] * count).judged()
        assert (verdicts(found), dict(found.position.reasons)) == (expected, {"unsettled": 1}), count


def test_a_surplus_dead_letter_waits_for_no_hidden_one_of_a_judged_fate() -> None:
    dead = skipped(1, 1, "dead", at(2), at(1) + 5)
    case = only(dead, dead_letters=[DeadOccurrence(at(1), True)] * 2, bounds={"overdue_before_ms": 0})
    found = hidden(case, -1)
    assert (verdicts(found), waiting(found), found.dead_letters) == (["contradiction"], [], [])


@pytest.mark.parametrize("is_late", [False, True])
def test_a_fate_whose_dead_letter_may_be_gone_or_hidden_takes_that_of_no_other_fate(is_late: bool) -> None:
    """A backfill repeats an occurrence. Retention may have deleted the dead letter of the occurrence, and an open
    transaction may hide both dead letters.
    """
    case, dead, filled = _dead_again_by_a_backfill(letters_lost_before_ms=at(3))
    case = replace(case, fates=[dead, *sound().fates[1:], filled._replace(late=is_late)])
    first = hidden(case, -1)
    assert (verdicts(first), waiting(first), first.dead_letters) == ([], [1] * (2 - is_late), case.dead_letters)
    found = then(case, first, fates=(filled,) * is_late)
    assert (verdicts(found), dict(found.position.reasons), found.dead_letters) == ([], {"target-expired": 1}, [])


@pytest.mark.parametrize("end", [None, End("cancelled", at(1), 20, 0)])
@pytest.mark.parametrize("lost_ms", [at(3) + MINUTE // 2, at(4) + MINUTE // 2])
def test_a_surplus_dead_letter_before_the_next_occurrence_is_not_that_of_its_lost_fate(
    lost_ms: int, end: End | None
) -> None:
    """A backfill that was requested behind the losses repeats a delivered occurrence. The fate of the backfill was
    read."""
    fill, filled = Trigger(31, at(6), 8, 0, at(2), at(2)), Fate(1, 1, "dead", at(2), 0, 9, 0, at(6) + 5, False, 31)
    case = sound(bounds={"overdue_before_ms": 0})
    first = case.judged()
    for count, expected in ((1, []), (2, ["contradiction"])):
        dead_letters = [DeadOccurrence(at(2), True)] * count
        later = replace(case, triggers=[fill], end=end)
        found = then(later, first, *dead_letters, fates=(filled,), fates_lost_before_ms=lost_ms)
        assert [verdict for verdict in verdicts(found) if verdict == "contradiction"] == expected, count


def test_two_different_dead_letters_of_one_time_count_as_two() -> None:
    fill, filled = Trigger(31, at(6), 8, 0, at(2), at(2)), Fate(1, 1, "dead", at(2), 0, 9, 0, at(6) + 5, False, 31)
    case = sound(bounds={"overdue_before_ms": 0})
    fates = [case.fates[0], skipped(2, 2, "dead", at(3), at(2) + 5), case.fates[2]._replace(log_offset=4), filled]
    case = replace(case, fates=fates, records=[case.records[0], case.records[2]], triggers=[fill])
    found = replace(case, dead_letters=[DeadOccurrence(at(2), False)] * 2).judged()
    assert (verdicts(found), found.position.figures.mismatched) == (["mismatch"], 2)
