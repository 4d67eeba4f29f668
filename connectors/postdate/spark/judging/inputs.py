"""The inputs of an audit: requests, fates, delivered records, dead letters and answers.

`folded` turns them into one row for each origin. A state stores such rows between two audits. `unfolded` turns rows
back into inputs, which are judged like inputs from Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from postdate.spark.columns.by_origin import ORIGIN, by_origin
from postdate.spark.columns.expressions import one_of
from postdate.spark.records.fates import EXTENDING
from postdate.spark.rules.ordering import DISORDER
from postdate.spark.rules.schedules.occurrences import POSITION, Events
from postdate.spark.session.caching import gathered

_ANSWER = ("answer", "id", "of", "place", "count", "by")
_EFFECTS = ("fates", "records", "letters", "answers", "disorders")
FACTS = ("request", *_EFFECTS)
"""The facts about an origin."""
_REPORTED = "struct<verdicts:array<string>,details:array<string>>"
_BESIDE = ("reported", "is_reopened", "position")


@dataclass(frozen=True)
class AuditInputs:
    """DataFrames with one row for each request, fate, delivered record, dead letter and answer, in the form of
    `spark.records`."""

    requests: DataFrame
    fates: DataFrame
    delivered: DataFrame
    dead_letters: DataFrame
    answers: DataFrame
    overtaken: tuple[DataFrame, ...] = ()
    """One row for each message out of order, in the form of `ordering`; empty if the order was not checked."""
    occurrences: Events | None = None
    """The occurrences of recurring schedules; None if there are none."""


def folded(inputs: AuditInputs, *, few: bool = False) -> DataFrame:
    """Returns one row for each origin with all its facts. Malformed answers are left out.

        topic partition offset   the origin
        id                       of the request, null if it has none or was not read
        links                    offsets that it names: as a control or a return, in its fates or in its answers
        facts                    `request`, `fates`, `records`, `letters`, `answers`, `disorders`
        is_reopened reported     false and null, since the row is not from a state; see `joined`
        position                 of a schedule with occurrences, as in `rules.schedules.occurrences`; otherwise null

    Cost: one shuffle and sort of all rows, of about 300 bytes each; no shuffle if there are `few` (`gathered`).
    """
    columns = [name for name in inputs.requests.columns if name not in ORIGIN]
    union = inputs.requests.select(*ORIGIN, F.struct(*columns).alias("request"))
    sound = inputs.answers.where(~F.col("malformed"))
    for rows in (
        inputs.fates.select(*ORIGIN, "fate"),
        inputs.delivered.select(*ORIGIN, "record"),
        inputs.dead_letters.select(*ORIGIN, "letter"),
        sound.select(*ORIGIN, F.struct(*_ANSWER).alias("answer")),
        *(rows.select(*ORIGIN, "disorder") for rows in inputs.overtaken),
    ):
        union = union.unionByName(rows, allowMissingColumns=True)
    if not inputs.overtaken:
        union = union.withColumn("disorder", F.lit(None).cast(DISORDER))
    names = zip(("fate", "record", "letter", "answer", "disorder"), _EFFECTS, strict=True)
    lists, position = {many: F.col(one) for one, many in names}, F.lit(None).cast(POSITION)
    if inputs.occurrences is not None:
        union = union.unionByName(inputs.occurrences.origins(), allowMissingColumns=True)
        lists["positions"], position = F.col("position"), F.get("positions", 0)
    together = by_origin(gathered(union, few=few), F.col("request"), lists)
    none = F.lit(None).cast(_REPORTED).alias("reported")
    rows = together.select("*", F.lit(False).alias("is_reopened"), none, position.alias("position"))
    return _with_links(rows, *_BESIDE)


def facts_schema(inputs: AuditInputs) -> StructType:
    """Returns the type of the column `facts` in rows of these inputs."""
    request = [field for field in inputs.requests.schema if field.name not in ORIGIN]
    answer = StructType([inputs.answers.schema[name] for name in _ANSWER])
    one_each = (
        *(rows.schema[name].dataType for rows, name in ((inputs.fates, "fate"), (inputs.delivered, "record"))),
        *(inputs.dead_letters.schema["letter"].dataType, answer, DataType.fromDDL(DISORDER)),
    )
    lists = [StructField(name, ArrayType(one)) for name, one in zip(_EFFECTS, one_each, strict=True)]
    return StructType([StructField("request", StructType(request)), *lists])


def joined(rows: DataFrame, reopened: DataFrame, *, few: bool) -> DataFrame:
    """Returns rows of `folded`, merged by origin with rows of a state.

    `facts` are merged. `position` comes from the state if the state has one, otherwise from `rows`. `reported` has
    the stored `verdicts` and `details`.
    """
    some = F.struct("facts", "reported").alias("row")
    of_state = F.struct(F.col("facts"), F.struct("verdicts", "details").alias("reported")).alias("row")
    union = rows.select(*ORIGIN, "is_reopened", some, "position").unionByName(
        reopened.select(*ORIGIN, F.lit(True).alias("is_reopened"), of_state, "position")
    )
    grouped = gathered(union, few=few).groupBy(*ORIGIN)
    together = grouped.agg(
        F.first("row.facts.request", ignorenulls=True).alias("request"),
        *(F.flatten(F.collect_list(f"row.facts.{name}")).alias(name) for name in _EFFECTS),
        F.first("row.reported", ignorenulls=True).alias("reported"),
        F.bool_or("is_reopened").alias("is_reopened"),
        F.max_by("position", F.struct(F.col("position").isNotNull(), "is_reopened")).alias("position"),
    )
    return _with_links(together, *_BESIDE)


def unfolded(rows: DataFrame) -> AuditInputs:
    """Returns the inputs from which `folded` would make these rows, without the occurrences of schedules.

    The `due_ms` of a schedule is its next due time (`_next_ms`). Requests also have `due_since`: the offset of the
    dispatch-log record that published the next nominal time of a schedule; null if there is none.
    """

    def each(array: str, name: str) -> DataFrame:
        return rows.select(*ORIGIN, F.explode(f"facts.{array}").alias(name))

    answers = each("answers", "answer").select(
        *ORIGIN, *(F.col(f"answer.{name}").alias(name) for name in _ANSWER), F.lit(False).alias("malformed")
    )
    due_ms = F.coalesce("facts.request.due_ms", _next_ms()).alias("due_ms")
    names: list[str] = rows.select("facts.request").schema[0].dataType.names  # type: ignore[attr-defined]
    request = (due_ms if name == "due_ms" else F.col(f"facts.request.{name}") for name in names)
    due_since = F.when(F.col("position.next_ms") > 0, F.col("position.log_offset")).alias("due_since")
    return AuditInputs(
        rows.where(F.col("facts.request").isNotNull()).select(*ORIGIN, *request, due_since),
        each("fates", "fate"),
        each("records", "record"),
        each("letters", "letter"),
        answers,
        (each("disorders", "disorder"),),
    )


def _next_ms() -> Column:
    """Returns the due time of a schedule for comparisons with a due range: the next nominal time.

    After the last occurrence, it is the timestamp of the first control with pending extra deliveries, or null if the
    fate of that control may be lost. It is 0 if nothing is pending.
    """
    pending = F.filter("position.extras", lambda extra: (extra.next_ms > 0) | (extra.log_offset < 0))
    first = F.array_min(F.transform(pending, lambda extra: extra["control"]))
    extending_fates = F.filter(
        "facts.fates", lambda fate: one_of(fate.fate_name, EXTENDING) & (fate.control_offset == first)
    )
    is_over = (F.col("position.next_ms") == 0) & first.isNull()
    return F.when(is_over, 0).otherwise(
        F.coalesce(F.nullif("position.next_ms", F.lit(0)), F.get(extending_fates, 0).new_due_ms)
    )


def without_late(facts: Column) -> Column:
    """Returns the facts without the `late` fates, which the next audit reads again."""
    return facts.withField("fates", F.filter(facts.fates, lambda fate: ~fate.late))


def _with_links(together: DataFrame, *kept: str) -> DataFrame:
    moved_by = F.transform("fates", lambda fate: F.coalesce(fate.control_offset, fate.bulk_offset))
    answered_of = F.transform("answers", lambda answer: answer.of)
    links = F.array_distinct(F.array_compact(F.concat(F.array("request.acts_on"), moved_by, answered_of)))
    return together.select(
        *ORIGIN,
        F.col("request.id").alias("id"),
        links.alias("links"),
        F.struct("request", *_EFFECTS).alias("facts"),
        *kept,
    )
