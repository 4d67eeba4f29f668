"""Goal: docs/operations.md names every metric with its kind, labels, meaning and action, and every path, as they are.

Method: its tables are read and compared with the code's own lists.
"""

from __future__ import annotations

import re
from pathlib import Path

from postdate.sidecar.http.metrics import FATES, METRICS, Metric
from postdate.sidecar.http.openapi import describe
from postdate.wire.dispatch_log import FINAL

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def section(title: str) -> str:
    """The text from a heading to the next one of its level."""
    return OPERATIONS.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def as_row(metric: Metric) -> str:
    """A metric as the table has it."""
    kind = f"{metric.shape.value}, {metric.unit}" if metric.unit else metric.shape.value
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {kind} | {labels} | {metric.help} | {metric.action} |"


def test_the_table_of_metrics_is_the_list_of_the_code() -> None:
    rows = [line for line in section("Metrics").splitlines() if line.startswith("| `")]
    assert rows == [as_row(metric) for metric in METRICS]


def test_the_fates_of_the_metric_are_complete() -> None:
    assert set(re.findall(r"[a-z-]+", FATES.help)) >= FINAL


def test_the_page_names_every_path() -> None:
    named = set(re.findall(r"`(/[\w/.-]*)`", section("HTTP")))
    words = {"origin": "TOPIC/PARTITION/OFFSET", "name": "NAME"}
    paths = {path.format(**words) for path in describe()["paths"]}
    assert named == paths


def test_meaning_and_action_are_sentences() -> None:
    for metric in METRICS:
        assert metric.help.endswith(".")
        assert metric.action.endswith(".")
