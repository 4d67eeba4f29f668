"""Converts records of verdicts topics to rows: the answers, and the requests that they answer.

A record is `malformed` if it does not have the format, names a request of another partition, or has a key that is not
the id. A malformed record answers no request.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.expressions import memoized
from postdate.spark.records.requests import parsed_origin

_JSON = "v BIGINT, origin STRING, id STRING, verdict STRING, of STRING, at BIGINT, count BIGINT, `by` STRING"
ANSWERS = (
    *("accepted", "rejected", "cancelled", "rescheduled", "replaced"),
    *("delivered", "dead", "not-found", "too-late", "applied", "kept", "dropped", "paused", "resumed"),
    *("triggered", "backfilled"),
)
"""The possible answers to a request."""

ANSWER_ROWS = (
    "topic string, partition int, offset bigint, answer string, id binary, of bigint, count bigint, place string,"
    " malformed boolean, `by` bigint"
)
"""The columns of `answer_rows`."""


def answer_rows(records: DataFrame, requests_of: Mapping[str, str]) -> DataFrame:
    """Returns one row for each verdict record, with the columns ANSWER_ROWS.

    `topic`, `partition` and `offset` are the origin of the answered request; `of` and `by` are offsets of the same
    partition. `requests_of` maps each verdicts topic to its request topic. The row of a malformed record has only the
    request topic and partition that belong to its partition, its `place`, and `malformed`; its other columns are null.
    """
    requests = F.try_element_at(
        F.create_map(*(F.lit(name) for pair in requests_of.items() for name in pair)), F.col("topic")
    )
    read, split, found = _answer_columns()
    return records.select(requests.alias("topic"), *read).select("*", *split).select(*found)


@memoized
def _answer_columns() -> tuple[list[Column], list[Column], list[Column]]:
    """Returns the columns of three consecutive steps. Spark computes each column once."""
    read = [
        F.col("partition"),
        F.concat_ws("/", "topic", "partition", "offset").alias("place"),
        F.col("key"),
        F.from_json(F.col("value").cast("string"), _JSON).alias("parsed"),
    ]
    origins = {"origin": "parsed.origin", "meant": "parsed.of", "survivor": "parsed.by"}
    split = [parsed_origin(F.col(text)).alias(name) for name, text in origins.items()]
    parsed, origin, meant, survivor = F.col("parsed"), F.col("origin"), F.col("meant"), F.col("survivor")

    def is_here(named: Column) -> Column:
        return (named.topic == F.col("topic")) & (named.partition == F.col("partition")) & named.offset.isNotNull()

    is_of_bulk, is_of_version_2 = parsed.verdict == "applied", parsed.verdict.isin("applied", "kept", "dropped")
    is_of_version_3 = parsed.verdict.isin("paused", "resumed", "triggered", "backfilled")
    version = F.when(is_of_version_2, 2).when(is_of_version_3, 3).otherwise(1)
    is_version = (parsed.v == version) & (parsed["count"].isNotNull() == is_of_bulk)
    is_whole = is_version & parsed.verdict.isin(*ANSWERS) & (parsed["at"] >= 0) & is_here(origin)
    names_here = (parsed.of.isNull() | is_here(meant)) & (parsed["by"].isNull() | is_here(survivor))
    is_sound = is_whole & names_here & F.col("key").eqNullSafe(F.encode(parsed.id, "UTF-8"))
    sound = F.coalesce(is_sound, F.lit(False))
    columns = [
        F.col("topic"),
        F.col("partition"),
        F.when(sound, origin.offset).alias("offset"),
        F.when(sound, parsed.verdict).alias("answer"),
        F.when(sound, F.encode(parsed.id, "UTF-8")).alias("id"),
        F.when(sound, meant.offset).alias("of"),
        F.when(sound, parsed["count"]).alias("count"),
        F.col("place"),
        (~sound).alias("malformed"),
        F.when(sound, survivor.offset).alias("by"),
    ]
    return read, split, columns
