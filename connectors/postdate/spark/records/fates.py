"""Converts records of dispatch logs to rows: the log itself, the breaks of its chain, and one row for each fate.

In nearly every record the fates come last and are spelled as Postdate spells them. A regular expression detects this
form and extracts the fates, and only the rest of the record is parsed as JSON, at a third of the cost. Of these fates,
only those with more than the single name `delivered` are checked value by value. In all other records, the fates are
parsed as `array<array<string>>`, and each value is cast; with a schema of structs, Spark would silently turn a wrong
fate, or malformed JSON, into nulls. If a record does not have the format, `parses` is false.

A fate is a text: `offset,due_ms` if its only other value is the name `delivered`, otherwise the values of its array in
the record. After `offset,due_ms` these are a single name such as `"dead"` or `"applied"`, or a name and more values, of
which `survivor` is the offset of the surviving request:

    "moved",new_due_ms,control_offset
    "paused",timestamp,control_offset and the same for "resumed" and "triggered"
                                                       of a schedule
    "delivered",chosen_ms and "dead",chosen_ms         of a message with a window
    "cancelled",control_offset                         by a bulk control
    "swept",count and "applied",count                  of a bulk control
    "kept",survivor and "dropped",survivor and "replaced",survivor and "replaced",survivor,start_ms
    "occurred",number,nominal_ms,next_ms               of a schedule; a row of `occurrence_fates`
    "skipped",first,last,"reason",next_ms              of a schedule; a row of `occurrence_fates`
    "extra",control,number,nominal_ms,next_ms          of a schedule; a row of `occurrence_fates`
    "extra-dead",control,number,nominal_ms,next_ms     of a schedule; a row of `occurrence_fates`
    "backfilled",timestamp,control,first_ms,end_ms     of a schedule

A named policy is a row of texts: first request, name, text.
"""

from __future__ import annotations

import secrets

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from postdate.spark.columns.expressions import memoized, natural, one_of
from postdate.wire.limits import POLICY_NAME_LENGTH_MAX, POLICY_ROWS_MAX, POLICY_TEXT_LENGTH_MAX

FINAL = ("delivered", "dead", "cancelled", "replaced", "kept", "dropped", "applied", "completed")
_EXTRAS = ("extra", "extra-dead")
_OCCURRENCES = ("occurred", "skipped", *_EXTRAS)
SWITCHES = ("paused", "resumed")
EXTENDING = ("triggered", "backfilled")
OF_CONTROLS = (*SWITCHES, *EXTENDING)
"""The names of the fates of a schedule that name a control and its timestamp."""
_OF_TIME = ("moved", *SWITCHES, "triggered")
OCCURRENCE_FATE = (
    "struct<number:bigint,last:bigint,reason:string,nominal_ms:bigint,next_ms:bigint,log_offset:bigint,place:int,"
    "at_ms:bigint,late:boolean,control:bigint>"
)
"""The fate of occurrences `number` to `last`, or of an extra delivery. `reason` is the reason of a skip, `dead` for a
dead extra delivery, otherwise null. For an extra delivery, `control` is the offset of the control that requested it,
and `number` counts the deliveries of this control. For an occurrence, `control` is -1."""
_PLACED = ("topic", "partition", "log_offset", "place", "at_ms", "late")
_SKIPS = ("missed", "paused", "gap", "grace", "dead")
_CHOSEN = ("delivered", "dead")
_COUNTED = ("swept", "applied")
_SURVIVED = ("replaced", "kept", "dropped")
# The bounds of a backfill, each with the index of its value in the fate.
_FILLED = ((5, "from"), (6, "until"))
_BY_EARLIER = ("kept", "dropped")
_KINDS = ("fates", "owner", "beat")
_VERSIONS = (1, 2, 3)
_VERSION_2, _VERSION_3 = 2, 3
# Encloses the record in an array with an end mark. Without the mark, Spark would ignore text after the record. No
# record can contain the mark, since its number is random.
_MARK = secrets.randbits(62)
_MARKED = ("[", f',{{"v":{_MARK}}}]')
_STRICT = {"allowSingleQuotes": "false"}
_JSON = (
    "ARRAY<STRUCT<v BIGINT, seq BIGINT, takeover BIGINT, instance STRING, `group` STRING, at BIGINT,"
    " next_request BIGINT, low_water BIGINT, kind STRING, fates STRING, policies STRING, ids STRING, tz STRING>>"
)
_ROWS = "array<array<string>>"
# Patterns of numbers in quotation marks, which Spark would cast like numbers. They apply to JSON as Spark writes it:
# within a text, it writes a backslash before each quotation mark.
_QUOTED_NUMBER, _QUOTED_FIRST = '"[0-9]', r'\[\["|\],\["'

