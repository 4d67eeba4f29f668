"""Recurring schedules in the audit. Goal: a topic with schedules is audited like any other, and each schedule is
reported as not verified, in every tier.

Method: as `test_spark_verdicts`: one history in which every request is a case of its own. It is judged by the rules,
and by the chunks before them; both must say the same.
"""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession

from postdate.spark.job.sources import RECORDS
from postdate.spark.records.fates import log_rows
from postdate.spark.session.small_tables import small_table
from support.history import History
from support.judging import Bounds, by_offset, judged, staged
from support.schedule_cases import schedule_cases
from support.verdict_cases import DUE, T

CASES = schedule_cases()


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[int, Row]:
    """All cases judged by the rules, by offset."""
    return by_offset(judged(spark, CASES, rules_alone=True)[0])


@pytest.mark.parametrize("name", CASES.expected)
def test_verdict(rows: dict[int, Row], name: str) -> None:
    expected = CASES.expected[name]
    row = rows[expected.offset]
    assert set(row["verdicts"]) == expected.verdicts, row


@pytest.mark.parametrize("bits", [0, 10])
def test_the_fast_tiers_say_the_same(spark: SparkSession, rows: dict[int, Row], bits: int) -> None:
    found = staged(spark, CASES, bits).rows
    assert found is not None
    left = {row["offset"]: set(row["verdicts"]) for row in found.collect()}
    expected = {offset: set(row["verdicts"]) for offset, row in rows.items()}
    assert {offset: verdicts for offset, verdicts in expected.items() if offset in left} == left
    verified = [verdicts for offset, verdicts in expected.items() if offset not in left]  # by digests
    assert all(verdicts == {"delivered"} for verdicts in verified)


@pytest.mark.parametrize(
    ("fate", "version", "parses"),
    [
        ([0, DUE, "occurred", 1, DUE, DUE + 1], 3, True),
        ([0, DUE, "skipped", 1, 4, "missed", 0], 3, True),
        ([0, DUE, "completed"], 3, True),
        ([0, DUE, "paused", T, 4], 3, True),
        ([0, DUE, "resumed", T, 4], 3, True),
        ([0, DUE, "paused", T, 4], 2, False),
        ([0, DUE, "paused", T, 0], 3, False),
        ([0, DUE, "paused", T], 3, False),
        ([0, DUE, "occurred", 1, DUE, DUE + 1], 2, False),
        ([0, DUE, "completed"], 1, False),
        ([0, DUE, "occurred", 1, DUE], 3, False),
        ([0, DUE, "occurred", 1, DUE, "never"], 3, False),
        ([0, DUE, "skipped", 1, 4, "bored", 0], 3, False),
        ([0, DUE, "delivered"], 4, False),
    ],
)
def test_a_fate_of_a_schedule_is_read_as_the_sidecar_reads_it(
    spark: SparkSession, fate: list[object], version: int, parses: bool
) -> None:
    history = History(T)
    history.commit(fate, v=version)
    log = log_rows(small_table(spark, history.log, RECORDS), Bounds().table(spark))
    assert log.collect()[0]["parses"] is parses
