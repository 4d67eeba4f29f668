"""Goal: a small table contains its rows unchanged, and Spark reads it without Python. Method: a round trip of rows of
every type that the jobs use, with nulls and unusual texts; the plan that reads them; and a search of the jobs' code for
tables that are created in another way.
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
from postdate.spark.records.deliveries import DEAD_LETTER_ROWS, UNREADABLE, dead_letter_rows, unreadable_dead_letters
from postdate.spark.records.verdict_records import ANSWER_ROWS, answer_rows
from postdate.spark.session import small_tables
from postdate.spark.session.small_tables import small_table

_AT = datetime(2026, 11, 21, 10, 51, 24, 1_000, UTC)
_ROWS: list[tuple[Any, ...]] = [
    ("a 'b' \"c\" \\ :rows \n ü \U0001f600", 3, 2**63 - 1, _AT, 1, b"\x00\xff", b"", [("k", b"v"), ("k", None)]),
    ("", -(2**31), -1, _AT, 0, None, None, []),
    (None, None, None, None, None, None, None, None),
]


def test_rows_survive_a_round_trip(spark: SparkSession) -> None:
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


def test_a_table_without_rows_is_pruned_from_the_plan(spark: SparkSession) -> None:
    table = small_table(spark, [], RECORDS)
    assert (table.columns, table.collect()) == ([column.split()[0] for column in RECORDS.split(", ")], [])
    plan = table.groupBy("topic").count()._jdf.queryExecution().optimizedPlan().toString()
    assert plan.startswith("LocalRelation <empty>")


def test_rows_of_empty_topics_have_the_columns_of_others(spark: SparkSession) -> None:
    """An audit without dead letters or verdict records creates these tables without the code that reads such
    records."""
    records, own = small_table(spark, [], RECORDS), {"topic": "requests"}
    for rows, columns in (
        (dead_letter_rows(records, own), DEAD_LETTER_ROWS),
        (unreadable_dead_letters(records, own), UNREADABLE),
        (answer_rows(records, own), ANSWER_ROWS),
    ):
        assert rows.schema.simpleString() == small_table(spark, [], columns).schema.simpleString()


def test_a_value_that_does_not_fit_its_column_is_an_error(spark: SparkSession) -> None:
    with pytest.raises((PySparkException, Py4JJavaError), match="FAILFAST"):
        small_table(spark, [("many",)], "number bigint").collect()
    with pytest.raises(ValueError, match="zip"):
        small_table(spark, [(1, 2)], "number bigint")


def test_no_job_passes_rows_through_python(spark: SparkSession) -> None:
    table = small_table(spark, _ROWS, RECORDS)
    assert table._jdf.queryExecution().executedPlan().toString().startswith("LocalTableScan")
    own = Path(small_tables.__file__)
    jobs = sorted(job for job in own.parents[1].rglob("*.py") if job != own)
    assert len(jobs) > 80
    lines = [(job.name, line) for job in jobs for line in job.read_text().splitlines()]
    # Rows with a Java schema (`schema()`) never leave the JVM. Occurrences of schedules pass through Python
    # (docs/audit.md), but are created from rows on the executors.
    made = [(name, line) for name, line in lines if "createDataFrame(" in line and ".schema())" not in line]
    assert [(name, ".rdd.mapPartitions(" in line) for name, line in made] == [("occurrences.py", True)]
