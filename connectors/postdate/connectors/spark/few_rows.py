"""Settings of a Spark session for as long as few rows are gone through.

Compiling a plan, and planning it anew after each of its stages, pays where many rows go through it. A step of an audit
that follows has some thousand: interpreted, and planned once, it takes less than half of the time (measured, in a JVM
that was just started a quarter). One thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from postdate.connectors.spark.limits import FEW_ROWS_MAX, FEW_ROWS_PARTITIONS

_FOR_FEW: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": str(FEW_ROWS_PARTITIONS),
}


@contextmanager
def suited(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    """A function that is told how many rows the plans go through that are made from then on.

    What the session was set to before holds for many, and again when the context ends.
    """
    before = {name: str(spark.conf.get(name)) for name in _FOR_FEW}

    def suit(rows: int) -> None:
        for name, value in (_FOR_FEW if rows <= FEW_ROWS_MAX else before).items():
            spark.conf.set(name, value)

    try:
        yield suit
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
