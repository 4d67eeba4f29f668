"""Goal: every number of values.yaml reaches the rendering, and the template that replaces one by a constant is found.

Method: each number in turn is raised by one in a release with all optional parts; a changed field of the rendered
objects must contain the new number. The same check then runs over charts in which one number is a constant.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart_documents import CHART
from support.helm import NEEDED, Helm, Values, merged

#: Switches on every part that reads a number. A strict audit takes no window.
ALL_PARTS: Values = merged(
    NEEDED, {"audit": {"enabled": True, "strict": False}, "metrics": {"prometheusRule": {"enabled": True}}}
)
#: Factors of the numbers that the chart converts: the audit's window is set in hours and rendered in seconds.
FACTORS = {"audit.windowHours": 3_600}


def numbers(tree: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Each number below `tree` with its path."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from numbers(value, (*path, key))
        elif isinstance(value, int) and not isinstance(value, bool):
            yield (*path, key), value


def fields(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each field of rendered objects as its path and text."""
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from fields(value, f"{path}/{key}")
    else:
        yield path, str(node)


def ignored_numbers(helm: Helm, chart: Path = CHART) -> list[str]:
    """The paths of the numbers that change nothing, or not to the number that was set."""
    found = []
    before = {*fields(helm.render(ALL_PARTS, chart))}
    for path, default in numbers(yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))):
        values: Any = default + 1
        for key in reversed(path):
            values = {key: values}
        after = {*fields(helm.render(merged(ALL_PARTS, values), chart))}
        expected = (default + 1) * FACTORS.get(".".join(path), 1)
        if not any(re.search(rf"\b{expected}s?\b", text) for _, text in after - before):
            found.append(".".join(path))
    return found


def test_every_number_reaches_the_rendering(helm: Helm) -> None:
    assert ignored_numbers(helm) == []


@pytest.mark.parametrize(
    ("template", "expression", "constant", "ignored"),
    [
        (
            "statefulset.yaml",
            "{{ int .Values.terminationGracePeriodSeconds }}",
            "30",
            ["terminationGracePeriodSeconds"],
        ),
        ("statefulset.yaml", "{{ int .Values.minReadySeconds }}", "5", ["minReadySeconds"]),
        (
            "_pod.tpl",
            "{{ int .probe.failureThreshold }}",
            "3",
            [f"{probe}Probe.failureThreshold" for probe in ("startup", "liveness", "readiness")],
        ),
    ],
)
def test_a_constant_in_place_of_a_number_is_found(
    helm: Helm, tmp_path: Path, template: str, expression: str, constant: str, ignored: list[str]
) -> None:
    chart = tmp_path / "postdate"
    shutil.copytree(CHART, chart)
    path = chart / "templates" / template
    text = path.read_text(encoding="utf-8")
    assert text.count(expression) == 1
    path.write_text(text.replace(expression, constant), encoding="utf-8")
    assert ignored_numbers(helm, chart) == ignored
