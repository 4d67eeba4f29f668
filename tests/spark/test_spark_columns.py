"""Columns that every reading is made of. Goal: what is quick for most rows says the same as what is right for all.

Method: rows of which some take the quick way and some do not, against what Python makes of them.
"""

from __future__ import annotations

import random

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from postdate.connectors.spark.bounds import Range
from postdate.connectors.spark.cluster import Partition
from postdate.connectors.spark.digests import EMPTY_HEADERS, untouched
from postdate.connectors.spark.expressions import natural
from postdate.connectors.spark.request_rows import parsed_origin
from postdate.connectors.spark.sources import read_records


def test_numbers_are_plain_digits(spark: SparkSession) -> None:
    sound = {"0": 0, "7": 7, "007": 7, "9223372036854775807": 2**63 - 1}
    others = ["", "-1", "+1", " 1", "1 ", "1.0", "1e3", "9223372036854775808", "00000000000000000001", "\u0661", "x"]
    rows = spark.createDataFrame([(text,) for text in [*sound, *others]], "text string")
    found = {row[0]: row[1] for row in rows.select("text", natural(F.col("text"))).collect()}
    assert found == {**sound, **dict.fromkeys(others)}


def test_origins_are_spelled_as_postdate_spells_them(spark: SparkSession) -> None:
    sound = {"a/0/7": ("a", 0, 7), "a.b/2147483647/9223372036854775807": ("a.b", 2**31 - 1, 2**63 - 1)}
    beyond = {"a/9999999999/5": ("a", None, 5)}
    others = [
        "",
        "a",
        "a/1",
        "1/1",
        "a/1/2/3",
        "a/01/2",
        "a/1/02",
        "a/-1/2",
        "a/1/-2",
        "/1/2",
        "a//2",
        "a/1/ 2",
        "a/1/x",
    ]
    rows = spark.createDataFrame([(text,) for text in [*sound, *beyond, *others]], "text string")
    found = {row[0]: tuple(row[1]) for row in rows.select("text", parsed_origin(F.col("text"))).collect()}
    assert found == {**sound, **beyond, **dict.fromkeys(others, (None, None, None))}


def test_untouched_headers_are_those_of_others_wherever_ours_stand(spark: SparkSession) -> None:
    ours, others = (
        ["postdate-topic", "Postdate-AT", "postdate-id", "postdate-x", "postdate-at"],
        ["a", "x-postdate-y", "b"],
    )
    choice = random.Random(13)
    lists = [[], ["a"], ["postdate-topic"], *([choice.choice(ours + others) for _ in range(n % 8)] for n in range(300))]
    lists += [[*others[:n], *ours[::2][:m]] for n in range(4) for m in range(4)]
    lists += [[*ours[::2][:m], *others[:n]] for n in range(4) for m in range(4)]
    values = [([(name, bytearray(name.encode())) for name in one],) for one in lists]
    rows = spark.createDataFrame(values, f"headers {EMPTY_HEADERS}")
    found = [[header["key"] for header in row[0]] for row in rows.select(untouched(F.col("headers"))).collect()]
    assert found == [[name for name in one if not name.lower().startswith("postdate-")] for one in lists]


def test_how_kafka_is_read_leaves_the_session_as_it_was(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.sources.useV1SourceList")
    span = Range("requests", Partition("r", 0), 0, 0, 1, 1, False, -1)
    read = read_records(spark, [span], {"bootstrap.servers": "127.0.0.1:1"})
    assert spark.conf.get("spark.sql.sources.useV1SourceList") == before
    assert "RelationV2" in read._jdf.queryExecution().analyzed().toString()
