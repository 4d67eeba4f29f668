"""Goal: the user's Spark settings stay in force and reach Java. An unsupported version or kind of Spark is refused in
one sentence, before Java starts.

Method: builds the settings of a session from given options and environments, and replaces the version of PySpark. No
Java starts.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

from postdate.spark.errors import CannotRun, JobUsageError
from postdate.spark.session.start import delta_package, java_settings, require_connectors, spark_session

_ENVIRONMENT = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


def test_the_collector_is_the_parallel_one() -> None:
    others = {"spark.driver.memory": "4g", "spark.driver.extraJavaOptions": "-XX:+UseStringDeduplication -Dx=y"}
    assert java_settings(others) == {"spark.driver.defaultJavaOptions": "-XX:+UseParallelGC"}


def test_a_brief_job_compiles_quickly_unless_a_collector_was_chosen() -> None:
    (options,) = java_settings({}, is_brief=True).values()
    assert options.split() == ["-XX:+UseParallelGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    assert java_settings({"spark.driver.extraJavaOptions": "-XX:+UseG1GC"}, is_brief=True) == {}


@pytest.mark.parametrize("name", ["spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"])
def test_no_second_collector_beside_one_that_was_chosen(name: str) -> None:
    assert java_settings({name: "-Dx=y -XX:+UseG1GC"}) == {}
    assert java_settings({name: "-XX:+UseZGC -XX:+ZGenerational"}) == {}


@pytest.mark.parametrize("name", _ENVIRONMENT)
def test_no_second_collector_beside_one_of_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "-Xmx1g -XX:+UseSerialGC")
    assert java_settings({}) == {}


def test_a_java_home_without_java_is_named_before_spark_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CannotRun, match=f"JAVA_HOME is {tmp_path}, which has no bin/java"):
        spark_session("local[1]", {}, print).__enter__()


@pytest.mark.parametrize("version", ["3.5.6", "5.0.0"])
def test_another_spark_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(JobUsageError, match=f"need Spark 4, and this is Spark {version}"):
        spark_session("local[1]", {}, print).__enter__()


def test_the_jobs_can_be_imported_with_an_older_spark_that_they_refuse() -> None:
    """Spark 3.5 does not distinguish classic sessions from other ones."""
    program = (
        "import importlib, pkgutil, sys, pyspark.sql, postdate.spark as jobs\n"
        "sys.modules.update({name: None for name in [*sys.modules] if name.startswith('pyspark.sql.classic')})\n"
        "for found in pkgutil.walk_packages(jobs.__path__, 'postdate.spark.'):\n"
        "    importlib.import_module(found.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_delta_lake_is_known_for_one_version() -> None:
    assert delta_package("4.0.3") == "io.delta:delta-spark_2.13:4.0.0"
    with pytest.raises(JobUsageError, match=r"this is Spark 4\.3\.0\. Use PySpark 4\.0"):
        delta_package("4.3.0")


@pytest.mark.parametrize(
    ("master", "conf", "environment"),
    [("sc://spark:15002", {}, {}), (None, {"spark.remote": "local"}, {}), (None, {}, {"SPARK_REMOTE": "local"})],
)
def test_spark_connect_is_refused(
    monkeypatch: pytest.MonkeyPatch, master: str | None, conf: dict[str, str], environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(JobUsageError, match="need a classic session, not Spark Connect"):
        spark_session(master, conf, print).__enter__()


def test_a_session_of_spark_connect_is_refused() -> None:
    connected: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(JobUsageError, match="session of Spark Connect"):
        require_connectors(connected, with_delta=True)
