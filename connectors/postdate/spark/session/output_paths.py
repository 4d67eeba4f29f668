"""Checks and prepares output paths and URLs through Spark's file systems."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from postdate.spark.errors import CannotRun, JobUsageError


def require_new(spark: SparkSession, path: str, option: str) -> None:
    """Raises JobUsageError if `path` exists. A check at the start of a job saves hours of wasted work. `option` is the
    name of the option in the message."""
    place, system = located(spark, path)
    if system.exists(place):
        raise JobUsageError(f"{path} exists already: name a new directory for {option}.")


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Writes a file, replacing an existing file. A path without a URL scheme is on this machine.

    On this machine, a reader sees the old or the new file, never an incomplete one. Object stores show a file only when
    it is complete; HDFS also shows an incomplete file. Raises CannotRun if the file cannot be written.
    """
    data = text.encode()
    try:
        if "://" not in path:
            _replace(Path(path), data)
            return
        place, system = located(spark, path)
        stream = system.create(place, True)
        try:
            stream.write(data)
        finally:
            stream.close()
    except (OSError, Py4JJavaError) as error:
        raise CannotRun(f"{path} cannot be written: {str(error).splitlines()[0]}") from error


def _replace(path: Path, data: bytes) -> None:
    """Writes a file beside `path` and renames it. Writes directly to a path that is not a file, such as /dev/stdout."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    path = path.resolve()
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        fresh.write_bytes(data)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def located(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Returns `path` as a path object of Hadoop, and its file system."""
    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None, "a classic session has a JVM"
    # The full name saves the JVM a search of all jars for each parent package.
    place = getattr(jvm, "org.apache.hadoop.fs.Path")(path)
    return place, place.getFileSystem(context._jsc.hadoopConfiguration())
