"""The settings of a session that is made here. Goal: what a person chose stands, and Java starts with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from postdate.spark.errors import CannotRun
from postdate.spark.session.start import collector_settings, spark_session

_ENVIRONMENT = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


def test_the_collector_is_the_parallel_one() -> None:
    others = {"spark.driver.memory": "4g", "spark.driver.extraJavaOptions": "-XX:+UseStringDeduplication -Dx=y"}
    assert collector_settings(others) == {"spark.driver.defaultJavaOptions": "-XX:+UseParallelGC"}


@pytest.mark.parametrize("name", ["spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"])
def test_no_second_collector_beside_one_that_was_chosen(name: str) -> None:
    assert collector_settings({name: "-Dx=y -XX:+UseG1GC"}) == {}
    assert collector_settings({name: "-XX:+UseZGC -XX:+ZGenerational"}) == {}


@pytest.mark.parametrize("name", _ENVIRONMENT)
def test_nor_beside_one_of_the_environment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "-Xmx1g -XX:+UseSerialGC")
    assert collector_settings({}) == {}


def test_a_java_home_without_java_is_named_before_spark_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(CannotRun, match=f"JAVA_HOME is {tmp_path}, which has no bin/java"):
        spark_session("local[1]", {}, print).__enter__()
