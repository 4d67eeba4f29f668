"""Goal: the judge of a recurring schedule reports every defect of its occurrences, and nothing that a sidecar may do.

Method: each case is a schedule with literal fates and records of its first occurrences; by default it fires every
minute. A case is a sound history with one change. Sound and unsound cases that differ in one thing stand beside each
other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest

from postdate.spark.limits import COMMIT_MS_MAX, SCHEDULE_PROBLEMS_MAX
from postdate.spark.rules.schedules.schedule_events import (
    DeadOccurrence,
    End,
    Fate,
    Switch,
    ZoneVersions,
)
from support.audits.schedule_judgements import (
    AFTER_GAP,
    BERLIN,
    FOLD,
    GAP,
    MARCH,
    MINUTE,
    NEVER_MS,
    NIGHT,
    ORIGIN,
    OWN,
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
    with_fate,
)


def paused(from_ms: int, until_ms: int | None = None, *, log_offset: int = 0) -> list[Switch]:
    """Returns a pause, and if it has an end also the resume behind it in the log."""
    begun = Switch(10, from_ms, True, log_offset, 0)
    return [begun] if until_ms is None else [begun, Switch(11, until_ms, False, log_offset, 1)]


def drawn_ms(number: int, window_ms: int) -> int:
    return (window_ms + 1) * (crc32(f"{ORIGIN}/{number}".encode()) >> 8) >> 24


ONE = occurred(1, at(1), at(2))
TWO = occurred(2, at(2), at(3))
LATE = T + 30 * MINUTE
WINDOW = {"window_ms": 30_000}
CHOSEN = at(1) + drawn_ms(1, 30_000)

SOUND = {
    "three on time": sound(),
    "on the millisecond": only(ONE._replace(at_ms=at(1)), record(ONE)),
    "counted to its end": Case(
        [ONE, occurred(2, at(2), 0)],
        [record(ONE), record(occurred(2, at(2), 0))],
        end=End("completed", at(1), 3, 1),
        request={"count_max": 2},
    ),
    "ended by its end": Case(
        [occurred(1, at(1), 0)],
        [record(occurred(1, at(1), 0))],
        end=End("completed", at(1), 2, 1),
        request={"end_ms": at(2) - 1},
    ),
    "begun at its start": only(
        occurred(1, at(9), at(10)), record(occurred(1, at(9), at(10))), stored=(at(9), 1), request={"start_ms": at(9)}
    ),
    "cancelled": sound(end=End("cancelled", at(1), 9, 0)),
    "refused by another owner": sound(end=End("dead", 0, 9, 0)),
    "missed by catch-up": only(skipped(1, 29, "missed", at(30), LATE), request={"catch_up_ms": 59_999}),
    "missed, the newest is delivered": Case(
        [skipped(1, 29, "missed", at(30), LATE + 5), occurred(30, at(30), at(31), log_offset=2, place=1)],
        [record(occurred(30, at(30), at(31)))],
        request={"missed": "last"},
    ),
    "missed by a minute": only(skipped(1, 28, "missed", at(29), LATE), request={"missed": "none"}),
    "beyond its grace": only(skipped(1, 29, "grace", at(30), LATE), request={"grace_ms": 59_999}),
    "within grace and a transaction": only(
        ONE._replace(at_ms=at(1) + 1_000 + COMMIT_MS_MAX), record(ONE), request={"grace_ms": 1_000}
    ),
    "dead": only(skipped(1, 1, "dead", at(2), at(1) + 5), dead_letters=[DeadOccurrence(at(1), True)]),
    "in its window": only(ONE._replace(at_ms=CHOSEN), record(ONE), request=WINDOW),
    "a fold, first": nightly(BERLIN, NIGHT, (NIGHT, FOLD), (FOLD, SECOND + 86_400_000)),
    "a fold, last": nightly(BERLIN._replace(fold="last"), NIGHT, (NIGHT, SECOND), (SECOND, SECOND + 86_400_000)),
    "a fold, both": nightly(BERLIN._replace(fold="both"), NIGHT, (NIGHT, FOLD), (FOLD, SECOND)),
    "a gap, next": nightly(BERLIN, MARCH, (MARCH, GAP), (GAP, AFTER_GAP)),
    "a copy by a consumer": only(ONE, record(ONE), record(ONE, target="retries")),
}


@pytest.mark.parametrize("name", SOUND)
def test_everything_that_a_sidecar_may_do_is_verified(name: str) -> None:
    case = SOUND[name]
    found = case.judged()
    assert found.position.problems == ()
    decided = sum(fate.last + 1 - fate.number for fate in case.fates)
    assert found.added.verified == decided, found


def test_a_gap_is_skipped() -> None:
    times = BERLIN._replace(gap="skip")
    fates = [occurred(1, MARCH, GAP), skipped(2, 2, "gap", AFTER_GAP, GAP + 5)]
    case = nightly(times, MARCH)
    found = replace(case, fates=fates, records=[record(fates[0])]).judged()
    assert (found.position.problems, found.added.verified, found.added.gap) == ((), 2, 1)


EXPIRED = {"target_lost_before_ms": (NEVER_MS,) * 4}
# The owner read the pause only when the third occurrence was due, although the pause had begun before.
MISSED_AT_3 = skipped(1, 2, "missed", at(3), at(3) + 50, log_offset=2)
THREE = occurred(3, at(3), at(4), log_offset=2, place=1, at_ms=at(3) + 50)
# The second occurrence was delivered late. From the third occurrence on, the schedule was paused.
BEHIND_ONE = only(ONE, record(ONE)).judged().position
LATE_TWO = TWO._replace(at_ms=at(5) + 30_000)
PAUSE_AT_3 = Switch(10, at(3), True, 2, 1)
PAUSED = {
    "skipped in a pause": only(skipped(1, 2, "paused", at(3), at(5)), switches=paused(at(1), at(3))),
    "delivered before the pause was read": only(ONE, record(ONE), switches=paused(at(1), at(3), log_offset=9)),
    "delivered at the resume": only(ONE, record(ONE), switches=paused(T, at(1))),
    "missed, the newest was paused": Case(
        [occurred(1, at(1), at(2), at_ms=LATE)],
        [record(ONE)],
        request={"missed": "last"},
        switches=paused(at(2), LATE + MINUTE),
    ),
    "missed before the pause": only(
        skipped(1, 1, "missed", at(2), LATE), request={"catch_up_ms": 0}, switches=paused(at(2))
    ),
    "missed before its pause was read": only(
        skipped(1, 1, "missed", at(2), LATE), request={"catch_up_ms": 0}, switches=paused(at(1), log_offset=9)
    ),
    "missed before the pause of the newest was read": Case(
        [MISSED_AT_3, THREE],
        [record(THREE)],
        request={"missed": "last"},
        switches=paused(at(3) - 10, log_offset=9),
    ),
    "delivered before the resume was read, which is older": only(
        LATE_TWO,
        record(LATE_TWO),
        request={"missed": "last"},
        known=BEHIND_ONE,
        switches=[PAUSE_AT_3, Switch(11, at(4) + 30_000, False, 9, 0)],
    ),
}


@pytest.mark.parametrize("name", PAUSED)
def test_pauses_are_kept(name: str) -> None:
    found = PAUSED[name].judged()
    assert found.position.problems == ()
    assert found.added.verified == sum(fate.last + 1 - fate.number for fate in PAUSED[name].fates)


def test_nothing_is_overdue_in_a_pause() -> None:
    late = {"overdue_before_ms": at(9) + 1}
    assert sound(bounds=late).judged().overdue == 6
    assert sound(bounds=late, switches=paused(at(6))).judged().overdue == 2
    assert sound(bounds=late, switches=paused(at(6), at(8))).judged().overdue == 6
    again = [*paused(at(6), at(8)), Switch(12, at(9), True, 1, 0), Switch(13, at(9), True, 1, 1)]
    assert sound(bounds=late, switches=again).judged().overdue == 5


WRONG: dict[str, tuple[Case, str, str]] = {
    # missing
    "numbers without a fate": (
        Case([ONE, FOUR := occurred(4, at(4), at(5))], [record(ONE), record(FOUR)]), "missing", "2 to 3 has no fate"
    ),
    "without its record": (replace(sound(), records=sound().records[1:]), "missing", "no record on orders"),
    "passed over": (only(ONE._replace(next_ms=at(4)), record(ONE, next_ms=at(4))), "missing", "passed over"),
    "ended before its count": (
        Case([occurred(1, at(1), 0)], [record(occurred(1, at(1), 0))], end=End("completed", at(1), 2, 1)),
        "missing", "next is none",
    ),
    "completed with a next one": (sound(end=End("completed", at(1), 4, 1)), "missing", "completed, though"),
    "dead without a dead letter": (only(skipped(1, 1, "dead", at(2), at(1) + 5)), "missing", "without a dead letter"),
    # extra
    "at another time": (
        only(ODD := occurred(1, at(1) + 1_000, at(2)), record(ODD)), "extra", "published was"
    ),
    "published at no nominal time": (
        only(ODD := occurred(1, at(1), at(2) + 1), record(ODD)), "extra", "is published"
    ),
    "beyond its count": (sound(request={"count_max": 3}), "extra", "occurrence 4 does not exist"),
    "behind its end": (sound(request={"end_ms": at(3)}), "extra", "occurrence 4 does not exist"),
    "behind the last one": (
        Case([occurred(1, at(1), 0), TWO], [record(occurred(1, at(1), 0)), record(TWO)], request={"count_max": 1}),
        "extra", "behind the last one",
    ),
    "first at another time": (sound(stored=(at(1) - 1, 1)), "extra", "occurrence 1 is published"),
    "before its start": (sound(request={"start_ms": at(2)}), "extra", "occurrence 1 is published"),
    "a record without a fate": (replace(sound(), fates=sound().fates[:2]), "extra", "and no fate"),
    "a record of a skipped one": (
        only(skipped(1, 29, "grace", at(30), LATE), record(TWO), request={"grace_ms": 0}), "extra", "occurrence 2 has"
    ),
    "a record of the first skipped one": (
        only(skipped(1, 29, "grace", at(30), LATE), record(ONE), request={"grace_ms": 0}),
        "extra", "was skipped as grace",
    ),
    "skipped beyond its count": (
        only(
            skipped(1, 3, "grace", 0, LATE), request={"grace_ms": 0, "count_max": 2},
            end=End("completed", at(1), 2, 1),
        ),
        "extra", "occurrence 3 comes behind the last one",
    ),
    "both of a fold": (nightly(BERLIN, NIGHT, (NIGHT, FOLD), (FOLD, SECOND)), "extra", "is published as due"),
    "the second of a fold": (nightly(BERLIN, NIGHT, (NIGHT, SECOND)), "extra", "is published as due"),
    "in a gap": (nightly(BERLIN, MARCH, (MARCH, GAP - 1_800_000)), "extra", "is published as due"),
    # early
    "early": (with_fate(1, at_ms=at(1) - 1), "early", f"due {at(1)}"),
    "before its window": (only(ONE._replace(at_ms=CHOSEN - 1), record(ONE), request=WINDOW), "early", f"due {CHOSEN}"),
    # repeated
    "decided again": (
        replace(sound(), fates=[*sound().fates, ONE._replace(log_offset=9)]), "duplicate", "1 is decided again"
    ),
    "skipped after it was delivered": (
        replace(sound(), fates=[*sound().fates, skipped(2, 2, "grace", at(4), LATE, log_offset=9)]),
        "duplicate", "2 is decided again",
    ),
    "two records": (
        replace(sound(), records=[*sound().records, record(ONE, offset=9)]), "duplicate", "orders/3/9"
    ),
    # wrongly skipped
    "missed without a policy": (only(skipped(1, 1, "missed", at(2), LATE)), "wrong-skip", "skipped as missed"),
    "missed within catch-up": (
        only(skipped(1, 29, "missed", at(30), LATE), request={"catch_up_ms": 60_000}), "wrong-skip", "1 to 29"
    ),
    "the newest is missed": (
        only(skipped(1, 30, "missed", at(31), LATE + 5), request={"missed": "last"}), "wrong-skip", "1 to 30"
    ),
    "missed within a minute": (
        only(skipped(1, 29, "missed", at(30), LATE), request={"missed": "none"}), "wrong-skip", "missed"
    ),
    "within its grace": (
        only(skipped(1, 29, "grace", at(30), LATE), request={"grace_ms": MINUTE}), "wrong-skip", "as grace"
    ),
    "no gap": (only(skipped(1, 1, "gap", at(2), LATE)), "wrong-skip", "gap"),
    "paused beyond the resume": (
        only(skipped(1, 3, "paused", at(4), at(5)), switches=paused(at(1), at(3))), "wrong-skip", "1 to 3"
    ),
    "paused before the resume was read": (
        only(skipped(1, 2, "paused", at(3), at(5)), switches=paused(at(1), at(3), log_offset=9)), "wrong-skip", "paused"
    ),
    "paused without a resume": (
        only(skipped(1, 2, "paused", at(3), at(5)), switches=paused(at(1))), "wrong-skip", "paused"
    ),
    "missed in a pause that has not ended": (
        only(skipped(1, 1, "missed", at(2), LATE), request={"catch_up_ms": 0}, switches=paused(at(1))),
        "wrong-skip", "as missed",
    ),
    "missed in a pause that had ended": (
        only(skipped(1, 2, "missed", at(3), LATE), request={"catch_up_ms": 0}, switches=paused(at(2), at(3))),
        "wrong-skip", "as missed",
    ),
    "dead in a pause": (
        only(
            skipped(1, 1, "dead", at(2), at(1) + 5),
            dead_letters=[DeadOccurrence(at(1), True)], switches=paused(at(1)),
        ),
        "wrong-skip", "as dead",
    ),
    "delivered in a pause": (only(ONE, record(ONE), switches=paused(at(1), at(3))), "out-of-policy", "a pause skips"),
    "delivered before the resume was read": (
        only(ONE, record(ONE), switches=[Switch(10, T, True, 0, 0), Switch(11, T + 1, False, 9, 0)]),
        "out-of-policy", "a pause skips",
    ),
    "delivered though a newer one was resumed": (
        only(
            LATE_TWO, record(LATE_TWO), request={"missed": "last"}, known=BEHIND_ONE,
            switches=[PAUSE_AT_3, Switch(11, at(4) + 30_000, False, 2, 2)],
        ),
        "out-of-policy", "postdate-missed",
    ),
    "never paused": (only(skipped(1, 1, "paused", at(2), LATE)), "wrong-skip", "paused"),
    "dead before it was due": (
        only(skipped(1, 1, "dead", at(2), at(1) - 1), dead_letters=[DeadOccurrence(at(1), True)]), "wrong-skip", "dead"
    ),
    "too many at once": (
        only(skipped(1, 10**12, "missed", at(99), LATE), request={"catch_up_ms": 0}), "wrong-skip", "at once"
    ),
    # out of policy
    "beyond grace and a transaction": (
        only(ONE._replace(at_ms=at(1) + 1_001 + COMMIT_MS_MAX), record(ONE), request={"grace_ms": 1_000}),
        "out-of-policy", "postdate-grace",
    ),
    "beyond catch-up": (with_policy := only(ONE._replace(at_ms=LATE), record(ONE), request={"catch_up_ms": 0}),
                        "out-of-policy", "postdate-catch-up"),
    "not the newest": (replace(with_policy, request={"missed": "last"}), "out-of-policy", "postdate-missed"),
    "later than a minute": (replace(with_policy, request={"missed": "none"}), "out-of-policy", "postdate-missed"),
    "delivered in a gap": (
        nightly(BERLIN._replace(gap="skip"), MARCH, (MARCH, GAP), (GAP, AFTER_GAP)), "out-of-policy", "postdate-gap"
    ),
    # mismatch
    "another key": (only(ONE, record(ONE, digests=(b"x", b"v", b"h"))), "mismatch", "differs in key"),
    "another value": (only(ONE, record(ONE, digests=(b"k", b"x", b"h"))), "mismatch", "differs in value"),
    "other headers": (only(ONE, record(ONE, digests=(b"k", b"v", b"x"))), "mismatch", "differs in headers"),
    "another due time": (only(ONE, record(ONE, due_ms=at(2))), "mismatch", "postdate-due"),
    "another next time": (only(ONE, record(ONE, next_ms=at(3))), "mismatch", "postdate-next"),
    "another id": (only(ONE, record(ONE, id=b"x")), "mismatch", "postdate-id"),
    "without a header": (only(ONE, record(ONE, own_headers=OWN)), "mismatch", "own headers"),
    "another partition": (only(ONE, record(ONE, partition=2)), "mismatch", "partition"),
    "another dead letter": (
        only(skipped(1, 1, "dead", at(2), at(1) + 5), dead_letters=[DeadOccurrence(at(1), False)]),
        "mismatch", "the dead letter",
    ),
    # contradiction
    "decided before others": (with_fate(3, log_offset=0), "contradiction", "3 is decided before others"),
    "a dead letter of a delivery": (
        sound(dead_letters=[DeadOccurrence(at(2), True)]), "contradiction", "belongs to no skip",
    ),
    "two dead letters": (
        only(skipped(1, 1, "dead", at(2), at(1) + 5), dead_letters=[DeadOccurrence(at(1), True)] * 2),
        "contradiction", "no skip",
    ),
    "not completed": (
        Case([occurred(1, at(1), 0)], [record(occurred(1, at(1), 0))], request={"count_max": 1}),
        "contradiction", "no fate completes it",
    ),
    "completed in another record": (
        Case([occurred(1, at(1), 0)], [record(occurred(1, at(1), 0))], request={"count_max": 1},
             end=End("completed", at(1), 3, 0)),
        "contradiction", "another record",
    ),
    "cancelled before": (sound(end=End("cancelled", at(1), 2, 0)), "contradiction", "before occurrence 3"),
    "refused with the last one": (sound(end=End("dead", 0, 4, 1)), "contradiction", "dead, though"),
    "refused before the last one": (sound(end=End("dead", 0, 3, 9)), "contradiction", "dead, though"),
    "cancelled after the last": (
        Case([occurred(1, at(1), 0)], [record(occurred(1, at(1), 0))], request={"count_max": 1},
             end=End("cancelled", at(1), 3, 0)),
        "contradiction", "cancelled, though",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    case, verdict, said = WRONG[name]
    problems = case.judged().position.problems
    assert [one for one in problems if one[0] == verdict and said in one[1]], problems
    assert {one[0] for one in problems} == {verdict}, problems


def test_overdue_occurrences_are_counted() -> None:
    assert sound().judged().overdue == 0
    assert sound(bounds={"overdue_before_ms": at(6)}).judged().overdue == 2
    assert sound(bounds={"overdue_before_ms": at(6) + 1}).judged().overdue == 3
    assert sound(bounds={"overdue_before_ms": at(6) + 1}, end=End("cancelled", at(1), 9, 0)).judged().overdue == 0


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"is_target_read": False}, "not-selected"),
        (EXPIRED, "target-expired"),
        ({"target_compacted": True}, "target-expired"),
        ({"target_recreated_ms": NEVER_MS}, "target-recreated"),
        ({"target_began_ms": NEVER_MS}, "target-younger"),
    ],
)
def test_a_record_that_may_be_gone_is_not_missing(bounds: dict[str, Any], reason: str) -> None:
    found = Case([ONE], bounds=bounds).judged()
    assert (found.position.problems, found.position.reasons) == ((), ((reason, 1),))
    assert (found.added.verified, found.added.unverifiable) == (0, 1)


def test_a_dead_letter_that_may_be_gone_is_not_missing() -> None:
    found = only(skipped(1, 1, "dead", at(2), at(1) + 5), bounds={"letters_lost_before_ms": NEVER_MS}).judged()
    assert (found.position.problems, found.position.reasons) == ((), (("target-expired", 1),))


def test_the_judge_waits_for_a_hidden_dead_letter() -> None:
    dead = skipped(1, 1, "dead", at(2), at(1) + 5)
    first = only(dead, bounds={"letters_capped_from_ms": at(1)}).judged()
    assert (first.position.problems, first.added.verified, len(first.position.waiting_fates)) == ((), 0, 1)
    second = Case(dead_letters=[DeadOccurrence(at(1), True)], known=first.position).judged()
    assert (second.position.problems, second.added.verified, second.position.waiting_fates) == ((), 1, ())


def test_a_record_lost_in_another_partition_is_missing() -> None:
    lost = (NEVER_MS, NEVER_MS, NEVER_MS, -1)
    assert Case([ONE], bounds={"target_lost_before_ms": lost}).judged().position.problems


def test_fates_that_left_the_log_are_not_missing() -> None:
    case = replace(sound(), fates=sound().fates[2:], bounds={"fates_lost_before_ms": NEVER_MS})
    found = case.judged()
    assert (found.position.problems, found.position.reasons) == ((), (("unsettled", 2),))
    assert (found.added.verified, found.added.unverifiable) == (1, 2)


@pytest.mark.parametrize(
    ("zones", "verified"),
    [
        (ZoneVersions("2026f", (0,), ("2026f",)), 2),
        (ZoneVersions("2026f", (0,), ("2025a",)), 0),
        (ZoneVersions("2026f"), 0),
        (ZoneVersions("2026f", (0, 3), ("2026f", "2025a")), 1),
    ],
)
def test_only_the_rules_of_the_owner_that_decided_verify_an_occurrence(zones: ZoneVersions, verified: int) -> None:
    found = nightly(BERLIN, NIGHT, (NIGHT, FOLD), (FOLD, SECOND + 86_400_000), zones=zones).judged()
    assert (found.added.verified, found.position.problems) == (verified, ())
    assert found.position.reasons == ((("zone-version", 2 - verified),) if verified < 2 else ())


def test_the_audit_continues_from_a_time_that_other_rules_have_published() -> None:
    zones = ZoneVersions("2026f", (0,), ("2025a",))
    found = nightly(BERLIN, NIGHT, (NIGHT, FOLD + 1_000), (FOLD + 1_000, FOLD + 90_000_000), zones=zones).judged()
    assert (found.position.problems, found.position.next_ms) == ((), FOLD + 90_000_000)
    installed = nightly(BERLIN, NIGHT, (NIGHT, FOLD + 1_000), (FOLD + 1_000, FOLD + 90_000_000)).judged()
    assert {verdict for verdict, _ in installed.position.problems} == {"extra"}


OTHER_RULES = ZoneVersions("2026f", (0,), ("2025a",))
HOUR = 60 * MINUTE
LATE_NIGHT = occurred(1, NIGHT, SECOND, at_ms=FOLD + 30 * MINUTE)
"""A delivery before the next time by other rules. By the rules of the audit, the next time is an hour earlier."""
IN_WINDOW = occurred(1, NIGHT, FOLD, at_ms=NIGHT + drawn_ms(1, HOUR) + 5)
BY_OTHER_RULES: dict[str, tuple[Fate, dict[str, Any]]] = {
    "no newer one was due": (LATE_NIGHT, {"missed": "last"}),
    "late in its window, within its grace": (IN_WINDOW, {"window_ms": HOUR, "grace_ms": 1_000}),
    "late in its window, within a minute": (IN_WINDOW, {"window_ms": HOUR, "missed": "none"}),
}


@pytest.mark.parametrize("name", BY_OTHER_RULES)
def test_a_delivery_by_other_rules_is_not_out_of_policy(name: str) -> None:
    fate, request = BY_OTHER_RULES[name]
    case = replace(nightly(BERLIN, NIGHT, request=request), fates=[fate], records=[record(fate)])
    found = replace(case, zones=OTHER_RULES).judged()
    assert (found.position.problems, found.position.reasons) == ((), (("zone-version", 1),))
    late = fate._replace(at_ms=fate.at_ms + 24 * HOUR)
    if request.get("missed") != "last":  # no zone decides about the lateness
        found = replace(case, fates=[late], zones=OTHER_RULES).judged()
        assert [verdict for verdict, _ in found.position.problems] == ["out-of-policy"]


def test_a_skip_by_other_rules_may_have_more_times_before_the_end() -> None:
    skip = skipped(1, 2, "grace", 0, FOLD + HOUR, log_offset=2)
    case = nightly(BERLIN, NIGHT, request={"end_ms": FOLD - 1, "grace_ms": 0}, end=End("completed", NIGHT, 2, 1))
    found = replace(case, fates=[skip], zones=OTHER_RULES).judged()
    assert (found.position.problems, found.position.reasons) == ((), (("zone-version", 2),))
    installed = replace(case, fates=[skip]).judged()
    assert {verdict for verdict, _ in installed.position.problems} == {"extra"}


def test_no_zone_rules_allow_a_skip_behind_the_count() -> None:
    skip = skipped(3, 5, "grace", 0, FOLD + HOUR, log_offset=2)
    case = nightly(BERLIN, NIGHT, request={"count_max": 2, "grace_ms": 0}, end=End("completed", NIGHT, 2, 1))
    sent = [occurred(1, NIGHT, SECOND), occurred(2, SECOND, FOLD + HOUR, log_offset=1)]
    found = replace(case, fates=[*sent, skip], records=[record(fate) for fate in sent], zones=OTHER_RULES).judged()
    assert "extra" in {verdict for verdict, _ in found.position.problems}


@pytest.mark.parametrize("bounds", [{}, {"fates_lost_before_ms": NEVER_MS}])
def test_nothing_occurs_behind_the_count(bounds: dict[str, Any]) -> None:
    """The same holds behind a hole, whose fates may be lost."""
    four = occurred(4, at(4), 0)
    found = Case([ONE, four], [record(ONE), record(four)], request={"count_max": 2}, bounds=bounds).judged()
    assert "extra" in {verdict for verdict, _ in found.position.problems}, found.position.reasons


def test_other_zone_rules_do_not_matter_without_a_zone() -> None:
    assert sound(zones=ZoneVersions("2026f", (0,), ("2025a",))).judged().added.verified == 3


@pytest.mark.parametrize("cut", range(1, 5))
def test_two_audits_report_the_same_as_one(cut: int) -> None:
    """The second audit continues from the position of the first, with the events that the first did not read."""
    whole = sound(4, bounds={"overdue_before_ms": 0})
    at_once = whole.judged()
    first = replace(whole, fates=whole.fates[:cut], records=whole.records[:cut]).judged()
    second = replace(whole, fates=whole.fates[cut:], records=whole.records[cut:], known=first.position).judged()
    assert second.position == at_once.position
    assert first.lateness_ms + second.lateness_ms == at_once.lateness_ms == [5] * 4


def test_the_judge_waits_for_a_hidden_record() -> None:
    hidden = {"target_capped_from_ms": (at(1),) * 4}
    first = Case([ONE], bounds=hidden).judged()
    assert (first.position.problems, first.added.verified, first.position.waiting_fates[0].number) == ((), 0, 1)
    again = Case([], [], bounds=hidden, known=first.position).judged()
    assert again.position.waiting_fates == first.position.waiting_fates
    second = Case([], [record(ONE)], known=first.position).judged()
    assert (second.position.problems, second.added.verified, second.position.waiting_fates) == ((), 1, ())
    lost = Case([], [], known=first.position).judged()
    assert lost.position.problems[0][0] == "missing"


def test_a_record_waits_for_its_hidden_fate() -> None:
    for case in (only(ONE._replace(late=True), record(ONE)), Case([], [record(ONE)], bounds={"log_capped": True})):
        first = case.judged()
        assert (first.position.problems, first.position.number, len(first.position.waiting_records)) == ((), 1, 1)
        second = only(ONE, known=first.position).judged()
        assert (second.position.problems, second.added.verified, second.position.waiting_records) == ((), 1, ())


def test_a_second_record_is_found_by_a_later_audit() -> None:
    first = sound().judged()
    second = Case([], [record(TWO, offset=99)], known=first.position).judged()
    assert [verdict for verdict, _ in second.position.problems] == ["duplicate"]
    again = Case([TWO._replace(log_offset=99)], [], known=first.position).judged()
    assert [verdict for verdict, _ in again.position.problems] == ["duplicate"]


def test_a_schedule_of_which_no_fate_was_read_begins_with_the_published_time() -> None:
    before = Case(stored=None).judged()
    assert (before.position.next_ms, before.position.log_offset) == (at(1), -1)
    assert sound(known=before.position).judged().position == sound().judged().position


def test_problems_are_counted_though_only_some_are_described() -> None:
    count = SCHEDULE_PROBLEMS_MAX + 5
    found = replace(sound(count), records=()).judged()
    assert (found.added.missing, len(found.position.problems)) == (count, SCHEDULE_PROBLEMS_MAX)


def test_the_lateness_counts_from_the_chosen_time() -> None:
    found = only(ONE._replace(at_ms=CHOSEN + 7), record(ONE), request=WINDOW).judged()
    assert found.lateness_ms == [7]


def test_a_window_ends_before_the_next_nominal_time() -> None:
    longer = {"window_ms": 10 * MINUTE}
    chosen_ms = at(1) + drawn_ms(1, MINUTE - 1)
    assert only(ONE._replace(at_ms=chosen_ms), record(ONE), request=longer).judged().lateness_ms == [0]
    assert only(ONE._replace(at_ms=chosen_ms - 1), record(ONE), request=longer).judged().position.problems
