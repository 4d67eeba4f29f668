"""The audit of a dispatch log that has lost its first records. Goal: what a lost fate may explain is not verifiable,
and everything that none can explain stays a violation, in every tier and with a state.

Method: as `test_spark_verdicts`. Each sound case stands beside histories that differ in one thing, which shows that the
fate was never written.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from support.audit_runs import Ends, Runs
from support.judging import Bounds, by_offset, check_case, judged, staged
from support.lost_fate_cases import LAST, LOST_MS, lost_fate_cases

CASES = lost_fate_cases()


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[int, Row]:
    """All cases judged by the rules, by offset."""
    return by_offset(judged(spark, CASES, rules_alone=True, bounds=Bounds(fates_lost_before_ms=LOST_MS))[0])


@pytest.mark.parametrize("name", CASES.expected)
def test_verdict(rows: dict[int, Row], name: str) -> None:
    check_case(rows, CASES.expected[name])


def test_the_fast_tiers_say_the_same(spark: SparkSession, rows: dict[int, Row]) -> None:
    found = staged(spark, CASES, fates_lost_before_ms=LOST_MS).rows
    assert found is not None
    left = {row["offset"]: set(row["verdicts"]) for row in found.collect()}
    assert {offset: set(row["verdicts"]) for offset, row in rows.items()} == left, "no origin is plain"


@pytest.mark.timeout(900)  # three runs of some ten Spark jobs
def test_runs_with_a_state_find_what_one_audit_finds(spark: SparkSession, rows: dict[int, Row], tmp_path: Path) -> None:
    """The first run ends between the last schedule and its trigger, the second one before everything that the log still
    has."""
    runs, bounds = Runs(spark, CASES, tmp_path), {0: {"fates_lost_before_ms": LOST_MS}}
    last = CASES.expected[LAST].offset
    for end in (last + 1, last + 2):
        runs.audit(Ends(requests=end), bounds=bounds)
    runs.audit(bounds=bounds)
    found = {offset: set(row["verdicts"]) for offset, row in runs.union().items()}
    assert found == {offset: set(row["verdicts"]) for offset, row in rows.items()}
