"""Converts records of target topics and dead-letter topics to rows: deliveries and dead letters, with their origins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.columns.digests import (
    digest,
    has,
    headers_digest,
    headers_or_empty,
    joined_names,
    last_value,
    message_headers,
)
from postdate.spark.columns.expressions import memoized, natural, where_computed
from postdate.spark.records.refusals import unfounded_refusal
from postdate.spark.records.requests import origin_steps, parsed_origin
from postdate.wire import headers as names

# The number of headers that the sidecar adds to a dead letter: reason, detail, origin.
_DEAD_LETTER_HEADERS = 3

# The largest number of headers that the sidecar adds to a message: origin, due, id. Returns, occurrences and extra
# deliveries have more.
_OWN_HEADERS_MAX = 3

OCCURRENCE_RECORD = (
    "struct<number:bigint,target:string,partition:int,offset:bigint,due_ms:bigint,next_ms:bigint,id:binary,"
    "own_headers:string,digests:array<binary>,control:bigint>"
)
"""A record of an occurrence or an extra delivery. `digests` are those of key, value and headers. For an extra delivery,
`control` is the offset of the control that requested it, and `number` counts the deliveries of this control. For an
occurrence, `control` is -1."""


def delivered_rows(records: DataFrame, requests: Sequence[str]) -> DataFrame:
    """Returns one row for each record whose `postdate-origin` names one of the topics `requests`, except occurrences
    and extra deliveries. The columns are the origin and a struct `record`."""
    return without_garbled(record_rows(delivered_messages(records, requests)))


def delivered_messages(records: DataFrame, requests: Sequence[str]) -> DataFrame:
    """Returns one row for each record, with the message instead of its digests. The columns are:

        topic, partition, offset        the origin; null if it is not on one of `requests`, and if the record is an
                                        occurrence or an extra delivery
        occurrence_of                   the origin of an occurrence or an extra delivery of a schedule
        target, place, record_offset    the position of the record
        key, value, data                key, value, and headers that are not Postdate's
        due_ms, id, own_headers, retry  from the headers that Postdate adds
        is_garbled                      true if the origin cannot be read

    `own_headers`: if the record has n headers of Postdate, the names of its last n headers. They differ from those of a
    normal delivery if other headers stand among or after Postdate's. `retry`: of these n headers, those from the third
    on, if n is above three, as in a return, an occurrence or an extra delivery; otherwise null.
    """
    for columns in _message_steps(tuple(requests)):
        records = records.select(*columns)
    return records


@memoized
def _message_steps(requests: Sequence[str]) -> list[list[Column]]:
    """Returns the columns of each step.

    Separate steps look up each header value once, and compute once what follows from it: Spark does not inline a column
    that a later step uses more than once. The code of one step stays short enough for the JIT compiler. No step has a
    filter, since Spark would look up and parse all values a second time to evaluate the filter.
    """
    headers, places = F.col("headers"), ("origin_topic", "origin_partition", "origin_offset")
    kept = {"topic": "target", "partition": "place", "offset": "record_offset", "key": "key", "value": "value"}
    carried = list(kept.values())
    read = [*(F.col(name).alias(other) for name, other in kept.items()), headers_or_empty(headers).alias("headers")]
    split = [
        *map(F.col, (*carried, "headers")),
        message_headers(headers).alias("data"),
        last_value(headers, names.ORIGIN).cast("string").alias("origin_text"),
        has(headers, names.ORIGIN).alias("has_origin"),
        last_value(headers, names.DUE).cast("string").alias("due_text"),
        last_value(headers, names.ID).alias("id"),
    ]
    own_count = F.size(headers) - F.size("data")
    own_names = F.slice(headers, F.size("data") + 1, own_count)
    behind = F.slice(headers, F.size("data") + 3, F.greatest(own_count - 2, F.lit(0)))
    carried += ["data", "id"]
    named = [
        *map(F.col, (*carried, "origin_text", "has_origin")),
        natural(F.col("due_text")).alias("due_ms"),
        joined_names(own_names).alias("own_headers"),
        F.when(own_count > _OWN_HEADERS_MAX, behind).alias("retry"),
    ]
    carried += ["due_ms", "own_headers", "retry"]
    is_garbled = F.col("has_origin") & F.col(places[-1]).isNull()
    steps = origin_steps([*carried, "has_origin"], "origin_text", places)
    own = F.col("own_headers")
    ours = [
        *map(F.col, (*carried, *places)),
        is_garbled.alias("is_garbled"),
        F.col(places[0]).isin(*requests).alias("is_ours"),
        (own.contains(names.OCCURRENCE) | own.contains(names.EXTRA)).alias("is_occurrence"),
    ]
    carried.append("is_garbled")
    is_occurrence = F.col("is_ours") & F.col("is_occurrence")
    is_message = F.col("is_ours") & ~F.col("is_occurrence")
    found = [F.when(is_message, F.col(place)).alias(place.removeprefix("origin_")) for place in places]
    origin = F.struct(*(F.col(place).alias(place.removeprefix("origin_")) for place in places))
    occurrence_of = F.when(is_occurrence, origin).alias("occurrence_of")
    return [read, split, named, *steps, ours, [*found, *map(F.col, carried), occurrence_of]]


def with_origins_of_occurrences(messages: DataFrame) -> DataFrame:
    """Returns the rows of `delivered_messages`, in which occurrences and extra deliveries have their origin in the same
    columns as other records."""
    return messages.withColumns({name: F.coalesce(name, F.col("occurrence_of")[name]) for name in ORIGIN})


def record_rows(messages: DataFrame) -> DataFrame:
    """Returns the rows of `delivered_messages` that have a `topic` and an `offset`, or whose origin cannot be read. The
    columns are the origin, a struct `record` with digests instead of the message, and `is_garbled`."""
    has_origin = F.col("topic").isNotNull() & F.col("offset").isNotNull()
    found = where_computed(messages, has_origin | F.col("is_garbled"))
    return found.select("topic", "partition", "offset", _record(), "is_garbled")


def occurrence_records(messages: DataFrame) -> DataFrame:
    """Returns one row for each record of `delivered_messages` that is an occurrence or an extra delivery of a schedule:
    the origin, and a struct `record` as OCCURRENCE_RECORD. A record without a number, or an extra delivery that names
    no control of its schedule's partition, gets the number 0, which no occurrence has."""
    found = where_computed(messages, F.col("occurrence_of").isNotNull())
    record = found.select("occurrence_of", _record())

    def text(name: str) -> Column:
        return last_value(F.col("record.retry"), name).cast("string")

    def behind(name: str) -> Column:
        return natural(text(name))

    # The header value is `<topic>/<partition>/<control>/<number>`. No topic has a slash in its name.
    parts = F.split(text(names.EXTRA), "/")
    control, extra = natural(F.get(parts, 2)), natural(F.get(parts, 3))
    origin = F.col("occurrence_of")
    is_here = (F.size(parts) == 4) & (F.get(parts, 0) == origin.topic)
    is_here &= F.get(parts, 1) == origin.partition.cast("string")
    is_extra = F.coalesce(is_here & control.isNotNull() & (extra > 0), F.lit(False))
    number = F.when(is_extra, extra).when(text(names.EXTRA).isNull(), behind(names.OCCURRENCE))
    occurrence = F.struct(
        F.coalesce(number, F.lit(0)).alias("number"),
        *("record.target", "record.partition", "record.offset", "record.due_ms"),
        behind(names.NEXT).alias("next_ms"),
        *("record.id", "record.own_headers"),
        F.array("record.key_digest", "record.value_digest", "record.headers_digest").alias("digests"),
        F.when(is_extra, control).otherwise(-1).cast("bigint").alias("control"),
    )
    return record.select("occurrence_of.*", occurrence.alias("record"))


