"""Caches rows until the end of a context, also after an error, and truncates the plans of cached rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from postdate.spark.limits import LOCAL_ROWS_MAX

_releases: ContextVar[ExitStack | None] = ContextVar("_releases", default=None)


def cached(rows: DataFrame) -> DataFrame:
    """Returns the same rows, cached until the caller unpersists them or the context of `released` ends."""
    rows.persist(StorageLevel.MEMORY_AND_DISK)
    releases = _releases.get()
    if releases is not None:
        releases.callback(rows.unpersist)
    return rows


def materialised(rows: DataFrame, *, few: bool = False) -> DataFrame:
    """Computes the rows now and returns them cached, as a DataFrame without their plan: planning with long plans takes
    longer than reading short tables. Spark recomputes lost cached rows, so executors may come and go.

    With `few`, up to LOCAL_ROWS_MAX small rows become part of the plan. The optimizer evaluates many expressions over
    them, and each task gets only its rows (measured: a quarter of the processor time of a small audit with a state). If
    there are more rows, they are computed a second time.

    Cost: one job. Without `few`, or with more rows, the rows stay in Spark's internal format, as for `foreachBatch`:
    other conversions of an RDD to a DataFrame create an object for each row, and generate code for that in each task
    (measured: a seventh of the processor time of a small audit). An internal row is valid until the next row is read,
    which suffices for a cache.
    """
    session: Any = rows.sparkSession._jsparkSession
    java_rows: Any = rows._jdf
    if few:
        head = java_rows.takeAsList(LOCAL_ROWS_MAX + 1)
        if len(head) <= LOCAL_ROWS_MAX:
            return DataFrame(session.createDataFrame(head, java_rows.schema()), rows.sparkSession)
    computed = java_rows.queryExecution().toRdd()
    table = cached(DataFrame(session.internalCreateDataFrame(computed, java_rows.schema(), False), rows.sparkSession))
    table.count()  # computes the rows, after which Spark knows their number
    return table


def gathered(rows: DataFrame, *, few: bool) -> DataFrame:
    """Returns the same rows, in one partition if they are `few`. Spark then needs no shuffle for later steps, and does
    not plan the rest of a query again after each shuffle."""
    return rows.coalesce(1) if few else rows


@contextmanager
def released() -> Iterator[None]:
    """Releases at the end of the context all rows that were `cached` in it."""
    with ExitStack() as releases:
        token = _releases.set(releases)
        try:
            yield
        finally:
            _releases.reset(token)
