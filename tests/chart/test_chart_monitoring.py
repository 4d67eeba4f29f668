"""Goal: every alert and every panel uses metrics of the program with their labels, and each alert describes the remedy.
Method: the test parses the expressions of the PrometheusRule and of the dashboard as PromQL, and looks up each selector
in `postdate.sidecar.http.metrics.metrics`, the closed list from which the collector is built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
from promql_parser import AggregateExpr, VectorSelector

from postdate.sidecar.counts import OUTCOMES, REQUEST_OUTCOMES
from postdate.sidecar.http.metrics import metrics
from postdate.sidecar.http.metrics.metrics import METRICS, Shape
from postdate.sidecar.states import State
from postdate.wire.dispatch_log import FINAL, MOVED, STORED
from postdate.wire.reasons import Reason
from support.deployments.helm import NEEDED, RELEASE, Helm, Values, ci_values, merged, one
from support.tidiness.chart_documents import CHART

DASHBOARD = CHART / "dashboards/postdate.json"
ALL: Values = {
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "audit": {"enabled": True},
}
#: Labels that the operator's ServiceMonitor adds to every metric.
TARGET_LABELS = {"namespace", "service", "pod", "job", "instance", "endpoint", "container"}
#: Metrics of the kubelet and of kube-state-metrics.
FOREIGN = {
    "kubelet_volume_stats_available_bytes": {"persistentvolumeclaim"},
    "kubelet_volume_stats_capacity_bytes": {"persistentvolumeclaim"},
    "kube_job_status_failed": {"job_name"},
}
SUFFIXES = {Shape.HISTOGRAM: ("_bucket", "_sum", "_count"), Shape.COUNTER: ("",), Shape.GAUGE: ("",)}
KNOWN: dict[str, set[str]] = FOREIGN | {
    metric.name + suffix: {*metric.labels, *(["le"] if suffix == "_bucket" else [])}
    for metric in METRICS
    for suffix in SUFFIXES[metric.shape]
}
#: The closed sets of label values.
LABEL_VALUES: dict[tuple[str, str], set[str]] = {
    (metrics.STATE.name, "state"): {*State},
    (metrics.STATE_SECONDS.name, "state"): {*State},
    (metrics.TRANSACTIONS.name, "outcome"): {*OUTCOMES},
    (metrics.REQUESTS.name, "outcome"): {*REQUEST_OUTCOMES},
    (metrics.FATES.name, "fate"): {*FINAL, MOVED, STORED},
    (metrics.DEAD_LETTERS.name, "reason"): {*Reason},
}


def complaints(expression: str) -> Iterator[str]:
    """Yields the errors in the selectors and aggregations of a PromQL expression. Raises ValueError if it is not
    PromQL."""
    grouped: set[str] = set()
    available: set[str] = set(TARGET_LABELS)
    wrong: list[str] = []

    def visit(node: object) -> None:
        if isinstance(node, AggregateExpr) and node.modifier is not None:
            grouped.update(node.modifier.labels)
        if isinstance(node, VectorSelector):
            labels = KNOWN.get(str(node.name))
            if labels is None:
                wrong.append(f"there is no metric {node.name}")
                return
            available.update(labels)
            for matcher in node.matchers.matchers:
                if matcher.name not in labels | TARGET_LABELS:
                    wrong.append(f"{node.name} has no label {matcher.name}")
                values = LABEL_VALUES.get((str(node.name), matcher.name))
                if values is not None:
                    wrong.extend(f"{matcher.name} is never {each}" for each in {*matcher.value.split("|")} - values)

    promql_parser.walk(promql_parser.parse(expression), visit)
    yield from wrong
    yield from (f"nothing here has the label {label}" for label in sorted(grouped - available))


def alerts(helm: Helm, values: Values = ALL) -> list[dict[str, Any]]:
    (group,) = one(helm.render(merged(NEEDED, values)), "PrometheusRule")["spec"]["groups"]
    return [rule for rule in group["rules"] if "alert" in rule]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return found


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("postdate_lateness", "there is no metric postdate_lateness"),
        ("rate(postdate_lateness_seconds[5m])", "there is no metric postdate_lateness_seconds"),
        ('postdate_due_entries{shard="1"}', "postdate_due_entries has no label shard"),
        ('postdate_shard_state{state=~"RUNNING|STOPPED"}', "state is never STOPPED"),
        ("sum by (fate) (postdate_pending_entries)", "nothing here has the label fate"),
    ],
)
def test_a_wrong_expression_is_found(expression: str, said: str) -> None:
    assert list(complaints(expression)) == [said]


def test_every_alert_uses_existing_metrics(helm: Helm) -> None:
    rules = alerts(helm)
    assert len(rules) >= 12
    for rule in rules:
        assert list(complaints(rule["expr"])) == [], rule["alert"]


def test_every_alert_has_a_severity_a_summary_and_a_remedy(helm: Helm) -> None:
    rules = alerts(helm)
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"].keys() == {"summary", "description"}
        named = {*re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))}
        assert named <= _resulting_labels(rule["expr"]), rule["alert"]
        assert promql_parser.parse_duration(rule.get("for", "1s")).total_seconds() < 3600


def _resulting_labels(expression: str) -> set[str]:
    """Returns the labels by which an expression is aggregated; without an aggregation, the labels of its metrics."""
    found: set[str] = set()

    def visit(node: object) -> None:
        if isinstance(node, AggregateExpr) and node.modifier is not None:
            found.update(node.modifier.labels)
        if isinstance(node, VectorSelector) and str(node.name) in FOREIGN:
            found.update(FOREIGN[str(node.name)])

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


def test_the_alerts_are_about_this_release_alone(helm: Helm) -> None:
    for rule in alerts(helm):
        for selector in re.findall(r"\{([^}]*)\}", rule["expr"]):
            assert 'namespace="messaging"' in selector, rule["alert"]
            assert f"{RELEASE}-postdate-" in selector, rule["alert"]


def test_the_documents_name_every_alert(helm: Helm) -> None:
    text = (CHART / "README.md").read_text(encoding="utf-8")
    told = [*re.findall(r"^\| `(Postdate\w+)` \|", text, re.MULTILINE)]
    assert sorted(told) == sorted(rule["alert"] for rule in alerts(helm))


def test_alerts_of_disabled_parts_are_absent(helm: Helm) -> None:
    values = merged(ALL, {"audit": {"enabled": False}, "persistence": {"enabled": False}})
    names = {rule["alert"] for rule in alerts(helm, values)}
    assert {rule["alert"] for rule in alerts(helm)} - names == {"PostdateAuditFailed", "PostdateVolumeFull"}


def test_settings_of_the_rules_are_rendered(helm: Helm) -> None:
    rule = one(helm.render(ci_values()["production"]), "PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    (group,) = rule["spec"]["groups"]
    assert group["rules"][-1]["record"] == "messaging:postdate_delivered:rate5m"
    (late,) = [each for each in group["rules"] if each.get("alert") == "PostdateLate"]
    assert late["expr"].endswith("> 2")
    assert late["labels"] == {"severity": "warning", "team": "messaging"}


def test_prometheus_scrapes_each_pod_once_also_while_it_is_not_ready(helm: Helm) -> None:
    objects = helm.render(merged(NEEDED, ALL))
    monitor = one(objects, "ServiceMonitor")
    assert monitor.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert monitor["spec"].keys() == {"namespaceSelector", "selector", "endpoints"}
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = [each for each in objects if each["kind"] == "Service" and wanted <= each["metadata"]["labels"].items()]
    (service,) = services
    assert service["metadata"]["name"] == f"{RELEASE}-postdate-headless"
    assert service["spec"]["publishNotReadyAddresses"] is True
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint == {"port": service["spec"]["ports"][0]["name"], "path": "/metrics"}


def test_every_panel_uses_existing_metrics() -> None:
    asked = [
        (panel["title"], target["expr"].replace("$__rate_interval", "5m"))
        for panel in panels()
        for target in panel.get("targets", [])
    ]
    assert len(asked) > 25
    for title, expression in asked:
        assert list(complaints(expression)) == [], title
        assert expression.count("postdate_") == expression.count('namespace="$namespace"'), title


def test_the_panels_lie_side_by_side_and_fill_the_width() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["type"] == "row" or panel["description"], panel["title"]
    assert len(taken) == 24 * (max(y for _, y in taken) + 1)
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_the_dashboard_is_delivered_as_it_is(helm: Helm) -> None:
    config = one(helm.render(merged(NEEDED, ALL)), "ConfigMap", f"{RELEASE}-postdate-dashboard")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(config["data"]["postdate.json"]) == json.loads(DASHBOARD.read_text(encoding="utf-8"))
