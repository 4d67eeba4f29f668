"""Converts records of request topics to rows: the parameters of each request, from its headers alone.

topic partition offset   the origin
request_ms               the record's timestamp, epoch ms
action target            as in the request; the action is `recurring` for a schedule with a cron expression or an
                         interval, and `schedule` for any other request that names no action
due_ms                   first due time, or the time `latest_ms` after the request if that is earlier; null if the
                         request names no time, several times, or an unreadable time
id                       the id in the request
acts_on                  the offset that a control or a return names by an origin in its partition; otherwise null
grace_ms                 the longest permitted lateness; null if there is no limit, or it is unreadable
window_ms                the length of the window; null if the request has no readable window
latest_ms                the latest due time, counted from the first request of its series; null if there is no limit,
                         or it is unreadable
keeps                    true if the request ends at once if another message of its id is pending
drops                    true if the request ends at once if a message of its id was delivered within the topic's window
partition_asked          the value of `postdate-partition`; null if it is absent or unreadable
retry                    of a return, as in `returns`; null for other requests
selected                 of a bulk control, as in `selections`; null for other requests
recurrence               of a schedule or a backfill: the headers that only these have; null for other requests
key_hash                 positive murmur2 of the target key; null for a null key
key_digest …             digests of the message: target key, value, headers that are not Postdate's
own_key_digest …         digests of the record as sent: record key, all headers; a dead letter repeats both
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.digests import (
    count_of,
    digest,
    first_value,
    has,
    headers_digest,
    headers_or_empty,
    is_postdate_header,
    joined_names,
    last_value,
    message_headers,
)
from postdate.spark.columns.expressions import memoized, natural
from postdate.spark.columns.murmur2 import positive_murmur2
from postdate.spark.columns.times import due_ms, duration_in, durations_ms
from postdate.spark.records.dialects import NO_DIALECTS, DialectOptions, read_by_the_parser
from postdate.spark.records.policies import with_policy_texts
from postdate.spark.records.recurrences import BACKFILL, RECURRING, recurrence_of, recurs
from postdate.spark.records.returns import RETRY, read_return, return_texts
from postdate.spark.records.selections import SELECTED, read_selection
from postdate.wire import headers as names

_ORIGIN = r"\A([^/]+)/(0|[1-9][0-9]{0,9})/(0|[1-9][0-9]{0,18})\z"

# The columns with texts of durations. The array `durations` has the durations in this order.
_DURATION_TEXTS: Final = ("delay", "grace_text", "window_text", "latest_text")

# The headers of nearly every request.
_USUAL = (names.TOPIC, *names.TIMES, names.ID)


def understood_rows(
    records: DataFrame,
    levels_ms: Sequence[int],
    dialects: DialectOptions = NO_DIALECTS,
    policies: DataFrame | None = None,
    *,
    reads_returns: bool = True,
) -> DataFrame:
    """Returns one row, as described above, for each record of request topics, with the message instead of its digests.
    The message is `key`, `value` and `data`, its headers without Postdate's. `own_key` and `headers` are those of the
    record as sent.

    `levels_ms` is the level table of the topics; `policies` are the named policies of returns (`policy_table`), None if
    there are none. If the topics have dialects, Python parses the requests that may use one (`records.dialects`), and
    Spark reads the records twice.

    Without `reads_returns`, a return has no due time and no parent, and every field of its `retry` is null. This
    suffices to count returns, and most histories have no returns.
    """
    if dialects.are_on:
        others = records.where(~_is_in_own_headers())
        read = read_by_the_parser(others, levels_ms, dialects)
        records = records.where(_is_in_own_headers())
        own = understood_rows(records, levels_ms, NO_DIALECTS, policies, reads_returns=reads_returns)
        return own.unionByName(read)
    steps = (_split_columns(), _place_columns(), _text_columns(reads_returns), _duration_columns())
    for columns in (*steps, _understood_columns(tuple(levels_ms))):
        records = records.select(*columns)
    if not reads_returns:
        return records.select(*_counted_columns())
    if policies is None:
        records = records.withColumn("policy_text", F.lit(None).cast("string"))
    else:
        records = with_policy_texts(records, policies)
    for columns in _return_columns():
        records = records.select(*columns)
    return records


def _is_in_own_headers() -> Column:
    """True if a record uses no dialect: it has a value and at least one header, and all headers are Postdate's. A
    return uses no dialect either, and may have any headers."""
    headers = headers_or_empty(F.col("headers"))
    is_plain = (F.size(headers) > 0) & F.forall(headers, is_postdate_header) & F.col("value").isNotNull()
    return is_plain | has(headers, names.RETRY)


def parsed_origin(text: Column) -> Column:
    """Parses the text of an origin to a struct of topic, partition, offset; all are null if the text is not an
    origin."""
    topic, partition, offset = _origin_parts(text)
    is_sound = _is_origin(text, topic, partition, offset)
    return F.struct(
        F.when(is_sound, topic).alias("topic"),
        F.when(is_sound, partition).alias("partition"),
        F.when(is_sound, offset).alias("offset"),
    )


def origin_steps(carried: Sequence[str], text: str, names: Sequence[str]) -> list[list[Column]]:
    """Returns the columns of three steps that parse the text of an origin in the column `text`. The result has the
    columns `carried`, and the parts of the origin by these `names`; all parts are null if the text is not an origin.

    This costs half as much as `parsed_origin`: Spark computes an expression several times if one step uses it several
    times.
    """
    parts = [part.alias(name) for part, name in zip(_origin_parts(F.col(text)), names, strict=True)]
    is_origin = _is_origin(F.col(text), *map(F.col, names)).alias(text)
    return [
        [*map(F.col, (*carried, text)), *parts],
        [*map(F.col, (*carried, *names)), is_origin],
        [*map(F.col, carried), *(F.when(F.col(text), F.col(name)).alias(name) for name in names)],
    ]


def _origin_parts(text: Column) -> tuple[Column, Column, Column]:
    topic = F.substring_index(text, "/", 1)
    partition = F.substring_index(F.substring_index(text, "/", 2), "/", -1).try_cast("int")
    return topic, partition, F.substring_index(text, "/", -1).try_cast("bigint")


def _is_origin(text: Column, topic: Column, partition: Column, offset: Column) -> Column:
    """True if `text` with these parts is an origin.

    The regular expression, which takes ten times as long, applies only if the comparison of the parts fails.
    """
    is_spelled = (F.concat_ws("/", topic, partition, offset) == text) & (topic != "") & (partition >= 0) & (offset >= 0)
    return F.coalesce(is_spelled, F.lit(False)) | F.coalesce(text.rlike(_ORIGIN), F.lit(False))


@memoized
def _split_columns() -> list[Column]:
    """Returns the columns of the first step: the record, and `data`, the headers of the message without Postdate's."""
    headers = headers_or_empty(F.col("headers"))
    return [
        *map(F.col, ("topic", "partition", "offset", "key", "value")),
        F.unix_millis("timestamp").alias("request_ms"),
        headers.alias("headers"),
        message_headers(headers).alias("data"),
    ]