# The texts before and after the fates if they are the last field, the text between two fates, the last value of most
# fates, and a pattern for a fate after another. Its group leaves out the name of a fate that only has the name
# `delivered`. A quote after a comma is not escaped, and the single brace after the fates ends the record. So a match is
# neither inside a text nor inside a nested field. With a greedy quantifier for the values, Java would recurse for each
# of them.
_BEGIN, _END, _BETWEEN, _DELIVERED = ',"fates":[[', "]]}", "],[", ',"delivered"'
_NATURAL = "(?:0|[1-9][0-9]{0,17}+)"
_VALUE = rf'(?:,{_NATURAL}|,"[a-z]++")'
_SINGLE, _NAMED = f"(?={_DELIVERED}(?!,))", f',"[a-z-]++"{_VALUE}*+'
_FATE = rf"\],\[({_NATURAL},{_NATURAL}(?:{_SINGLE}|{_NAMED}))(?:{_DELIVERED})?+"


def log_rows(records: DataFrame, fixed_ends: DataFrame) -> DataFrame:
    """Returns one row for each dispatch-log record, with the columns of `_log_columns`: among others its position,
    LogAppendTime, sequence number and fates, and `parses`.

    `fixed_ends` has a row for each partition of a request topic: `topic`, `partition`, `log_topic`, `log_end` (the
    fixed end of its dispatch-log partition) and `log_is_whole`. Records from `log_end` on are `late`: they serve only
    to resolve cases that the other records leave open.
    """
    for columns in _log_steps():
        records = records.select(*columns)
    places = fixed_ends.select("topic", "partition", "log_topic", "log_end", "log_is_whole")
    return records.join(F.broadcast(places), ["log_topic", "partition"]).select(*_log_columns())


@memoized
def _log_steps() -> list[list[Column]]:
    """Returns the columns of each step before the join with `fixed_ends`. Spark computes the columns of a step once for
    the next step."""
    value, head, body, texts, others = map(F.col, ("value", "head", "body", "texts", "others"))
    carried = [F.col(name) for name in ("log_topic", "partition", "log_offset", "at_ms", "is_broker_time", "value")]
    read = [
        F.col("topic").alias("log_topic"),
        F.col("partition"),
        F.col("offset").alias("log_offset"),
        F.unix_millis("timestamp").alias("at_ms"),
        (F.col("timestampType") == 1).alias("is_broker_time"),
        value,
        F.substring_index(value.cast("string"), _BEGIN, 1).alias("head"),
    ]
    # Positions are counted in bytes, since Spark would step through a text character by character.
    before, behind = F.octet_length(head) + len(_BEGIN), F.octet_length(value)
    inner = F.substring(value, before + 1, behind - before - len(_END)).cast("string")
    ends_so = F.endswith(value, F.lit(_END.encode()))
    first = F.concat(F.lit(_BETWEEN), F.when(ends_so, inner))
    # The lengths differ if the body contains any other text than fates.
    single = F.size(texts) - F.size(others)
    found = F.octet_length(F.array_join(texts, "")) + F.size(texts) * len(_BETWEEN) + single * len(_DELIVERED)
    is_spelled = F.col("is_spelled")
    without_fates = F.concat(head, F.lit(_BEGIN[:-1] + _END[1:]))
    one = F.when(is_spelled, without_fates).otherwise(value.cast("string"))
    return [
        read,
        [*carried, head, first.alias("body")],
        [*carried, head, body, F.regexp_extract_all(body, F.lit(_FATE), F.lit(1)).alias("texts")],
        [*carried, head, body, texts, F.filter(texts, _has_name).alias("others")],
        [*carried, head, texts, others, F.coalesce(found == F.octet_length(body), F.lit(False)).alias("is_spelled")],
        [
            *(*carried[:-1], texts, is_spelled, F.transform(others, _values).alias("others")),
            F.from_json(F.concat(F.lit(_MARKED[0]), one, F.lit(_MARKED[1])), _JSON, _STRICT).alias("records"),
        ],
        [
            *(*carried[:-1], texts, is_spelled, F.col("records")),
            F.when(is_spelled, others).otherwise(F.from_json(F.get("records", 0).fates, _ROWS)).alias("fates"),
        ],
    ]


