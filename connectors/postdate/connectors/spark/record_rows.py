"""Records of targets and dead letters to rows: what was delivered for which request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.connectors.spark.digests import digest, headers_digest, joined_names, last_value, present, untouched
from postdate.connectors.spark.expressions import natural, remembered
from postdate.connectors.spark.request_rows import origin_steps, parsed_origin
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
    for columns in _message_steps(tuple(requests)):
        records = records.select(*columns)
    return records


@remembered
def _message_steps(requests: Sequence[str]) -> list[list[Column]]:
    """The columns of each step.

    Each text is looked up once, in a step of its own, and so is what is made of it: what a later step names more than
    once, Spark leaves where it is, and what it writes for one step stays short enough for the JVM to compile. There is
    no condition: to answer one, Spark would look up and parse everything a second time.
    """
    headers, places = F.col("headers"), ("origin_topic", "origin_partition", "origin_offset")
    kept = {"topic": "target", "partition": "place", "offset": "record_offset", "key": "key", "value": "value"}
    carried = list(kept.values())
    read = [*(F.col(name).alias(other) for name, other in kept.items()), present(headers).alias("headers")]
    split = [
        *map(F.col, (*carried, "headers")),
        untouched(headers).alias("data"),
        last_value(headers, names.ORIGIN).cast("string").alias("origin_text"),
        last_value(headers, names.DUE).cast("string").alias("due_text"),
        last_value(headers, names.ID).alias("id"),
    ]
    own_names = F.slice(headers, F.size("data") + 1, F.size(headers) - F.size("data"))
    carried += ["data", "id"]
    named = [
        *map(F.col, (*carried, "origin_text")),
        natural(F.col("due_text")).alias("due_ms"),
        joined_names(own_names).alias("own_headers"),
    ]
    carried += ["due_ms", "own_headers"]
    ours = [*map(F.col, (*carried, *places)), F.col(places[0]).isin(*requests).alias("is_ours")]
    found = [F.when(F.col("is_ours"), F.col(place)).alias(place.removeprefix("origin_")) for place in places]
    return [read, split, named, *origin_steps(carried, "origin_text", places), ours, [*found, *map(F.col, carried)]]


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
