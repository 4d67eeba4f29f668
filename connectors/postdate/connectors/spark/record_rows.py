"""Records of targets and dead letters to rows: what was delivered for which request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.connectors.spark.digests import digest, headers_digest, joined_names, last_value, present, untouched
from postdate.connectors.spark.expressions import natural, remembered
from postdate.connectors.spark.request_rows import parsed_origin
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
    read, split, found = _message_columns(tuple(requests))
    # No `where`: Spark would look up and parse the origin a second time to answer it.
    return records.select(*read).select(*split).select(*found)


@remembered
def _message_columns(requests: Sequence[str]) -> tuple[list[Column], list[Column], list[Column]]:
    """The columns of each of three steps: what is named in one is worked out once for the next."""
    headers = F.col("headers")
    kept = {"topic": "target", "partition": "place", "offset": "record_offset", "key": "key", "value": "value"}
    read = [*(F.col(name).alias(other) for name, other in kept.items()), present(headers).alias("headers")]
    split = [
        *map(F.col, (*kept.values(), "headers")),
        parsed_origin(last_value(headers, names.ORIGIN).cast("string")).alias("origin"),
        untouched(headers).alias("data"),
    ]
    count = F.size(headers) - F.size("data")
    is_ours = F.col("origin.topic").isin(*requests)
    found = [
        *(F.when(is_ours, F.col(f"origin.{name}")).alias(name) for name in ("topic", "partition", "offset")),
        *map(F.col, (*kept.values(), "data")),
        natural(last_value(headers, names.DUE).cast("string")).alias("due_ms"),
        last_value(headers, names.ID).alias("id"),
        joined_names(F.slice(headers, F.size("data") + 1, count)).alias("own_headers"),
    ]
    return read, split, found


def digested_records(messages: DataFrame) -> DataFrame:
    """Rows as of `delivered_messages`, those that have an origin: it, and a struct `record` with digests instead of the
    message."""
    found = messages.where(F.col("topic").isNotNull() & F.col("offset").isNotNull())
    return found.select("topic", "partition", "offset", _record())


@remembered
def _record() -> Column:
    record = F.struct(
        "target",
        F.col("place").alias("partition"),
        F.col("record_offset").alias("offset"),
        digest(F.col("key")).alias("key_digest"),
        digest(F.col("value")).alias("value_digest"),
        headers_digest(F.col("data")).alias("headers_digest"),
        *("due_ms", "id", "own_headers"),
    )
    return record.alias("record")


def dead_letter_rows(records: DataFrame, requests_of: Mapping[str, str]) -> DataFrame:
    """One row for each dead letter of its own request topic: the origin, and a struct `letter`.

    `requests_of` gives the request topic of each dead-letter topic.
    """
    found = records.select(
        "topic", "partition", "offset", "key", "value", present(F.col("headers")).alias("headers")
    ).withColumn("origin", _letter_origin())
    own = F.create_map(*(F.lit(name) for pair in requests_of.items() for name in pair))
    return _by_origin(found.where(F.col("origin.topic") == F.try_element_at(own, F.col("topic"))), _letter())


@remembered
def _letter_origin() -> Column:
    return parsed_origin(last_value(F.col("headers"), names.ORIGIN).cast("string"))


@remembered
def _letter() -> Column:
    headers = F.col("headers")
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
    return letter.alias("letter")


def _by_origin(found: DataFrame, row: Column) -> DataFrame:
    is_origin = F.col("origin.topic").isNotNull() & F.col("origin.offset").isNotNull()
    return found.where(is_origin).select(
        F.col("origin.topic").alias("topic"),
        F.col("origin.partition").alias("partition"),
        F.col("origin.offset").alias("offset"),
        row,
    )
