"""Rows of several kinds brought together by their origin: one row for each, with lists.

By a window and not by an aggregation: an origin has few rows of each kind, so folding rows before the shuffle saves
nothing, and Spark folds lists in objects, one row at a time (measured: half the processor time without that). What is
numerous and plain never comes here: see `sieve`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

PARTITION: Final = ("topic", "partition")
ORIGIN: Final = (*PARTITION, "offset")


def by_origin(rows: DataFrame, request: Column, lists: Mapping[str, Column]) -> DataFrame:
    """One row for each origin: its `request`, null where no row has one, and of each of `lists` what is not null.

    Cost: one shuffle and one sort of the rows given.
    """
    # The offset first: it tells rows apart, and comparing what is equal takes time.
    of_origin = Window.partitionBy(*reversed(ORIGIN)).orderBy(request.isNull())
    all_of_it = of_origin.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    numbered = rows.select(
        *ORIGIN,
        request.alias("request"),
        F.row_number().over(of_origin).alias("number"),
        *(F.collect_list(each).over(all_of_it).alias(name) for name, each in lists.items()),
    )
    return numbered.where("number = 1").drop("number")
