"""The inputs of an audit: requests, fates, delivered records, dead letters and answers.

Folded into one row for each origin they can be stored between two audits; unfolded they are judged as if they had been
read from Kafka again.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.rules.ordering import DISORDER

_ANSWER = ("answer", "id", "of", "place")
_EFFECTS = ("fates", "records", "letters", "answers", "disorders")
FACTS = ("request", *_EFFECTS)
"""What is known of an origin."""
_TOLD = "struct<verdicts:array<string>,details:array<string>>"


@dataclass(frozen=True)
class AuditInputs:
    """One row for each request, fate, delivered record, dead letter and answer, as the module of each creates them."""

    requests: DataFrame
    fates: DataFrame
    delivered: DataFrame
    letters: DataFrame
    answers: DataFrame
    overtaken: tuple[DataFrame, ...] = ()
    """One row for each message out of order, as `ordering` finds them; empty if nobody looked."""


def narrowed(sides: AuditInputs, origins: DataFrame, *, has_records: bool) -> AuditInputs:
    """The rows of these `origins`, which are broadcast to every executor. `has_records`: whether any of them has a
    delivered record.

    One job per input: data that is not cached is read again. The rows are stored with the executors as long as they are
    referenced, and their lineage is cut, since planning with it takes longer than judging.
    """

    def some(side: DataFrame) -> DataFrame:
        return side.join(F.broadcast(origins), list(ORIGIN), "left_semi").localCheckpoint()

    return AuditInputs(
        some(sides.requests),
        some(sides.fates),
        some(sides.delivered) if has_records else sides.delivered.where(F.lit(False)),
        some(sides.letters),
        some(sides.answers.where(~F.col("malformed"))),
        tuple(some(side) for side in sides.overtaken),
    )


def folded(sides: AuditInputs) -> DataFrame:
    """One row for each origin with everything known about it.

    topic partition offset   the origin
    id                       of the request, null if it has none or was not read
    links                    offsets of its partition that it names, as a control, by its moves or by its answers
    facts                    `request`, `fates`, `records`, `letters`, `answers`, `disorders`
    was_carried told         false and null: not from a state, see `joined`

    Cost: one shuffle of all rows.
    """
    columns = [name for name in sides.requests.columns if name not in ORIGIN]
    union = sides.requests.select(*ORIGIN, F.struct(*columns).alias("request"))
    sound = sides.answers.where(~F.col("malformed"))
    for side in (
        sides.fates.select(*ORIGIN, "fate"),
        sides.delivered.select(*ORIGIN, "record"),
        sides.letters.select(*ORIGIN, "letter"),
        sound.select(*ORIGIN, F.struct(*_ANSWER).alias("answer")),
        *(side.select(*ORIGIN, "disorder") for side in sides.overtaken),
    ):
        union = union.unionByName(side, allowMissingColumns=True)
    if not sides.overtaken:
        union = union.withColumn("disorder", F.lit(None).cast(DISORDER))
    names = zip(("fate", "record", "letter", "answer", "disorder"), _EFFECTS, strict=True)
    together = union.groupBy(*ORIGIN).agg(
        F.first("request", ignorenulls=True).alias("request"),
        *(F.collect_list(one).alias(many) for one, many in names),
    )
    none = F.lit(None).cast(_TOLD).alias("told")
    return _with_links(together.select("*", F.lit(False).alias("was_carried"), none), "told", "was_carried")


def facts_schema(sides: AuditInputs) -> StructType:
    """The type of `facts` in rows of these inputs."""
    request = [field for field in sides.requests.schema if field.name not in ORIGIN]
    answer = StructType([sides.answers.schema[name] for name in _ANSWER])
    one_each = (
        *(side.schema[name].dataType for side, name in ((sides.fates, "fate"), (sides.delivered, "record"))),
        *(sides.letters.schema["letter"].dataType, answer, DataType.fromDDL(DISORDER)),
    )
    lists = [StructField(name, ArrayType(one)) for name, one in zip(_EFFECTS, one_each, strict=True)]
    return StructType([StructField("request", StructType(request)), *lists])


def joined(rows: DataFrame, carried: DataFrame) -> DataFrame:
    """Rows as of `folded`, merged by origin with rows of a state: their `facts`, and the stored `verdicts` and
    `details` as `told`."""
    some = F.struct("facts", "told").alias("carried")
    of_state = F.struct(F.col("facts"), F.struct("verdicts", "details").alias("told")).alias("carried")
    union = rows.select(*ORIGIN, "was_carried", some).unionByName(
        carried.select(*ORIGIN, F.lit(True).alias("was_carried"), of_state)
    )
    together = union.groupBy(*ORIGIN).agg(
        F.first("carried.facts.request", ignorenulls=True).alias("request"),
        *(F.flatten(F.collect_list(f"carried.facts.{name}")).alias(name) for name in _EFFECTS),
        F.first("carried.told", ignorenulls=True).alias("told"),
        F.bool_or("was_carried").alias("was_carried"),
    )
    return _with_links(together, "told", "was_carried")


def unfolded(rows: DataFrame) -> AuditInputs:
    """The inverse of `folded`."""

    def each(array: str, name: str) -> DataFrame:
        return rows.select(*ORIGIN, F.explode(f"facts.{array}").alias(name))

    answers = each("answers", "answer").select(
        *ORIGIN, *(F.col(f"answer.{name}").alias(name) for name in _ANSWER), F.lit(False).alias("malformed")
    )
    return AuditInputs(
        rows.where(F.col("facts.request").isNotNull()).select(*ORIGIN, "facts.request.*"),
        each("fates", "fate"),
        each("records", "record"),
        each("letters", "letter"),
        answers,
        (each("disorders", "disorder"),),
    )


def without_late(facts: Column) -> Column:
    """The facts without fates that were read only to settle doubts: the next audit reads them again."""
    return facts.withField("fates", F.filter(facts.fates, lambda fate: ~fate.late))


def _with_links(together: DataFrame, *kept: str) -> DataFrame:
    moved_by = F.transform("fates", lambda fate: fate.control_offset)
    answered_of = F.transform("answers", lambda answer: answer.of)
    links = F.array_distinct(F.array_compact(F.concat(F.array("request.acts_on"), moved_by, answered_of)))
    return together.select(
        *ORIGIN,
        F.col("request.id").alias("id"),
        links.alias("links"),
        F.struct("request", *_EFFECTS).alias("facts"),
        *kept,
    )