@memoized
def _place_columns() -> list[Column]:
    """Returns the columns of the second step: the record, the position of each header of usual requests, and
    `is_usual`, which is true if a request has no other header of Postdate and none of these twice."""
    headers = F.col("headers")
    places = {name: F.array_position(headers.getField("key"), name).cast("int") for name in _USUAL}
    found = reduce(Column.__add__, ((place > 0).cast("int") for place in places.values()))
    return [
        *map(F.col, ("topic", "partition", "offset", "request_ms", "key", "value", "headers", "data")),
        *(place.alias(name) for name, place in places.items()),
        (F.size(headers) - F.size("data") == found).alias("is_usual"),
    ]


@memoized
def _text_columns(reads_returns: bool) -> list[Column]:
    """Returns the columns of the third step: the relevant header values, in a separate step so that Spark looks up each
    of them once."""
    headers, is_usual = F.col("headers"), F.col("is_usual")

    def placed(name: str) -> Column:
        return F.get(headers.getField("value"), F.col(name) - 1)

    def rare(name: str) -> Column:
        return F.when(~is_usual, first_value(headers, name).cast("string"))

    given = reduce(Column.__add__, ((F.col(name) > 0).cast("int") for name in names.TIMES))
    times = F.when(is_usual, given).otherwise(count_of(headers, names.TIMES))
    has_key = ~is_usual & has(headers, names.KEY)
    return [
        *map(F.col, ("topic", "partition", "offset", "request_ms", "value", "headers", "data")),
        F.col("key").alias("own_key"),
        F.when(has_key, first_value(headers, names.KEY)).otherwise(F.col("key")).alias("key"),
        F.coalesce(F.when(~is_usual, _rare_action(headers)), F.lit("schedule")).alias("action"),
        placed(names.TOPIC).cast("string").alias("target"),
        *(
            F.when(times == 1, placed(name).cast("string")).alias(name.removeprefix(names.PREFIX))
            for name in names.TIMES
        ),
        rare(names.PARTITION).alias("partition_text"),
        rare(names.ORIGIN).alias("origin_text"),
        rare(names.GRACE).alias("grace_text"),
        rare(names.WINDOW).alias("window_text"),
        rare(names.LATEST).alias("latest_text"),
        F.coalesce(rare(names.IF_PENDING) == "keep", F.lit(False)).alias("keeps"),
        F.coalesce(rare(names.IF_ENDED) == "drop", F.lit(False)).alias("drops"),
        placed(names.ID).alias("id"),
        F.when(~is_usual, return_texts(headers) if reads_returns else has(headers, names.RETRY)).alias("return_texts"),
        F.when(~is_usual, read_selection(headers)).alias("selected"),
        F.when(~is_usual, recurrence_of(headers)).alias("recurrence"),
    ]


