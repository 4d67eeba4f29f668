"""Goal: if fates of a schedule have left the dispatch log, the audit does not verify extra deliveries whose trigger or
backfill may be lost, or occurrences about which a lost pause or resume decides. It judges all other fates as if none
were lost.

Method: as in `test_extra_deliveries`, without the fate that asks for the extra deliveries. The test passes the controls
that may have lost their fates (`lost_controls`, `lost_switches`) to the judge. `tests/spark/test_audit_lost_fates.py`
tests how the audit finds these controls.
"""

from dataclasses import replace
from typing import Any

import pytest

from postdate.spark.limits import OCCURRENCES_STEPPED_MAX
from postdate.spark.rules.schedules.schedule_events import (
    DeadOccurrence,
    DeliveredOccurrence,
    End,
    ExtraPosition,
    Fate,
    Switch,
    Trigger,
    ZoneVersions,
)
from support.audits.schedule_judgements import (
    BERLIN,
    DIGESTS,
    FOLD,
    MINUTE,
    NEVER_MS,
    NIGHT,
    SECOND,
    Case,
    at,
    nightly,
    occurred,
    only,
    record,
    skipped,
    sound,
)

HOUR_MS = 3_600_000
OWN_OF_EXTRA = "postdate-origin,postdate-due,postdate-id,postdate-extra"
LOST_MS = at(0) + 500
LOST = {"fates_lost_before_ms": LOST_MS}
FATES = [Fate(n, n, None, at(n - 6), at(n - 5) if n < 3 else 0, 9, n, LOST_MS + 5, False, 20) for n in (1, 2, 3)]
RECORDS = [
    DeliveredOccurrence(f.number, "orders", 3, 90 + f.number, f.nominal_ms, None, b"id", OWN_OF_EXTRA, DIGESTS, 20)
    for f in FATES
]


def lost(*fates: Fate, records: Any = RECORDS, controls: tuple[int, ...] = (20,), **more: Any) -> Case:
    """Returns three sound occurrences, and these extra deliveries of a backfill without a fate."""
    case = sound()
    given = {"fates": [*case.fates, *fates], "records": [*case.records, *records], "bounds": LOST}
    return replace(case, lost_controls=controls, **{**given, **more})


@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_extra_deliveries_of_a_lost_fate_are_unsettled(first: int) -> None:
    """The fates of the first extra deliveries may be lost as well."""
    found = lost(*FATES[first:]).judged()
    assert (found.position.problems, dict(found.position.reasons)) == ((), {"unsettled": 3})
    assert (found.added.verified, found.overdue) == (3, 0)


@pytest.mark.parametrize("nominal_ms", [at(0) + 7, at(2) + 500])
def test_the_extra_delivery_of_a_lost_trigger_may_have_any_time(nominal_ms: int) -> None:
    fate = FATES[0]._replace(nominal_ms=nominal_ms, next_ms=0, at_ms=nominal_ms + LOST_MS)
    found = lost(fate, records=[RECORDS[0]._replace(due_ms=nominal_ms)]).judged()
    assert (found.position.problems, dict(found.position.reasons)) == ((), {"unsettled": 1})


def test_without_a_lost_fate_these_extra_deliveries_are_violations() -> None:
    for changes in ({"controls": ()}, {"controls": (19, 21)}):
        for fates in ((), FATES[:1], FATES):
            found = lost(*fates, records=RECORDS[: len(fates) or 3], **changes).judged()
            assert "extra" in {verdict for verdict, _ in found.position.problems}, (changes, fates)


def test_the_next_run_continues_behind_extra_deliveries_of_a_lost_fate() -> None:
    first = lost(*FATES[1:2], records=RECORDS[:2]).judged()
    assert (first.position.problems, dict(first.position.reasons)) == ((), {"unsettled": 2})
    rest = Case(FATES[2:], RECORDS[2:], known=first.position, bounds=LOST).judged()
    assert (rest.position.problems, dict(rest.position.reasons)) == ((), {"unsettled": 3})
    assert rest.position.extras == (ExtraPosition(20, 4, 0, 9, 3),)


