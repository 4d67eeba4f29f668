"""Records of dispatch logs to rows: the log itself, the breaks of its chain, and one row for each fate.

Fates are read as `array<array<string>>` and cast one by one: a schema of structs would turn a wrong one into nulls in
silence, and so does malformed JSON. Whatever is not of the format counts as a record that does not parse.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from postdate.connectors.spark.expressions import natural, one_of, remembered

FINAL = ("delivered", "dead", "cancelled", "replaced", "applied")
_KINDS = ("fates", "owner", "beat")
_JSON = (
    "v BIGINT, seq BIGINT, takeover BIGINT, instance STRING, `group` STRING, at BIGINT, next_request BIGINT,"
    " low_water BIGINT, kind STRING, fates ARRAY<ARRAY<STRING>>"
)


def log_rows(records: DataFrame, fixed_ends: DataFrame) -> DataFrame:
    """One row for each dispatch-log record: place, LogAppendTime, sequence number, fates, and whether it parses.

    `fixed_ends` has a row for each partition of a request topic: `topic`, `partition`, `log_topic` and `log_end`, the
    end that was fixed for its dispatch log; records from there on are `late`: only read to settle doubts.
    """
    placed, found = _log_columns()
    places = fixed_ends.select("topic", "partition", "log_topic", "log_end", "log_is_whole")
    return records.select(*placed).join(F.broadcast(places), ["log_topic", "partition"]).select(*found)


@remembered
def _log_columns() -> tuple[list[Column], list[Column]]:
    """The columns of each of two steps: what is named in one is worked out once for the next."""
    placed = [
        F.col("topic").alias("log_topic"),
        F.col("partition"),
        F.col("offset").alias("log_offset"),
        F.unix_millis("timestamp").alias("at_ms"),
        (F.col("timestampType") == 1).alias("is_broker_time"),
        F.from_json(F.col("value").cast("string"), _JSON).alias("record"),
    ]
    fates = F.when(F.col("record.kind") == "fates", F.col("record.fates")).otherwise(
        F.coalesce(F.col("record.fates"), F.array().cast("array<array<string>>"))
    )
    own = ("topic", "partition", "log_topic", "log_offset", "at_ms", "is_broker_time", "log_is_whole")
    found = [
        *map(F.col, own),
        F.col("record.seq").alias("seq"),
        F.col("record.next_request").alias("next_request"),
        F.col("record.low_water").alias("low_water"),
        F.col("record.takeover").alias("takeover"),
        F.concat_ws(" of ", "record.instance", "record.group").alias("writer"),
        (F.col("record.kind") == "owner").alias("is_owner"),
        (F.col("log_offset") >= F.col("log_end")).alias("late"),
        fates.alias("fates"),
        F.coalesce(_is_whole(F.col("record"), fates), F.lit(False)).alias("parses"),
    ]
    return placed, found


def fate_rows(log: DataFrame) -> DataFrame:
    """One row for each fate of the records that parse: the origin, and a struct `fate` that sorts by its place."""
    exploded = log.where("parses").select("*", F.posexplode("fates").alias("place", "values"))
    return exploded.select(*_fate_columns())


@remembered
def _fate_columns() -> list[Column]:
    values = F.col("values")
    fate = F.struct(
        F.col("log_offset"),
        F.col("place"),
        F.get(values, 2).alias("fate_name"),
        _number(values, 1).alias("first_due_ms"),
        _number(values, 3).alias("new_due_ms"),
        _number(values, 4).alias("control_offset"),
        F.col("at_ms"),
        F.col("next_request"),
        F.col("late"),
        F.concat_ws("/", "log_topic", "partition", "log_offset").alias("log_place"),
    )
    return [F.col("topic"), F.col("partition"), _number(values, 0).alias("offset"), fate.alias("fate")]


def chain_breaks(log: DataFrame) -> DataFrame:
    """One row for each break: a record that does not parse, a gap or a repeat of `seq`, a log that begins amiss, a
    record of another writer than the one that had taken the partition over last.

    Columns: topic and partition of the requests, `log_topic`, `log_offset`, `problem`. Cost: one sort of each
    partition's records, which are transactions, not messages.
    """
    place = ["topic", "partition", "log_topic", "log_offset"]
    unparsed = log.where(~F.col("parses")).select(*place, F.lit("does not parse").alias("problem"))
    by_offset = Window.partitionBy("topic", "partition").orderBy("log_offset")
    linked = log.where("parses").withColumn("last", F.lag(F.struct("seq", "takeover", "writer")).over(by_offset))
    return unparsed.unionByName(linked.select(*place, _problem().alias("problem")).where("problem is not null"))


@remembered
def _problem() -> Column:
    """What is wrong with a record behind the `last` one; null where nothing is."""
    last, seq, takeover = F.col("last"), F.col("seq"), F.col("takeover")
    before, of_takeover = last.seq, F.concat(F.lit("takeover "), takeover)
    names_writer = F.concat(of_takeover, F.lit(" of "), F.col("writer"))
    return (
        F.when(before.isNull() & F.col("log_is_whole") & (seq != 1), F.concat(F.lit("begins at seq "), seq))
        .when(seq <= before, F.concat(F.lit("seq "), seq, F.lit(" again, after "), before))
        .when(seq > before + 1, F.concat(F.lit("seq "), seq, F.lit(" leaves a gap after "), before))
        .when(takeover < last.takeover, F.concat(of_takeover, F.lit(" after takeover "), last.takeover))
        .when((takeover > last.takeover) & ~F.col("is_owner"), F.concat(of_takeover, F.lit(" has no owner record")))
        .when((takeover == last.takeover) & F.col("is_owner"), F.concat(of_takeover, F.lit(" is announced again")))
        .when(
            (takeover == last.takeover) & (F.col("writer") != last.writer),
            F.concat(names_writer, F.lit(", which is that of "), last.writer),
        )
    )


def _number(values: Column, index: int) -> Column:
    """A number of a fate, null where it has none there; that it is one is known of records that parse."""
    return F.get(values, index).try_cast("bigint")


def _is_whole(record: Column, fates: Column) -> Column:
    """Whether a record is of version 1 in all its parts; null counts as no."""
    names_writer = record.instance.isNotNull() & record.group.isNotNull() & (record.takeover >= 0) & (record["at"] >= 0)
    has_numbers = (record.v == 1) & (record.seq >= 1) & (record.low_water >= 0)
    is_ordered = record.low_water <= record.next_request
    names_fates = (record.kind == "fates") == (F.size(fates) > 0)
    return names_writer & has_numbers & is_ordered & record.kind.isin(*_KINDS) & names_fates & F.forall(fates, _is_fate)


def _is_fate(values: Column) -> Column:
    def number(index: int) -> Column:
        return natural(F.get(values, index))

    name = F.get(values, 2)
    is_moved = (F.size(values) == 5) & (name == "moved") & number(3).isNotNull() & (number(0) < number(4))
    is_other = (F.size(values) == 3) & one_of(name, (*FINAL, "stored"))
    return F.coalesce(number(0).isNotNull() & number(1).isNotNull() & (is_moved | is_other), F.lit(False))
