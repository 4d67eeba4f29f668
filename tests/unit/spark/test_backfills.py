"""Goal: the first nominal time of a backfill follows from the headers of the schedule and the range. It is unknown if
the audit does not have the owner's zone rules.

Method: compares the computed times of a schedule in Berlin, and of a schedule at an interval, with literals.
Dictionaries replace Spark's rows.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import Row

from postdate.spark.rules.schedules.backfills import first_filled_ms
from postdate.spark.rules.schedules.schedule_events import ZoneVersions
from support.audits.schedule_judgements import AFTER_GAP, GAP, MARCH

INSTALLED = ZoneVersions("2026f", (0, 100), ("2026f", "2020a"))
NIGHTLY = {"is_read": True, "cron": "30 2 * * *", "zone": "Europe/Berlin", "gap": None, "fold": None}
NIGHTLY |= {"start_ms": None, "end_ms": None}
EVERY = {**NIGHTLY, "cron": None, "zone": None, "every_ms": 60_000, "phase_ms": 1_000}


def first_ms(schedule: dict[str, Any], start_ms: int | None, end_ms: int | None, log_offset: int = 1) -> int | None:
    return first_filled_ms(cast(Row, schedule), INSTALLED, log_offset, start_ms, end_ms)


@pytest.mark.parametrize(
    ("changes", "start_ms", "end_ms", "expected"),
    [
        ({}, MARCH, AFTER_GAP, MARCH),
        ({}, MARCH + 1, AFTER_GAP, GAP),
        ({"gap": "skip"}, MARCH + 1, AFTER_GAP, AFTER_GAP),
        ({"gap": "skip"}, MARCH + 1, AFTER_GAP - 1, 0),
        ({}, MARCH + 1, GAP - 1, 0),
        ({"start_ms": MARCH + 1}, MARCH, AFTER_GAP, GAP),
        ({"end_ms": MARCH - 1}, MARCH, AFTER_GAP, 0),
    ],
)
def test_the_first_time_in_a_zone(changes: dict[str, Any], start_ms: int, end_ms: int, expected: int) -> None:
    assert first_ms({**NIGHTLY, **changes}, start_ms, end_ms) == expected


def test_the_first_time_at_an_interval() -> None:
    assert first_ms(EVERY, 61_001, 121_000) == 121_000
    assert first_ms(EVERY, 61_001, 120_999) == 0
    assert first_ms(EVERY, 1, 61_000, log_offset=100) == 1_000, "no zone rules decided"


@pytest.mark.parametrize(
    ("changes", "bounds", "log_offset"),
    [
        ({}, (MARCH, AFTER_GAP), 100),
        ({"zone": "Nowhere/Else"}, (MARCH, AFTER_GAP), 1),
        ({"cron": "bad"}, (MARCH, AFTER_GAP), 1),
        ({"is_read": False}, (MARCH, AFTER_GAP), 1),
        ({}, (None, AFTER_GAP), 1),
        ({}, (MARCH, None), 1),
    ],
    ids=["other rules", "unknown zone", "unreadable", "unread", "no start", "no end"],
)
def test_a_first_time_that_the_audit_cannot_compute_is_unknown(
    changes: dict[str, Any], bounds: tuple[int | None, int | None], log_offset: int
) -> None:
    assert first_ms({**NIGHTLY, **changes}, *bounds, log_offset) is None


def test_zone_rules_do_not_matter_in_utc() -> None:
    assert first_ms({**NIGHTLY, "zone": "UTC"}, MARCH, AFTER_GAP, log_offset=100) == MARCH + 3_600_000