def without_garbled(records: DataFrame) -> DataFrame:
    """Returns the rows of `record_rows` whose origin can be read."""
    return where_computed(records, ~F.col("is_garbled")).drop("is_garbled")


@memoized
def _record() -> Column:
    record = F.struct(
        "target",
        F.col("place").alias("partition"),
        F.col("record_offset").alias("offset"),
        digest(F.col("key")).alias("key_digest"),
        digest(F.col("value")).alias("value_digest"),
        headers_digest(F.col("data")).alias("headers_digest"),
        *("due_ms", "id", "own_headers", "retry"),
    )
    return record.alias("record")


UNREADABLE = "place string, problem string"
"""The columns of `unreadable_dead_letters` and `unreadable_records`."""


def unreadable_dead_letters(records: DataFrame, requests_of: Mapping[str, str]) -> DataFrame:
    """Returns one row for each dead letter whose origin is unreadable, or not on the request topic of its dead-letter
    topic. The columns are UNREADABLE; `requests_of` is as in `dead_letter_rows`."""
    place = F.concat_ws("/", "topic", "partition", "offset")
    unreadable = where_computed(_dead_letters(records), ~_is_own_dead_letter(requests_of))
    return unreadable.select(place.alias("place"), _problem("a dead letter"))


def unreadable_records(records: DataFrame) -> DataFrame:
    """Returns the columns UNREADABLE for the rows of `record_rows` with an invalid `postdate-origin`."""
    place = F.concat_ws("/", "record.target", "record.partition", "record.offset")
    return where_computed(records, F.col("is_garbled")).select(place.alias("place"), _problem("a record"))


