"""The rows of the table `violations`: what a run has found, each with the place where it lies."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN


def violation_rows(fresh: DataFrame, breaks: DataFrame, malformed: DataFrame, unreadable: DataFrame) -> DataFrame:
    """One row for each new finding: topic, partition and offset, `verdict`, `details`, `target`.

    `fresh` as of `judged_rows`; `breaks` of the chain; `malformed` are answers, `unreadable` dead letters and records,
    by `place`. All but the first are read once, so whatever is found there is new.
    """
    said = F.lit("is no verdict of a request of this partition")
    of_origins = fresh.select(*ORIGIN, "target", F.explode("new_findings").alias("one"))
    of_chain = breaks.select(
        *(F.col("log_topic").alias("topic"), "partition", F.col("log_offset").alias("offset")),
        *_found("chain", F.col("problem")),
    )
    return reduce(
        DataFrame.unionByName,
        (
            of_origins.select(*ORIGIN, "one.verdict", F.array("one.detail").alias("details"), "target"),
            of_chain,
            malformed.select(*_located(), *_found("false-verdict", said)),
            unreadable.select(*_located(), *_found("unreadable", F.col("problem"))),
        ),
    )


def _located() -> list[Column]:
    """Topic, partition and offset of a `place`."""
    place = F.split("place", "/")
    kinds = (("topic", "string"), ("partition", "int"), ("offset", "bigint"))
    return [F.get(place, number).cast(kind).alias(name) for number, (name, kind) in enumerate(kinds)]


def _found(verdict: str, detail: Column) -> list[Column]:
    return [
        F.lit(verdict).alias("verdict"),
        F.array(detail).alias("details"),
        F.lit(None).cast("string").alias("target"),
    ]
