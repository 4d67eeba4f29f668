"""Writes records to Kafka with Spark's own sink, all at once or at a rate.

Spark's sink has no rate limit. So this module cuts the records into slices by due time, the earliest first, and sends
each slice as a separate Spark job, no earlier than the rate permits. A slice is an interval of pairs (due time, hash of
the record). The pair depends only on the record. So a row that is computed again after the loss of an executor is in
the same slice, and no row is skipped. Spark retries a failed task, and then sends its rows again. The second copy of a
request with an id replaces the first; the message of a request without an id may be duplicated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.limits import SLICE_MS_MIN, SLICES_MAX

Place = tuple[int, int]
"""The due time and the hash of a record."""

_SINK: Final = ("topic", "partition", "key", "value", "headers")
_PRODUCER: Final = {"acks": "all", "enable.idempotence": "true", "linger.ms": "20", "batch.size": str(256 * 1024)}
_ROW_BITS: Final = 33  # `monotonically_increasing_id` counts the rows of a partition in this many low bits


def send(records: DataFrame, properties: Mapping[str, str], record_bytes_max: int) -> None:
    """Sends all records with `acks=all`; `properties` are settings of Kafka's Java producer.

    `record_bytes_max` is the topic's `max.message.bytes`. Does not catch Spark's errors; after an error, an unknown
    part of the records has been sent.
    """
    settings = {**_PRODUCER, "max.request.size": str(record_bytes_max), **properties}
    writer = records.select(*_SINK).write.format("kafka")
    for name, value in settings.items():
        writer = writer.option(f"kafka.{name}", value)
    writer.save()


def send_at_rate(
    records: DataFrame,
    properties: Mapping[str, str],
    record_bytes_max: int,
    rows: int,
    rate: int,
    report: Callable[[int, int], None],
) -> None:
    """Sends `rows` records, at most `rate` per second on average, the earliest due time first.

    After each slice, calls `report` with the number of finished slices and the number of all slices. Cost: a sort of
    all records, two Spark jobs to form the slices, and one job per slice.
    """
    slice_ms = max(SLICE_MS_MIN, -(-rows * 1_000 // (rate * SLICES_MAX)))
    ordered = _ordered(records)
    try:
        firsts = slice_firsts(ordered, max(1, rate * slice_ms // 1_000))
        began_s = time.monotonic()
        for number, first in enumerate(firsts):
            early_s = began_s + number * slice_ms / 1_000 - time.monotonic()
            if early_s > 0:
                time.sleep(early_s)
            after = firsts[number + 1] if number + 1 < len(firsts) else None
            send(ordered.where(is_between(first, after)), properties, record_bytes_max)
            report(number + 1, len(firsts))
    finally:
        ordered.unpersist()


def slice_firsts(ordered: DataFrame, slice_rows: int) -> list[Place]:
    """Returns the place of the first record of each slice of `slice_rows` records.

    The last slice may be smaller. Records with equal places are in one slice, which may then be larger. Requires the
    result of `_ordered`. Cost: two jobs; the driver receives one row per slice.
    """
    number = F.monotonically_increasing_id()
    numbered = ordered.select("due_ms", "hash", number.alias("number")).select(
        *("due_ms", "hash"),
        F.shiftright("number", _ROW_BITS).cast("int").alias("part"),
        F.col("number").bitwiseAND(F.lit(2**_ROW_BITS - 1)).alias("row"),
    )
    counted = numbered.groupBy("part").agg(F.count("*").alias("rows")).collect()
    counts: dict[int, int] = {row["part"]: row["rows"] for row in counted}
    before, parts = 0, []
    for part in sorted(counts):
        parts += [F.lit(part), F.lit(before).cast("bigint")]
        before += counts[part]
    if not parts:
        return []
    place = F.try_element_at(F.create_map(*parts), F.col("part")) + F.col("row")
    firsts = numbered.where(place % slice_rows == 0).select("due_ms", "hash").distinct().collect()
    return sorted((row["due_ms"], row["hash"]) for row in firsts)


def is_between(first: Place, after: Place | None) -> Column:
    """True if a record is in the slice [`first`, `after`). If `after` is None, the slice has no upper bound."""

    def is_before(place: Place) -> Column:
        due_ms, hashed = F.col("due_ms"), F.col("hash")
        return (due_ms < place[0]) | ((due_ms == place[0]) & (hashed < place[1]))

    # The additional bounds on `due_ms` alone let Spark skip whole blocks of cached rows.
    is_in = (F.col("due_ms") >= first[0]) & ~is_before(first)
    return is_in if after is None else is_in & (F.col("due_ms") <= after[0]) & is_before(after)


def _ordered(records: DataFrame) -> DataFrame:
    """Returns the records ordered by due time and hash, cached because each slice reads them."""
    hashed = records.withColumn("hash", F.xxhash64("key", "value", "due_ms", F.to_json("headers")))
    spread = hashed.repartitionByRange("due_ms", "hash").sortWithinPartitions("due_ms", "hash")
    return spread.persist(StorageLevel.MEMORY_AND_DISK)
