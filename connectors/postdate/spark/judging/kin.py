"""Finds the rows that are needed to judge other rows: those with the same id, and those of which one names the other.

All rows are as `sides.folded` creates them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from postdate.spark.columns.by_origin import ORIGIN, PARTITION

_KEY: Final = (*PARTITION, "key")


def context_rows(stored: DataFrame, around: DataFrame) -> DataFrame:
    """The rows of `stored` that are needed to judge the rows `around`, and are not among them."""
    origins = kin_origins(stored, around).join(around.select(*ORIGIN), list(ORIGIN), "left_anti")
    return stored.join(origins, list(ORIGIN), "left_semi")


def kin_origins(some: DataFrame, judged: DataFrame) -> DataFrame:
    """The origins in `some` that are needed to judge the rows `judged`, including these; hash collisions may add a few
    more.

    Kin are rows with the same id in a partition, and rows of which one names the other. Cost: one join of the origins,
    ids and links of `some` with those of `judged`; no other column of `some` is read.
    """
    offset, links, has_links = F.col("offset"), F.col("links"), F.size("links") > 0
    of_id = F.when(F.col("id").isNotNull(), _key("id", F.col("id")))
    # Only what has begun to end can have been named by a closed row.
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
    """A hash of a value by which an origin is found; different values collide only by chance."""
    return F.xxhash64(F.lit(kind), value)


def _keys(some: list[Column], more: Column) -> Column:
    none = F.array().cast("array<bigint>")
    return F.explode(F.array_compact(F.concat(F.array(*some), F.coalesce(more, none)))).alias("key")
