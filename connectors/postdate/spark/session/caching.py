"""Caches rows until the end of a context, also if it ends with an error, and cuts the plans of cached rows."""

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
    """The same rows, cached until somebody releases them or the context of `released` ends."""
    rows.persist(StorageLevel.MEMORY_AND_DISK)
    releases = _releases.get()
    if releases is not None:
        releases.callback(rows.unpersist)
    return rows


def materialised(rows: DataFrame, *, few: bool = False) -> DataFrame:
    """The same rows, computed now and kept, as a DataFrame that forgets how: planning with long plans takes longer than
    reading short tables. Cached rows that are lost are computed again, so executors may come and go.

    With `few`, up to LOCAL_ROWS_MAX small rows become part of the plan: the optimizer computes much of what is made of
    them, and tasks get only their rows (measured: a quarter of the processor time of a small audit with a state). If
    there are more, what was computed up to there is lost.

    Cost: one job. More rows are taken in Spark's own form, as Spark does for `foreachBatch`: other ways from an RDD to
    a DataFrame make an object of each row, and generate code for that in each task (measured: a seventh of the
    processor time of a small audit). Such a row is valid until the next one is read, which suffices for a cache.
    """
    session: Any = rows.sparkSession._jsparkSession
    found: Any = rows._jdf
    if few:
        head = found.takeAsList(LOCAL_ROWS_MAX + 1)
        if len(head) <= LOCAL_ROWS_MAX:
            return DataFrame(session.createDataFrame(head, found.schema()), rows.sparkSession)
    computed = found.queryExecution().toRdd()
    table = cached(DataFrame(session.internalCreateDataFrame(computed, found.schema(), False), rows.sparkSession))
    table.count()  # from then on Spark knows how many they are
    return table


def gathered(rows: DataFrame, *, few: bool) -> DataFrame:
    """The same rows, in one partition if there are `few`. Then Spark does not shuffle them for later steps, and does
    not plan the rest of a query again after each shuffle."""
    return rows.coalesce(1) if few else rows


@contextmanager
def released() -> Iterator[None]:
    """A context at whose end all rows are released that were `cached` in it."""
    with ExitStack() as releases:
        token = _releases.set(releases)
        try:
            yield
        finally:
            _releases.reset(token)
