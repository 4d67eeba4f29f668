"""Directories and URLs, by the file systems that Spark itself knows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from postdate.connectors.spark.errors import JobUsageError


def require_new(spark: SparkSession, path: str, option: str) -> None:
    """Raises JobUsageError where `path` exists, before hours of work end there; `option` names it to the person."""
    place, system = located(spark, path)
    if system.exists(place):
        raise JobUsageError(f"{path} exists already: name a new directory for {option}.")


def located(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """The path of Hadoop's library, and its file system."""
    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None, "a classic session has a JVM"
    place = jvm.org.apache.hadoop.fs.Path(path)
    return place, place.getFileSystem(context._jsc.hadoopConfiguration())
