"""Goal: the programs for `spark-submit` start in the same way, and check their arguments before Spark starts.

Method: runs each program with contradictory or invalid arguments. No Spark runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from postdate.spark import audit_main, bulk_main, submitted
from postdate.spark.audit.steps import AuditSteps
from postdate.spark.errors import first_cause

_PACKAGE = Path(submitted.__file__).parent
_BRIDGE = "An error occurred while calling o9.collect."


@pytest.mark.parametrize(
    ("program", "arguments", "said"),
    [
        (audit_main.main, ["-b", "x:1", "--samples", "-1"], "error: The number of samples"),
        (audit_main.main, ["-b", "x:1", "-X", "acks"], "error: 'acks' is not NAME=VALUE"),
        (bulk_main.main, ["-b", "x:1", "rows"], "error: the format of rows is unknown"),
        (bulk_main.main, ["-b", "x:1", "-F", "/nowhere", "rows.csv"], "error: [Errno 2]"),
    ],
)
def test_contradictory_options_end_with_2(
    program: Callable[[Sequence[str]], int], arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program(arguments) == 2
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize("option", ["--slack", "--every"])
def test_a_duration_needs_a_unit(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        audit_main.main(["-b", "x:1", option, "5"])
    assert ended.value.code == 2
    assert "'5' has no unit: write 5ms, 5s or 5m" in capsys.readouterr().err


def test_a_program_does_not_look_for_modules_beside_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(_PACKAGE), "elsewhere"])
    assert submitted.run_program(argparse.ArgumentParser(), lambda given: lambda: 7, []) == 7
    assert sys.path == ["elsewhere"]


def test_no_module_has_the_name_of_a_module_of_python() -> None:
    """Until a program has removed its own directory from the search path, Python looks for modules there first."""
    modules = {path.parent.name for path in _PACKAGE.glob("*/__init__.py")}
    modules |= {path.stem for path in _PACKAGE.glob("*.py")} - {"__init__"}
    assert modules >= {"submitted", "limits", "columns", "audit"}
    assert not modules & (sys.stdlib_module_names | {"py4j", "pyspark", "rich", "msgspec"})


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f"{_BRIDGE}\n: java.lang.OutOfMemoryError: heap\n\tat x.y(z)", "java.lang.OutOfMemoryError: heap"),
        (f"{_BRIDGE}\n: org.x.Failed: job\n\tat x\nCaused by: a.B: no room", "Caused by: a.B: no room"),
        ("[TABLE_NOT_FOUND] there is none", "[TABLE_NOT_FOUND] there is none"),
        ("", "nothing"),
    ],
)
def test_a_spark_error_is_reported_by_its_first_line(said: str, told: str) -> None:
    assert first_cause(said) == told


@pytest.mark.parametrize(
    ("cause", "has_remedy"), [("java.lang.OutOfMemoryError: Java heap space", True), ("a.B", False)]
)
def test_an_error_for_lack_of_memory_names_the_remedy(cause: str, has_remedy: bool) -> None:
    said = AuditSteps.failure(f"{_BRIDGE}\n: org.x.Failed: job\nCaused by: {cause}")
    assert f"Caused by: {cause}" in said
    assert ("--spark-conf spark.driver.memory=8g" in said) is has_remedy
