"""Provides a quiet Spark session with the Kafka connector, and error messages if Spark or the connector is missing.

An active session, such as that of a notebook, is used as it is and left running. Otherwise this module creates a
session, and stops it at the end. Under `spark-submit`, the session uses the running JVM and its connector. Otherwise it
runs in a new JVM, on all cores of this machine unless `master` is given, with the connector in `spark.jars.packages` at
the version of the installed PySpark. Spark's Ivy downloads the connector on first use; its output is reduced to a few
lines of progress.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from postdate.spark.errors import CannotRun, ConnectorMissing, JobUsageError
from postdate.spark.limits import (
    COMPILED_CLASSES_KEPT,
    COMPILED_METHOD_BYTES_MAX,
    FETCHED_KEPT,
    GATHERED_ROW_BYTES,
    LOCAL_MEMORY,
    LOCAL_SHUFFLE_PARTITIONS,
    SEPARATE_ROW_BYTES,
    START_LINES_KEPT,
)
from postdate.spark.session.interruption import (
    children,
    end_children_since,
    is_interrupted,
    signals_ignored,
)

_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_QUIET = Path(__file__).with_name("quiet-log4j2.properties")

# The settings that Delta needs before a session starts. The list of a table's files gets two partitions, not fifty.
_DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
}
_DELTA = "io.delta.sql.DeltaSparkSessionExtension"

# Spark already contains these jars, 50 of the 70 MB that its connectors need. Without the exclusion, the first start
# would download them, and each start would copy them.
_IN_SPARK = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"

# The major version of Spark that the jobs need, and the version with a tested version of Delta Lake.
_MAJOR = "4"
_DELTA_FOR, _DELTA_PACKAGE = "4.0", "io.delta:delta-spark_2.13:4.0.0"

# At its first query, Spark 4.0 creates this directory in the working directory, for files that Spark Connect uploads.
# At the end, it removes only the subdirectory that it has created. No setting changes the location; later versions use
# the temporary directory.
_ARTIFACTS, _ARTIFACTS_OF = "artifacts", "4.0"

# The settings that limit how long Spark keeps idle consumers, and fetched records that no task has used.
_KEPT_BY_CONSUMERS = (
    *("cache.timeout", "cache.evictorThreadRunInterval"),
    *("fetchedData.cache.timeout", "fetchedData.cache.evictorThreadRunInterval"),
)

# The settings and environment variables that may choose Java's garbage collector.
_JAVA_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
_JAVA_OPTIONS_OF_ENVIRONMENT = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_ONLY_C1 = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
_ANY_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")

# The JVM classes with which PySpark creates columns, lists of columns, and lambdas. The first two are names of the same
# class.
_CLASSES_OF_COLUMNS = ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils")

Report = Callable[[str], None]

_STDERR = 2


class StartOutput:
    """A context for starting a JVM. It calls `report` with one sentence for each downloaded jar, instead of printing
    Ivy's output.

    The JVM inherits the descriptor of standard error. So descriptor 2 points to a pipe while the JVM starts, and a
    daemon thread reads the pipe for as long as the JVM lives. After the start, the thread passes the lines, which are
    only errors, on to the real standard error. No other thread may enter such a context at the same time, since the
    descriptor belongs to the process.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._lines: deque[str] = deque(maxlen=START_LINES_KEPT)
        self._is_starting = True
        self._is_at_end = threading.Event()

    def __enter__(self) -> Self:
        sys.stderr.flush()
        self._real = os.dup(_STDERR)
        read_end, write_end = os.pipe()
        os.dup2(write_end, _STDERR)
        os.close(write_end)
        threading.Thread(target=self._pass_on, args=(read_end,), name="spark-output", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.stderr.flush()
        self._is_starting = False
        os.dup2(self._real, _STDERR)

    def last_lines(self) -> list[str]:
        """Returns the last lines of the JVM's output; complete if the JVM has ended."""
        sys.stderr.flush()
        os.dup2(self._real, _STDERR)  # closes our end of the pipe; a JVM that failed has closed its end
        self._is_at_end.wait(timeout=5)
        return list(self._lines)

    def _pass_on(self, read_end: int) -> None:
        with os.fdopen(read_end, encoding="utf-8", errors="replace") as pipe:
            for line in pipe:
                self._lines.append(line.rstrip())
                if not self._is_starting:
                    os.write(self._real, line.encode())
                elif line.startswith("downloading "):
                    self._report(f"fetching {line.split()[1].rsplit('/', 1)[-1]}")
        self._is_at_end.set()


def connector_package(version: str = pyspark.__version__) -> str:
    """Returns the Maven coordinates of Spark's Kafka connector for this version of Spark. Spark 4 is built for Scala
    2.13."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"


def delta_package(version: str = pyspark.__version__) -> str:
    """Returns the Maven coordinates of Delta Lake for Spark 4.0. Raises JobUsageError if `version` is not a 4.0."""
    if _minor(version) != _DELTA_FOR:
        raise JobUsageError(
            f"A state needs Delta Lake, and Postdate knows its package only for Spark {_DELTA_FOR}; this is Spark "
            f"{version}. Use PySpark {_DELTA_FOR}, or name your package with --spark-conf spark.jars.packages=…, "
            "together with Spark's Kafka connector."
        )
    return _DELTA_PACKAGE


def require_version(version: str) -> None:
    """Raises JobUsageError if the jobs do not support this version of Spark."""
    if version.split(".")[0] != _MAJOR:
        raise JobUsageError(f"Postdate's Spark jobs need Spark {_MAJOR}, and this is Spark {version}.")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _require_classic(spark: SparkSession) -> None:
    """Raises JobUsageError if the session is one of Spark Connect. Reading Kafka's offsets, the file system and Delta's
    log requires access to the driver's JVM."""
    if "connect" in type(spark).__module__.split("."):
        raise JobUsageError(
            "This is a session of Spark Connect, and Postdate's Spark jobs need a classic one: they call the driver's "
            "JVM. Run them with spark-submit, or in a notebook whose driver is on the cluster."
        )


def s3_package() -> str:
    """Returns the Maven coordinates of Hadoop's file system for `s3a://`, at the version of the installed Spark's
    Hadoop."""
    (jar,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    return f"org.apache.hadoop:hadoop-aws:{jar.stem.rpartition('-')[2]}"


def image_packages() -> str:
    """Returns the Maven coordinates of the packages that the audit's image adds to Spark, separated by commas."""
    return ",".join((connector_package(), delta_package(), s3_package()))


@contextmanager
def spark_session(
    master: str | None, conf: Mapping[str, str], report: Report, *, with_delta: bool = False, is_brief: bool = False
) -> Iterator[SparkSession]:
    """Provides a session that can read Kafka, and with `with_delta` also Delta tables. Stops it at the end if this
    function has created it. `is_brief` as in `java_settings`.

    Raises CannotRun if a new JVM does not start (under `spark-submit`, PySpark's own error), ConnectorMissing if it has
    no Kafka connector or, with `with_delta`, no Delta Lake, and JobUsageError if the jobs do not support this Spark.
    """
    require_version(pyspark.__version__)
    if (master or "").startswith("sc:") or "spark.remote" in conf or "SPARK_REMOTE" in os.environ:
        raise JobUsageError(
            "Postdate's Spark jobs need a classic session, not Spark Connect: name another --master, and unset "
            "spark.remote and SPARK_REMOTE."
        )
    active_session = SparkSession.getActiveSession()
    if active_session is not None:
        require_connectors(active_session, with_delta=with_delta)
        yield active_session
        return
    if with_delta:
        conf = {**_delta_settings(conf), **conf}
    earlier = children()
    try:
        spark = _started(master, conf, report, is_brief)
    except KeyboardInterrupt:
        end_children_since(earlier)
        raise
    try:
        spark.sparkContext.setLogLevel("ERROR")
        _remove_artifacts_at_end(spark)
        _remember_classes(spark)
        require_connectors(spark, with_delta=with_delta)
        yield spark
    except BaseException:
        if is_interrupted():
            _stop_interrupted(spark, earlier)
        else:
            spark.stop()
        raise
    spark.stop()


@contextmanager
def restored_settings(spark: SparkSession, *names: str) -> Iterator[None]:
    """Restores these settings of the session at the end of the context; a setting that had no value is unset."""
    before = {name: spark.conf.get(name, None) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def separate_rows_max(spark: SparkSession) -> int:
    """Returns the maximum number of rows that may be sent to every executor. The rows must fit in the driver's heap, in
    an executor's heap, and in the maximum size of the results that the driver collects."""
    context: Any = spark.sparkContext._jsc.sc()
    jvm: Any = spark.sparkContext._jvm
    heap = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    if not context.isLocal():
        heap = min(heap, int(context.executorMemory()) << 20)
    gathered = int(context.conf().getSizeAsBytes("spark.driver.maxResultSize", "1g"))  # 0: any size
    return min(heap // SEPARATE_ROW_BYTES, (gathered or heap) // GATHERED_ROW_BYTES)


def _remove_artifacts_at_end(spark: SparkSession) -> None:
    """Makes the JVM of Spark 4.0 remove the directory of Spark's artifacts at its end, unless the directory exists
    already.

    The JVM removes the directory after Spark has removed the subdirectory, and only if the directory is empty.
    """
    jvm: Any = spark.sparkContext._jvm
    directory = jvm.java.io.File(_ARTIFACTS).getAbsoluteFile()
    if _minor(spark.version) == _ARTIFACTS_OF and not directory.exists():
        directory.deleteOnExit()


class _RememberedClass(JavaClass):  # type: ignore[misc]
    """A class of the JVM that looks up each of its functions once."""

    def __getattr__(self, name: str) -> Any:
        function = super().__getattr__(name)
        setattr(self, name, function)
        return function


def _remember_classes(spark: SparkSession) -> None:
    """Makes PySpark look up the classes and functions of its columns only once. Otherwise, for each column, the JVM
    would search all jars for a class that is named without its package, and search a list of a thousand functions."""
    view: Any = spark.sparkContext._jvm
    for name in _CLASSES_OF_COLUMNS:
        setattr(view, name, _RememberedClass(getattr(view, name)._fqn, view._gateway_client))


def _stop_interrupted(spark: SparkSession, earlier: frozenset[int]) -> None:
    """Stops the session over a Py4J connection that may have been interrupted in the middle of a call, and terminates
    the children of this process that are not in `earlier`."""
    with signals_ignored(), warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        spark.stop()
    end_children_since(earlier)


def _started(master: str | None, conf: Mapping[str, str], report: Report, is_brief: bool) -> SparkSession:
    builder = SparkSession.builder.appName("postdate audit")
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = _submitted_settings() if is_submitted else _own_settings(master) | java_settings(conf, is_brief)
    for name, value in {**settings, **conf}.items():
        builder = builder.config(name, value)
    if is_submitted:
        return builder.getOrCreate()
    _require_java()
    if master is None or master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of Python workers, for dialects and schedules
    with StartOutput(report) as output:
        try:
            return builder.getOrCreate()
        except (PySparkRuntimeError, Py4JJavaError) as error:
            raise CannotRun(_start_failed(output.last_lines(), error)) from error


def _submitted_settings() -> dict[str, str]:
    """Returns the settings that can be changed in a running JVM: under `spark-submit`, the JVM is already running.

    The JVM never compiles a method of more than 8,000 bytes, so it would interpret a plan that Spark has fused into a
    larger method. Compressing cached rows costs more than the memory that it saves is worth. Inferring constraints of
    wide nested plans takes longer than it saves. For each column, PySpark would query the call site in the JVM, which
    nobody needs. A continuous audit runs the same plans repeatedly, so compiled classes are cached.
    """
    return {
        **{f"spark.kafka.consumer.{name}": FETCHED_KEPT for name in _KEPT_BY_CONSUMERS},
        "spark.sql.codegen.cache.maxEntries": str(COMPILED_CLASSES_KEPT),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.codegen.hugeMethodLimit": str(COMPILED_METHOD_BYTES_MAX),
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.sql.constraintPropagation.enabled": "false",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }


def _own_settings(master: str | None) -> dict[str, str]:
    settings = {
        "spark.master": master or "local[*]",
        "spark.jars.packages": connector_package(),
        "spark.jars.excludes": _IN_SPARK,
        **_submitted_settings(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_QUIET}",
    }
    if settings["spark.master"].startswith("local"):
        settings |= {
            "spark.driver.memory": LOCAL_MEMORY,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(LOCAL_SHUFFLE_PARTITIONS),
            # A limited query reads all partitions at once. By default, Spark reads one partition first, then four more.
            "spark.sql.limit.initialNumPartitions": str(LOCAL_SHUFFLE_PARTITIONS),
        }
    return settings


def java_settings(conf: Mapping[str, str], is_brief: bool = False) -> dict[str, str]:
    """Returns the driver's Java options: the parallel collector, and with `is_brief` only the C1 compiler. Returns no
    option if `conf` or the environment selects a collector, since Java does not start with two.

    Java's default collector scans the cached rows of an audit repeatedly (measured: a third of the processor time for
    three million requests). The parallel collector has pauses, which do not matter here.

    A brief job takes about a minute, and ends before the C2 compiler pays off. With C1 alone, the JVM would use a
    smaller code cache, so an option sets the size that it uses with both compilers.
    """
    chosen = [conf.get(name, "") for name in _JAVA_OPTIONS]
    chosen += [os.environ.get(name, "") for name in _JAVA_OPTIONS_OF_ENVIRONMENT]
    if any(_ANY_COLLECTOR.search(options) for options in chosen):
        return {}
    return {_JAVA_OPTIONS[0]: f"-XX:+UseParallelGC {_ONLY_C1}" if is_brief else "-XX:+UseParallelGC"}


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        raise CannotRun(f"Spark needs Java 17 or later, and JAVA_HOME is {home}, which has no bin/java.")
    if not home and shutil.which("java") is None:
        raise CannotRun("Spark needs Java 17 or later, and none was found: install it, or set JAVA_HOME.")


def _delta_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings for Delta in a new session. They include `spark.jars.packages`, unless `conf` does."""
    if "spark.jars.packages" in conf:
        return _DELTA_SETTINGS
    return {**_DELTA_SETTINGS, "spark.jars.packages": f"{connector_package()},{delta_package()}"}


def require_connectors(spark: SparkSession, *, with_delta: bool) -> None:
    """Raises ConnectorMissing if the session cannot read Kafka, or with `with_delta` cannot read Delta tables;
    JobUsageError if the jobs do not support the session."""
    _require_classic(spark)
    require_version(spark.version)
    _require_class(spark, _PROVIDER, "This Spark cannot read Kafka: its connector is missing", connector_package)
    if not with_delta:
        return
    _require_class(spark, _DELTA, "The tables of --state need Delta Lake, which this Spark lacks", delta_package)
    if "DeltaCatalog" not in str(spark.conf.get("spark.sql.catalog.spark_catalog", "")):
        given = " ".join(f"--conf {name}={value}" for name, value in list(_DELTA_SETTINGS.items())[:2])
        raise ConnectorMissing(f"This session was started without Delta Lake's settings. Start it with `{given}`.")


def _require_class(spark: SparkSession, name: str, problem: str, package_of: Callable[[str], str]) -> None:
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "a classic session has a JVM"
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(name, False, loader)
    except Py4JJavaError as error:
        package = package_of(spark.version)
        raise ConnectorMissing(
            f"{problem}. Add it with "
            f"`spark-submit --packages {package} …`, or with `spark.jars.packages={package}` in the session's "
            "configuration before it starts; without a network, give the jar and its dependencies with `--jars`."
        ) from error


def _start_failed(last_lines: list[str], error: Exception) -> str:
    lines = [line for line in last_lines if line.strip()]
    unresolved = [line for line in lines if "unresolved dependency" in line or "not found" in line.lower()]
    if any("unresolved dependenc" in line.lower() for line in lines):
        return (
            f"Spark's Kafka connector {connector_package()} could not be fetched from Maven Central. Is it reachable? "
            "Behind a mirror set `spark.jars.ivySettings`; without a network set `spark.jars` to the jars and "
            "`spark.jars.packages` to nothing. The end of Ivy's output: " + "; ".join(unresolved[-3:])
        )
    return "Spark did not start: " + ("\n".join(lines[-5:]) or str(error).splitlines()[0])