def test_the_deliveries_of_a_lost_control_may_come_in_a_later_run() -> None:
    first = lost(records=()).judged()
    assert (first.position.problems, first.position.reasons) == ((), ())
    rest = Case(FATES, RECORDS, known=first.position, bounds=LOST, lost_controls=(20,))
    assert (rest.judged().position.problems, dict(rest.judged().position.reasons)) == ((), {"unsettled": 3})
    ended = replace(rest, lost_controls=()).judged()
    assert {verdict for verdict, _ in ended.position.problems} == {"extra"}, "its end was read meanwhile"


def test_an_end_may_come_with_or_without_unknown_extra_deliveries() -> None:
    last = occurred(1, at(1), 0)
    case = replace(lost(records=()), fates=[last], records=[record(last)], request={"count_max": 1})
    for end in (None, End("cancelled", at(1), 20, 0)):
        found = replace(case, end=end).judged()
        assert (found.position.problems, dict(found.position.reasons)) == ((), {"unsettled": 1})
        without = replace(case, lost_controls=(), end=end).judged()
        assert {verdict for verdict, _ in without.position.problems} == {"contradiction"}
    before = replace(case, end=End("cancelled", at(1), last.log_offset - 1, 0)).judged()
    assert {verdict for verdict, _ in before.position.problems} == {"contradiction"}, "no lost fate explains the order"
    done = replace(case, fates=[last, *FATES], records=[record(last), *RECORDS], end=End("completed", at(1), 9, 4))
    assert done.judged().position.problems == ()


def test_a_completed_schedule_may_have_lost_its_last_occurrences() -> None:
    """The fates of all of its occurrences are lost, and the last extra delivery completes it."""
    end = End("completed", at(1), 9, 4)
    case = replace(lost(), fates=FATES, records=RECORDS, end=end, stored=None)
    found = replace(case, request={"count_max": 1, "request_ms": at(-1)}).judged()
    assert (found.position.problems, dict(found.position.reasons)) == ((), {"unsettled": 4})
    later = replace(case, request={"count_max": 1, "start_ms": LOST_MS + 1}, stored=(at(1), 1)).judged()
    assert [verdict for verdict, _ in later.position.problems] == ["missing"], "it was due behind the losses"
    first = occurred(1, at(-2), at(-1), at_ms=LOST_MS + 5)
    request = {"count_max": 2, "request_ms": at(-3)}
    kept = Case([first], [record(first)], request=request, bounds=LOST, end=end, stored=(at(-2), 1)).judged()
    assert [verdict for verdict, _ in kept.position.problems] == ["missing"], (
        "the log is whole behind a fate that it has"
    )


def test_the_extra_deliveries_of_a_completed_schedule_may_have_been_lost_between_two_runs() -> None:
    """The first run reads the trigger. The second run finds only the last occurrence, which completes the schedule."""
    trigger = Trigger(20, at(1) + 7, 2, 5)
    first = sound(1, triggers=[trigger]).judged()
    assert (first.position.problems, first.position.extras[0].next_ms) == ((), at(1) + 7)
    last = occurred(2, at(2), 0)
    rest = Case([last], [record(last)], triggers=[trigger], end=End("completed", at(1), last.log_offset, 1))
    rest = replace(rest, request={"count_max": 2, "request_ms": at(0)}, known=first.position)
    for lost_ms, verdicts, reasons in ((at(2), [], {"unsettled": 1}), (at(1) + 7, ["missing"], {})):
        found = replace(rest, bounds={"fates_lost_before_ms": lost_ms}).judged().position
        assert ([verdict for verdict, _ in found.problems], dict(found.reasons)) == (verdicts, reasons)
    unknown = replace(rest, known=first.position._replace(extras=()), bounds={"fates_lost_before_ms": at(2)}).judged()
    assert [verdict for verdict, _ in unknown.position.problems] == ["missing"], "the log is whole behind the trigger"


def test_records_of_lost_fates_that_an_open_transaction_may_have_hidden_are_no_duplicates() -> None:
    """The log ends before its first remaining fate, which the next run reads."""
    case = Case((), sound().records[:2], bounds={"fates_lost_before_ms": at(2) + 30_000, "log_capped": True})
    first = case.judged()
    assert (first.position.problems, len(first.position.waiting_records)) == ((), 2)
    third = occurred(3, at(3), at(4))
    for is_capped in (True, False):
        rest = replace(case, fates=[third], records=[record(third)], known=first.position)
        found = replace(rest, bounds={**case.bounds, "log_capped": is_capped}).judged()
        assert (dict(found.position.reasons), found.position.waiting_records) == ({"unsettled": 2}, ())
        again = Case(known=found.position, bounds=case.bounds).judged()
        assert (again.position.problems, again.position.figures.verified) == ((), 1)


