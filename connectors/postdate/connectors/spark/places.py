"""Directories and URLs, through Spark's file systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from postdate.connectors.spark.errors import CannotRun, JobUsageError


def require_new(spark: SparkSession, path: str, option: str) -> None:
    """Raises JobUsageError if `path` exists, before hours of work are wasted; `option` is its name in the message."""
    place, system = located(spark, path)
    if system.exists(place):
        raise JobUsageError(f"{path} exists already: name a new directory for {option}.")


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Writes a file, replacing an existing one; a path without a file system is on this machine.

    Raises CannotRun if it cannot be written.
    """
    try:
        if "://" not in path:
            Path(path).write_text(text, encoding="utf-8")
            return
        place, system = located(spark, path)
        stream = system.create(place, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
    except (OSError, Py4JJavaError) as error:
        raise CannotRun(f"{path} cannot be written: {str(error).splitlines()[0]}") from error


def located(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """The path of Hadoop's library, and its file system."""
    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None, "a classic session has a JVM"
    place = getattr(jvm, "org.apache.hadoop.fs.Path")(path)  # in full, or the JVM looks for each package on the way
    return place, place.getFileSystem(context._jsc.hadoopConfiguration())
