"""The audit as a function. Goal: a notebook gets the results of the command, and its session stays unchanged. Method:
handwritten topics, and the example of docs/audit.md as printed, except for addresses and path. The session has another
time zone, a cached table and a view. The test compares the settings, views and cached tables of the session before and
after an audit, and after an audit that fails in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from postdate.spark import audit
from postdate.spark.audit.output import as_json
from postdate.spark.errors import CannotRun, JobUsageError
from postdate.spark.state.store import StateStore
from support.audits.forged_topics import Forged
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment
from support.repository import ROOT

_DOCUMENT = ROOT / "docs/audit.md"
_QUICK: dict[str, Any] = {"slack_ms": 1_000, "settle_ms": 1_000}


@pytest.fixture(scope="module")
def deployment(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("notebook")) as made:
        yield made


def example(deployment: SidecarDeployment, forged: Forged, state: Path) -> str:
    """Returns the example of the document with the addresses of the test environment."""
    (text,) = re.findall(r"(?s)```python\n(.*?)```", _DOCUMENT.read_text(encoding="utf-8"))
    places = {
        "localhost:9092": deployment.bootstrap,
        "postdate.requests": forged.requests,
        "/var/lib/postdate-audit": state,
    }
    for printed, real in places.items():
        assert text.count(f'"{printed}"') == 1
        text = text.replace(f'"{printed}"', f'"{real}"')
    return str(text)


def described(spark: SparkSession) -> tuple[object, ...]:
    """Returns the settings and views of the session, which a person may have set."""
    settings = {row["key"]: row["value"] for row in spark.sql("SET").collect()}
    return settings, sorted(row["tableName"] for row in spark.sql("SHOW TABLES").collect())


def has_cached(spark: SparkSession) -> bool:
    session: Any = spark._jsparkSession
    return not session.sharedState().cacheManager().isEmpty()


@contextmanager
def untouched(spark: SparkSession) -> Iterator[None]:
    """Asserts that the context leaves a session with its settings, views and cached tables unchanged."""
    spark.catalog.clearCache()
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    mine = spark.range(7).cache()
    mine.createOrReplaceTempView("mine")
    assert mine.count() == 7
    try:
        before = described(spark)
        yield
        assert described(spark) == before
        assert mine.storageLevel.useMemory
        mine.unpersist()
        assert not has_cached(spark), "only the owner's table was cached"
    finally:
        spark.catalog.dropTempView("mine")
        spark.conf.set("spark.sql.session.timeZone", zone)


@pytest.mark.timeout(900)
def test_the_example_runs_as_printed(
    deployment: SidecarDeployment, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = Forged.on(deployment)
    for number in range(5):
        forged.sound(key=b"k%d" % number)
    twice = forged.sound()
    forged.deliver(twice)
    lost = forged.ask()
    namespace: dict[str, Any] = {"spark": spark}
    with untouched(spark):
        exec(example(deployment, forged, tmp_path / "state"), namespace)  # noqa: S102 - the document's own code
        shown = capsys.readouterr().out
        result: audit.AuditResult = namespace["result"]
        assert {row["verdict"] for row in result.violations.collect()} == {"duplicate", "missing"}
        verdicts = {row["offset"]: row["verdicts"] for row in result.origins.collect()}
    assert shown.startswith("4 5 {} {'p50': ")
    assert f"{forged.target}|" in shown, "the late messages by target"
    assert "duplicate" in shown
    assert verdicts == {**{offset: ["delivered"] for offset in range(5)}, twice: ["duplicate"], lost: ["missing"]}
    report = forged.audited(capsys, state=str(tmp_path / "state of the command"))
    for name in ("exit", "counts", "outcomes", "lateness_ms", "violations"):
        assert as_json(result.outcome)[name] == report[name], name


@pytest.mark.timeout(900)
def test_a_second_run_judges_the_new_records_and_a_failed_run_leaves_no_trace(
    deployment: SidecarDeployment, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged, state = Forged.on(deployment), str(tmp_path / "state")
    metrics = tmp_path / "audit.prom"
    forged.sound()
    first = audit.run(spark, deployment.bootstrap, forged.requests, state=state, **_QUICK)
    assert (first.outcome.exit_code, first.outcome.outcomes.verified) == (0, 1)
    forged.sound()

    def fails(*_: object) -> int:
        raise CannotRun("no more")

    with monkeypatch.context() as patched, untouched(spark):
        patched.setattr(StateStore, "open_violations", fails)
        with pytest.raises(CannotRun, match="no more"):
            audit.run(spark, deployment.bootstrap, [forged.requests], state=state, **_QUICK)
    bounds = {"fail_on_lateness": ["max=1s"], "openmetrics": str(metrics)}
    second = audit.run(spark, deployment.bootstrap, [forged.requests], state=state, **bounds, **_QUICK)
    assert (second.outcome.exit_code, second.outcome.outcomes.verified) == (3, 1)
    assert second.outcome.state is not None
    assert second.outcome.state.run == 2
    assert second.origins.count() == 2
    assert 'postdate_audit_run{topic="' in metrics.read_text()


def test_invalid_options_are_refused(spark: SparkSession) -> None:
    with pytest.raises(JobUsageError, match="With a state, everything new is audited"):
        audit.run(spark, "b:1", ["r"], state="s", to_ms=5)
    with pytest.raises(TypeError, match="slak_ms"):
        audit.run(spark, "b:1", ["r"], state="s", slak_ms=5)
