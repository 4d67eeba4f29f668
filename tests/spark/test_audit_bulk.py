"""Bulk controls in the audit. Goal: a message that a bulk control did not select, and a wrong count, are found in
every tier, and sound ones never.

Method: as `test_spark_verdicts`: one history in which every request is a case of its own. It is judged by the rules, by
the chunks before them; all must say the same.
"""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession

from postdate.spark.job.sources import RECORDS
from postdate.spark.records.fates import fate_rows, log_rows
from postdate.spark.session.small_tables import small_table
from support.bulk_cases import bulk_cases
from support.history import History
from support.judging import Bounds, by_offset, check_case, judged, staged
from support.verdict_cases import DUE, T

CASES = bulk_cases()


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[int, Row]:
    """All cases judged by the rules, by offset."""
    return by_offset(judged(spark, CASES, rules_alone=True)[0])


@pytest.mark.parametrize("name", CASES.expected)
def test_verdict(rows: dict[int, Row], name: str) -> None:
    check_case(rows, CASES.expected[name])


@pytest.mark.parametrize("bits", [0, 10])
def test_the_fast_tiers_say_the_same(spark: SparkSession, rows: dict[int, Row], bits: int) -> None:
    found = staged(spark, CASES, bits).rows
    assert found is not None
    assert {row["offset"]: set(row["verdicts"]) for row in found.collect()} == {
        offset: set(row["verdicts"]) for offset, row in rows.items()
    }


@pytest.mark.parametrize(
    ("fate", "version", "parses"),
    [
        ([0, DUE, "cancelled", 1], 2, True),
        ([0, DUE, "cancelled", 0], 2, False),
        ([0, DUE, "cancelled", 1], 1, False),
        ([0, 0, "swept", 0], 2, True),
        ([0, 0, "swept", 0], 1, False),
        ([0, 0, "swept"], 2, False),
        ([0, 0, "applied", 7], 2, True),
        ([0, 0, "applied", -7], 2, False),
        ([0, DUE, "replaced", 0], 2, False),
        ([0, DUE, "stored", 1], 2, False),
    ],
)
def test_fates_are_read_as_the_sidecar_reads_them(
    spark: SparkSession, fate: list[object], version: int, parses: bool
) -> None:
    history = History(T)
    history.commit(fate, v=version)
    log = log_rows(small_table(spark, history.log, RECORDS), Bounds().table(spark))
    assert log.collect()[0]["parses"] is parses
    if parses:
        (row,) = fate_rows(log).collect()
        assert row["fate"]["fate_name"] == fate[2]
        assert (row["fate"]["bulk_offset"] or row["fate"]["count"] or 0) == fate[3]
