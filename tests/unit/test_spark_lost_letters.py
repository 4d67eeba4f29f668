"""The audit's judge of dead occurrences behind fates that have left the dispatch log. Goal: the dead letter of such an
occurrence names its time, and no letter of another one does. A letter that may still be hidden, or whose fate may be
read later, leads to no verdict.

Method: as `test_spark_lost_fates`. Each case without a violation stands beside one that differs in one thing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from postdate.spark.limits import OCCURRENCES_STEPPED_MAX
from postdate.spark.rules.schedules.schedule_events import Fate, Judgement, Letter, Position, Trigger, ZoneVersions
from support.schedule_judgements import (
    BERLIN,
    FOLD,
    MINUTE,
    NEVER_MS,
    NIGHT,
    SECOND,
    Case,
    at,
    nightly,
    only,
    skipped,
    sound,
)

DAY_MS = 86_400_000
HOUR_MS = 60 * MINUTE
LOST = {"fates_lost_before_ms": NEVER_MS}
SUMMER_MS, THIRD = FOLD + DAY_MS, SECOND + DAY_MS
"""The third time by rules without winter time, and by those of the audit."""
FOURTH = THIRD + DAY_MS
ONE = replace(nightly(BERLIN, NIGHT, (NIGHT, FOLD)), bounds=LOST)
"""The first of the occurrences was delivered."""
NO_BEGINNING = replace(ONE, fates=[], records=[], stored=None, zones=ZoneVersions("2026f", (0, 5), ("2025a", "2026f")))
DEAD = skipped(3, 3, "dead", FOURTH, THIRD + 5, log_offset=9)


def verdicts(found: Judgement) -> list[str]:
    return [verdict for verdict, _ in found.position.problems]


def then(case: Case, known: Position, *letters: Letter, **bounds: Any) -> Judgement:
    """The next run, which reads these letters and no further fates."""
    return replace(case, fates=[], records=[], known=known, letters=letters, bounds={**LOST, **bounds}).judged()


@pytest.mark.parametrize(("due_ms", "next_ms"), [(SUMMER_MS, THIRD), (THIRD, FOURTH)])
def test_a_hidden_letter_confirms_no_time(due_ms: int, next_ms: int) -> None:
    """A lost fate may have published the time of the third occurrence by rules without winter time."""
    dead = DEAD._replace(at_ms=due_ms + 5, next_ms=next_ms)
    case = replace(ONE, fates=[*ONE.fates, dead], bounds={**LOST, "letters_capped_from_ms": due_ms})
    found = case.judged()
    assert (verdicts(found), [fate.number for fate in found.position.waiting_fates]) == ([], [3])
    assert dict(found.position.reasons) == {"unsettled": 1}, "the lost one; the dead one cannot be judged yet"
    behind = then(case, found.position, Letter(due_ms, True))
    assert (verdicts(behind), behind.letters, behind.position.waiting_fates) == ([], [], ())
    assert dict(behind.position.reasons) == {"unsettled": 2}
    assert verdicts(then(case, found.position, Letter(due_ms, False))) == ["mismatch"]
    assert verdicts(then(case, found.position)) == ["missing"]


@pytest.mark.parametrize("is_first_hidden", [False, True])
def test_an_occurrence_at_an_unknown_time_waits_for_its_hidden_letter(is_first_hidden: bool) -> None:
    """A letter in the range of times may be that of a lost occurrence as well, so it waits too."""
    far = OCCURRENCES_STEPPED_MAX + 2
    dead = skipped(far, far, "dead", at(far + 1), at(far) + 5)
    lost = {"fates_lost_before_ms": at(far - 1), "overdue_before_ms": 0}
    seen = [] if is_first_hidden else [Letter(at(2), True, offset=1)]
    case = only(dead, letters=seen, bounds={**lost, "letters_capped_from_ms": at(far)})
    found = case.judged()
    assert (verdicts(found), found.letters) == ([], seen)
    assert dict(found.position.reasons) == {"unsettled": far - 1}
    behind = then(case, found.position, *seen, Letter(at(far), True), **lost)
    assert (verdicts(behind), behind.letters) == ([], [])
    surplus = then(case, found.position, *seen, Letter(at(far), True), Letter(at(far) - 7, True), **lost)
    assert verdicts(surplus) == ["contradiction"]


def test_the_letter_of_a_trigger_is_not_that_of_an_unknown_occurrence() -> None:
    """The target was away for an hour, in which the schedule was triggered."""
    trigger = Trigger(30, THIRD + HOUR_MS // 2, 9, 0)
    triggered = Fate(1, 1, "dead", trigger.at_ms, 0, 10, 0, trigger.at_ms + 5, False, 30)
    letters = [Letter(THIRD, True, offset=1), Letter(trigger.at_ms, True, offset=2)]
    late = DEAD._replace(at_ms=THIRD + HOUR_MS)
    case = replace(NO_BEGINNING, triggers=[trigger])
    whole = replace(case, fates=[late, triggered], letters=letters).judged()
    assert (verdicts(whole), whole.letters, whole.added.verified) == ([], [], 1)
    ahead = replace(case, fates=[late], letters=letters).judged()
    assert (verdicts(ahead), ahead.letters) == ([], letters), "one of both letters belongs to the pending trigger"
    behind = replace(case, fates=[triggered], letters=letters, known=ahead.position).judged()
    assert (verdicts(behind), behind.letters, behind.added.verified) == ([], [], 1)
    assert behind.position.reasons == whole.position.reasons


@pytest.mark.parametrize("has_letter", [False, True])
def test_a_letter_of_an_extra_delivery_may_be_ahead_of_its_fate(has_letter: bool) -> None:
    """The log ends before the fate of the trigger."""
    letters = [Letter(at(2) + 7, True)] * has_letter
    late = Fate(1, 1, "dead", at(2) + 7, 0, 20, 0, at(3), True, 30)
    case = sound(letters=letters)
    assert verdicts(case.judged()) == ["contradiction"] * has_letter
    for changes in ({"bounds": {"log_capped": True}}, {"fates": [*case.fates, late]}):
        found = replace(case, **changes).judged()
        assert (verdicts(found), found.letters) == ([], letters), changes
    other = replace(case, fates=[*case.fates, late._replace(nominal_ms=at(2) + 8)])
    assert verdicts(other.judged()) == ["contradiction"] * has_letter


@pytest.mark.parametrize("reason", ["missed", "grace"])
@pytest.mark.parametrize(("count_max", "expected"), [(3, ["extra"]), (4, [])])
def test_no_skip_at_an_unknown_time_goes_beyond_the_count(reason: str, count_max: int, expected: list[str]) -> None:
    skip = skipped(2, 4, reason, 0, THIRD + 5 * DAY_MS, log_offset=9)
    asked = {**NO_BEGINNING.asked, "count_max": count_max}
    case = replace(NO_BEGINNING, fates=[skip], asked=asked, bounds={**LOST, "log_capped": True})
    assert verdicts(case.judged()) == expected


def test_an_occurrence_at_an_unknown_time_has_a_dead_letter() -> None:
    case = replace(NO_BEGINNING, fates=[DEAD])
    assert verdicts(case.judged()) == ["missing"]
    expired = replace(case, bounds={**LOST, "letters_lost_before_ms": THIRD})
    assert (verdicts(expired.judged()), dict(expired.judged().position.reasons)) == ([], {"unsettled": 3})
    assert verdicts(replace(case, letters=[Letter(THIRD, False)]).judged()) == ["mismatch"]
    late = replace(case, letters=[Letter(THIRD + 6, True)])
    assert verdicts(late.judged()) == ["missing"], "no occurrence becomes a dead letter before its time"