DEAD = [fate._replace(reason="dead") for fate in FATES]


def test_dead_letters_of_a_lost_fate_are_used() -> None:
    dead_letters = [DeadOccurrence(fate.nominal_ms, True, offset=fate.number) for fate in DEAD]
    for fates, unsettled in ((DEAD, 3), (DEAD[1:], 4)):  # the first dead letter may not be that of the lost fate
        found = lost(*fates, records=(), dead_letters=dead_letters).judged()
        assert (found.position.problems, dict(found.position.reasons)) == ((), {"unsettled": unsettled})


WRONG: dict[str, tuple[Case, str]] = {
    "without a record": (lost(*FATES, records=RECORDS[:2]), "missing"),
    "with another value": (
        lost(*FATES, records=[RECORDS[0]._replace(digests=(b"k", b"x", b"h")), *RECORDS[1:]]),
        "mismatch",
    ),
    "with two records": (lost(*FATES, records=[*RECORDS, RECORDS[0]._replace(offset=98)]), "duplicate"),
    "decided twice": (lost(*FATES, FATES[0]._replace(log_offset=11)), "duplicate"),
    "early": (lost(FATES[0]._replace(at_ms=FATES[0].nominal_ms - 1), *FATES[1:]), "early"),
    "passing over a time": (
        lost(
            FATES[0]._replace(next_ms=at(-3)),
            FATES[2]._replace(number=2, last=2),
            records=[RECORDS[0], RECORDS[2]._replace(number=2)],
        ),
        "missing",
    ),
    "at no nominal time": (lost(FATES[0]._replace(next_ms=at(-4) + 1), records=RECORDS[:1]), "extra"),
    "behind the last one": (
        lost(*FATES, FATES[2]._replace(number=4, last=4, place=4), records=[*RECORDS, RECORDS[2]._replace(number=4)]),
        "extra",
    ),
    "dead, without a dead letter": (lost(*DEAD, records=()), "missing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_defects_of_extra_deliveries_of_a_lost_fate_are_reported(name: str) -> None:
    case, verdict = WRONG[name]
    problems = case.judged().position.problems
    assert {one for one, _ in problems} == {verdict}, problems
    assert dict(case.judged().position.reasons)["unsettled"] >= 1


SKIPPED = skipped(1, 2, "paused", at(3), at(5), log_offset=7)
PAUSE, RESUME = Switch(10, at(1), True, -1, -1), Switch(12, at(3), False, -1, -1)
FOUND = RESUME._replace(log_offset=6, place=0)
"""The resume with its fate in the log."""
EXPLAINED = {
    "both are lost": ([PAUSE, RESUME], []),
    "the resume is in the log": ([PAUSE], [FOUND]),
    "a second pause is in the log": ([PAUSE], [Switch(11, at(2), True, 5, 0), FOUND]),
    "two pauses are lost": ([PAUSE, Switch(11, at(2), True, -1, -1), RESUME], []),
}
UNEXPLAINED = {
    "none is lost": ([], [FOUND]),
    "it begins behind the first time": ([PAUSE._replace(at_ms=at(1) + 1), RESUME], []),
    "it ends at the last time": ([PAUSE, RESUME._replace(at_ms=at(2))], []),
    "it has not ended": ([PAUSE], []),
    "the resume comes behind the skip in the log": ([PAUSE], [FOUND._replace(log_offset=8)]),
    "the resume was requested first": ([PAUSE, RESUME._replace(control=9)], []),
    "only the resume is lost": ([RESUME], []),
    "the log has ended it before": ([PAUSE], [Switch(11, at(2), False, 5, 0), FOUND]),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_skips_in_a_lost_pause_are_unsettled(name: str) -> None:
    switches = dict(zip(("lost_switches", "switches"), EXPLAINED[name], strict=True))
    found = only(SKIPPED, **switches).judged()
    assert (found.position.problems, dict(found.position.reasons)) == ((), {"unsettled": 2})
    assert (found.added.paused, found.added.verified, found.added.unverifiable) == (2, 0, 2)
    for changes in ({"reason": "missed"}, {"last": 3, "next_ms": at(4)}):
        wrong = only(SKIPPED._replace(**changes), **switches).judged().position
        assert [verdict for verdict, _ in wrong.problems] == ["wrong-skip"], changes


@pytest.mark.parametrize("name", UNEXPLAINED)
def test_skips_that_no_lost_pause_explains_are_wrong(name: str) -> None:
    switches = dict(zip(("lost_switches", "switches"), UNEXPLAINED[name], strict=True))
    found = only(SKIPPED, **switches).judged()
    assert [verdict for verdict, _ in found.position.problems] == ["wrong-skip"]


def test_a_pause_in_the_log_verifies_its_skips_beside_a_lost_one() -> None:
    known = [Switch(13, at(1), True, 5, 0), Switch(14, at(3), False, 6, 0)]
    found = only(SKIPPED, switches=known, lost_switches=[PAUSE, RESUME]).judged()
    assert (found.position.problems, found.position.reasons, found.added.verified) == ((), (), 2)


LATE = at(5) + 30_000
LAST = {"missed": "last"}
ONE = occurred(1, at(1), at(2), at_ms=LATE, log_offset=7)
OTHERS = Switch(10, at(2), True, -1, -1), Switch(12, at(6), False, -1, -1)
"""A lost pause, with its lost resume, of all later nominal times that were due by LATE."""
MISSED = skipped(1, 1, "missed", at(2), LATE, log_offset=7)
BEGUN = PAUSE._replace(log_offset=3, place=0)
"""The pause with its fate in the log, which an earlier run with a state has read."""
DOUBTFUL: dict[str, Case] = {
    "delivered, others may have been paused": only(ONE, record(ONE), request=LAST, lost_switches=OTHERS),
    "delivered, others may be paused": only(ONE, record(ONE), request=LAST, lost_switches=OTHERS[:1]),
    "missed, others may have been paused": only(MISSED, request=LAST, lost_switches=OTHERS),
    "missed, others may have been resumed": only(
        MISSED, request=LAST, switches=[Switch(9, at(2), True, 3, 0)], lost_switches=[Switch(12, at(3), False, -1, -1)]
    ),
    "delivered before the resume of a possible pause of others": only(
        *(ONE, record(ONE)),
        request=LAST,
        lost_switches=OTHERS[:1],
        switches=[Switch(12, at(4), False, ONE.log_offset + 1, 0)],
    ),
    "delivered in a lost pause": only(ONE, record(ONE), lost_switches=[PAUSE, RESUME]),
    "delivered behind a lost pause that has not ended": only(ONE, record(ONE), lost_switches=[PAUSE]),
    "delivered behind a lost resume": only(
        ONE, record(ONE), switches=[BEGUN], lost_switches=[RESUME._replace(at_ms=at(1))]
    ),
    "skipped before a lost resume": only(
        SKIPPED._replace(last=1, next_ms=at(2)), switches=[BEGUN], lost_switches=[RESUME]
    ),
    "delivered in one lost pause, others in another": only(
        *(ONE, record(ONE)),
        request=LAST,
        lost_switches=[PAUSE, RESUME._replace(control=11, at_ms=at(2)), *(one._replace(control=20) for one in OTHERS)],
    ),
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_an_occurrence_is_unsettled_if_a_lost_switch_decides_about_it(name: str) -> None:
    found = DOUBTFUL[name].judged()
    assert (found.position.problems, dict(found.position.reasons)) == ((), {"unsettled": 1})
    assert found.added.verified == 0


DECIDED: dict[str, tuple[Case, list[str]]] = {
    "delivered, one was not paused": (
        only(ONE, record(ONE), request=LAST, lost_switches=[OTHERS[0]._replace(at_ms=at(2) + 1), OTHERS[1]]),
        ["out-of-policy"],
    ),
    "missed, one was not paused": (
        only(MISSED, request=LAST, lost_switches=[OTHERS[0], OTHERS[1]._replace(at_ms=at(5))]),
        [],
    ),
    "missed, none was due": (
        only(MISSED._replace(at_ms=at(2) - 1), request=LAST, lost_switches=OTHERS),
        ["wrong-skip"],
    ),
    "missed, all were paused": (
        only(MISSED, request=LAST, switches=[Switch(9, at(2), True, 3, 0)], lost_switches=OTHERS[:1]),
        ["wrong-skip"],
    ),
    "delivered in a pause, others may have been paused": (
        only(ONE, record(ONE), request=LAST, switches=[BEGUN], lost_switches=[OTHERS[0]._replace(control=11)]),
        ["out-of-policy"],
    ),
    "delivered before a lost pause": (only(ONE, record(ONE), lost_switches=OTHERS), []),
}


@pytest.mark.parametrize("name", DECIDED)
def test_an_occurrence_is_judged_if_no_lost_switch_decides_about_it(name: str) -> None:
    case, verdicts = DECIDED[name]
    found = case.judged()
    assert [verdict for verdict, _ in found.position.problems] == verdicts
    assert (found.position.reasons, found.added.verified) == ((), 0 if verdicts else 1)


def test_nothing_is_overdue_in_a_pause_that_no_lost_switch_has_ended() -> None:
    late = {"overdue_before_ms": at(9) + 1}
    for lost_switches, overdue in (([], 0), ([Switch(12, at(6), False, -1, -1)], 6)):
        case = sound(bounds=late, switches=[Switch(9, at(4), True, 3, 0)], lost_switches=lost_switches)
        assert case.judged().overdue == overdue


DAY_MS = 86_400_000
LOST_RULES = {"fates_lost_before_ms": NEVER_MS}
BEHIND_HOLE = replace(nightly(BERLIN, NIGHT, (NIGHT, FOLD), request={"grace_ms": 0}), bounds=LOST_RULES)
FIRST = replace(BEHIND_HOLE, fates=[], records=[], stored=None)
SUMMER_MS, BEHIND_MS = FOLD + DAY_MS, SECOND + DAY_MS
"""A time that a lost fate has published by rules without winter time, and the next time by the rules of the audit."""


@pytest.mark.parametrize("reason", [None, "grace"])
@pytest.mark.parametrize(("case", "number"), [(BEHIND_HOLE, 3), (FIRST, 1), (FIRST, 2)])
@pytest.mark.parametrize("before", ["2026f", "2025a"])
def test_a_lost_owner_may_have_published_a_time_by_other_rules(
    reason: str | None, case: Case, number: int, before: str
) -> None:
    fate = occurred(number, SUMMER_MS, BEHIND_MS, log_offset=9)
    if reason is not None:
        fate = skipped(number, number, reason, BEHIND_MS, SUMMER_MS + 5, log_offset=9)
    records = [] if reason is not None else [record(fate)]
    zones = ZoneVersions("2026f", (0, 5), (before, "2026f"))
    last = replace(case, fates=[*case.fates, fate], records=[*case.records, *records], zones=zones)
    found = last.judged()
    assert found.position.problems == ()
    assert (found.position.next_ms, found.added.unverifiable) == (
        BEHIND_MS,
        number - (before == "2026f") * len(case.fates),
    )
    whole = replace(last, bounds={}, stored=(NIGHT, 1)).judged()
    assert {"missing", "extra"} & {verdict for verdict, _ in whole.position.problems}, "no fate is lost"


def test_a_dead_letter_confirms_the_time_behind_a_loss() -> None:
    dead = skipped(3, 3, "dead", BEHIND_MS + DAY_MS, BEHIND_MS + 5, log_offset=9)
    case = replace(BEHIND_HOLE, fates=[*BEHIND_HOLE.fates, dead])
    found = replace(case, dead_letters=[DeadOccurrence(BEHIND_MS, True)]).judged()
    assert (found.position.problems, found.added.verified, found.added.unverifiable) == ((), 2, 1)
    without = case.judged()
    assert ([verdict for verdict, _ in without.position.problems], without.added.verified) == (["missing"], 1)


@pytest.mark.parametrize("is_first_buried", [False, True])
@pytest.mark.parametrize("before", ["2026f", "2025a"])
def test_a_dead_letter_in_a_hole_confirms_no_time_behind_it(is_first_buried: bool, before: str) -> None:
    """The fates of the first two occurrences are lost. The third occurrence became a dead letter, and in one case the
    first one, too."""
    third, fourth = SECOND + DAY_MS, SECOND + 2 * DAY_MS
    dead = skipped(3, 3, "dead", fourth, third + 5, log_offset=9)
    dead_letters = [DeadOccurrence(third, True), *([DeadOccurrence(NIGHT, True)] if is_first_buried else [])]
    zones = ZoneVersions("2026f", (0, 5), (before, "2026f"))
    found = replace(FIRST, fates=[dead], dead_letters=dead_letters, zones=zones).judged()
    assert (found.position.problems, dict(found.position.reasons)) == ((), {"unsettled": 3})
    assert found.dead_letters == []


FAR = OCCURRENCES_STEPPED_MAX + 2
FAR_DEAD = skipped(FAR, FAR, "dead", at(FAR + 1), at(FAR) + 5)


@pytest.mark.parametrize("fate", [FAR_DEAD, FAR_DEAD._replace(reason="missed"), occurred(FAR, at(FAR), at(FAR + 1))])
def test_behind_a_hole_that_is_too_long_no_time_is_known(fate: Fate) -> None:
    records = [record(fate)] if fate.reason is None else []
    dead_letters = [DeadOccurrence(at(FAR), True)] if fate.reason == "dead" else []
    found = only(fate, *records, dead_letters=dead_letters, bounds={**LOST_RULES, "overdue_before_ms": 0}).judged()
    assert (found.position.problems, dict(found.position.reasons)) == ((), {"unsettled": FAR})
    assert (found.position.next_ms, found.added.verified) == (at(FAR + 1), 0)
    whole = only(fate, *records, dead_letters=dead_letters).judged()
    assert [verdict for verdict, _ in whole.position.problems] == ["missing"], "only the hole itself"


def test_an_occurrence_behind_the_end_and_a_hole_is_extra() -> None:
    fate = occurred(4, at(4), 0)
    end = End("completed", at(1), fate.log_offset, 1)
    found = only(fate, record(fate), request={"end_ms": at(2)}, end=end, bounds=LOST_RULES).judged()
    assert [verdict for verdict, _ in found.position.problems] == ["extra"]


@pytest.mark.parametrize("reason", ["grace", "dead"])
def test_a_lost_owner_may_have_published_a_time_where_the_audit_finds_none(reason: str) -> None:
    other_ms = NIGHT - 60 * MINUTE
    fate = skipped(1, 1, reason, 0, other_ms + 5)
    dead_letters = [DeadOccurrence(other_ms, True)] if reason == "dead" else []
    request = {**FIRST.request, "request_ms": other_ms - 1, "end_ms": other_ms}
    end = End("completed", other_ms, fate.log_offset, 1)
    found = replace(FIRST, fates=[fate], dead_letters=dead_letters, request=request, end=end).judged()
    assert (found.position.problems, dict(found.position.reasons)) == ((), {"unsettled": 1})


@pytest.mark.parametrize(("bounds", "first_ms", "reasons"), [(LOST_RULES, 0, {"unsettled": 1}), ({}, NIGHT, {})])
def test_the_rules_of_the_owner_that_ended_a_schedule_give_no_first_time_behind_a_loss(
    bounds: dict[str, Any], first_ms: int, reasons: dict[str, int]
) -> None:
    zones = ZoneVersions("2026f", (0, 5), ("2025a", "2026f"))
    case = replace(FIRST, bounds=bounds, zones=zones)
    found = replace(case, end=End("cancelled", NIGHT - 1, 9, 0)).judged().position
    assert (found.first_ms, dict(found.reasons)) == (first_ms, reasons)
    assert replace(case, end=End("cancelled", NIGHT, 9, 0)).judged().position.reasons == ()


def test_a_lost_first_occurrence_may_have_been_due_before_the_computed_time() -> None:
    """By rules without winter time, it was due before the losses; by the rules of the audit, behind the losses."""
    request = {**FIRST.request, "request_ms": FOLD, "count_max": 1}
    lost = {"fates_lost_before_ms": SUMMER_MS + 1_000}
    case = replace(FIRST, request=request, bounds=lost, triggers=[Trigger(20, FOLD + 7, 3, 0)])
    fate = Fate(1, 1, None, FOLD + 7, 0, 9, 0, SUMMER_MS + 1_005, False, 20)
    found = RECORDS[0]._replace(due_ms=FOLD + 7)
    end = End("completed", 0, 9, 1)
    done = replace(case, fates=[fate], records=[found], end=end).judged().position
    assert (done.problems, dict(done.reasons)) == ((), {"unsettled": 1})
    early = replace(case, fates=[fate], records=[found], end=end, bounds={"fates_lost_before_ms": FOLD}).judged()
    assert [verdict for verdict, _ in early.position.problems] == ["missing"], "it was requested behind the losses"


@pytest.mark.parametrize("before", ["2026f", "2025a"])
def test_the_dead_letter_of_a_lost_occurrence_gives_no_time_to_a_later_one_without_any(before: str) -> None:
    """The first and the third occurrence became dead letters, and the dead letter of the third one has expired."""
    third = SECOND + DAY_MS
    dead = skipped(3, 3, "dead", third + DAY_MS, third + 5, log_offset=9)
    zones, expired = ZoneVersions("2026f", (0, 5), (before, "2026f")), {**LOST_RULES, "letters_lost_before_ms": third}
    for is_same, verdicts in ((True, []), (False, ["mismatch"])):
        found = replace(
            FIRST, fates=[dead], dead_letters=[DeadOccurrence(NIGHT, is_same)], zones=zones, bounds=expired
        ).judged()
        assert [verdict for verdict, _ in found.position.problems] == verdicts
        assert "occurrence 3" not in str(found.position.problems)
        assert found.added.verified == 0


@pytest.mark.parametrize(
    ("first", "named"), [(SUMMER_MS - 5, f"{SUMMER_MS - 5} or {SUMMER_MS}"), (BEHIND_MS, BEHIND_MS)]
)
def test_a_surplus_dead_letter_may_be_any_that_may_belong_to_an_unknown_occurrence(first: int, named: Any) -> None:
    dead = skipped(1, 1, "dead", BEHIND_MS, SUMMER_MS + 5, log_offset=9)
    dead_letters = [DeadOccurrence(SUMMER_MS, True), DeadOccurrence(first, True)]
    case = replace(FIRST, fates=[dead], dead_letters=dead_letters, bounds={"fates_lost_before_ms": NIGHT})
    found = replace(case, end=End("cancelled", SUMMER_MS, 9, 1)).judged()
    assert found.position.problems == (
        ("contradiction", f"a dead letter of the occurrence due {named} belongs to no skip"),
    )


def test_the_dead_letter_of_a_trigger_gives_no_time_to_an_extra_delivery_with_a_named_time() -> None:
    """The fates of the first deliveries of a backfill are lost. Its last delivery and a trigger became dead letters."""
    third = SECOND + DAY_MS
    case = nightly(BERLIN, NIGHT, (NIGHT, FOLD), (FOLD, third), (third, third + DAY_MS))
    filled = Fate(3, 3, "dead", NIGHT - DAY_MS, 0, 9, 1, third + HOUR_MS, False, 20)
    triggered = Fate(1, 1, "dead", third + HOUR_MS // 2, 0, 9, 2, third + HOUR_MS, False, 30)
    controls = [
        Trigger(20, third + 1, 3, 5, NIGHT - 3 * DAY_MS, NIGHT - DAY_MS),
        Trigger(30, third + HOUR_MS // 2, 9, 0),
    ]
    dead_letters = [DeadOccurrence(NIGHT - DAY_MS, True), DeadOccurrence(third + HOUR_MS // 2, True)]
    zones = ZoneVersions("2026f", (0, 5), ("2025a", "2026f"))
    fates = [*case.fates, filled, triggered]
    found = replace(
        case, fates=fates, dead_letters=dead_letters, triggers=controls, zones=zones, bounds=LOST_RULES
    ).judged()
    assert found.position.problems == ()


@pytest.mark.parametrize("reason", ["dead", "grace"])
def test_a_skip_behind_lost_fates_publishes_a_nominal_time(reason: str) -> None:
    third = SECOND + DAY_MS
    zones, dead_letters = (
        ZoneVersions("2026f", (0, 5), ("2026f", "2026f")),
        [DeadOccurrence(third, True)] * (reason == "dead"),
    )
    for next_ms, verdicts in ((third + DAY_MS, []), (third + DAY_MS + 7, ["extra"])):
        fates = [
            skipped(3, 3, reason, next_ms, third + 5, log_offset=9),
            occurred(4, next_ms, third + 2 * DAY_MS, log_offset=10),
        ]
        case = replace(FIRST, fates=fates, records=[record(fates[1])], dead_letters=dead_letters, zones=zones)
        assert [verdict for verdict, _ in case.judged().position.problems] == verdicts