def _problem(what: str) -> Column:
    return F.lit(f"{what} whose origin cannot be read").alias("problem")


def _dead_letters(records: DataFrame) -> DataFrame:
    dead_letters = records.select(
        "topic", "partition", "offset", "key", "value", headers_or_empty(F.col("headers")).alias("headers")
    )
    return dead_letters.withColumn("origin", _dead_letter_origin())


def _is_own_dead_letter(requests_of: Mapping[str, str]) -> Column:
    own = F.create_map(*(F.lit(name) for pair in requests_of.items() for name in pair))
    return F.coalesce(F.col("origin.topic") == F.try_element_at(own, F.col("topic")), F.lit(False))


DEAD_LETTER_ROWS = (
    "topic string, partition int, offset bigint, letter struct<partition:int,offset:bigint,reason:string,"
    "key_digest:binary,value_digest:binary,headers_digest:binary,is_without_value:boolean,is_without_headers:boolean,"
    "unfounded:string,has_grace:boolean,has_retry:boolean,names_horizon:boolean,"
    "single_due_ms:bigint>"
)
"""The columns of `dead_letter_rows`."""


def dead_letter_rows(records: DataFrame, requests_of: Mapping[str, str], *, judges_refusals: bool = True) -> DataFrame:
    """Returns one row for each dead letter whose origin is on the request topic of its dead-letter topic: the origin,
    and a struct `letter`.

    `requests_of` maps each dead-letter topic to its request topic. Without `judges_refusals`, `unfounded` is null:
    refusals cannot be checked on topics with dialects, since the parameters of a request in a dialect are not in the
    headers that this function reads.
    """
    return _by_origin(_dead_letters(records), _is_own_dead_letter(requests_of), _dead_letter(judges_refusals))


@memoized
def _dead_letter_origin() -> Column:
    return parsed_origin(last_value(F.col("headers"), names.ORIGIN).cast("string"))


@memoized
def _dead_letter(judges_refusals: bool) -> Column:
    headers = F.col("headers")
    as_sent = F.when(
        F.size(headers) >= _DEAD_LETTER_HEADERS, F.slice(headers, 1, F.size(headers) - _DEAD_LETTER_HEADERS)
    )
    reason = last_value(headers, names.DEAD_REASON).cast("string")
    detail, origin = last_value(headers, names.DEAD_DETAIL).cast("string"), F.col("origin")
    unfounded = unfounded_refusal(reason, F.coalesce(as_sent, headers), origin.topic, origin.partition)
    unfounded = unfounded if judges_refusals else F.lit(None).cast("string")
    dead_letter = F.struct(
        F.col("partition"),
        F.col("offset"),
        reason.alias("reason"),
        digest(F.col("key")).alias("key_digest"),
        digest(F.col("value")).alias("value_digest"),
        headers_digest(as_sent).alias("headers_digest"),
        F.col("value").isNull().alias("is_without_value"),
        (F.size(headers) == _DEAD_LETTER_HEADERS).alias("is_without_headers"),
        unfounded.alias("unfounded"),
        has(F.coalesce(as_sent, headers), names.GRACE).alias("has_grace"),
        has(F.coalesce(as_sent, headers), names.RETRY).alias("has_retry"),
        F.coalesce(F.contains(detail, F.lit("horizon")), F.lit(False)).alias("names_horizon"),
        _single_due_ms(as_sent).alias("single_due_ms"),
    )
    return dead_letter.alias("letter")


def _single_due_ms(as_sent: Column) -> Column:
    """Returns the nominal time of a dead occurrence.

    The dead letter of an occurrence is a request for this occurrence alone, and its last header as sent is
    `postdate-at` with the nominal time. The result is null for the dead letter of a whole schedule. It need not be null
    for the dead letter of another message.
    """
    last = F.try_element_at(as_sent, F.lit(-1))
    is_single = (last.key == names.AT) & ~has(as_sent, names.CRON) & ~has(as_sent, names.EVERY)
    return F.when(is_single, natural(last.value.cast("string")))


def _by_origin(found: DataFrame, is_own: Column, row: Column) -> DataFrame:
    is_origin = F.col("origin.topic").isNotNull() & F.col("origin.offset").isNotNull()
    return where_computed(found, is_own & is_origin).select(
        F.col("origin.topic").alias("topic"),
        F.col("origin.partition").alias("partition"),
        F.col("origin.offset").alias("offset"),
        row,
    )
