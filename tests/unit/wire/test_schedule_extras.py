"""Goal: the nominal times of a backfill are those of its schedule in the given range, including those at clock changes.

Method: literal times of schedules in Berlin.
"""

from __future__ import annotations

from typing import Any

import pytest

from postdate.wire.errors import RequestRefused
from postdate.wire.limits import BACKFILL_MAX
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.request import Action
from postdate.wire.requests.rules import RequestRules
from postdate.wire.schedules.expressions import Expression
from postdate.wire.schedules.extras import fills_more, first_filled, next_filled
from postdate.wire.schedules.schedule import Fold, Gap, Schedule
from postdate.wire.values.instants import format_instant, parse_instant_ms

NIGHT = Schedule(cron="30 2 * * *", zone="Europe/Berlin")
ASKED_MS = parse_instant_ms("2027-01-01T00:00:00Z")


def filled(schedule: Schedule, start: str, end: str) -> list[str]:
    """Returns all times of a backfill, to the minute."""
    end_ms, times = parse_instant_ms(end), []
    at_ms = first_filled(schedule, parse_instant_ms(start), end_ms)
    while at_ms:
        times.append(format_instant(at_ms)[:16])
        at_ms = next_filled(schedule, at_ms, end_ms)
    return times


@pytest.mark.parametrize(
    ("changes", "start", "end", "expected"),
    [
        ({}, "2026-01-01T01:30:00Z", "2026-01-02T01:30:00Z", ["2026-01-01T01:30", "2026-01-02T01:30"]),
        ({}, "2026-01-01T01:30:00.001Z", "2026-01-02T01:29:59.999Z", []),
        ({}, "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ({"gap": Gap.SKIP}, "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z", ["2026-03-30T00:30"]),
        ({"gap": Gap.SKIP}, "2026-03-28T12:00:00Z", "2026-03-29T23:00:00Z", []),
        ({"fold": Fold.BOTH}, "2026-10-25T00:00:00Z", "2026-10-25T12:00:00Z", ["2026-10-25T00:30", "2026-10-25T01:30"]),
        (
            {"start_ms": parse_instant_ms("2026-01-02T00:00:00Z"), "end_ms": parse_instant_ms("2026-01-03T01:30:00Z")},
            "2025-12-01T00:00:00Z", "2026-02-01T00:00:00Z", ["2026-01-02T01:30", "2026-01-03T01:30"],
        ),
        ({"count": 1}, "2026-01-01T00:00:00Z", "2026-01-02T12:00:00Z", ["2026-01-01T01:30", "2026-01-02T01:30"]),
    ],
)  # fmt: skip
def test_a_backfill_delivers_the_expected_times(
    changes: dict[str, Any], start: str, end: str, expected: list[str]
) -> None:
    schedule = Schedule(cron=NIGHT.cron, zone=NIGHT.zone, **changes)
    assert filled(schedule, start, end) == expected


@pytest.mark.parametrize("schedule", [NIGHT, Schedule(every_ms=86_400_000, phase_ms=5_400_000)])
def test_a_backfill_with_more_times_than_a_bound_is_detected(schedule: Schedule) -> None:
    first_ms = parse_instant_ms("2026-01-01T01:30:00Z")
    end_ms = first_ms + 9 * 86_400_000
    assert [fills_more(schedule, first_ms, end_ms, bound) for bound in (9, 10, 11)] == [True, False, False]
    assert [fills_more(schedule, first_ms, end_ms - 1, bound) for bound in (8, 9)] == [True, False]


@pytest.mark.parametrize("cron", ["* * * * * *", "0-59 0-59 0-23 * * *", "0 9 * * MON-FRI"])
def test_the_times_of_a_refused_backfill_are_not_computed_one_by_one(
    monkeypatch: pytest.MonkeyPatch, cron: str
) -> None:
    """The number of refused backfills has no bound, and the shard's thread reads them."""
    schedule, first_ms = Schedule(cron=cron, zone="Europe/Berlin"), parse_instant_ms("1986-01-01T08:00:00Z")
    searches: list[int] = []
    honest = Expression.next_wall_s

    def counted(self: Expression, wall_s: int, until_s: int) -> int | None:
        searches.append(wall_s)
        return honest(self, wall_s, until_s)

    monkeypatch.setattr(Expression, "next_wall_s", counted)
    assert fills_more(schedule, first_ms, ASKED_MS, BACKFILL_MAX)
    assert len(searches) < 10


def _parsed(*times: tuple[str, bytes | None], version: int = 3) -> tuple[int, int]:
    rules = RequestRules(topic="R", format_version=version)
    headers = [("postdate-action", b"backfill"), ("postdate-id", b"c"), *times]
    request = parse_request(rules, 0, ASKED_MS, None, headers)
    assert request.action == Action.BACKFILL
    return request.times_ms


_START = ("postdate-start", b"2026-12-01T00:00:00Z")


def test_the_headers_of_a_backfill_are_read() -> None:
    start_ms = parse_instant_ms("2026-12-01T00:00:00Z")
    assert _parsed(_START, ("postdate-end", b"%d" % ASKED_MS)) == (start_ms, ASKED_MS)
    assert _parsed(_START, ("postdate-end", _START[1])) == (start_ms, start_ms)


@pytest.mark.parametrize(
    ("times", "reason", "detail"),
    [
        ([_START], "missing-time", "has no postdate-end"),
        ([("postdate-end", b"1")], "missing-time", "has no postdate-start"),
        ([_START, ("postdate-end", None)], "bad-time", "postdate-end"),
        ([_START, ("postdate-end", b"tomorrow")], "bad-time", "postdate-end 'tomorrow'"),
        ([_START, ("postdate-end", b"2026-11-30T00:00:00Z")], "bad-time", "lies before postdate-start"),
        ([_START, ("postdate-end", b"%d" % (ASKED_MS + 1))], "bad-time", "lies after the record's timestamp"),
        ([_START, ("postdate-end", b"1"), ("postdate-at", b"1")], "bad-action", "does not take 'postdate-at'"),
    ],
)
def test_a_malformed_backfill_is_refused(times: list[tuple[str, bytes | None]], reason: str, detail: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        _parsed(*times)
    assert refused.value.reason == reason
    assert detail in refused.value.detail
