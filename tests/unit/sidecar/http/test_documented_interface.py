"""Goal: docs/operations.md lists every metric with its kind, labels, meaning and action, and every path.
docs/security.md lists every path to which the token gives access.

Method: the tables of the pages are compared with the lists in the code.
"""

from __future__ import annotations

import re

from postdate.sidecar.http.api.openapi import describe
from postdate.sidecar.http.metrics.metrics import FATES, METRICS, Metric
from postdate.wire.dispatch_log import FINAL
from support.repository import ROOT

DOCS = ROOT / "docs"


def section(title: str, page: str = "operations.md", level: str = "##") -> str:
    """Returns the text from a heading to the next heading of its level."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return text.partition(f"\n{level} {title}\n")[2].partition(f"\n{level} ")[0]


def as_row(metric: Metric) -> str:
    """Returns the row of a metric in the table."""
    last = metric.name.removesuffix("_total").rpartition("_")[2]
    kind = f"{metric.shape.value}, {last}" if last in ("seconds", "bytes") else metric.shape.value
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


def test_the_rights_of_the_token_name_every_path_of_the_api() -> None:
    named = set(re.findall(r"`(/api/[\w/.-]*)`", section("What the token grants", "security.md", "###")))
    paths = {path.partition("{")[0] for path in describe()["paths"]}
    assert named == {path for path in paths if path.startswith("/api/")} - {"/api/v1/openapi.json"}


def test_the_meaning_and_the_action_of_each_metric_end_as_sentences() -> None:
    for metric in METRICS:
        assert metric.help.endswith(".")
        assert metric.action.endswith(".")
