"""Reads Kafka with Spark's own source between fixed offsets, by default only committed records.

Spark has two batch readers for Kafka. The older reader, which is the default, converts each record to objects and back
to columns; the newer one does not (measured: half the processor time). The jobs use the newer reader: each read changes
the setting of the session and restores it. One thread at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postdate.spark.columns.digests import has, headers_or_empty
from postdate.spark.job.bounds import Range
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.limits import FETCHING, FETCHING_FEW, TASK_RECORDS_MIN, TASKS_PER_CORE
from postdate.spark.session.small_tables import small_table
from postdate.spark.session.start import restored_settings
from postdate.wire import headers as names

RECORDS = (
    "topic string, partition int, offset bigint, timestamp timestamp, timestampType int, key binary, value binary,"
    " headers array<struct<key:string,value:binary>>"
)
"""The columns of Spark's Kafka source that the jobs use."""
_OLDER_READERS = "spark.sql.sources.useV1SourceList"


def read_records(
    spark: SparkSession, ranges: Iterable[Range], properties: Mapping[str, str], *, committed: bool = True
) -> DataFrame:
    """Returns the records of `ranges`, lazily. A Spark job that reads them fails if a record has left its topic
    meanwhile.

    If `committed` is False, the result includes records of aborted and open transactions.
    """
    wanted = [span for span in ranges if span.start < span.end]
    if not wanted:
        return small_table(spark, [], RECORDS)
    reader = spark.read.format("kafka")
    for name, value in {**FETCHING, **properties}.items():
        reader = reader.option(f"kafka.{name}", value)
    # By default, Spark reads a partition in one task, whatever its size. Splitting the largest partitions gives all
    # cores work.
    count = sum(span.end - span.start for span in wanted)
    size = max(TASK_RECORDS_MIN, count // (TASKS_PER_CORE * spark.sparkContext.defaultParallelism))
    reader = (
        reader.option("maxRecordsPerPartition", str(size))
        .option("kafka.isolation.level", "read_committed" if committed else "read_uncommitted")
        .option("assign", json.dumps(_by_topic({span.partition: None for span in wanted})))
        .option("startingOffsets", json.dumps(_offsets((span.partition, span.start) for span in wanted)))
        .option("endingOffsets", json.dumps(_offsets((span.partition, span.end) for span in wanted)))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
    )
    with restored_settings(spark, _OLDER_READERS):
        older = str(spark.conf.get(_OLDER_READERS)).split(",")
        spark.conf.set(_OLDER_READERS, ",".join(name for name in older if name.strip() != "kafka"))
        records = reader.load()
    return records.select("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")


def broker_times(
    spark: SparkSession, ranges: Iterable[Range], properties: Mapping[str, str]
) -> dict[TopicPartition, int]:
    """Returns by partition the time of the first record in its range that has the broker's time. A partition without
    such a record is absent.

    A record has the broker's time if the broker stamped it, or if it has Postdate's headers: Postdate stamps its
    records with the broker's time (docs/protocol.md, Clock). Another producer may use any timestamp. Cost: one job.
    """
    spans = list(ranges)
    if not spans:
        return {}
    headers = headers_or_empty(F.col("headers"))
    is_own = has(headers, names.ORIGIN) & (has(headers, names.DUE) | has(headers, names.DEAD_REASON))
    records = read_records(spark, spans, {**FETCHING_FEW, **properties}, committed=False)
    stamped = records.where((F.col("timestampType") == 1) | is_own)
    first = F.min_by(F.unix_millis("timestamp"), "offset")
    rows = stamped.groupBy("topic", "partition").agg(first.alias("at_ms")).collect()
    return {TopicPartition(row["topic"], row["partition"]): row["at_ms"] for row in rows}


def _by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return by_topic


def _offsets(places: Iterable[tuple[tuple[str, int], int]]) -> dict[str, dict[str, int]]:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, index), offset in places:
        by_topic.setdefault(topic, {})[str(index)] = offset
    return by_topic