def _rare_action(headers: Column) -> Column:
    """Returns the action of any request, including recurring schedules."""
    action = F.coalesce(_action(headers), F.lit("schedule"))
    return F.when(recurs(headers) & (action == "schedule"), RECURRING).otherwise(action)


def _action(headers: Column) -> Column:
    """Returns the last action that a request names; null if it names none.

    If a header name is not UTF-8, the sidecar cannot read any header, so the request names no action. Spark decodes
    such a name with U+FFFD.
    """
    action = last_value(headers, names.ACTION).cast("string")
    return F.when(action.isNotNull() & ~joined_names(headers).contains("\ufffd"), action)


@memoized
def _duration_columns() -> list[Column]:
    """Returns all columns, and the array `durations`, the result of `durations_ms`."""
    return [F.col("*"), durations_ms([F.col(name) for name in _DURATION_TEXTS]).alias("durations")]


@memoized
def _understood_columns(levels_ms: Sequence[int]) -> list[Column]:
    acts_on = parsed_origin(F.col("origin_text"))
    is_here = (acts_on.topic == F.col("topic")) & (acts_on.partition == F.col("partition"))
    is_control = F.col("action").isin("cancel", "reschedule", "pause", "resume", "trigger", BACKFILL)
    at, delay, level, request_ms = F.col("at"), F.col("delay"), F.col("level"), F.col("request_ms")
    delay_ms, grace_ms, window_ms, latest_ms = (
        duration_in(F.col("durations"), place, F.col(name)) for place, name in enumerate(_DURATION_TEXTS)
    )
    return [
        *map(F.col, ("topic", "partition", "offset", "request_ms", "action", "target", "id")),
        due_ms(at, delay, delay_ms, level, request_ms, levels_ms).alias("due_ms"),
        grace_ms.alias("grace_ms"),
        window_ms.alias("window_ms"),
        latest_ms.alias("latest_ms"),
        F.col("keeps"),
        F.col("drops"),
        F.when(is_control & is_here, acts_on.offset).alias("acts_on"),
        natural(F.col("partition_text")).alias("partition_asked"),
        *map(F.col, ("key", "value", "data", "own_key", "headers")),
        F.when(F.col("action") == "schedule", F.col("return_texts")).alias("return_texts"),
        F.when(is_control, F.col("selected")).cast(SELECTED).alias("selected"),
        F.when(F.col("action").isin(RECURRING, BACKFILL), F.col("recurrence")).alias("recurrence"),
    ]