@memoized
def _log_columns() -> list[Column]:
    record, is_spelled = F.get("records", 0), F.col("is_spelled")
    fates = F.coalesce(F.col("fates"), F.array().cast(_ROWS))
    is_of_rows = record.fates.isNull() | (F.col("fates").isNotNull() & ~record.fates.rlike(_QUOTED_NUMBER))
    has_version = (~F.exists(fates, _is_of_version_2) | (record.v >= _VERSION_2)) & (
        ~F.exists(fates, _recurs) | (record.v == _VERSION_3)
    )
    names_fates = (record.kind == "fates") == (is_spelled | (F.size(fates) > 0))
    holds_fates = names_fates & is_of_rows & F.forall(fates, _is_fate) & has_version
    rows = F.from_json(record.policies, _ROWS)
    policies = F.coalesce(rows, F.array().cast(_ROWS))
    is_of_policies = (record.v > 1) & F.size(rows).between(1, POLICY_ROWS_MAX) & F.forall(rows, _is_policy)
    is_of_policies &= ~record.policies.rlike(_QUOTED_FIRST)
    parses = (
        (F.size("records") == 2)
        & (F.get("records", 1).v == _MARK)
        & _is_whole(record)
        & (record.policies.isNull() | F.coalesce(is_of_policies, F.lit(False)))
        & (record.ids.isNull() | (record.v > 1))
        & holds_fates
    )
    return [
        *map(F.col, ("topic", "partition", "log_topic", "log_offset", "at_ms", "is_broker_time", "log_is_whole")),
        record.seq.alias("seq"),
        record.next_request.alias("next_request"),
        record.low_water.alias("low_water"),
        record.takeover.alias("takeover"),
        F.concat_ws(" of ", record.instance, record.group).alias("writer"),
        (record.kind == "owner").alias("is_owner"),
        (F.col("log_offset") >= F.col("log_end")).alias("late"),
        policies.alias("policies"),
        F.when(record.kind == "owner", record.tz).alias("zone_version"),
        (is_spelled & (F.size(fates) == 0)).alias("all_delivered"),
        F.when(is_spelled, F.col("texts")).otherwise(F.transform(fates, _fate_text)).alias("fates"),
        F.coalesce(parses, F.lit(False)).alias("parses"),
    ]


def fate_rows(log: DataFrame) -> DataFrame:
    """Returns one row for each fate in the records that parse, except those of occurrences and extra deliveries: the
    origin, and a struct `fate` that sorts by its position in the log. In a fate of OF_CONTROLS, `new_due_ms` is the
    timestamp of its control."""
    return _all_fate_rows(log).where(~one_of(F.col("fate.fate_name"), _OCCURRENCES))


def exceptional_fate_rows(log: DataFrame, since_ms: int | None) -> DataFrame:
    """Returns one row for each exceptional fate, those of occurrences included, in the records that parse.

    A fate is exceptional if it has more than the single name `delivered`, is late, or was appended at `since_ms` or
    later; None is no such time.
    """
    is_wanted = F.col("late") if since_ms is None else F.col("late") | (F.col("at_ms") >= since_ms)
    return _all_fate_rows(log, is_wanted)


def occurrence_fates(log: DataFrame) -> DataFrame:
    """Returns one row for each fate of occurrences or of an extra delivery in the records that parse: the origin, and a
    struct `fate` as OCCURRENCE_FATE. A skip of several occurrences is one fate."""
    texts = F.when(F.col("parses") & has_occurrences(), F.col("fates"))
    exploded = log.select("*", F.posexplode(texts).alias("place", "text"))
    split = exploded.select(*_PLACED, _values(F.col("text")).alias("values"))
    name, is_skip = F.get("values", 2), F.get("values", 2) == "skipped"
    is_extra = one_of(name, _EXTRAS)

    def number(place: int) -> Column:
        return F.get("values", place).try_cast("bigint")

    fate = F.struct(
        F.when(is_extra, number(4)).otherwise(number(3)).alias("number"),
        F.when(is_extra, number(4)).otherwise(F.greatest(number(3), F.when(is_skip, number(4)))).alias("last"),
        F.when(is_skip, F.get("values", 5)).when(name == _EXTRAS[1], F.lit("dead")).alias("reason"),
        F.when(is_skip, F.lit(0)).when(is_extra, number(5)).otherwise(number(4)).cast("bigint").alias("nominal_ms"),
        F.when(is_skip | is_extra, number(6)).otherwise(number(5)).alias("next_ms"),
        *("log_offset", "place", "at_ms", "late"),
        F.when(is_extra, number(3)).otherwise(-1).cast("bigint").alias("control"),
    )
    occurrences = split.where(one_of(name, _OCCURRENCES))
    return occurrences.select("topic", "partition", number(0).alias("offset"), fate.alias("fate"))


