"""Checks and prepares output paths and URLs through Spark's file systems."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from postdate.spark.errors import CannotRun, JobUsageError


def require_new(spark: SparkSession, path: str, option: str) -> None:
    """Raises JobUsageError if `path` exists, before hours of work are wasted; `option` is its name in the message."""
    place, system = located(spark, path)
    if system.exists(place):
        raise JobUsageError(f"{path} exists already: name a new directory for {option}.")


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Writes a file, replacing an existing one; a path without a file system is on this machine.

    There, a reader sees the old file or the new one, never a part. Object stores show a file once it is complete; HDFS
    shows a part. Raises CannotRun if it cannot be written.
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
    """Writes a file beside `path` and renames it; what is no file, such as /dev/stdout, is written to directly."""
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
    """The path of Hadoop's library, and its file system."""
    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None, "a classic session has a JVM"
    place = getattr(jvm, "org.apache.hadoop.fs.Path")(path)  # in full, or the JVM looks for each package on the way
    return place, place.getFileSystem(context._jsc.hadoopConfiguration())