def _limited_due_ms() -> Column:
    """Returns the latest possible due time of a request. If an earlier request began the series, the due time may be
    earlier."""
    due_ms, latest_ms = F.col("due_ms"), F.col("latest_ms")
    limit_ms = F.col("request_ms") + latest_ms
    return F.when(due_ms.isNotNull() & latest_ms.isNotNull(), F.least(due_ms, limit_ms)).otherwise(due_ms)


_KEPT: Final = ("topic", "partition", "offset", "request_ms", "action", "target", "id")
_BESIDE: Final = (
    *("grace_ms", "window_ms", "latest_ms", "keeps", "drops"),
    *("partition_asked", "key", "value", "data", "own_key", "headers", "selected"),
    "recurrence",
)


@memoized
def _counted_columns() -> list[Column]:
    """Returns the columns of `understood_rows` if returns are only counted."""
    is_return = F.col("return_texts")
    none = F.from_json(F.lit("{}"), RETRY)
    return [
        *map(F.col, _KEPT),
        F.when(is_return, None).otherwise(_limited_due_ms()).alias("due_ms"),
        F.col("acts_on"),
        F.when(is_return, none).alias("retry"),
        *map(F.col, _BESIDE),
    ]


@memoized
def _return_columns() -> tuple[list[Column], list[Column]]:
    """Returns the columns of two steps: the first reads returns, the second derives their due times and parents."""
    texts, own_origin = F.col("return_texts"), F.concat_ws("/", "topic", "partition", "offset")
    retry = read_return(texts, F.col("policy_text"), own_origin, F.col("request_ms"))
    parent = parsed_origin(texts.origin)
    is_here = (parent.topic == F.col("topic")) & (parent.partition == F.col("partition"))
    acts_on = F.when(is_here, parent.offset).otherwise(F.col("acts_on"))
    due_ms = F.when(texts.isNull(), _limited_due_ms()).otherwise(F.col("retry.due_ms"))
    return (
        [*map(F.col, (*_KEPT, "due_ms", "acts_on", *_BESIDE, "return_texts")), retry.alias("retry")],
        [
            *map(F.col, _KEPT),
            *(
                due_ms.alias("due_ms"),
                acts_on.alias("acts_on"),
                F.col("retry").dropFields("due_ms").cast(RETRY).alias("retry"),
            ),
            *map(F.col, _BESIDE),
        ],
    )


def digested_requests(understood: DataFrame) -> DataFrame:
    """Returns the rows of `understood_rows` with digests instead of the message."""
    return understood.select(*digested_columns())


@memoized
def digested_columns() -> list[Column]:
    """Returns the columns of `digested_requests`."""
    return [
        *map(F.col, ("topic", "partition", "offset", "request_ms", "action", "target", "id")),
        *map(F.col, ("due_ms", "grace_ms", "acts_on", "partition_asked")),
        positive_murmur2(F.col("key")).alias("key_hash"),
        digest(F.col("key")).alias("key_digest"),
        digest(F.col("value")).alias("value_digest"),
        headers_digest(F.col("data")).alias("headers_digest"),
        digest(F.col("own_key")).alias("own_key_digest"),
        headers_digest(F.col("headers")).alias("own_headers_digest"),
        # New columns come last, since the tables of an older state get them at the end.
        *map(F.col, ("window_ms", "retry", "selected", "latest_ms", "keeps", "drops", "recurrence")),
    ]
