"""Groups rows of several kinds by their origin: one row for each, with lists.

It uses a window instead of an aggregation: an origin has few rows of each kind, so partial aggregation before the
shuffle saves nothing, and Spark aggregates lists as objects, row by row (measured: half the processor time with a
window). Most origins of a long history are in consistent chunks and never get here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

PARTITION: Final = ("topic", "partition")
ORIGIN: Final = (*PARTITION, "offset")


def by_origin(rows: DataFrame, request: Column, lists: Mapping[str, Column]) -> DataFrame:
    """One row for each origin: its `request`, null if no row has one, and the non-null values of each of `lists`.

    Cost: one shuffle and one sort of the given rows.
    """
    # The offset first: it distinguishes rows, and comparing equal columns takes time.
    of_origin = Window.partitionBy(*reversed(ORIGIN)).orderBy(request.isNull())
    all_of_it = of_origin.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    numbered = rows.select(
        *ORIGIN,
        request.alias("request"),
        F.row_number().over(of_origin).alias("number"),
        *(F.collect_list(each).over(all_of_it).alias(name) for name, each in lists.items()),
    )
    return numbered.where("number = 1").drop("number")
