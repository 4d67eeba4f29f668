"""The sides of an audit: what was asked, what became of it, what was delivered, buried and answered.

Folded into one row for each origin they can be kept between two audits; unfolded they are judged as if they had been
read from Kafka again.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from postdate.connectors.spark.by_origin import ORIGIN

_ANSWER = ("answer", "id", "of", "place")
_EFFECTS = ("fates", "records", "letters", "answers")


@dataclass(frozen=True)
class Sides:
    """One row for each request, fate, delivered record, dead letter and answer, as the modules of each make them."""

    requests: DataFrame
    fates: DataFrame
    delivered: DataFrame
    letters: DataFrame
    answers: DataFrame


def narrowed(sides: Sides, origins: DataFrame, *, has_records: bool) -> Sides:
    """What the sides have of `origins`, which are sent to every executor; `has_records`: whether any of them has a
    delivered record.

    One job a side: what was not kept is read again. The rows are kept with the executors until nobody speaks of them,
    and how they came about is forgotten: planning with it takes longer than judging.
    """

    def some(side: DataFrame) -> DataFrame:
        return side.join(F.broadcast(origins), list(ORIGIN), "left_semi").localCheckpoint()

    return Sides(
        some(sides.requests),
        some(sides.fates),
        some(sides.delivered) if has_records else sides.delivered.where(F.lit(False)),
        some(sides.letters),
        some(sides.answers.where(~F.col("malformed"))),
    )


def folded(sides: Sides, carried: DataFrame | None = None) -> DataFrame:
    """One row for each origin with all that is known of it.

    topic partition offset   the origin
    id                       of the request, null where it has none or was not read
    links                    offsets of its partition that it names, as a control, by its moves or by its answers
    facts                    `request`, `fates`, `records`, `letters`, `answers`
    was_carried told         whether `carried` has it, and the verdicts there

    `carried` are rows of a state, one for each origin. Cost: one shuffle of all rows.
    """
    columns = [name for name in sides.requests.columns if name not in ORIGIN]
    union = sides.requests.select(*ORIGIN, F.struct(*columns).alias("request"))
    sound = sides.answers.where(~F.col("malformed"))
    for side in (
        sides.fates.select(*ORIGIN, "fate"),
        sides.delivered.select(*ORIGIN, "record"),
        sides.letters.select(*ORIGIN, "letter"),
        sound.select(*ORIGIN, F.struct(*_ANSWER).alias("answer")),
    ):
        union = union.unionByName(side, allowMissingColumns=True)
    if carried is not None:
        union = union.unionByName(_carried(carried), allowMissingColumns=True)
    names = zip(("fate", "record", "letter", "answer"), _EFFECTS, strict=True)
    together = union.groupBy(*ORIGIN).agg(
        F.first("request", ignorenulls=True).alias("request"),
        *(F.collect_list(one).alias(many) for one, many in names),
        *([F.first("carried", ignorenulls=True).alias("carried")] if carried is not None else []),
    )
    return _named(together, carried is not None)


def state_schema(sides: Sides) -> StructType:
    """The columns of a state's table that an audit of such sides reads: to be told them takes Spark a job."""
    request = [field for field in sides.requests.schema if field.name not in ORIGIN]
    answer = StructType([sides.answers.schema[name] for name in _ANSWER])
    one_each = (
        *(side.schema[name].dataType for side, name in ((sides.fates, "fate"), (sides.delivered, "record"))),
        *(sides.letters.schema["letter"].dataType, answer),
    )
    lists = [StructField(name, ArrayType(one)) for name, one in zip(_EFFECTS, one_each, strict=True)]
    origin = [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
    ]
    return StructType(
        [
            *origin,
            StructField("id", BinaryType()),
            StructField("links", ArrayType(LongType())),
            StructField("facts", StructType([StructField("request", StructType(request)), *lists])),
            StructField("verdicts", ArrayType(StringType())),
            StructField("run", IntegerType()),
        ]
    )


def joined(rows: DataFrame, carried: DataFrame) -> DataFrame:
    """Rows as `folded` with those of `carried`, which have other origins or such as nothing was carried of before."""
    some = F.struct(F.col("facts"), F.col("told")).alias("carried")
    kept = rows.select(*ORIGIN, F.col("was_carried"), some)
    union = kept.unionByName(_carried(carried).withColumn("was_carried", F.lit(True)))
    together = union.groupBy(*ORIGIN).agg(
        F.first("carried.facts.request", ignorenulls=True).alias("request"),
        *(F.flatten(F.collect_list(f"carried.facts.{name}")).alias(name) for name in _EFFECTS),
        F.first("carried.told", ignorenulls=True).alias("told"),
        F.bool_or("was_carried").alias("was_carried"),
    )
    return _with_links(together, "told", "was_carried")


def unfolded(rows: DataFrame) -> Sides:
    """The sides again of rows as `folded`."""

    def each(array: str, name: str) -> DataFrame:
        return rows.select(*ORIGIN, F.explode(f"facts.{array}").alias(name))

    answers = each("answers", "answer").select(
        *ORIGIN, *(F.col(f"answer.{name}").alias(name) for name in _ANSWER), F.lit(False).alias("malformed")
    )
    return Sides(
        rows.where(F.col("facts.request").isNotNull()).select(*ORIGIN, "facts.request.*"),
        each("fates", "fate"),
        each("records", "record"),
        each("letters", "letter"),
        answers,
    )


def without_late(facts: Column) -> Column:
    """The facts without fates that were only read to settle doubts: the next audit reads them again."""
    return facts.withField("fates", F.filter(facts.fates, lambda fate: ~fate.late))


def _carried(rows: DataFrame) -> DataFrame:
    return rows.select(*ORIGIN, F.struct(F.col("facts"), F.col("verdicts").alias("told")).alias("carried"))


def _named(together: DataFrame, has_carried: bool) -> DataFrame:
    """Adds to what is new what was carried of the same origin."""
    if not has_carried:
        none = F.lit(None).cast("array<string>").alias("told")
        return _with_links(together.select("*", F.lit(False).alias("was_carried"), none), "told", "was_carried")
    facts, is_carried = F.col("carried.facts"), F.col("carried").isNotNull()
    all_of_it = {
        "request": F.coalesce("request", facts.request),
        **{name: F.when(is_carried, F.concat(facts[name], name)).otherwise(F.col(name)) for name in _EFFECTS},
        "was_carried": is_carried,
        "told": F.col("carried.told"),
    }
    return _with_links(together.withColumns(all_of_it), "told", "was_carried")


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
