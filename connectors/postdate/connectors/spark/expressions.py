"""Two building blocks of larger column expressions."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body(value)` with the value worked out once for each row, however often the body names it.

    Spark repeats an expression wherever it is named and finds repeats again only outside of conditions: texts of
    nested cases grow exponentially, and so do their costs (measured: an instant 22 times slower without this).
    """
    return F.get(F.transform(F.array(value), body), 0)


def natural(text: Column) -> Column:
    """A non-negative number in at most 19 ASCII digits below 2**63, as bigint; null for anything else."""
    return F.when(text.rlike(r"\A[0-9]{1,19}\z"), text.try_cast("bigint"))
