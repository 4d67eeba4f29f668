"""Converts accepted rows to records of the request topic, with the columns of Spark's Kafka sink.

If a row has an id, the id is the record's key and decides the partition (murmur2, as Java clients hash keys), and the
header `postdate-key` contains the key of the message. So a cancel, a reschedule and a repeated run reach the same
partition. `postdate.client` has the same rule. Without an id, the key of the message decides the partition. If a row
has neither, the producer decides.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.digests import EMPTY_HEADERS, first_value
from postdate.spark.columns.expressions import byte_length
from postdate.spark.columns.murmur2 import positive_murmur2
from postdate.wire import headers as names

# The constants of `record_size_bytes` in the wire package: batch header and record fields, then the lengths of a
# header.
_RECORD_BYTES = 97
_HEADER_BYTES = 10
# The rest of an origin after the request topic's name: two slashes, ten digits of a partition, nineteen of an offset.
_ORIGIN_BYTES = 2 + 10 + 19
_DUE_BYTES = 19


def request_headers() -> Column:
    """Returns the headers of the request, from the columns of `parsed_rows`: the headers of the message, then
    Postdate's."""
    id = F.col("id")
    own = F.array_compact(
        F.array(
            _header(names.TOPIC, F.encode("target", "UTF-8")),
            F.when(F.col("at_ms").isNotNull(), _header(names.AT, _digits("at_ms"))).otherwise(
                _header(names.DELAY, _digits("delay_ms"))
            ),
            F.when(F.col("grace_ms").isNotNull(), _header(names.GRACE, _digits("grace_ms"))),
            F.when(F.col("window_ms").isNotNull(), _header(names.WINDOW, _digits("window_ms"))),
            F.when(F.col("spread").isNotNull(), _header(names.SPREAD, F.encode("spread", "UTF-8"))),
            F.when(F.col("partition").isNotNull(), _header(names.PARTITION, _digits("partition"))),
            F.when(id.isNotNull(), _header(names.ID, id)),
            F.when(id.isNotNull(), _header(names.KEY, F.col("key"))),
        )
    )
    return F.concat("headers", own.cast(EMPTY_HEADERS))


def request_size_bytes() -> Column:
    """Returns the maximum size of a batch with only this request; null if its headers cannot be read."""
    key = F.coalesce("id", "key")
    return _RECORD_BYTES + byte_length(key) + byte_length(F.col("value")) + _headers_bytes(F.col("request_headers"))


def delivered_size_bytes(requests: str) -> Column:
    """Returns the maximum size of a batch with only the delivered record."""
    own_headers_size_bytes = (
        _ORIGIN_BYTES + len(requests) + _DUE_BYTES + len(names.ORIGIN) + len(names.DUE) + 2 * _HEADER_BYTES
    )
    of_id = F.when(F.col("id").isNotNull(), _HEADER_BYTES + len(names.ID) + byte_length(F.col("id"))).otherwise(0)
    message = byte_length(F.col("key")) + byte_length(F.col("value")) + _headers_bytes(F.col("headers"))
    return _RECORD_BYTES + own_headers_size_bytes + of_id + message


def record_rows_of(good: DataFrame, requests: str, partitions: int) -> DataFrame:
    """Returns one record for each row of `checked_rows`: topic, partition, key, value, headers; and `due_ms`. Requires
    that no row has a reason.

    `partitions` is the partition count of the request topic. The partition is null if the row has neither id nor key.
    """
    key = F.coalesce("id", "key")
    return good.select(
        F.lit(requests).alias("topic"),
        (positive_murmur2(key) % partitions).cast("int").alias("partition"),
        key.alias("key"),
        "value",
        F.col("request_headers").alias("headers"),
        "due_ms",
    )


def requested_ids(records: DataFrame) -> DataFrame:
    """Returns the ids of the schedule requests in the records of a request topic: one row `id` for each id."""
    headers = F.col("headers")
    action = first_value(headers, names.ACTION)
    schedules = records.where(F.coalesce(action == F.lit(b"schedule"), F.lit(True)))
    return schedules.select(first_value(headers, names.ID).alias("id")).where("id is not null").distinct()


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.alias("value"))


def _digits(column: str) -> Column:
    return F.encode(F.col(column).cast("string"), "UTF-8")


def _headers_bytes(headers: Column) -> Column:
    sizes = F.transform(headers, lambda header: F.octet_length(header.key) + byte_length(header.value) + _HEADER_BYTES)
    return F.aggregate(sizes, F.lit(0), lambda total, size: total + size)