def has_occurrences() -> Column:
    """True if a row of the log has a fate of an occurrence or of an extra delivery."""
    has_some = F.exists("fates", lambda text: text.rlike(f'"(?:{"|".join(_OCCURRENCES)})"'))
    return ~F.col("all_delivered") & has_some


def _has_name(fate: Column) -> Column:
    return F.contains(fate, F.lit('"'))


def _all_fate_rows(log: DataFrame, is_wanted: Column | None = None) -> DataFrame:
    """Returns one row for each fate in the records that parse. With `is_wanted`, returns all fates of the records that
    satisfy it, and of other records only the fates with more than the name `delivered`.

    Spark would move a filter on `parses` below the projections that compute it, and repeat their expressions. Spark
    does not move a condition within a generator.
    """
    parses = F.col("parses") if is_wanted is None else F.col("parses") & (~F.col("all_delivered") | is_wanted)
    exploded = log.select("*", F.posexplode(F.when(parses, F.col("fates"))).alias("place", "fate"))
    if is_wanted is not None:
        exploded = exploded.where(is_wanted | _has_name(F.col("fate")))
    for columns in _fate_steps():
        exploded = exploded.select(*columns)
    return exploded


@memoized
def _fate_steps() -> list[list[Column]]:
    """Returns the columns of each of two steps: the first splits the texts of fates, the second builds `fate`."""
    text, values = F.col("fate"), F.col("values")
    carried = ("topic", "partition", "log_topic", "log_offset", "place", "at_ms", "next_request", "late", "takeover")
    named = [
        *map(F.col, carried),
        F.substring_index(text, ",", 1).try_cast("bigint").alias("offset"),
        F.substring_index(F.substring_index(text, ",", 2), ",", -1).try_cast("bigint").alias("first_due_ms"),
        F.when(_has_name(text), _values(text)).alias("values"),
    ]
    name, number, third = F.get(values, 2), F.get(values, 3).try_cast("bigint"), F.get(values, 4).try_cast("bigint")
    is_moved, is_survived = one_of(name, ("moved", *OF_CONTROLS)), one_of(name, _SURVIVED)
    is_filled = name == "backfilled"
    fate = F.struct(
        F.col("log_offset"),
        F.col("place"),
        F.coalesce(name, F.lit("delivered")).alias("fate_name"),
        F.col("first_due_ms"),
        F.when(is_moved, number).alias("new_due_ms"),
        F.when(is_moved, third).when(is_survived, number).alias("control_offset"),
        F.when(one_of(name, _CHOSEN), number).alias("chosen_ms"),
        F.col("at_ms"),
        F.col("next_request"),
        F.col("late"),
        F.concat_ws("/", "log_topic", "partition", "log_offset").alias("log_place"),
        F.when(name == "cancelled", number).alias("bulk_offset"),
        F.when(one_of(name, _COUNTED), number).alias("count"),
        F.when(is_survived, third).alias("series_ms"),
        *(
            F.when(is_filled, F.get(values, place).try_cast("bigint")).alias(f"filled_{bound}_ms")
            for place, bound in _FILLED
        ),
        F.when(one_of(name, ("swept", *OF_CONTROLS)), F.col("takeover")).alias("takeover"),
    )
    return [named, [F.col("topic"), F.col("partition"), F.col("offset"), fate.alias("fate")]]


def chain_breaks(log: DataFrame) -> DataFrame:
    """Returns one row for each break of the chain.

    A break is a record that does not parse, a gap or a repeat of `seq`, a whole log that does not begin with `seq` 1, a
    record by another writer than the last owner of the partition, or a takeover without exactly one owner record.

    Columns: topic and partition of the requests, `log_topic`, `log_offset`, `problem`. Cost: one sort of each
    partition's records, of which there is one for each transaction, not one for each message.
    """
    place = ["topic", "partition", "log_topic", "log_offset"]
    unparsed = log.where(~F.col("parses")).select(*place, F.lit("does not parse").alias("problem"))
    by_offset = Window.partitionBy("topic", "partition").orderBy("log_offset")
    linked = log.where("parses").withColumn("last", F.lag(F.struct("seq", "takeover", "writer")).over(by_offset))
    return unparsed.unionByName(linked.select(*place, _problem().alias("problem")).where("problem is not null"))


