"""Records of targets and dead letters to rows: what was delivered for which request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.connectors.spark.digests import digest, headers_digest, joined_names, last_value, present, untouched
from postdate.connectors.spark.expressions import natural
from postdate.connectors.spark.request_rows import parsed_origin, with_parsed_origin
from postdate.connectors.wire import headers as names

# What the sidecar adds behind the headers of a dead letter: reason, detail, origin.
_DEAD_LETTER_HEADERS = 3


def delivered_rows(records: DataFrame, requests: Sequence[str]) -> DataFrame:
    """One row for each record whose `postdate-origin` names one of the topics `requests`: the origin, and `record`."""
    return digested_records(delivered_messages(records, requests))


def delivered_messages(records: DataFrame, requests: Sequence[str]) -> DataFrame:
    """One row for each record, with the message itself in place of its digests: the origin, null where that names none
    of `requests`; where it lies (`target`, `place`, `record_offset`); `key`, `value` and `data`, the untouched headers;
    and what Postdate adds, `due_ms`, `id` and `own_headers`.

    `own_headers` are the names of the last headers, as many as the record has of Postdate's: where other headers stand
    between or behind them, it differs from what a delivery has.
    """
    headers = F.col("headers")
    read = records.select(
        F.col("topic").alias("target"),
        F.col("partition").alias("place"),
        F.col("offset").alias("record_offset"),
        *("key", "value", present(headers).alias("headers")),
    )
    # Each text is looked up once, in a step of its own; so is what is made of it: what a later step names more than
    # once, Spark leaves where it is, and what it writes for one step stays short enough for the JVM to compile.
    split = read.select(
        *read.columns,
        untouched(headers).alias("data"),
        last_value(headers, names.ORIGIN).cast("string").alias("origin_text"),
        last_value(headers, names.DUE).cast("string").alias("due_text"),
        last_value(headers, names.ID).alias("id"),
    )
    own_names = F.slice(headers, F.size("data") + 1, F.size(headers) - F.size("data"))
    named = split.select(
        *("target", "place", "record_offset", "key", "value", "data", "id", "origin_text"),
        natural(F.col("due_text")).alias("due_ms"),
        joined_names(own_names).alias("own_headers"),
    )
    found = with_parsed_origin(named, "origin_text", ("origin_topic", "origin_partition", "origin_offset"))
    ours = found.withColumn("is_ours", F.col("origin_topic").isin(*requests))
    return ours.select(
        *(F.when(F.col("is_ours"), F.col(f"origin_{name}")).alias(name) for name in ("topic", "partition", "offset")),
        *("target", "place", "record_offset", "key", "value", "data", "due_ms", "id", "own_headers"),
    )


def digested_records(messages: DataFrame) -> DataFrame:
    """Rows as of `delivered_messages`, those that have an origin: it, and a struct `record` with digests instead of the
    message."""
    found = messages.where(F.col("topic").isNotNull() & F.col("offset").isNotNull())
    record = F.struct(
        "target",
        F.col("place").alias("partition"),
        F.col("record_offset").alias("offset"),
        digest(F.col("key")).alias("key_digest"),
        digest(F.col("value")).alias("value_digest"),
        headers_digest(F.col("data")).alias("headers_digest"),
        *("due_ms", "id", "own_headers"),
    )
    return found.select("topic", "partition", "offset", record.alias("record"))


def dead_letter_rows(records: DataFrame, requests_of: Mapping[str, str]) -> DataFrame:
    """One row for each dead letter of its own request topic: the origin, and a struct `letter`.

    `requests_of` gives the request topic of each dead-letter topic.
    """
    headers = F.col("headers")
    found = records.select(
        "topic", "partition", "offset", "key", "value", present(F.col("headers")).alias("headers")
    ).withColumn("origin", parsed_origin(last_value(headers, names.ORIGIN).cast("string")))
    as_sent = F.when(
        F.size(headers) >= _DEAD_LETTER_HEADERS, F.slice(headers, 1, F.size(headers) - _DEAD_LETTER_HEADERS)
    )
    letter = F.struct(
        F.col("partition"),
        F.col("offset"),
        last_value(headers, names.DEAD_REASON).cast("string").alias("reason"),
        digest(F.col("key")).alias("key_digest"),
        digest(F.col("value")).alias("value_digest"),
        headers_digest(as_sent).alias("headers_digest"),
        F.col("value").isNull().alias("is_without_value"),
        (F.size(headers) == _DEAD_LETTER_HEADERS).alias("is_without_headers"),
    )
    own = F.create_map(*(F.lit(name) for pair in requests_of.items() for name in pair))
    return _by_origin(
        found.where(F.col("origin.topic") == F.try_element_at(own, F.col("topic"))), letter.alias("letter")
    )


def _by_origin(found: DataFrame, row: Column) -> DataFrame:
    is_origin = F.col("origin.topic").isNotNull() & F.col("origin.offset").isNotNull()
    return found.where(is_origin).select(
        F.col("origin.topic").alias("topic"),
        F.col("origin.partition").alias("partition"),
        F.col("origin.offset").alias("offset"),
        row,
    )
