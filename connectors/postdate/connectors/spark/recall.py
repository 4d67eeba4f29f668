"""Of the origins that were closed in earlier audits, those that an audit needs again.

A closed origin is judged again when a fate, a record, a dead letter or an answer of it turns up (there is none, unless
somebody forges it). It is needed to judge *others* when it is kin, that is, has the id of a request that is judged, or
when one of the two names the other by its origin: then it is context, and nothing is said of it.

What is closed is looked through by origin, id and links alone; whole rows are read of what is found. Where nothing new
has an id or names another, nothing is looked through. All rows are as `sides.folded` makes them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from postdate.connectors.spark.by_origin import ORIGIN, PARTITION
from postdate.connectors.spark.sides import linked

_BY_ID = (*PARTITION, "id")


def straggling(fresh: DataFrame, opened: DataFrame | None, partitions: DataFrame) -> DataFrame:
    """The origins that something new tells of, though they are neither new nor open."""
    ends = partitions.select(*PARTITION, "request_end")
    told = fresh.where(F.col("facts.request").isNull()).select(*ORIGIN)
    hit = told.join(F.broadcast(ends), list(PARTITION)).where(F.col("offset") < F.col("request_end")).select(*ORIGIN)
    return hit if opened is None else hit.join(opened.select(*ORIGIN), list(ORIGIN), "left_anti")


def last_of_each(closed: DataFrame) -> DataFrame:
    """Of origins that were closed more than once, the row of the last `run`."""
    newest = Window.partitionBy(*ORIGIN).orderBy(F.desc("run"))
    return closed.withColumn("place", F.row_number().over(newest)).where("place = 1").drop("place")


def rows_at(closed: DataFrame, origins: DataFrame) -> DataFrame:
    """The rows of `closed` at `origins`."""
    return last_of_each(closed.join(origins, list(ORIGIN), "left_semi"))


def context_origins(closed: DataFrame, judged: DataFrame) -> DataFrame:
    """The origins of `closed` that are needed to judge the rows `judged`, and are not among them.

    Cost: three joins with the origins, ids and links of `closed`, which are read alone.
    """
    index = closed.select(*ORIGIN, "id", "links")
    ids = judged.where(F.col("id").isNotNull()).select(*_BY_ID).distinct()
    # Only what has begun to end can have been named by somebody who is closed.
    ending = judged.where((F.size("facts.fates") > 0) | (F.size("facts.answers") > 0)).select(*ORIGIN)
    naming = index.where(F.size("links") > 0).select(*ORIGIN, F.explode("links").alias("named"))
    named = ending.withColumnRenamed("offset", "named")
    found = (
        index.join(ids, list(_BY_ID), "left_semi")
        .select(*ORIGIN)
        .unionByName(index.join(linked(judged), list(ORIGIN), "left_semi").select(*ORIGIN))
        .unionByName(naming.join(named, [*PARTITION, "named"], "left_semi").select(*ORIGIN))
    )
    return found.distinct().join(judged.select(*ORIGIN), list(ORIGIN), "left_anti")
