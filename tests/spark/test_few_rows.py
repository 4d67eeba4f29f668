"""Goal: what makes a step of few rows quick changes nothing else: settings come back, columns fit any table.

Method: the settings before, in and behind the context, with few rows and many and when it fails; a column that was made
once, used on two tables; and how often the JVM is asked for what PySpark makes columns with.
"""

from __future__ import annotations

from typing import Any

import pytest
from py4j.java_gateway import GatewayClient  # type: ignore[import-untyped]
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from postdate.connectors.spark.expressions import remembered
from postdate.connectors.spark.few_rows import suited
from postdate.connectors.spark.limits import FEW_ROWS_MAX, FEW_ROWS_PARTITIONS
from postdate.connectors.spark.session import remember_classes

_PARTITIONS, _ADAPTIVE = "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled"


def _fail_with_few(spark: SparkSession) -> None:
    with suited(spark) as suit:
        suit(0)
        raise KeyError


def test_settings_for_few_rows_end_with_them(spark: SparkSession) -> None:
    own = {name: str(spark.conf.get(name)) for name in (_PARTITIONS, _ADAPTIVE)}
    given = {_PARTITIONS: "7", _ADAPTIVE: "true"}

    def now() -> dict[str, str]:
        return {name: str(spark.conf.get(name)) for name in given}

    try:
        for name, value in given.items():
            spark.conf.set(name, value)
        with suited(spark) as suit:
            assert now() == given, "nothing is said of how many there are"
            suit(FEW_ROWS_MAX)
            assert now() == {_PARTITIONS: str(FEW_ROWS_PARTITIONS), _ADAPTIVE: "false"}
            suit(FEW_ROWS_MAX + 1)
            assert now() == given
            suit(0)
        assert now() == given
        with pytest.raises(KeyError):
            _fail_with_few(spark)
        assert now() == given
    finally:
        for name, value in own.items():
            spark.conf.set(name, value)


def test_columns_of_constants_are_made_once_and_fit_every_table(spark: SparkSession) -> None:
    made: list[int] = []

    @remembered
    def more(by: int) -> list[Column]:
        made.append(by)
        return [F.aggregate(F.array("id"), F.lit(by).cast("bigint"), lambda sum_, one: sum_ + one).alias("more")]

    for start in (0, 10):
        rows = spark.range(start, start + 2).select(*more(5)).collect()
        assert [row["more"] for row in rows] == [start + 5, start + 6]
    assert [row["more"] for row in spark.range(1).select(*more(7)).collect()] == [7]
    assert made == [5, 7]


def test_a_column_is_one_question_to_the_jvm(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    remember_classes(spark)
    F.col("first")
    gateway: Any = spark.sparkContext._gateway
    client, asked = type(gateway._gateway_client), list[str]()
    assert issubclass(client, GatewayClient)
    original = client.send_command

    def counted(self: Any, command: str, *arguments: Any, **named: Any) -> Any:
        asked.append(command)
        return original(self, command, *arguments, **named)

    monkeypatch.setattr(client, "send_command", counted)
    F.col("another")
    assert len([command for command in asked if not command.startswith("m\n")]) == 1
