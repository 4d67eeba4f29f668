"""Settings for a Spark that runs a few small jobs, on a machine that does other things too.

Plans are interpreted: for ten rows, compiling the generated code of a plan takes longer. The test of the demo runs the
same plans compiled.

With only one of its compilers, the JVM reserves 48 MB for compiled code. Some audits fill this space; the JVM then
stops compiling, and stays slow. So the settings reserve as much space as the JVM does for both compilers.

The plans of one audit take up to 400 MB, and some stay until the end of the session. With a heap of 1 GB, the last
tests of a run spent most of their time in the garbage collector, and 1.5 GB did not last to the end of the run.

A JVM that runs for a minute has only Java's first compiler. The session of a whole test run plans queries for more than
ten minutes. There, code of the second compiler saves a third of the processor time, but compiling with the default
settings would cost half of this gain. So the second compiler compiles only methods that are called four times as often
as by default, and inlines less.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

#: The number of rows of a bulk schedule in the tests.
BULK_ROWS = int(os.environ.get("POSTDATE_TEST_BULK_ROWS", "20000"))
_FEW_ROWS: Final = 100_000
#: The memory of a worker of the test cluster, and of the worker's only executor.
WORKER_MEMORY, EXECUTOR_MEMORY = ("1g", "600m") if BULK_ROWS <= _FEW_ROWS else ("3g", "2g")

_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_MEMORY_OF_JAVA: Final = "-XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
#: Java's options for a JVM that runs for a minute.
SHORT_LIVED_JAVA: Final = f"-XX:TieredStopAtLevel=1 {_MEMORY_OF_JAVA}"
_LONG_LIVED_JAVA: Final = (
    f"{_MEMORY_OF_JAVA} -XX:MaxInlineLevel=6 -XX:FreqInlineSize=150 -XX:InlineSmallCode=1200 "
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000"
)

SMALL_SPARK: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "3g",
    _JAVA_OPTIONS: SHORT_LIVED_JAVA,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
}


def sized_spark() -> Mapping[str, str]:
    """Returns the settings for the jobs of the tests in one session: SMALL_SPARK, or Spark's defaults if BULK_ROWS is
    large."""
    return SMALL_SPARK if BULK_ROWS <= _FEW_ROWS else {}


def session_spark() -> Mapping[str, str]:
    """Returns the settings for the session of all tests, whose JVM runs long enough for both of Java's compilers."""
    settings = sized_spark()
    return {**settings, _JAVA_OPTIONS: _LONG_LIVED_JAVA} if settings else settings


def has_cached(spark: SparkSession) -> bool:
    """True if Spark holds rows that were cached and not released."""
    session: Any = spark._jsparkSession
    return not session.sharedState().cacheManager().isEmpty()
