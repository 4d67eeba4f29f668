"""Goal: Prometheus can read the metrics of an audit in both of its text formats, and docs/audit.md describes exactly
these metrics.

Method: writes the text for handwritten outcomes, and reads it with both parsers of Prometheus' own client.
Compares the table and the alert rules of the document with the names and labels in the text.
"""

from __future__ import annotations

import re
from dataclasses import replace

import promql_parser
import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as read_older
from prometheus_client.samples import Sample
from promql_parser import VectorSelector

from postdate.spark.audit.metrics import audit_metrics
from postdate.spark.audit.output import AuditOutcome, StateOutcome
from postdate.spark.job.bounds import Range
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.judging.schedule_figures import SchedulesSummary
from postdate.spark.judging.summary import Outcomes, Summary
from postdate.spark.rules.verdicts import INFORMATION, OUTSIDE_WINDOW, VERDICTS, VIOLATIONS
from support.repository import ROOT

_DOCUMENT = ROOT / "docs/audit.md"
_ENDED_MS = 1_795_258_284_250
_LATE = {"p50": 4, "p90": 10, "p99": 312, "p99_9": 900, "max": 5_000}
_COUNTS = {**dict.fromkeys(VERDICTS, 0), "delivered": 90, "missing": 2, "duplicate": 1}
_SUMMARY = Summary(95, _COUNTS, _LATE, {}, Outcomes(90, 3, {"capped": 2}, 8))
_SPAN = Range("requests", TopicPartition("r", 0), 0, 0, 95, 95, False, -1)
FOUND = AuditOutcome(("r", 's"'), 0, None, None, _SUMMARY, (_SPAN,), state=StateOutcome("p", 7, 1, 2, 4, {}))

Key = tuple[str, frozenset[tuple[str, str]]]


def read_openmetrics(text: str) -> list[Metric]:
    return [*text_string_to_metric_families(text)]  # type: ignore[no-untyped-call]


def samples(text: str) -> list[Sample]:
    return [sample for family in read_openmetrics(text) for sample in family.samples]


def values(text: str) -> dict[str, float]:
    """Returns the values by name and by the value of the label that is not `topic`."""
    found = {}
    for sample in samples(text):
        label = [value for name, value in sample.labels.items() if name != "topic"]
        found[" ".join([sample.name.removeprefix("postdate_audit_"), *label])] = sample.value
    return found


def test_the_text_has_all_figures_also_with_violations() -> None:
    found = values(audit_metrics(FOUND, _ENDED_MS))
    expected: dict[str, float] = {
        **{"verified_requests": 90, "verified_ratio": 90 / 95, "pending_requests": 8},
        **{f"violations {verdict}": _COUNTS[verdict] for verdict in VIOLATIONS},
        **{f"unverifiable_requests {reason}": 0 for reason in (*INFORMATION, OUTSIDE_WINDOW)},
        "unverifiable_requests capped": 2,
        "open_violations": 7,
        **{"lateness_seconds 0.5": 0.004, "lateness_seconds 0.9": 0.01, "lateness_seconds 0.99": 0.312},
        **{"lateness_seconds 0.999": 0.9, "lateness_seconds 1": 5},
        **{"run": 7, "exit_code": 4, "end_timestamp_seconds": 1_795_258_284.25},
    }
    assert found == expected


def test_without_state_or_deliveries_the_metrics_are_absent() -> None:
    none = replace(FOUND, state=None, summary=replace(_SUMMARY, lateness_ms={}))
    assert set(values(audit_metrics(FOUND, 0))) - set(values(audit_metrics(none, 0))) == {
        "run",
        *(f"lateness_seconds {quantile}" for quantile in ("0.5", "0.9", "0.99", "0.999", "1")),
    }


def test_without_judged_requests_the_share_is_absent() -> None:
    pending = replace(FOUND, summary=replace(_SUMMARY, outcomes=Outcomes(0, 0, {}, 8)))
    assert set(values(audit_metrics(FOUND, 0))) - set(values(audit_metrics(pending, 0))) == {"verified_ratio"}


def test_both_formats_of_prometheus_are_equal() -> None:
    """A textfile collector reads the older format, and refuses timestamps and types that only OpenMetrics has."""
    text = audit_metrics(FOUND, _ENDED_MS)

    def keyed(found: list[Sample]) -> dict[Key, float]:
        assert all(sample.timestamp is None for sample in found)
        return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in found}

    older = [sample for family in read_older(text) for sample in family.samples]
    assert keyed(older) == keyed(samples(text))
    assert {family.type for family in read_openmetrics(text)} == {"gauge"}
    assert text.endswith("# EOF\n")


def test_names_follow_the_rules_of_prometheus() -> None:
    for family in read_openmetrics(audit_metrics(FOUND, _ENDED_MS)):
        assert re.fullmatch(r"postdate_audit_[a-z]+(_[a-z]+)*", family.name)
        assert not family.name.endswith("_total"), "a gauge may fall"
        assert family.name.endswith("_seconds") == (family.unit == "seconds")
        assert family.name.endswith("_ratio") == (family.unit == "ratio")
        assert family.documentation.endswith(".")
        assert {sample.labels["topic"] for sample in family.samples} == {'r,s"'}


def section() -> str:
    return _DOCUMENT.read_text(encoding="utf-8").partition("\n## Metrics\n")[2].partition("\n## ")[0]


def test_the_document_describes_these_metrics() -> None:
    """The outcome is that of an audit that has judged schedules."""
    told = dict(re.findall(r"(?m)^\| `(postdate_audit_\w+)` \| (?:`(\w+)`)? ?\|", section()))
    schedules = SchedulesSummary(1, {"verified": 3, "missing": 0}, ())
    found = replace(FOUND, summary=replace(_SUMMARY, schedules=schedules))
    families = read_openmetrics(audit_metrics(found, _ENDED_MS))
    assert told == {
        family.name: next((name for name in family.samples[0].labels if name != "topic"), "") for family in families
    }


def test_the_alert_rules_of_the_document_select_metrics_that_exist() -> None:
    block = re.search(r"(?s)```yaml\n(.*?)```", section())
    assert block is not None
    rules = yaml.safe_load(block[1])["groups"][0]["rules"]
    assert len(rules) == 3
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {*re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))} == {"topic"}
        for selector in selectors(rule["expr"]):
            wanted = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
            found = [one for one in samples(audit_metrics(FOUND, 0)) if one.name == selector.name]
            assert any(wanted.items() <= sample.labels.items() for sample in found), rule["alert"]


def selectors(expression: str) -> list[VectorSelector]:
    found: list[VectorSelector] = []

    def visit(node: object) -> None:
        if isinstance(node, VectorSelector):
            found.append(node)

    promql_parser.walk(promql_parser.parse(expression), visit)
    assert found, expression
    return found


@pytest.mark.parametrize("expression", ["postdate_audit_nothing > 0", 'postdate_audit_run{quantile="1"} > 0'])
def test_a_selector_without_a_metric_is_reported(expression: str) -> None:
    (selector,) = selectors(expression)
    wanted = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
    found = [one for one in samples(audit_metrics(FOUND, 0)) if one.name == selector.name]
    assert not any(wanted.items() <= sample.labels.items() for sample in found)
