"""Requests with headers of other schedulers. Goal: the audit judges them like requests with Postdate's headers. Method:
the Python path and the Spark path read the same Postdate requests and must agree column by column; then one request of
each family of dialects is delivered and judged.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from postdate.spark.job.options import LEVELS_MS_DEFAULT
from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.records.dialects import DialectOptions, read_by_the_parser
from postdate.spark.records.requests import digested_requests, understood_rows
from postdate.wire.dialects.table import DIALECTS
from support.audit_cases.verdicts import DUE, T, all_cases
from support.audits.judging import judged
from support.audits.written_records import TARGET, Headers, RandomHistory

ALL = DialectOptions(tuple(DIALECTS), TARGET)
#: The first full hour after T.
HOUR_MS = 1_795_258_800_000


def test_the_python_path_and_the_spark_path_agree(spark: SparkSession) -> None:
    records = spark.createDataFrame(all_cases().requests, RECORDS)
    by_spark, by_python = (
        {(row["partition"], row["offset"]): row.asDict() for row in rows.collect()}
        for rows in (
            digested_requests(understood_rows(records, LEVELS_MS_DEFAULT)),
            digested_requests(read_by_the_parser(records, LEVELS_MS_DEFAULT, ALL)),
        )
    )
    assert by_spark.keys() == by_python.keys()
    by_spark = {origin: row for origin, row in by_spark.items() if row["retry"] is None}  # a return has no dialect
    # The Python path does not parse the headers of a refused request.
    read = {origin for origin in by_spark if _is_parsed(by_python[origin])}
    assert len(read) > len(by_spark) * 3 // 4, "nearly all of these requests are well-formed"
    assert {origin: by_spark[origin] for origin in read} == {origin: by_python[origin] for origin in read}


def _is_parsed(row: dict[str, Any]) -> bool:
    return bool(row["headers_digest"] != row["own_headers_digest"])


def test_a_request_in_postdates_own_headers_does_not_pass_through_the_parser(spark: SparkSession) -> None:
    history, unknown = RandomHistory(T), DialectOptions(("a dialect that the parser refuses",))
    history.ask(1)
    history.ask(2, ("postdate-topic", b"orders"), ("postdate-at", b"5"), ("postdate-id", b"x"))
    records = spark.createDataFrame(history.requests, RECORDS)
    rows = understood_rows(records, LEVELS_MS_DEFAULT, unknown).orderBy("offset").collect()
    assert [row["due_ms"] for row in rows] == [T + 1_000, 5]
    history.ask(3, headers=[("trace", b"x")])
    with pytest.raises(PythonException, match="a dialect that the parser refuses"):
        understood_rows(spark.createDataFrame(history.requests, RECORDS), LEVELS_MS_DEFAULT, unknown).collect()


def _dialect_history() -> tuple[RandomHistory, dict[int, str]]:
    """Returns requests in four dialects, each correctly delivered, and the verdict that each must get."""
    history, kept = RandomHistory(T), [("mine", b"1")]
    when_and_where: Headers = [("scheduler-epoch", b"%d" % (DUE // 1000)), ("scheduler-target-topic", b"orders")]
    dialect_requests: dict[int, tuple[Headers, bytes | None]] = {
        10: ([*when_and_where, ("scheduler-target-key", b"k")], b"s"),
        20: ([("x-delay", b"1000")], None),
        30: ([("DELAY", b"1")], None),
        40: ([("postdate-topic", b"orders"), ("postdate-delay", b"1s")], None),
        50: ([("x-delay", b"2000")], None),
    }
    for offset, (headers, id) in dialect_requests.items():
        history.ask(offset, *headers, headers=[*kept], key=b"k" if id is None else id)
        history.commit([offset, DUE, "delivered"])
        history.deliver(offset, headers=[*kept], id=id)
    for offset, nominal_ms in ((54, HOUR_MS), (56, HOUR_MS + 500)):
        _ask_nats(history, offset, nominal_ms)
    history.ask(60, *when_and_where, key=b"gone")
    history.ask(61, *when_and_where, key=b"gone", value=None)
    return history, {**dict.fromkeys((10, 20, 30, 40), "delivered"), 50: "mismatch", 54: "pending"}


def _ask_nats(history: RandomHistory, offset: int, nominal_ms: int) -> None:
    """Adds an hourly NATS schedule, and its first occurrence."""
    key = b"schedules.%d" % offset
    history.ask(offset, ("Nats-Schedule", b"@hourly"), ("Nats-Schedule-Target", b"orders"), key=key)
    history.commit([offset, HOUR_MS, "stored"])
    occurred = [offset, HOUR_MS, "occurred", 1, nominal_ms, HOUR_MS + 3_600_000]
    history.commit(occurred, at_ms=nominal_ms + 5, v=3)
    behind: Headers = [("postdate-occurrence", b"1"), ("postdate-next", b"%d" % (HOUR_MS + 3_600_000))]
    history.deliver(offset, due_ms=nominal_ms, id=key, key=key, behind=behind)


def test_a_request_in_a_dialect_is_judged_like_any_other(spark: SparkSession) -> None:
    history, expected = _dialect_history()
    found = judged(spark, history, dialects=ALL)[0].collect()
    by_offset = {row["offset"]: ",".join(row["verdicts"]) for row in found if row["offset"] < 60}
    assert "extra" in by_offset.pop(56)
    assert by_offset == expected, [row["details"] for row in found]
    assert {row["offset"]: row["action"] for row in found if row["offset"] >= 60} == {60: "schedule", 61: "cancel"}


def test_without_its_dialect_a_record_is_no_request(spark: SparkSession) -> None:
    history, _ = _dialect_history()
    found = judged(spark, history)[0].collect()
    assert [row["offset"] for row in found if row["verdicts"] == ["delivered"]] == [40]
