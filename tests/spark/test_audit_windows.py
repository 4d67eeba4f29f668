"""Windows in the audit. Goal: in every tier, the audit finds each forged chosen time and accepts correct ones. Method:
as in `test_spark_verdicts`, one history in which every request is a separate case. The rules judge it alone and after
chunks; the verdicts must be equal.
"""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from postdate.spark.columns.times import draw_ms
from postdate.spark.job.topic_reads import RECORDS
from postdate.spark.records.fates import fate_rows, log_rows
from postdate.spark.report.rows import ended_rows, past_rows, upcoming_rows
from postdate.spark.session.small_tables import small_table
from postdate.wire.limits import WINDOW_MS_MAX
from postdate.wire.origins import format_origin
from postdate.wire.values.windows import draw_ms as sidecar_draw_ms
from support.audit_cases.verdicts import DUE, TO_ORDERS, T
from support.audit_cases.windows import window_cases
from support.audits.judging import (
    JudgingBounds,
    ReadRecord,
    check_case,
    overtaken_of,
    read_fates,
)
from support.audits.written_records import REQUESTS, RandomHistory

CASES = window_cases()


@pytest.fixture(scope="module")
def rows(ruled: dict[str, dict[int, Row]]) -> dict[int, Row]:
    """Returns all cases judged by the rules, by offset."""
    return ruled["windows"]


@pytest.mark.parametrize("name", CASES.expected)
def test_verdict(rows: dict[int, Row], name: str) -> None:
    check_case(rows, CASES.expected[name])


def test_the_fast_tiers_give_the_verdicts_of_the_rules(
    rows: dict[int, Row], chunked: dict[str, dict[int, Row]]
) -> None:
    assert {offset: set(row["verdicts"]) for offset, row in chunked["windows"].items()} == {
        offset: set(row["verdicts"]) for offset, row in rows.items()
    }


def test_the_draw_of_a_column_is_that_of_the_sidecar(spark: SparkSession) -> None:
    cases = [("R", 0, 0, 1), ("a.b-c", 17, 10**15, 60_000), ("r", 3, 2**62, WINDOW_MS_MAX), ("r", 3, 7, None)]
    cases += [("postdate.requests", 1, offset, 900_000) for offset in range(300)]
    rows = small_table(spark, cases, "topic string, partition int, offset bigint, window_ms bigint")
    drawn = rows.select("*", draw_ms(*map(F.col, ("window_ms", "topic", "partition", "offset"))).alias("drawn"))
    expected = {
        (topic, partition, offset): sidecar_draw_ms(format_origin(topic, partition, offset), window_ms or 0)
        for topic, partition, offset, window_ms in cases
    }
    assert {(row["topic"], row["partition"], row["offset"]): row["drawn"] for row in drawn.collect()} == expected


def test_the_report_charts_the_chosen_times(spark: SparkSession) -> None:
    """The four messages are pending, moved, stored, and ended."""
    topic, window = REQUESTS, 2_000
    asked = [(topic, 0, o, "t", DUE, 1, window) for o in range(4)] + [(topic, 0, 4, "t", DUE, 1, None)]
    columns = "topic string, partition int, offset bigint, target string, due_ms bigint, size_bytes bigint"
    requests = small_table(spark, asked, f"{columns}, window_ms bigint")
    stored = small_table(spark, [(topic, 0, 2, "t", DUE, 1, DUE + 7)], f"{columns}, chosen_ms bigint")
    history = RandomHistory(T)
    history.commit([1, DUE, "moved", DUE + 500, 9], [9, 0, "applied"])
    history.commit([3, DUE, "delivered", DUE + 11], at_ms=DUE + 20, v=2)
    log = log_rows(small_table(spark, history.log, RECORDS), JudgingBounds().table(spark))
    ended = ended_rows(fate_rows(log))
    ahead = {row["offset"]: row["due_ms"] for row in upcoming_rows(requests, stored, ended).collect()}
    assert ahead == {
        **{0: DUE + sidecar_draw_ms(format_origin(topic, 0, 0), window), 4: DUE, 2: DUE + 7},
        1: DUE + 500 + sidecar_draw_ms(format_origin(topic, 0, 9), window),
    }
    (late,) = past_rows(requests, ended, None).collect()
    assert (late["offset"], late["lateness_ms"]) == (3, 9)


def test_lateness_counts_from_the_chosen_time(rows: dict[int, Row]) -> None:
    assert rows[CASES.expected["chosen at the due time"].offset]["lateness_ms"] == 1_000
    assert rows[CASES.expected["chosen at the end of the window"].offset]["lateness_ms"] == 0


@pytest.mark.parametrize(("chosen_ms", "overtaken"), [((600, 700), set()), ((1_400, 100), {1})])
def test_the_order_is_that_of_the_chosen_times(
    spark: SparkSession, chosen_ms: tuple[int, int], overtaken: set[int]
) -> None:
    """Request 0 is due later than request 1, and its record is before that of request 1 on the target."""
    history = RandomHistory(T)
    for offset, delay in ((0, b"1500ms"), (1, b"1s")):
        history.ask(offset, TO_ORDERS, ("postdate-delay", delay), ("postdate-window", b"2s"))
    due_ms = (DUE + 500, DUE)
    for offset in (0, 1):
        history.commit([offset, due_ms[offset], "delivered", DUE + chosen_ms[offset]], at_ms=DUE + 2_000, v=2)
        history.deliver(offset, due_ms=due_ms[offset])
    assert overtaken_of(spark, history).keys() == overtaken


_FATES: list[tuple[list[object], int, bool]] = [
    ([0, DUE, "delivered", DUE], 2, True),
    ([0, DUE, "dead", DUE], 2, True),
    ([0, DUE, "delivered", DUE], 1, False),
    ([1, DUE, "cancelled", 0], 2, False),
    ([0, DUE, "delivered", -1], 2, False),
    ([0, DUE, "delivered", "x"], 2, False),
    ([0, DUE, "delivered", DUE, 1], 2, False),
    ([0, DUE, "delivered"], 2, True),
    ([0, DUE, "delivered"], 4, False),
]


@pytest.fixture(scope="module")
def read(spark: SparkSession) -> list[ReadRecord]:
    """Returns the audit's reading of these fates."""
    return read_fates(spark, [case[:2] for case in _FATES])


@pytest.mark.parametrize("number", range(len(_FATES)))
def test_a_chosen_time_is_read_as_the_sidecar_reads_it(read: list[ReadRecord], number: int) -> None:
    fate, _, parses = _FATES[number]
    assert (read[number].parses, len(read[number].fates)) == (parses, parses)
    for found in read[number].fates:
        assert (found["fate_name"], found["chosen_ms"]) == (fate[2], fate[3] if len(fate) == 4 else None)
        assert found["new_due_ms"] is None
