"""Caches rows, and releases all that were cached in a context, also if it ends with an error.

A command needs no such context, since its session ends with it. The session of a notebook goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from pyspark import StorageLevel
from pyspark.sql import DataFrame

_releases: ContextVar[ExitStack | None] = ContextVar("_releases", default=None)


def cached(rows: DataFrame) -> DataFrame:
    """The same rows, cached until somebody releases them or the context of `released` ends."""
    rows.persist(StorageLevel.MEMORY_AND_DISK)
    releases = _releases.get()
    if releases is not None:
        releases.callback(rows.unpersist)
    return rows


@contextmanager
def released() -> Iterator[None]:
    """A context at whose end all rows are released that were `cached` in it."""
    with ExitStack() as releases:
        token = _releases.set(releases)
        try:
            yield
        finally:
            _releases.reset(token)
