"""Goal: the nominal times of a schedule are those that the documents of cron, Quartz and Temporal describe. At clock
changes they follow the policies of the schedule.

Method: literal times. The property tests compare the search with an implementation that shares no code with it.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from postdate.wire.schedules.occurrences import (
    Occurrence,
    first_occurrence,
    following,
    next_after,
    next_occurrence,
)
from postdate.wire.schedules.schedule import Fold, Gap, Schedule
from postdate.wire.values.instants import parse_instant_ms


def at(text: str) -> int:
    return parse_instant_ms(text if text[-1] == "Z" or text[-6] in "+-" else f"{text}Z")


def times(schedule: Schedule, after: str, limit: int) -> list[str]:
    """Returns the first nominal times after an instant, in UTC, without the seconds if these are 0. A time in
    parentheses is skipped because of a gap."""
    texts = []
    for occurrence in following(schedule, first_occurrence(schedule, at(after)), limit):
        text = (
            datetime.fromtimestamp(occurrence.nominal_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S").removesuffix(":00")
        )
        texts.append(f"({text})" if occurrence.is_in_gap else text)
    return texts


def cron(text: str, zone: str = "UTC", gap: Gap = Gap.NEXT, fold: Fold = Fold.FIRST) -> Schedule:
    return Schedule(cron=text, zone=zone, gap=gap, fold=fold)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # crontab(5) of Vixie and Debian.
        ("5 0 * * *", ["2026-01-01T00:05", "2026-01-02T00:05"]),
        ("15 14 1 * *", ["2026-01-01T14:15", "2026-02-01T14:15"]),
        ("0 22 * * 1-5", ["2026-01-01T22:00", "2026-01-02T22:00", "2026-01-05T22:00"]),
        ("23 0-23/2 * * *", ["2026-01-01T00:23", "2026-01-01T02:23"]),
        ("5 4 * * sun", ["2026-01-04T04:05", "2026-01-11T04:05"]),
        # "4:30 am on the 1st and 15th of each month, plus every Friday".
        ("30 4 1,15 * 5", ["2026-01-01T04:30", "2026-01-02T04:30", "2026-01-09T04:30", "2026-01-15T04:30"]),
        # If a day field begins with a star, both day fields must match.
        ("0 4 */9 * 1", ["2026-01-19T04:00", "2026-06-01T04:00"]),
        ("0 4 * * 0", ["2026-01-04T04:00"]),
        ("0 4 * * 7", ["2026-01-04T04:00"]),
        # The tutorial of Quartz, with its weekdays from 1 converted to those of cron from 0.
        ("0 0 12 * * *", ["2026-01-01T12:00", "2026-01-02T12:00"]),
        ("0 15 10 * * MON-FRI", ["2026-01-01T10:15", "2026-01-02T10:15", "2026-01-05T10:15"]),
        ("0 0/5 14,18 * * *", ["2026-01-01T14:00", "2026-01-01T14:05"]),
        ("0 10,44 14 * 3 WED", ["2026-03-04T14:10", "2026-03-04T14:44", "2026-03-11T14:10"]),
        ("0 15 10 L * *", ["2026-01-31T10:15", "2026-02-28T10:15", "2026-03-31T10:15"]),
        ("0 15 10 * * 5L", ["2026-01-30T10:15", "2026-02-27T10:15"]),
        ("0 15 10 * * 5#3", ["2026-01-16T10:15", "2026-02-20T10:15"]),
        ("0 15 10 LW * *", ["2026-01-30T10:15", "2026-02-27T10:15", "2026-03-31T10:15"]),
        ("0 11 11 11 11 *", ["2026-11-11T11:11", "2027-11-11T11:11"]),
        ("*/20 0 0 1 1 *", ["2026-01-01T00:00:20", "2026-01-01T00:00:40", "2027-01-01T00:00"]),
        # A step from a value continues to the end of the field; a step in a range does not, even with one value.
        ("5/50 0 * * *", ["2026-01-01T00:05", "2026-01-01T00:55", "2026-01-02T00:05"]),
        ("5-5/50 0 * * *", ["2026-01-01T00:05", "2026-01-02T00:05"]),
        ("0 0 * * MON-1/2", ["2026-01-05T00:00", "2026-01-12T00:00"]),
        # Rare days.
        ("0 0 29 2 *", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 0 * 2 MON#5", ["2044-02-29T00:00", "2072-02-29T00:00", "2112-02-29T00:00"]),
        ("0 0 31 12 *", ["2026-12-31T00:00", "2027-12-31T00:00"]),
    ],
)
def test_published_examples_have_their_published_times(text: str, expected: list[str]) -> None:
    assert times(cron(text), "2026-01-01T00:00:00Z", len(expected)) == expected


BERLIN = "Europe/Berlin"  # 2026-03-29T01:00Z: 02:00 to 03:00 is a gap; 2026-10-25T01:00Z: 02:00 to 03:00 is a fold


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        # The default for a gap: one occurrence at the first instant after it.
        (
            cron("30 2 * * *", BERLIN),
            "2026-03-28T00:00:00",
            ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"],
        ),
        (cron("0,30 2 * * *", BERLIN), "2026-03-28T12:00:00", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        (cron("30 2,3 * * *", BERLIN), "2026-03-28T12:00:00", ["2026-03-29T01:00", "2026-03-29T01:30"]),
        # If the end of the gap matches as well, both are one occurrence, which is never skipped.
        (cron("0 2,3 * * *", BERLIN), "2026-03-28T12:00:00", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        (cron("0 2,3 * * *", BERLIN, Gap.SKIP), "2026-03-28T12:00:00", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        (cron("30 2 * * *", BERLIN, Gap.SKIP), "2026-03-28T12:00:00", ["(2026-03-29T01:00)", "2026-03-30T00:30"]),
        (cron("59 1 * * *", BERLIN), "2026-03-28T12:00:00", ["2026-03-29T00:59", "2026-03-29T23:59"]),
        (cron("0 3 * * *", BERLIN), "2026-03-28T12:00:00", ["2026-03-29T01:00", "2026-03-30T01:00"]),
        # A star in the seconds field does not make a schedule follow elapsed time.
        (cron("* 30 2 * * *", BERLIN), "2026-03-28T12:00:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        # Elapsed time: wall-clock times that do not exist are not occurrences.
        (cron("30 * * * *", BERLIN), "2026-03-29T00:00:00", ["2026-03-29T00:30", "2026-03-29T01:30"]),
        (cron("0 */2 * * *", BERLIN), "2026-03-28T23:30:00", ["2026-03-29T02:00", "2026-03-29T04:00"]),
        (cron("*/30 2 * * *", BERLIN, Gap.SKIP), "2026-03-28T12:00:00", ["2026-03-30T00:00", "2026-03-30T00:30"]),
        # A fold, in which both instants exist.
        (cron("30 2 * * *", BERLIN), "2026-10-24T12:00:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        (cron("30 2 * * *", BERLIN, fold=Fold.LAST), "2026-10-24T12:00:00", ["2026-10-25T01:30", "2026-10-26T01:30"]),
        (
            cron("15,45 2 * * *", BERLIN, fold=Fold.BOTH),
            "2026-10-24T12:00:00",
            ["2026-10-25T00:15", "2026-10-25T00:45", "2026-10-25T01:15", "2026-10-25T01:45", "2026-10-26T01:15"],
        ),
        (
            cron("0,30 1-3 * * *", BERLIN, fold=Fold.LAST),
            "2026-10-24T22:30:00",
            ["2026-10-24T23:00", "2026-10-24T23:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-10-25T02:00"],
        ),
        (
            cron("0,30 1-3 * * *", BERLIN),
            "2026-10-24T22:30:00",
            ["2026-10-24T23:00", "2026-10-24T23:30", "2026-10-25T00:00", "2026-10-25T00:30", "2026-10-25T02:00"],
        ),
        (cron("0 3 * * *", BERLIN), "2026-10-24T12:00:00", ["2026-10-25T02:00"]),
        (
            cron("30 * * * *", BERLIN),
            "2026-10-24T23:00:00",
            ["2026-10-24T23:30", "2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"],
        ),
        # The position may lie inside the fold.
        (cron("30 2 * * *", BERLIN), "2026-10-25T00:45:00", ["2026-10-26T01:30"]),
        (cron("30 2 * * *", BERLIN, fold=Fold.BOTH), "2026-10-25T00:45:00", ["2026-10-25T01:30"]),
        # Debian's cron(8) and Temporal's documents, both in New York: gap on 2026-03-08, fold on 2026-11-01.
        (cron("30 2 * * *", "America/New_York"), "2026-03-08T00:00:00", ["2026-03-08T07:00", "2026-03-09T06:30"]),
        (cron("30 1 * * *", "America/New_York"), "2026-11-01T00:00:00", ["2026-11-01T05:30", "2026-11-02T06:30"]),
        (
            cron("30 2 * * *", "America/New_York", Gap.SKIP),
            "2026-03-08T00:00:00",
            ["(2026-03-08T07:00)", "2026-03-09T06:30"],
        ),
        (
            cron("30 1 * * *", "America/New_York", fold=Fold.BOTH),
            "2026-11-01T00:00:00",
            ["2026-11-01T05:30", "2026-11-01T06:30", "2026-11-02T06:30"],
        ),
        # Changes of half an hour on Lord Howe Island; a gap of a whole day on Samoa; a gap at midnight in Beirut.
        (cron("15 2 * * *", "Australia/Lord_Howe"), "2026-10-03T10:00:00", ["2026-10-03T15:30", "2026-10-04T15:15"]),
        (cron("45 1 * * *", "Australia/Lord_Howe"), "2026-04-04T10:00:00", ["2026-04-04T14:45", "2026-04-05T15:15"]),
        (
            cron("0 9 * * *", "Pacific/Apia"),
            "2011-12-29T00:00:00",
            ["2011-12-29T19:00", "2011-12-30T10:00", "2011-12-30T19:00"],
        ),
        (cron("@daily", "Asia/Beirut"), "2026-03-28T00:00:00", ["2026-03-28T22:00", "2026-03-29T21:00"]),
    ],
)
def test_occurrences_at_clock_changes_follow_the_policies(schedule: Schedule, after: str, expected: list[str]) -> None:
    assert times(schedule, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        (Schedule(every_ms=900_000), "2026-01-01T00:00:00", ["2026-01-01T00:15", "2026-01-01T00:30"]),
        (Schedule(every_ms=900_000, phase_ms=300_000), "2026-01-01T00:00:00", ["2026-01-01T00:05", "2026-01-01T00:20"]),
        (Schedule(every_ms=900_000, phase_ms=300_000), "1970-01-01T00:00:00", ["1970-01-01T00:05"]),
        (Schedule(every_ms=7 * 86_400_000), "2026-01-01T00:00:01", ["2026-01-08T00:00", "2026-01-15T00:00"]),
    ],
)
def test_intervals_count_from_the_epoch(schedule: Schedule, after: str, expected: list[str]) -> None:
    assert times(schedule, after, len(expected)) == expected


def test_without_a_start_occurrences_lie_after_the_timestamp_of_the_request() -> None:
    nine = at("2026-01-01T09:00:00Z")
    schedule = cron("0 9 * * *")
    assert first_occurrence(schedule, nine - 1) == Occurrence(1, nine)
    assert first_occurrence(schedule, nine) == Occurrence(1, nine + 86_400_000)


def test_start_and_end_are_inclusive() -> None:
    nine = at("2026-01-01T09:00:00Z")
    schedule = Schedule(cron="0 9 * * *", start_ms=nine, end_ms=nine + 86_400_000)
    # A start may lie before the request.
    first = first_occurrence(schedule, nine + 10 * 86_400_000)
    assert following(schedule, first, 9) == [Occurrence(1, nine), Occurrence(2, nine + 86_400_000)]
    late = Schedule(cron="0 9 * * *", start_ms=nine + 1, end_ms=nine + 86_399_999)
    assert first_occurrence(late, 0) is None
    assert first_occurrence(Schedule(every_ms=1_000, start_ms=5_000, end_ms=5_000), 0) == Occurrence(1, 5_000)
    assert first_occurrence(Schedule(every_ms=1_000, start_ms=5_001, end_ms=5_999), 0) is None


def test_the_count_ends_a_schedule() -> None:
    schedule = Schedule(every_ms=1_000, count=2)
    assert following(schedule, first_occurrence(schedule, 10_000), 9) == [Occurrence(1, 11_000), Occurrence(2, 12_000)]
    assert next_occurrence(schedule, Occurrence(2, 12_000)) is None


def test_an_expression_that_no_day_matches_ends() -> None:
    # Neither the first nor the thirty-first is ever a third Friday.
    assert first_occurrence(cron("0 0 */30 * 5#3", BERLIN), at("2026-01-01T00:00:00Z")) is None


def test_nothing_lies_after_the_year_9997() -> None:
    assert next_after(cron("30 2 29 2 *", BERLIN), at("9990-01-01T00:00:00Z")) is not None
    assert next_after(cron("@yearly"), at("9997-06-01T00:00:00Z")) is None
    assert first_occurrence(Schedule(every_ms=86_400_000), at("9997-12-31T00:00:00Z")) is None
