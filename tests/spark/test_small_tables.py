"""Goal: a table of few rows holds them as they were given, and no Python stands between it and Spark.

Method: rows of every type that the jobs use, with nulls and odd texts, there and back; the plan that reads them; and
the jobs themselves, none of which makes a table in another way.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.records.deliveries import LETTER_ROWS, UNREADABLE, dead_letter_rows, unreadable_dead_letters
from postdate.spark.records.verdict_records import ANSWER_ROWS, answer_rows
from postdate.spark.session import small_tables
from postdate.spark.session.small_tables import small_table

_AT = datetime(2026, 11, 21, 10, 51, 24, 1_000, UTC)
_ROWS: list[tuple[Any, ...]] = [
    ("a 'b' \"c\" \\ :rows \n ü \U0001f600", 3, 2**63 - 1, _AT, 1, b"\x00\xff", b"", [("k", b"v"), ("k", None)]),
    ("", -(2**31), -1, _AT, 0, None, None, []),
    (None, None, None, None, None, None, None, None),
]


def test_rows_come_back_as_they_were(spark: SparkSession) -> None:
    table = small_table(spark, _ROWS, RECORDS)
    assert table.schema.simpleString() == spark.createDataFrame([], RECORDS).schema.simpleString()
    rows = [row.asDict(recursive=True) for row in table.collect()]
    for row, given in zip(rows, _ROWS, strict=True):
        *plain, at, kind, key, value, headers = given
        assert [row[name] for name in ("topic", "partition", "offset", "timestampType")] == [*plain, kind]
        assert [_bytes(row[name]) for name in ("key", "value")] == [key, value]
        assert (row["timestamp"] and row["timestamp"].timestamp()) == (at and at.timestamp())
        found = row["headers"] and [(one["key"], _bytes(one["value"])) for one in row["headers"]]
        assert found == headers


def _bytes(data: bytearray | None) -> bytes | None:
    return None if data is None else bytes(data)


def test_without_rows_nothing_is_left_to_do(spark: SparkSession) -> None:
    table = small_table(spark, [], RECORDS)
    assert (table.columns, table.collect()) == ([column.split()[0] for column in RECORDS.split(", ")], [])
    plan = table.groupBy("topic").count()._jdf.queryExecution().optimizedPlan().toString()
    assert plan.startswith("LocalRelation <empty>")


def test_rows_of_empty_topics_have_the_columns_of_others(spark: SparkSession) -> None:
    """An audit that reads no dead letter and no verdict record makes these tables without the code that reads them."""
    records, own = small_table(spark, [], RECORDS), {"topic": "requests"}
    for rows, columns in (
        (dead_letter_rows(records, own), LETTER_ROWS),
        (unreadable_dead_letters(records, own), UNREADABLE),
        (answer_rows(records, own), ANSWER_ROWS),
    ):
        assert rows.schema.simpleString() == small_table(spark, [], columns).schema.simpleString()


def test_what_does_not_fit_is_an_error(spark: SparkSession) -> None:
    with pytest.raises((PySparkException, Py4JJavaError), match="FAILFAST"):
        small_table(spark, [("many",)], "number bigint").collect()
    with pytest.raises(ValueError, match="zip"):
        small_table(spark, [(1, 2)], "number bigint")


def test_no_job_has_python_hand_over_rows(spark: SparkSession) -> None:
    table = small_table(spark, _ROWS, RECORDS)
    assert table._jdf.queryExecution().executedPlan().toString().startswith("LocalTableScan")
    own = Path(small_tables.__file__)
    jobs = sorted(job for job in own.parents[1].rglob("*.py") if job != own)
    assert len(jobs) > 80
    lines = [(job.name, line) for job in jobs for line in job.read_text().splitlines()]
    # Rows with a schema of Java's (`schema()`) never leave the JVM. Occurrences of schedules pass through Python, as
    # docs/audit.md says, but are made from rows on the executors.
    made = [(name, line) for name, line in lines if "createDataFrame(" in line and ".schema())" not in line]
    assert [(name, ".rdd.mapPartitions(" in line) for name, line in made] == [("occurrences.py", True)]
