"""Goal: the judge of extra deliveries reports every defect in the deliveries of a trigger or backfill, and nothing that
a sidecar may do.

Method: as in `test_schedules`. Changes one thing in a sound history with one trigger, or with one backfill of three
times.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from postdate.spark.rules.schedules.schedule_events import (
    DeadOccurrence,
    DeliveredOccurrence,
    End,
    Fate,
    Trigger,
)
from support.audits.schedule_judgements import (
    AFTER_GAP,
    BERLIN,
    DIGESTS,
    GAP,
    MARCH,
    NIGHT,
    OWN,
    Case,
    at,
    nightly,
    occurred,
    record,
    skipped,
    sound,
)

OWN_OF_EXTRA = "postdate-origin,postdate-due,postdate-id,postdate-extra"
ASKED_MS = at(2) + 500
TRIGGER = Trigger(20, ASKED_MS, 3, 1)
EXTRA = Fate(1, 1, None, ASKED_MS, 0, 9, 0, ASKED_MS + 5, False, 20)
EXTRA_RECORD = DeliveredOccurrence(1, "orders", 3, 99, ASKED_MS, None, b"id", OWN_OF_EXTRA, DIGESTS, 20)


def triggered(
    *fates: Fate,
    records: Sequence[DeliveredOccurrence] = (EXTRA_RECORD,),
    triggers: Sequence[Trigger] = (TRIGGER,),
    **more: Any,
) -> Case:
    """Returns a schedule with three occurrences and one trigger. Its extra delivery is sound unless there are other
    `fates`."""
    case = sound()
    given = {"fates": [*case.fates, *(fates or (EXTRA,))], "records": [*case.records, *records], "triggers": triggers}
    return replace(case, **{**given, **more})


def test_an_extra_delivery_is_verified() -> None:
    found = triggered().judged()
    assert (found.position.problems, found.added.verified, found.added.occurred) == ((), 4, 4)
    assert found.lateness_ms == [5] * 4
    assert (found.position.number, found.position.next_ms) == (4, at(4)), "no occurrence number is consumed"


def test_a_later_run_continues_behind_the_extra_deliveries() -> None:
    known = triggered().judged().position
    again = Case(triggers=[TRIGGER], known=known).judged()
    assert (again.position.problems, again.overdue, sum(again.added)) == ((), 0, 0)
    twice = Case([EXTRA._replace(log_offset=11)], triggers=[TRIGGER], known=known).judged()
    assert [verdict for verdict, _ in twice.position.problems] == ["duplicate"]


def test_a_missing_extra_delivery_of_a_completed_schedule_is_counted_in_one_run() -> None:
    end = End("completed", at(0), 50, 0)
    first = triggered(records=(), fates=sound().fates, end=end).judged()
    assert any("completed, though occurrence 1 is due" in text for _, text in first.position.problems)
    again = Case(triggers=[TRIGGER], known=first.position, end=end).judged()
    assert (sum(again.added), again.position.problems) == (0, first.position.problems)


def test_a_pending_extra_delivery_is_overdue_and_may_be_cancelled() -> None:
    case = triggered(records=(), fates=sound().fates)
    assert case.judged().overdue == 1
    assert replace(case, bounds={"overdue_before_ms": ASKED_MS}).judged().overdue == 0
    assert replace(case, end=End("cancelled", at(1), 10, 0)).judged().position.problems == ()
    last = occurred(1, at(1), 0)
    of_one = Case([last], [record(last)], triggers=[TRIGGER], request={"count_max": 1})
    assert of_one.judged().position.problems == ()
    assert replace(of_one, end=End("cancelled", at(1), 10, 0)).judged().position.problems == ()
    done = replace(of_one, fates=[last, EXTRA], records=[record(last), EXTRA_RECORD])
    assert replace(done, end=End("completed", at(1), 9, 1)).judged().position.problems == ()


# A backfill of three nominal times before the schedule.
BACKFILL = Trigger(20, ASKED_MS, 3, 1, at(-3), at(0) - 1)
FILLED = [
    EXTRA._replace(number=n, last=n, nominal_ms=at(n - 4), next_ms=at(n - 3) if n < 3 else 0, place=n)
    for n in (1, 2, 3)
]
FILLED_RECORDS = [EXTRA_RECORD._replace(number=fate.number, due_ms=fate.nominal_ms) for fate in FILLED]


def filled(*fates: Fate, records: Sequence[DeliveredOccurrence] = FILLED_RECORDS, **more: Any) -> Case:
    """Returns the sound case with a backfill that has these fates."""
    return triggered(*fates, records=records, triggers=(BACKFILL,), **more)


def with_fill(number: int, **changes: Any) -> Case:
    """Returns a sound backfill with a changed fate of one delivery."""
    return filled(*(fate._replace(**changes) if fate.number == number else fate for fate in FILLED))


def test_a_backfill_is_verified() -> None:
    found = filled(*FILLED).judged()
    assert (found.position.problems, found.added.verified, found.overdue) == ((), 6, 0)
    assert found.lateness_ms == [5] * 6, "that of an extra delivery counts from the request"


def test_a_backfill_continues_in_the_next_run() -> None:
    first = filled(FILLED[0], records=FILLED_RECORDS[:1]).judged()
    assert (first.position.problems, first.overdue) == ((), 2)
    rest = Case(FILLED[1:], FILLED_RECORDS[1:], triggers=[BACKFILL], known=first.position).judged()
    assert (rest.position.problems, rest.added.verified, rest.overdue) == ((), 2, 0)
    wrong = Case(FILLED[2:], FILLED_RECORDS[2:], triggers=[BACKFILL], known=first.position).judged()
    assert {verdict for verdict, _ in wrong.position.problems} == {"missing"}


def test_a_pending_backfill_is_overdue_from_its_request_on() -> None:
    case = filled(records=(), fates=sound().fates)
    assert case.judged().overdue == 3
    assert replace(case, bounds={"overdue_before_ms": ASKED_MS}).judged().overdue == 0


def test_a_backfill_leaves_out_the_times_in_a_gap() -> None:
    times = BERLIN._replace(gap="skip")
    fill = Trigger(20, AFTER_GAP + 9, 3, 1, MARCH, AFTER_GAP)
    fates = [
        EXTRA._replace(nominal_ms=MARCH, next_ms=AFTER_GAP, at_ms=AFTER_GAP + 9),
        EXTRA._replace(number=2, last=2, nominal_ms=AFTER_GAP, at_ms=AFTER_GAP + 9, place=1),
    ]
    records = [EXTRA_RECORD._replace(number=fate.number, due_ms=fate.nominal_ms) for fate in fates]
    case = nightly(times, NIGHT, triggers=[fill])
    assert replace(case, fates=fates, records=records).judged().position.problems == ()
    fates[0] = fates[0]._replace(next_ms=GAP)
    assert "extra" in [verdict for verdict, _ in replace(case, fates=fates, records=records).judged().position.problems]


# The dead letters of the backfill, whose deliveries are all skipped as dead.
DEAD = [fate._replace(reason="dead") for fate in FILLED]
BURIED = [DeadOccurrence(fate.nominal_ms, True, offset=number) for number, fate in enumerate(DEAD)]


@pytest.mark.parametrize("decided", [0, 1, 2, 3])
def test_dead_letters_of_a_pending_backfill_wait_for_their_fates(decided: int) -> None:
    """Dead letters are read after the end of the log was fixed, so several dead letters may be ahead of their fates."""
    fates = [*sound().fates, *DEAD[:decided]]
    first = filled(fates=fates, records=(), dead_letters=BURIED).judged()
    assert (first.position.problems, first.dead_letters) == ((), BURIED[decided:])
    rest = Case(
        DEAD[decided:], dead_letters=first.dead_letters or (), triggers=[BACKFILL], known=first.position
    ).judged()
    assert (rest.position.problems, rest.position.figures.verified, rest.dead_letters) == ((), 6, [])


@pytest.mark.parametrize("nominal_ms", [at(-4), at(0), at(1)])
def test_a_dead_letter_outside_a_pending_backfill_belongs_to_no_skip(nominal_ms: int) -> None:
    found = filled(fates=sound().fates, records=(), dead_letters=[DeadOccurrence(nominal_ms, True)]).judged()
    assert [verdict for verdict, _ in found.position.problems] == ["contradiction"]
    assert found.dead_letters == []


def test_a_dead_letter_behind_the_next_time_of_a_backfill_belongs_to_no_skip() -> None:
    first = filled(*DEAD[:1], records=(), dead_letters=[BURIED[0], BURIED[0]._replace(offset=9)]).judged()
    assert [verdict for verdict, _ in first.position.problems] == ["contradiction"]


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_dead_letter_is_used_once_though_a_backfill_has_its_time(is_dead: bool) -> None:
    """The first occurrence is skipped as dead, and a backfill of its time is pending when the first run ends."""
    own, extra = DeadOccurrence(at(1), True, offset=0), DeadOccurrence(at(1), True, offset=1)
    fill = Trigger(20, ASKED_MS, 3, 1, at(1), at(1))
    fates = [skipped(1, 1, "dead", at(2), at(1) + 5), *sound().fates[1:]]
    dead_letters = [own, extra] if is_dead else [own]
    first = Case(fates, sound().records[1:], dead_letters, triggers=[fill]).judged()
    assert (first.position.problems, first.dead_letters) == ((), dead_letters[1:])
    fate = EXTRA._replace(nominal_ms=at(1), reason="dead" if is_dead else None)
    records = [] if is_dead else [EXTRA_RECORD._replace(due_ms=at(1))]
    last = Case([fate], records, first.dead_letters or (), triggers=[fill], known=first.position).judged()
    assert (last.position.problems, last.position.figures.verified, last.dead_letters) == ((), 4, [])


def test_dead_letters_of_later_occurrences_wait() -> None:
    dead_letter = DeadOccurrence(at(5), True)
    assert sound(dead_letters=[dead_letter]).judged().dead_letters == [dead_letter]


@pytest.mark.parametrize(
    "case", [sound(dead_letters=[DeadOccurrence(at(5), True)]), filled(*DEAD[:1], records=(), dead_letters=BURIED)]
)
def test_dead_letters_of_times_after_the_end_belong_to_no_skip(case: Case) -> None:
    """After the end of a schedule, no fate may follow."""
    for name in ("cancelled", "replaced"):
        found = replace(case, end=End(name, at(1), 20, 0)).judged()
        assert {verdict for verdict, _ in found.position.problems} == {"contradiction"}
        assert (len(found.position.problems), found.dead_letters) == (len(case.dead_letters) - len(case.fates) + 3, [])
    sound_end = replace(
        case, dead_letters=case.dead_letters[: len(case.fates) - 3], end=End("cancelled", at(1), 20, 0)
    ).judged()
    assert (sound_end.position.problems, sound_end.dead_letters) == ((), [])


def test_a_dead_letter_whose_fate_has_left_the_log_is_unsettled() -> None:
    """The fates of the first two occurrences, and of an earlier backfill, are lost."""
    lost, dead_letters = (
        {"fates_lost_before_ms": at(2) + 1},
        [DeadOccurrence(at(1), True), DeadOccurrence(at(0), True, offset=1)],
    )
    found = replace(sound(), fates=sound().fates[2:], dead_letters=dead_letters, bounds=lost).judged()
    assert (found.position.problems, found.dead_letters) == ((), [])
    assert (found.position.reasons, found.added.unverifiable) == ((("unsettled", 3),), 3), "each is counted once"
    for due_ms, request in ((at(2) + 1, {}), (at(2), {"request_ms": at(2) + 1})):
        case = sound(dead_letters=[DeadOccurrence(due_ms, True)], bounds=lost, request=request)
        assert "contradiction" in {verdict for verdict, _ in case.judged().position.problems}, "its fate must be there"


def refilled(**more: Any) -> Case:
    """Returns a case in which the fates of the first two occurrences are lost, and both deliveries of a later backfill
    of their times are dead."""
    fill = Trigger(20, at(3) + 500, 3, 1, at(1), at(2))
    dead = [
        EXTRA._replace(number=n, last=n, nominal_ms=at(n), next_ms=after, at_ms=at(3) + 600, reason="dead", place=n)
        for n, after in ((1, at(2)), (2, 0))
    ]
    given = {"fates": [*sound().fates[2:], *dead], "records": sound().records[2:], "triggers": [fill]}
    return Case(**{**given, "bounds": {"fates_lost_before_ms": at(2) + 1}, **more})


@pytest.mark.parametrize(("each", "unsettled"), [(1, 2), (2, 2), (3, 4)])
def test_a_backfill_of_times_whose_fates_are_lost_has_its_own_dead_letters(each: int, unsettled: int) -> None:
    """The lost fate of a time counts as unsettled. A second dead letter of the time may belong to it, a third dead
    letter to another lost fate."""
    dead_letters = [DeadOccurrence(at(n), True, offset=10 * n + copy) for n in (1, 2) for copy in range(each)]
    found = refilled(dead_letters=dead_letters).judged()
    assert (found.position.problems, found.dead_letters) == ((), [])
    assert dict(found.position.reasons) == {"unsettled": unsettled}


def test_dead_letters_wait_for_a_backfill_of_times_whose_fates_are_lost() -> None:
    dead_letters = [DeadOccurrence(at(n), True, offset=n) for n in (1, 2)]
    case = refilled(dead_letters=dead_letters)
    first = replace(case, fates=case.fates[:1]).judged()
    assert (first.position.problems, first.dead_letters) == ((), dead_letters)
    rest = replace(
        case, fates=case.fates[1:], records=(), dead_letters=first.dead_letters or (), known=first.position
    ).judged()
    assert (rest.position.problems, rest.dead_letters, dict(rest.position.reasons)) == ((), [], {"unsettled": 2})


def test_a_backfill_has_its_own_dead_letters_though_an_earlier_one_of_its_times_is_lost() -> None:
    """The log has only the third fate of the first backfill. All deliveries of the second backfill are dead, and their
    dead letters remain."""
    first, second = BACKFILL._replace(at_ms=ASKED_MS), BACKFILL._replace(control=30, at_ms=at(3) + 500, log_offset=8)
    again = [fate._replace(control=30, log_offset=12, at_ms=at(3) + 600) for fate in DEAD]
    case = triggered(FILLED[2], *again, records=FILLED_RECORDS[2:], triggers=(first, second))
    lost = {"fates_lost_before_ms": ASKED_MS + 400}
    for dead_letters in (BURIED, [*BURIED, *(dead_letter._replace(offset=9) for dead_letter in BURIED[:2])]):
        found = replace(case, dead_letters=dead_letters, bounds=lost).judged()
        assert (found.position.problems, dict(found.position.reasons)) == ((), {"unsettled": 2})


def test_a_second_dead_letter_of_a_backfill_in_the_log_belongs_to_no_skip() -> None:
    """The nominal times of the backfill lie before the losses, and all its fates behind the losses."""
    case = filled(*DEAD, records=(), dead_letters=[*BURIED, BURIED[0]._replace(offset=9)])
    for lost_ms in (-1, at(0) + 1, ASKED_MS):
        problems = replace(case, bounds={"fates_lost_before_ms": lost_ms}).judged().position.problems
        assert [verdict for verdict, _ in problems] == ["contradiction"]
    older = BACKFILL._replace(control=10, at_ms=at(0) + 1)
    for changes in ({"triggers": ()}, {"triggers": [BACKFILL, older], "end": End("cancelled", at(1), 20, 0)}):
        lost = {"fates_lost_before_ms": at(0) + 2}
        found = replace(case, fates=sound().fates, dead_letters=BURIED[:1], bounds=lost, **changes).judged()
        assert (found.position.problems, dict(found.position.reasons)) == ((), {"unsettled": 1}), "it may be older"


WRONG: dict[str, tuple[Case, str, str]] = {
    # extra deliveries
    "an extra without a trigger": (triggered(triggers=()), "extra", "deliveries by offset 20"),
    "an extra without a record": (triggered(records=()), "missing", "deliveries by offset 20"),
    "an extra without a fate": (triggered(fates=sound().fates), "extra", "and no fate"),
    "an early extra": (triggered(EXTRA._replace(at_ms=ASKED_MS - 1)), "early", f"due {ASKED_MS}"),
    "an extra at another time": (
        triggered(EXTRA._replace(nominal_ms=at(1)), records=(EXTRA_RECORD._replace(due_ms=at(1)),)),
        "extra",
        "published was",
    ),
    "an extra decided twice": (triggered(EXTRA, EXTRA._replace(log_offset=11)), "duplicate", "decided again"),
    "two records of an extra": (
        triggered(records=(EXTRA_RECORD, EXTRA_RECORD._replace(offset=98))),
        "duplicate",
        "2 records",
    ),
    "a second extra of a trigger": (
        triggered(
            EXTRA,
            EXTRA._replace(number=2, last=2, log_offset=11),
            records=(EXTRA_RECORD, EXTRA_RECORD._replace(number=2)),
        ),
        "extra",
        "behind the last one",
    ),
    "an extra before its trigger": (triggered(EXTRA._replace(log_offset=2)), "contradiction", "before others"),
    "an extra that another follows": (triggered(EXTRA._replace(next_ms=at(4))), "extra", "is published as due"),
    "an extra with another value": (
        triggered(records=(EXTRA_RECORD._replace(digests=(b"k", b"x", b"h")),)),
        "mismatch",
        "differs in value",
    ),
    "an extra with an occurrence number": (
        triggered(records=(EXTRA_RECORD._replace(own_headers=f"{OWN},postdate-extra"),)),
        "mismatch",
        "own headers",
    ),
    "a dead extra without a letter": (
        triggered(EXTRA._replace(reason="dead"), records=()),
        "missing",
        "without a dead letter",
    ),
    "completed before an extra": (
        Case(
            [occurred(1, at(1), 0)],
            [record(occurred(1, at(1), 0))],
            triggers=[TRIGGER],
            request={"count_max": 1},
            end=End("completed", at(1), 2, 1),
        ),
        "missing",
        "completed, though",
    ),
    "an extra after the cancel": (triggered(end=End("cancelled", at(1), 8, 0)), "contradiction", "cancelled before"),
    # backfills
    "a time of a backfill is left out": (
        filled(FILLED[0], FILLED[2], records=[FILLED_RECORDS[0], FILLED_RECORDS[2]]),
        "missing",
        "2 has no fate",
    ),
    "a time of a backfill is passed over": (
        filled(
            FILLED[0]._replace(next_ms=at(-1)),
            FILLED[2]._replace(number=2, last=2),
            records=[FILLED_RECORDS[0], FILLED_RECORDS[2]._replace(number=2)],
        ),
        "missing",
        "is passed over",
    ),
    "a backfill ends too early": (
        filled(FILLED[0], FILLED[1]._replace(next_ms=0), records=FILLED_RECORDS[:2]),
        "missing",
        "is passed over",
    ),
    "a backfill goes on behind its end": (with_fill(3, next_ms=at(0)), "extra", "is published as due"),
    "a backfill goes on behind the end of its schedule": (
        filled(*FILLED, request={"end_ms": at(-2)}, fates=FILLED, end=None),
        "extra",
        "does not exist",
    ),
    "a backfill at another time": (
        filled(
            FILLED[0],
            FILLED[1]._replace(nominal_ms=at(-2) + 1_000),
            FILLED[2],
            records=[FILLED_RECORDS[0], FILLED_RECORDS[1]._replace(due_ms=at(-2) + 1_000), FILLED_RECORDS[2]],
        ),
        "extra",
        f"2 was that of {at(-2) + 1_000}",
    ),
    "a time of a backfill is decided twice": (
        filled(*FILLED, FILLED[1]._replace(log_offset=99)),
        "duplicate",
        "2 is decided again",
    ),
    "a time of a backfill has two records": (
        filled(*FILLED, records=[*FILLED_RECORDS, FILLED_RECORDS[1]._replace(offset=98)]),
        "duplicate",
        "2 records",
    ),
    "a backfill before its request": (with_fill(1, at_ms=ASKED_MS - 1), "early", f"due {ASKED_MS}"),
    "a backfill with another due time": (
        filled(*FILLED, records=[FILLED_RECORDS[0]._replace(due_ms=ASKED_MS), *FILLED_RECORDS[1:]]),
        "mismatch",
        "postdate-due",
    ),
    "completed before a backfill": (
        Case(
            [occurred(1, at(1), 0)],
            [record(occurred(1, at(1), 0))],
            triggers=[BACKFILL],
            request={"count_max": 1},
            end=End("completed", at(1), 2, 1),
        ),
        "missing",
        "completed, though",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    case, verdict, said = WRONG[name]
    problems = case.judged().position.problems
    assert [one for one in problems if one[0] == verdict and said in one[1]], problems
    assert {one[0] for one in problems} == {verdict}, problems
