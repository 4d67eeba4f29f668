"""The rows of a report: upcoming messages and past deliveries, from requests, fates and the store topic.

A message is ahead if its request is on its topic or on the store topic, and has no final fate. This includes requests
that no sidecar has read yet, even if they will be refused. A control takes effect here when a sidecar has carried it
out. As in the audit, the lateness is the LogAppendTime of the dispatch-log record minus the due time. The due time of a
message with a window is its chosen time, taken from its final fate or its record on the store topic, or computed from
its origin. The functions map DataFrames to DataFrames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.columns.digests import headers_or_empty, last_value
from postdate.spark.columns.expressions import byte_length, natural
from postdate.spark.columns.times import draw_ms
from postdate.spark.output.lateness import PERCENTILES
from postdate.spark.records.fates import FINAL
from postdate.spark.session.caching import materialised
from postdate.wire.headers import DUE, MOVED, STORED

HOUR_MS: Final = 3_600_000
BY: Final = ("all", "hour", "target", "partition")
"""The kinds of groups. The `name` of a group is the start of the hour in epoch ms, the target, or topic and
partition."""


def ended_rows(fates: DataFrame) -> DataFrame:
    """Returns one row for each origin with a fate: its first final fate `end`, null if there is none, and `due_ms`
    according to the fates.

    `due_ms` is the chosen time, otherwise the due time of the last move, otherwise the first due time; null if none is
    known. Cost: one shuffle of fates.
    """
    row = F.struct(
        *(f"fate.{name}" for name in ("log_offset", "place", "fate_name", "first_due_ms", "new_due_ms", "at_ms")),
        *("fate.chosen_ms", "fate.control_offset"),
    )
    together = (
        fates.select(*ORIGIN, row.alias("row")).groupBy(*ORIGIN).agg(F.sort_array(F.collect_list("row")).alias("rows"))
    )
    end = F.get(F.filter("rows", lambda fate: fate.fate_name.isin(*FINAL)), 0)
    moved = F.try_element_at(F.filter("rows", lambda fate: fate.fate_name == "moved"), F.lit(-1))
    first_ms = F.nullif(F.get("rows", 0).first_due_ms, F.lit(0).cast("bigint"))
    return together.select(
        *ORIGIN,
        end.fate_name.alias("end"),
        end.at_ms.alias("ended_ms"),
        moved.new_due_ms.alias("moved_ms"),
        moved.control_offset.alias("moved_by"),
        F.coalesce(end.chosen_ms, moved.new_due_ms, first_ms).alias("due_ms"),
    )


def stored_rows(records: DataFrame, requests_of: Mapping[str, str]) -> DataFrame:
    """Returns the requests in the store topics: origin, `target`, `due_ms`, `size_bytes`, `chosen_ms`.

    `requests_of` gives the request topic of each store topic.
    """
    headers = headers_or_empty(F.col("headers"))
    own = F.create_map(*(F.lit(name) for pair in requests_of.items() for name in pair))
    due, moved = (natural(last_value(headers, name).cast("string")) for name in (DUE, MOVED))
    meaning = last_value(headers, STORED).cast("string")
    # A schedule with only extra deliveries left has no due time; its next delivery is the earliest of them.
    due_ms = F.when(moved == 0, natural(F.get_json_object(meaning, "$.occurrence[1]"))).otherwise(moved)
    read = records.select(
        F.try_element_at(own, F.col("topic")).alias("topic"),
        "partition",
        natural(F.col("key").cast("string")).alias("request"),
        F.struct(
            "offset",
            F.col("value").isNotNull().alias("is_there"),
            F.get_json_object(meaning, "$.target").alias("target"),
            F.coalesce(due_ms, due).alias("due_ms"),
            _size_bytes(F.col("key"), F.col("value"), headers).alias("size_bytes"),
            natural(F.get_json_object(meaning, "$.window[1]")).alias("chosen_ms"),
        ).alias("record"),
    )
    last = read.groupBy("topic", "partition", F.col("request").alias("offset")).agg(F.max("record").alias("record"))
    kept = last.where("record.is_there")
    return kept.select(*ORIGIN, *(f"record.{name}" for name in ("target", "due_ms", "size_bytes", "chosen_ms")))


def sized_requests(requests: DataFrame) -> DataFrame:
    """Returns for each request: origin, `action`, `target`, `due_ms`, `size_bytes` of the record, `window_ms`,
    `is_return`. `requests` has the rows of `understood_rows`.

    Cost: one job, which parses all `requests` before a filter applies. Otherwise Spark moves the filter to the records,
    and parses them a second time for it (measured: five times as long).
    """
    size, is_return = _size_bytes(F.col("own_key"), F.col("value"), F.col("headers")), F.col("retry").isNotNull()
    columns = ("action", "target", "due_ms", size.alias("size_bytes"), "window_ms", is_return.alias("is_return"))
    return materialised(requests.select(*ORIGIN, *columns))


def schedule_requests(sized: DataFrame) -> DataFrame:
    """Returns the schedule requests with a target and a due time: origin, `target`, `due_ms`, `size_bytes`,
    `window_ms`."""
    return sized.where("action = 'schedule' AND target IS NOT NULL AND due_ms IS NOT NULL").drop("action", "is_return")


def upcoming_rows(requests: DataFrame, stored: DataFrame, ended: DataFrame) -> DataFrame:
    """Returns one row for each message that is ahead: origin, `target`, `due_ms`, `size_bytes`, `is_stored`.

    The parameters are the results of `schedule_requests`, `stored_rows` and `ended_rows`.
    """
    kept = stored.withColumn("is_stored", F.lit(True))
    both = requests.withColumn("is_stored", F.lit(False)).unionByName(kept, allowMissingColumns=True)
    once = both.groupBy(*ORIGIN).agg(
        F.max_by("target", "is_stored").alias("target"),
        F.max_by("due_ms", "is_stored").alias("requested_ms"),
        F.max("size_bytes").alias("size_bytes"),
        F.max("is_stored").alias("is_stored"),
        *(F.max(name).alias(name) for name in ("window_ms", "chosen_ms")),
    )
    fates = ended.select(*ORIGIN, "end", "moved_ms", "moved_by")
    open_still = once.join(fates, list(ORIGIN), "left").where("end IS NULL")
    drawn_ms = draw_ms(F.col("window_ms"), F.col("topic"), F.col("partition"), F.coalesce("moved_by", "offset"))
    due_ms = F.coalesce(F.col("chosen_ms"), F.coalesce("moved_ms", "requested_ms") + drawn_ms)
    return open_still.select(*ORIGIN, "target", due_ms.alias("due_ms"), "size_bytes", "is_stored")


def past_rows(requests: DataFrame, ended: DataFrame, since_ms: int | None) -> DataFrame:
    """Returns one row for each message delivered from `since_ms` on: origin, `target`, `due_ms`, `ended_ms`,
    `lateness_ms`. The target is null if the request has left its topic."""
    delivered = ended.where("end = 'delivered' AND due_ms IS NOT NULL")
    if since_ms is not None:
        delivered = delivered.where(F.col("ended_ms") >= since_ms)
    named = delivered.join(requests.select(*ORIGIN, "target"), list(ORIGIN), "left")
    return named.select(
        *ORIGIN, "target", "due_ms", "ended_ms", (F.col("ended_ms") - F.col("due_ms")).alias("lateness_ms")
    )


def load_table(ahead: DataFrame) -> DataFrame:
    """Returns the upcoming load by `by` and `name`: `messages`, `size_bytes`. Cost: one shuffle of partial sums."""
    return (
        _grouped(ahead)
        .groupBy("by", "name")
        .agg(F.count("*").alias("messages"), F.sum("size_bytes").cast("bigint").alias("size_bytes"))
    )


def lateness_table(behind: DataFrame) -> DataFrame:
    """Returns the lateness by `by` and `name`: `messages`, percentiles (nearest rank, exact) and `max`."""
    exact = (
        F.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY lateness_ms)").alias(name)
        for name, share in PERCENTILES
    )
    return (
        _grouped(behind)
        .groupBy("by", "name")
        .agg(F.count("*").alias("messages"), *exact, F.max("lateness_ms").alias("max"))
    )


def _grouped(rows: DataFrame) -> DataFrame:
    """Returns each row once for each kind of group in `BY`."""
    hour = F.col("due_ms") - F.pmod("due_ms", F.lit(HOUR_MS).cast("bigint"))
    names: dict[str, Column] = {
        "all": F.lit("all"),
        "hour": hour.cast("string"),
        "target": F.coalesce("target", F.lit("unknown")),
        "partition": F.concat_ws("/", "topic", "partition"),
    }
    groups = F.array(*(F.struct(F.lit(by).alias("by"), names[by].alias("name")) for by in BY))
    return rows.withColumn("group", F.explode(groups)).select("group.*", *rows.columns)


def _size_bytes(key: Column, value: Column, headers: Column) -> Column:
    sizes = F.transform(headers, lambda header: F.octet_length(header.key) + byte_length(header.value))
    headers_size_bytes = F.aggregate(sizes, F.lit(0), lambda total, size: total + size)
    return (byte_length(key) + byte_length(value) + headers_size_bytes).cast("bigint")
