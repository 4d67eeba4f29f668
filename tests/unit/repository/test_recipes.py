"""Goal: the recipes for the nightly audit retry it only if it reached no verdict, so never after a violation. The
recipe for KEDA queries a figure that Postdate serves.

Method: runs the Airflow DAG with a stand-in for Airflow, which only keeps the task, and a stand-in for `postdate`,
which exits with a given code; reads the exit codes at which the Kubernetes Job ends; lets the program parse the
arguments of the SparkApplication. The query of the ScaledObject is compared with the description of the API and with
the chart; `test_pending_api.py` sends it to real processes.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml

from postdate.sidecar.http.api.openapi import describe
from postdate.spark.audit.options import AuditOptions
from postdate.spark.audit_main import main
from postdate.spark.session.start import image_packages
from support.deployments.examples import EXAMPLES, keda_trigger
from support.repository import ROOT

#: Exit codes that a person must handle: 2 usage, 3 too late, 4 violation, 5 not verified. After 1 the audit is retried.
FINAL = (2, 3, 4, 5)


class AirflowException(Exception):
    pass


class AirflowFailException(AirflowException):
    pass


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Returns the DAG's task as a plain function."""
    kept: list[Callable[[], str]] = []

    def task(**options: Any) -> Callable[[Callable[[], str]], Callable[[], None]]:
        assert options["retries"] > 0
        return lambda function: lambda: kept.append(function)

    modules = {name: ModuleType(name) for name in ("airflow", "airflow.decorators", "airflow.exceptions")}
    monkeypatch.setattr(modules["airflow.decorators"], "task", task, raising=False)
    monkeypatch.setattr(modules["airflow.decorators"], "dag", lambda **_: lambda function: function, raising=False)
    for kind in (AirflowException, AirflowFailException):
        monkeypatch.setattr(modules["airflow.exceptions"], kind.__name__, kind, raising=False)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    runpy.run_path(str(EXAMPLES / "airflow" / "postdate_audit.py"))
    (function,) = kept
    return function


@pytest.mark.parametrize(
    ("code", "raised"),
    [(0, None), (1, AirflowException), *((code, AirflowFailException) for code in FINAL)],
)
def test_airflow_retries_only_audits_without_a_verdict(
    audit: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    code: int,
    raised: type[Exception] | None,
) -> None:
    program = tmp_path / "postdate"
    program.write_text(f"#!/bin/sh\necho outcome\nexit {code}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    if raised is None:
        assert audit() == "outcome\n"
        return
    with pytest.raises(AirflowException) as caught:
        audit()
    assert caught.type is raised


def test_kubernetes_retries_only_audits_without_a_verdict() -> None:
    job = yaml.safe_load((EXAMPLES / "kubernetes" / "audit-job.yaml").read_text(encoding="utf-8"))
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["operator"]) == ("FailJob", "In")
    assert rule["onExitCodes"]["values"] == [*FINAL]
    assert job["spec"]["backoffLimit"] > 0


def test_the_spark_operator_restarts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ignores exit codes."""
    text = (EXAMPLES / "kubernetes" / "audit-sparkapplication.yaml").read_text(encoding="utf-8")
    spec = yaml.safe_load(text)["spec"]
    assert (spec["concurrencyPolicy"], spec["template"]["restartPolicy"]) == ("Forbid", {"type": "Never"})
    assert spec["template"]["deps"]["packages"] == image_packages().split(",")
    module = sys.modules["postdate.spark.audit_main"]
    program = Path(str(module.__file__))
    assert spec["template"]["mainApplicationFile"].endswith("/".join(program.parts[-3:]))
    planned: list[AuditOptions] = []

    def plan(given: AuditOptions, follows: bool) -> Callable[[], int]:
        assert not follows
        planned.append(given)
        return lambda: 0

    monkeypatch.setattr(module, "planned_audit", plan)
    assert main(spec["template"]["arguments"]) == 0
    (given,) = planned
    assert (given.state, given.output) == ("s3a://bucket/postdate-audit", "json")


def test_the_keda_example_queries_the_service_with_the_api_token() -> None:
    trigger = keda_trigger()
    asked = urlsplit(trigger["url"])
    values = yaml.safe_load((ROOT / "charts" / "postdate" / "values.yaml").read_text(encoding="utf-8"))
    assert (asked.scheme, asked.netloc) == ("http", f"postdate.messaging.svc:{values['service']['port']}")
    described = describe()
    operation = described["paths"][asked.path]["get"]
    names = {parameter["name"] for parameter in operation["parameters"]}
    assert {name for name, _ in parse_qsl(asked.query, strict_parsing=True)} == {"target", "until", "state"} <= names
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    number = described["components"]["schemas"][schema]["properties"][trigger["valueLocation"]]
    assert number["type"] == "integer"
    assert trigger["authMode"] == described["components"]["securitySchemes"]["token"]["scheme"]
    token, _ = yaml.safe_load_all((EXAMPLES / "kubernetes" / "keda-scaledobject.yaml").read_text(encoding="utf-8"))
    secret = {"parameter": "token", "name": "postdate-api-token", "key": values["api"]["tokenKey"]}
    assert token["spec"]["secretTargetRef"] == [secret]
