"""Audits of few new records with many related rows. Goal: an audit gathers rows in one task only if all of them are
few. Method: a log record with many fates, and many related rows; the test observes the audit's decisions.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postdate.spark.audit.ranges import TARGETS
from postdate.spark.audit.reading import fate_count
from postdate.spark.judging import origin_rows as judging
from postdate.spark.judging.inputs import folded
from postdate.spark.judging.origin_rows import JudgingParameters, judged_origins
from postdate.spark.limits import LOCAL_ROWS_MAX
from postdate.spark.rules.request_histories import history_rows
from postdate.spark.session.small_tables import small_table
from postdate.spark.session.start import separate_rows_max
from support.audit_cases.verdicts import DUE, SNAPSHOT, TO_ORDERS, T
from support.audits.judging import JudgingBounds, read_inputs, target_row
from support.audits.written_records import RandomHistory


def _cancelled() -> RandomHistory:
    history, id_ = RandomHistory(T), ("postdate-id", b"a")
    history.ask(1, TO_ORDERS, ("postdate-delay", b"1s"), id_)
    history.ask(2, ("postdate-action", b"cancel"), id_)
    history.commit([1, DUE, "cancelled"], [2, 0, "applied"])
    return history


def test_the_fates_of_a_record_are_counted(spark: SparkSession) -> None:
    log, _ = read_inputs(spark, _cancelled())
    assert (fate_count(log), fate_count(log.where("false"))) == (2, 0)


def test_memory_bounds_the_rows_that_are_sent_to_all_executors(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster, an executor may have less memory than the driver. Spark reports its memory in MiB."""
    jvm: Any = spark.sparkContext._jvm
    context: Any = spark.sparkContext._jsc.sc()
    of_driver = int(jvm.java.lang.Runtime.getRuntime().maxMemory()) // 2_048
    assert separate_rows_max(spark) == of_driver
    assert int(context.executorMemory()) > 0
    for executor_mb, gathered, most in (
        (512, 1 << 30, 512 * 512),
        (1 << 30, 1 << 30, of_driver),
        (1 << 30, 1 << 20, 8_192),
        (1 << 30, 0, of_driver),
    ):
        conf = SimpleNamespace(getSizeAsBytes=lambda _name, _default, size=gathered: size)
        cluster = SimpleNamespace(
            isLocal=lambda: False, executorMemory=lambda size=executor_mb: size, conf=lambda of=conf: of
        )
        monkeypatch.setattr(spark.sparkContext, "_jsc", SimpleNamespace(sc=lambda of=cluster: of))
        assert separate_rows_max(spark) == most


@pytest.mark.parametrize("more", [1, LOCAL_ROWS_MAX + 1])
def test_a_large_context_is_not_sorted_in_one_task(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """A state may have any number of rows with one id."""
    _, inputs = read_inputs(spark, _cancelled())
    rows, seen = folded(inputs, few=True), list[bool]()

    def context(around: DataFrame, _: DataFrame) -> DataFrame:
        others = spark.range(1_000, 1_000 + more).withColumnRenamed("id", "other")
        some = around.where("offset = 1").crossJoin(others)
        return some.withColumn("offset", F.col("other")).drop("other")

    def noted(*given: Any, few: bool) -> DataFrame:
        seen.append(few)
        return history_rows(*given, few=few)

    monkeypatch.setattr(judging, "history_rows", noted)
    targets = small_table(spark, [target_row()], TARGETS)
    parameters = JudgingParameters(JudgingBounds().table(spark), targets, "none", SNAPSHOT, slack_ms=60_000)
    found = {row["offset"]: row["verdicts"] for row in judged_origins(rows, context, parameters).collect()}
    assert found == {1: ["cancelled"], 2: ["applied"]}
    assert seen == [more == 1]