@memoized
def _problem() -> Column:
    """Returns the problem of a record whose predecessor is `last` (null for the first record); null if there is no
    problem."""
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


def _values(fate: Column) -> Column:
    """Returns the values of a fate from its text, all as texts."""
    return F.split(F.replace(fate, F.lit('"'), F.lit("")), ",")


def _fate_text(values: Column) -> Column:
    """Returns the text of a fate from its JSON values. Only the first name is in quotation marks, which each reader of
    the text removes."""
    name, more = F.get(values, 2), F.slice(values, 4, F.greatest(F.size(values) - 3, F.lit(0)))
    quoted = F.when((name != "delivered") | (F.size(values) > 3), F.concat(F.lit('"'), name, F.lit('"')))
    return F.concat_ws(",", F.slice(values, 1, 2), quoted, more)


def _is_whole(record: Column) -> Column:
    """True if all parts of a record except fates, policies and ids are valid; a null result means false."""
    names_writer = record.instance.isNotNull() & record.group.isNotNull() & (record.takeover >= 0) & (record["at"] >= 0)
    has_numbers = record.v.isin(*_VERSIONS) & (record.seq >= 1) & (record.low_water >= 0)
    return names_writer & has_numbers & (record.low_water <= record.next_request) & record.kind.isin(*_KINDS)


def _is_policy(values: Column) -> Column:
    """True if these JSON values are a row of a named policy."""
    name, text = F.get(values, 1), F.get(values, 2)
    is_bounded = F.length(name).between(1, POLICY_NAME_LENGTH_MAX) & (F.length(text) <= POLICY_TEXT_LENGTH_MAX)
    is_row = (F.size(values) == 3) & natural(F.get(values, 0)).isNotNull() & is_bounded
    return F.coalesce(is_row, F.lit(False))


def _is_fate(values: Column) -> Column:
    def number(index: int) -> Column:
        return natural(F.get(values, index))

    name = F.get(values, 2)
    is_moved = (F.size(values) == 5) & one_of(name, _OF_TIME) & number(3).isNotNull() & (number(0) < number(4))
    has_four, is_before = F.size(values) == 4, number(0) < number(3)
    is_chosen = has_four & one_of(name, (*_CHOSEN, *_COUNTED)) & number(3).isNotNull()
    is_bulk = has_four & (name == "cancelled") & is_before
    is_replaced = (name == "replaced") & is_before & (has_four | (number(4).isNotNull()))
    is_kept = has_four & one_of(name, _BY_EARLIER) & (number(3) < number(0))
    is_survived = F.size(values).between(4, 5) & (is_replaced | is_kept)
    is_other = (F.size(values) == 3) & one_of(name, (*FINAL, "stored")) & ~one_of(name, _BY_EARLIER)
    has_numbers = number(3).isNotNull() & number(4).isNotNull()
    is_occurred = (F.size(values) == 6) & (name == "occurred") & has_numbers & number(5).isNotNull()
    is_skipped = (F.size(values) == 7) & (name == "skipped") & has_numbers & number(6).isNotNull()
    is_skipped &= one_of(F.get(values, 5), _SKIPS)
    is_extra = (F.size(values) == 7) & one_of(name, _EXTRAS) & is_before & (number(4) > 0)
    is_extra &= number(5).isNotNull() & number(6).isNotNull()
    is_filled = (F.size(values) == 7) & (name == "backfilled") & number(3).isNotNull() & (number(0) < number(4))
    is_filled &= number(5) <= number(6)
    is_single = is_moved | is_chosen | is_bulk | is_survived | is_other
    is_known = is_single | is_occurred | is_skipped | is_extra | is_filled
    return F.coalesce(number(0).isNotNull() & number(1).isNotNull() & is_known, F.lit(False))


def _recurs(values: Column) -> Column:
    """True if only a schedule has such a fate, which requires version 3."""
    return one_of(F.get(values, 2), (*_OCCURRENCES, *OF_CONTROLS, "completed"))


def _is_of_version_2(values: Column) -> Column:
    """True if a fate has a chosen time or a survivor, or belongs to a bulk control: it requires version 2."""
    return (F.size(values) == 4) | ((F.size(values) == 5) & ~one_of(F.get(values, 2), _OF_TIME))
