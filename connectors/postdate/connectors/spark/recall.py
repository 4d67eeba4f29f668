"""Of the origins that were closed in earlier audits, those that an audit needs again.

A closed origin is judged again when a fate, a record, a dead letter or an answer of it turns up (there is none, unless
somebody forges it). It is needed to judge *others* when it is kin, that is, has the id of a request that is judged, or
when one of the two names the other by its origin: then it is context, and nothing is said of it.

What is closed is looked through by origin, id and links alone; whole rows are read of what is found. Where nothing new
has an id or names another, nothing is looked through. All rows are as `sides.folded` makes them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from postdate.connectors.spark.by_origin import ORIGIN, PARTITION

_KEY = (*PARTITION, "key")


def stragglers(rows: DataFrame) -> DataFrame:
    """The origins of which something new tells, though they are neither new nor open; `rows` as of `placed`."""
    has_no_request = F.col("facts.request").isNull() & ~F.col("was_carried")
    return rows.where(has_no_request & (F.col("offset") < F.col("request_end"))).select(*ORIGIN)


def last_of_each(closed: DataFrame) -> DataFrame:
    """Of origins that were closed more than once, the row of the last `run`."""
    newest = Window.partitionBy(*ORIGIN).orderBy(F.desc("run"))
    return closed.withColumn("place", F.row_number().over(newest)).where("place = 1").drop("place")


def rows_at(closed: DataFrame, origins: DataFrame) -> DataFrame:
    """The rows of `closed` at `origins`."""
    return last_of_each(closed.join(origins, list(ORIGIN), "left_semi"))


def context_rows(closed: DataFrame, judged: DataFrame) -> DataFrame:
    """The rows of `closed` that are needed to judge the rows `judged`, and are not among them."""
    origins = kin_origins(closed, judged).join(judged.select(*ORIGIN), list(ORIGIN), "left_anti")
    return rows_at(closed, origins)


def kin_origins(some: DataFrame, judged: DataFrame) -> DataFrame:
    """The origins of `some` that are needed to judge the rows `judged`, themselves among them; some more by chance.

    Cost: one join of the origins, ids and links of `some`, which are read alone, with those of `judged`.
    """
    offset, links, has_links = F.col("offset"), F.col("links"), F.size("links") > 0
    of_id = F.when(F.col("id").isNotNull(), _key("id", F.col("id")))
    # Only what has begun to end can have been named by somebody who is closed.
    is_ending = (F.size("facts.fates") > 0) | (F.size("facts.answers") > 0)
    wanted = judged.select(
        *PARTITION,
        _keys(
            [of_id, _key("at", offset), F.when(is_ending, _key("names", offset))],
            F.when(has_links, F.transform(links, lambda link: _key("at", link))),
        ),
    ).distinct()
    names = F.when(has_links, F.transform(links, lambda link: _key("names", link)))
    found = some.select(*ORIGIN, _keys([of_id, _key("at", offset)], names))
    return found.join(wanted, list(_KEY), "left_semi").select(*ORIGIN).distinct()


def _key(kind: str, value: Column) -> Column:
    """A number for something by which an origin is found; two that are different have the same by chance only."""
    return F.xxhash64(F.lit(kind), value)


def _keys(some: list[Column], more: Column) -> Column:
    none = F.array().cast("array<bigint>")
    return F.explode(F.array_compact(F.concat(F.array(*some), F.coalesce(more, none)))).alias("key")
