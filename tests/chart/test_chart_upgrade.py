"""Goal: Kubernetes never refuses a `helm upgrade`: the immutable fields of a StatefulSet stay the same, whichever
values change. Method: the test renders the chart with other values and as a later version, and compares the immutable
fields.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.deployments.helm import NEEDED, RELEASE, Helm, Values, ci_values, merged, of_kind, one
from support.tidiness.chart_documents import CHART

#: The fields of a StatefulSet's specification that may change.
MUTABLE = {
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
}


def immutable(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (stateful,) = of_kind(objects, "StatefulSet")
    return {name: value for name, value in stateful["spec"].items() if name not in MUTABLE}


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a copy of the chart in which the chart and the program have a later version."""
    copied = tmp_path_factory.mktemp("later") / "postdate"
    shutil.copytree(CHART, copied)
    chart = copied / "Chart.yaml"
    text, count = re.subn(r'(?m)^(version|appVersion): "?[0-9.]+"?$', r'\1: "9.9.9"', chart.read_text())
    assert count == 2
    chart.write_text(text)
    return copied


def test_a_later_version_changes_no_immutable_field(helm: Helm, later: Path) -> None:
    for name, values in ci_values().items():
        before, after = helm.render(values), helm.render(values, later)
        assert immutable(before) == immutable(after), name
        selectors = [
            [each["spec"]["selector"] for each in objects if "selector" in each.get("spec", {})]
            for objects in (before, after)
        ]
        assert selectors[0] == selectors[1], name
    (container,) = of_kind(after, "StatefulSet")[0]["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(":9.9.9")


@pytest.mark.parametrize(
    "values",
    [
        {"commonLabels": {"team": "a"}, "podLabels": {"app.kubernetes.io/name": "stranger"}},
        {"replicaCount": 7, "resources": {"requests": {"cpu": "2"}}},
        {"image": {"tag": "2.0", "registry": "r.example.com"}},
        {"config": {"log_level": "debug"}, "http": {"port": 9000}},
        {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}},
        {"serviceAccount": {"create": False, "name": "other"}},
    ],
)
def test_no_common_setting_changes_an_immutable_field(helm: Helm, values: Values) -> None:
    assert immutable(helm.render(merged(NEEDED, values))) == immutable(helm.render(NEEDED))


def test_selectors_choose_the_pods_of_the_sidecar_and_no_others(helm: Helm) -> None:
    values = merged(NEEDED, {"commonLabels": {"app.kubernetes.io/component": "x"}, "podLabels": {"a": "b"}})
    objects = helm.render(merged(values, {"audit": {"enabled": True}}))
    stateful = one(objects, "StatefulSet")
    labels = stateful["spec"]["template"]["metadata"]["labels"].items()
    chosen = [
        stateful["spec"]["selector"]["matchLabels"],
        one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        *(each["spec"]["selector"] for each in of_kind(objects, "Service")),
    ]
    audit = one(objects, "CronJob", f"{RELEASE}-postdate-audit")["spec"]["jobTemplate"]["spec"]
    others = [
        one(objects, "Job", f"{RELEASE}-postdate-topics")["spec"]["template"]["metadata"]["labels"],
        audit["template"]["metadata"]["labels"],
        one(objects, "Pod", f"{RELEASE}-postdate-test")["metadata"]["labels"],
    ]
    for selector in chosen:
        assert selector.items() <= labels
        assert all(not selector.items() <= other.items() for other in others)
