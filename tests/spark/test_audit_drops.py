"""Dropped requests in the audit. Goal: the audit finds each forged `dropped` and accepts correct ones.

Method: one history in which every request is a separate case; one Spark job judges it.
"""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession

from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.records.fates import fate_rows, log_rows
from postdate.spark.session.small_tables import small_table
from postdate.wire.dispatch_log import DispatchRecord, PlainFate, encode_record
from support.audit_cases.drops import drop_cases
from support.audit_cases.verdicts import DUE, T
from support.audits.judging import JudgingBounds, by_offset, check_case, judged
from support.audits.written_records import RandomHistory

CASES = drop_cases()


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[int, Row]:
    """Returns all cases judged, by offset."""
    return by_offset(judged(spark, CASES)[0])


@pytest.mark.parametrize("name", CASES.expected)
def test_verdict(rows: dict[int, Row], name: str) -> None:
    check_case(rows, CASES.expected[name])


@pytest.mark.parametrize("version", [1, 2])
def test_a_record_with_ids_is_read_as_the_sidecar_reads_it(spark: SparkSession, version: int) -> None:
    history = RandomHistory(T)
    history.commit([1, DUE, "delivered"])
    line = list(history.log[0])
    record = DispatchRecord(
        seq=1, takeover=1, instance="i", group="g", at=T, next_request=2, low_water=2,
        fates=[PlainFate(1, DUE, "delivered")], ids=[(1, "5pzPoZwH6UfJ4YOOvBaShg")],
    )  # fmt: skip
    line[6] = encode_record(record).replace(b'"v":2', b'"v":%d' % version)
    log = log_rows(small_table(spark, [tuple(line)], RECORDS), JudgingBounds().table(spark))
    assert [row["parses"] for row in log.collect()] == [version == 2]
    assert [row["fate"]["fate_name"] for row in fate_rows(log).collect()] == ["delivered"] * (version == 2)
