"""The rows of the table `origins`: their derivation from judged rows, and the conditions for judging them again.

A row is in one of three states. The table is partitioned by state and due day:

    pending     it has not ended; judged again when a new record names it, or when it is overdue
    doubtful    hidden records may decide it, or its effects were read before its request; judged again by each run
    closed      its verdicts are final; judged again only if a new record names it

`facts` are the input of the rules if the row is judged again (`inputs.folded`). A delivered, plain row has no `facts`:
the audit has compared its message, and the other columns suffice.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, DateType, LongType, StringType, StructField, StructType

from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.columns.expressions import memoized, one_of
from postdate.spark.judging.inputs import FACTS, without_late
from postdate.spark.judging.origin_rows import JUDGEMENT
from postdate.spark.records.recurrences import RECURRING
from postdate.spark.rules.mismatches import expected_headers
from postdate.spark.rules.schedules.numbered_deliveries import ZONE_VERSION
from postdate.spark.rules.schedules.occurrences import POSITION, without_judged_dead_letters
from postdate.spark.rules.verdicts import ENDINGS, FINDINGS, INFORMATION, VIOLATIONS
from postdate.spark.state.delta import TableForm

PENDING, DOUBTFUL, CLOSED = "pending", "doubtful", "closed"
"""The states of a row."""
STATE_COLUMNS: Final = (
    *("request_end", "log_capped", "letters_capped", "answers_capped", "target_capped"),
    *("id", "links", "facts", "reported", "is_reopened", "plain", "position", "occurrences"),
)
"""The columns that `judged_rows` needs besides those of the judgement."""
_DAY_MS, _LAST_MS, _EPOCH = 86_400_000, 253_402_300_799_999, date(1970, 1, 1)
_GONE: Final = ("request-expired", "target-expired", "target-recreated", "target-younger")
_FOR_GOOD: Final = (
    *(name for name in ENDINGS if name != "pending"),
    *FINDINGS,
    *_GONE,
    "overtaken",
    "policy-unknown",
    ZONE_VERSION,
)
_JUDGED: Final = tuple(name for name in JUDGEMENT if name != "is_fate_lost")


def form_of(facts: StructType) -> TableForm:
    """Returns the form of the table for rows with the type `facts`."""
    judged = StructType.fromDDL(", ".join(f"{name} {JUDGEMENT[name]}" for name in _JUDGED))
    assert isinstance(judged, StructType), "a judgement has columns"
    origin = StructType.fromDDL("topic string, partition int, offset bigint")
    assert isinstance(origin, StructType), "an origin has columns"
    links = StructType.fromDDL("links array<bigint>")
    assert isinstance(links, StructType), "links are a column"
    fields = [
        *origin,
        StructField("state", StringType()),
        StructField("due_day", DateType()),
        StructField("outcome", StringType()),
        *judged,
        StructField("run", LongType()),
        StructField("id", BinaryType()),
        *links,
        StructField("facts", facts),
        StructField("position", DataType.fromDDL(POSITION)),
    ]
    # Delta records the minimum and maximum of these columns for each file.
    measured = {"delta.dataSkippingStatsColumns": "topic,partition,offset,last_due_ms,request_ms,run"}
    return TableForm(StructType(fields), ("state", "due_day"), measured)


def judged_rows(judged: DataFrame, run: int) -> DataFrame:
    """Returns the rows of the table for judged rows and rows that lie ahead, with STATE_COLUMNS.

    Further columns are `occurrences`, `is_reopened`, `is_reported`, `is_fate_lost`, the earlier verdicts `reported`,
    and `new_findings`. A row lies ahead if its effects were read before its request. A finding is new unless the last
    run that judged the row found the same verdict with the same details. `is_reported` is true if the row has findings,
    and none of them is new.
    """
    findings, earlier = _findings("verdicts", "details"), _findings("reported.verdicts", "reported.details")
    new = F.coalesce(F.array_except(findings, earlier), findings)
    is_reported = F.coalesce((F.size(findings) > 0) & (F.size(new) == 0), F.lit(False))
    return judged.select(
        *ORIGIN,
        _state().alias("state"),
        _due_day().alias("due_day"),
        _outcome().alias("outcome"),
        *_JUDGED,
        F.lit(run).cast("bigint").alias("run"),
        "id",
        "links",
        F.when(~F.col("plain").eqNullSafe("delivered"), _kept_facts()).alias("facts"),
        *("position", "occurrences", "is_reopened", "is_fate_lost"),
        F.col("reported.verdicts").alias("reported"),
        new.alias("new_findings"),
        is_reported.alias("is_reported"),
    )


def _kept_facts() -> Column:
    facts = without_late(F.col("facts"))
    return F.when(F.col("position").isNull(), facts).otherwise(without_judged_dead_letters(facts))


def pending_rows(requests: DataFrame, facts: StructType, run: int) -> DataFrame:
    """Returns the rows for `requests`, rows of `digested_requests` that have no effects and are not overdue."""
    names = [name for name in requests.columns if name not in ORIGIN]
    kinds = {column.name: column.dataType for column in facts}
    values = {
        "target": F.col("target"),
        "first_due_ms": F.col("due_ms"),
        "last_due_ms": F.col("due_ms"),
        "action": F.lit("schedule"),
        "request_ms": F.col("request_ms"),
        "verdicts": F.array(F.lit("pending")),
    }
    effects = (F.array().cast(kinds[name]).alias(name) for name in FACTS if name != "request")
    facts_of_requests = F.struct(F.struct(*names).alias("request"), *effects).alias("facts")
    rows = requests.select(*ORIGIN, *_judgement(values), "id", facts_of_requests)
    return _placed(rows, PENDING, run).repartitionByRange("due_day", "last_due_ms")


def delivered_rows(fates: DataFrame, run: int) -> DataFrame:
    """Returns the rows for delivered requests of consistent chunks.

    `fates` has the columns of the origin, `fate` as in `fate_rows`, `target`, `id` and `request_ms`.
    """
    fate = F.col("fate")
    values = {
        "target": F.col("target"),
        "first_due_ms": fate.first_due_ms,
        "last_due_ms": fate.first_due_ms,
        "action": F.lit("schedule"),
        "request_ms": F.col("request_ms"),
        "fate": F.lit("delivered"),
        "lateness_ms": fate.at_ms - fate.first_due_ms,
        "ended_ms": fate.at_ms,
        "fates": F.array(F.concat(F.lit("delivered "), fate.log_place)),
        "verdicts": F.array(F.lit("delivered")),
    }
    return _placed(fates.select(*ORIGIN, *_judgement(values), "id"), CLOSED, run)


def stored_rows(table: DataFrame, facts: StructType) -> DataFrame:
    """Returns rows of the table in the form that `judging.origin_rows` reads.

    The columns are the origin, `id`, `links`, `facts`, `verdicts`, `details`, `state`, `due_day` and `position`.
    """
    return table.select(
        *(*ORIGIN, "id", F.coalesce("links", F.array().cast("array<bigint>")).alias("links")),
        F.coalesce(F.col("facts"), _facts_of_plain(facts)).alias("facts"),
        *("verdicts", "details", "state", "due_day", "position"),
    )


def recorded_due_day() -> Column:
    """Returns the day on which the first fate or record of an origin was due, or for a schedule the day of its earliest
    new occurrence.

    The row of the origin is in the partition of the table with this day, unless the message was rescheduled. The day is
    null if there is no fate, no record and no occurrence.
    """
    first_due_ms, due_ms = F.get("facts.fates", 0).first_due_ms, F.get("facts.records", 0).due_ms
    return _day_of(F.coalesce("position.next_ms", first_due_ms, due_ms))


def is_due(before_ms: int) -> Column:
    """True if a pending row is overdue. The condition reads only the partitions of days that have begun."""
    due_ms = F.coalesce("last_due_ms", "request_ms", F.lit(0).cast("bigint"))
    has_begun = F.col("due_day") <= F.lit(datetime.fromtimestamp(before_ms / 1_000, UTC).date())
    return (F.col("state") == PENDING) & has_begun & (due_ms < before_ms)


def _placed(rows: DataFrame, state: str, run: int) -> DataFrame:
    """Returns the rows with the columns `state`, `due_day`, `outcome` and `run`."""
    return rows.select(
        "*",
        F.lit(state).alias("state"),
        _due_day().alias("due_day"),
        _outcome().alias("outcome"),
        F.lit(run).cast("bigint").alias("run"),
    )


def _judgement(given: dict[str, Column]) -> list[Column]:
    """Returns the judged columns of rows without problems. A column that is not given is an empty list or null."""
    none = {name: F.array() if JUDGEMENT[name].startswith("array") else F.lit(None) for name in _JUDGED}
    return [(none | given)[name].cast(JUDGEMENT[name]).alias(name) for name in _JUDGED]


def _facts_of_plain(facts: StructType) -> Column:
    """Returns the facts of a plain, delivered row, from its other columns.

    The digests are null, since an earlier run has compared them. A comparison with null finds no difference.
    """
    none = F.lit(None)
    kinds: dict[str, Any] = {column.name: column.dataType for column in facts}
    due_ms, at_ms = F.col("first_due_ms"), F.col("ended_ms")
    log_place = F.element_at(F.split(F.get("fates", 0), " "), -1)
    request = {
        **{"request_ms": F.col("request_ms"), "action": F.lit("schedule"), "target": F.col("target")},
        **{"id": F.col("id"), "due_ms": due_ms},
    }
    fate = {
        **{"log_offset": F.substring_index(log_place, "/", -1), "place": F.lit(0), "fate_name": F.lit("delivered")},
        **{"first_due_ms": due_ms, "at_ms": at_ms, "late": F.lit(False), "log_place": log_place},
    }
    at = F.get("records", 0)
    record = {
        **{"target": F.col("target"), "due_ms": due_ms, "id": F.col("id")},
        **{"partition": F.element_at(F.split(at, "/"), -2), "offset": F.substring_index(at, "/", -1)},
        "own_headers": expected_headers(F.col("id")),
    }
    given = {"request": request, "fates": fate, "records": record}

    def filled(kind: StructType, values: dict[str, Column]) -> Column:
        return F.struct(*(values.get(column.name, none).cast(column.dataType).alias(column.name) for column in kind))

    columns = []
    for name, kind in kinds.items():
        if name == "request":
            filled_column = filled(kind, given[name])
        elif name in given:
            filled_column = F.array(filled(kind.elementType, given[name]))
        else:
            filled_column = F.array().cast(kind)
        columns.append(filled_column.alias(name))
    return F.struct(*columns)


def _findings(verdicts: str, details: str) -> Column:
    """Returns the findings among these verdicts, each with its detail; null without verdicts."""
    pairs = F.zip_with(
        verdicts, details, lambda verdict, detail: F.struct(verdict.alias("verdict"), detail.alias("detail"))
    )
    return F.filter(pairs, lambda pair: one_of(pair.verdict, FINDINGS))


def _holds(verdicts: Sequence[str]) -> Column:
    """True if the verdicts of a row contain one of these; null if the row was not judged."""
    return F.exists("verdicts", lambda verdict: verdict.isin(*verdicts))


@memoized
def _outcome() -> Column:
    """Returns the outcome that follows from the verdicts; null for a row that lies ahead."""
    return (
        F.when(F.col("verdicts").isNull(), F.lit(None).cast("string"))
        .when(_holds(VIOLATIONS), "violated")
        .when(_holds(INFORMATION), "not verifiable")
        .when(_holds(("pending",)), "pending")
        .otherwise("verified")
    )


def _day_of(at_ms: Column) -> Column:
    """Returns the UTC day of a time, null for null. A time after the year 9999 gets the last day of that year."""
    bounded = F.least(F.greatest(at_ms, F.lit(0)), F.lit(_LAST_MS))
    return F.when(at_ms.isNotNull(), F.date_add(F.lit(_EPOCH), F.floor(bounded / _DAY_MS).cast("int")))


@memoized
def _due_day() -> Column:
    """Returns the UTC day of the due time in force; without one, the day of the request; without a request, the day of
    the end; otherwise the epoch."""
    return F.coalesce(_day_of(F.coalesce("last_due_ms", "request_ms", "ended_ms")), F.lit(_EPOCH))


@memoized
def _state() -> Column:
    """Returns the state of a row.

    A row is closed if no later audit of the same records would judge it differently: its verdicts are final, no record
    that decided it is hidden or will be read again, and the requests were read at least as far as the owner had read
    them when the row ended. Its request may have left its topic, since the table has its facts.
    """
    hidden = [F.col(f"{name}_capped") for name in ("log", "letters", "answers", "target")]
    is_hidden = reduce(Column.__or__, (F.coalesce(is_capped, F.lit(False)) for is_capped in hidden))
    fates = F.col("facts.fates")
    has_late = F.exists(fates, lambda fate: fate.late)
    was_read = F.forall(fates, lambda fate: F.coalesce(fate.next_request <= F.col("request_end"), F.lit(True)))
    is_for_good = F.forall("verdicts", lambda verdict: verdict.isin(*_FOR_GOOD))
    # A later run judges an open schedule again when its next occurrence is overdue, whatever earlier runs found. It
    # also judges an open message that an unread control has moved, until a run finds the message missing.
    is_moved = F.col("action").isNotNull() & _holds(("request-expired",)) & ~_holds(("missing",))
    is_open = ((F.col("action") == RECURRING) | is_moved) & F.col("fate").isNull()
    is_pending = F.array_contains("verdicts", "pending") | F.coalesce(is_open, F.lit(False))
    # The dispatch-log record of a fate contains the policy. Without a fate, a later record may contain it.
    may_be_known = _holds(("policy-unknown",)) & F.col("fate").isNull()
    position = F.col("position")
    waits = (F.size(position.waiting_fates) > 0) | (F.size(position.waiting_records) > 0)
    may_be_known = may_be_known | F.coalesce(waits, F.lit(False))
    return (
        F.when(F.col("verdicts").isNull() | has_late | ~was_read | may_be_known, DOUBTFUL)
        .when(is_pending, PENDING)
        .when(is_for_good & ~is_hidden, CLOSED)
        .otherwise(DOUBTFUL)
    )
