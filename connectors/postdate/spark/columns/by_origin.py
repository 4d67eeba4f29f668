"""Groups rows of several kinds by origin: one row for each origin, with lists.

This uses a window instead of an aggregation: an origin has few rows of each kind, so partial aggregation before the
shuffle saves nothing, and Spark aggregates lists as objects, row by row (measured: half the processor time with a
window). Most origins of a long history are in consistent chunks and are not grouped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

PARTITION: Final = ("topic", "partition")
ORIGIN: Final = (*PARTITION, "offset")


def by_origin(rows: DataFrame, request: Column, lists: Mapping[str, Column]) -> DataFrame:
    """Returns one row for each origin: its `request`, which is null if no row has one, and for each of `lists` an array
    of the non-null values.

    Cost: one shuffle and one sort of the given rows.
    """
    # The offset comes first: it differs between rows, and comparing equal columns takes time.
    of_origin = Window.partitionBy(*reversed(ORIGIN)).orderBy(request.isNull())
    whole = of_origin.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    numbered = rows.select(
        *ORIGIN,
        request.alias("request"),
        F.row_number().over(of_origin).alias("number"),
        *(F.collect_list(value).over(whole).alias(name) for name, value in lists.items()),
    )
    return numbered.where("number = 1").drop("number")
