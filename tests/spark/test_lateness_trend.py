"""The lateness by day. Goal: each day has exactly its deliveries and their exact percentiles, over all runs of a state.
Method: rows with random lateness are compared with sorting in Python; then two audits of handwritten topics with
messages due on three days, a run without new records, and invalid options.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from postdate.spark.audit.options import AuditOptions
from postdate.spark.errors import JobUsageError
from postdate.spark.session.small_tables import small_table
from postdate.spark.state.delta import TableForm
from postdate.spark.state.lateness_trend import TrendDay, lateness_trend
from postdate.spark.state.store import StateStore, last_verdicts
from support.audits.forged_topics import Forged
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment

_LAST = date(2026, 3, 3)
_DAY_MS = 86_400_000
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999, "max": 1.0}


def figures(values: list[int]) -> dict[str, int]:
    """Returns the percentiles by nearest rank: the smallest value that is at least as large as the share of all
    values."""
    ranked = sorted(values)
    return {name: ranked[max(0, math.ceil(share * len(ranked)) - 1)] for name, share in _SHARES.items()}


def test_each_day_has_its_own_exact_percentiles(spark: SparkSession) -> None:
    chance = random.Random(7)
    late = {1: [chance.randrange(500) for _ in range(1_500)], 2: [], 3: [5], 9: [1, 2], 10: [1]}
    rows: list[tuple[str, str, int | None]] = [
        ((_LAST - timedelta(days=ago)).isoformat(), "delivered", value) for ago, some in late.items() for value in some
    ]
    day = (_LAST - timedelta(days=3)).isoformat()
    rows += [(day, "delivered", None), (day, "cancelled", None), (day, "dead", 7)]
    rows.append(((_LAST + timedelta(days=1)).isoformat(), "delivered", 1))
    table = small_table(spark, rows, "due_day string, fate string, lateness_ms bigint").selectExpr(
        "cast(due_day AS date) AS due_day", "fate", "lateness_ms"
    )
    expected = [
        TrendDay(_LAST - timedelta(days=9), 2, figures([1, 2])),
        *(TrendDay(_LAST - timedelta(days=ago)) for ago in range(8, 3, -1)),
        TrendDay(_LAST - timedelta(days=3), 2, figures([5])),
        TrendDay(_LAST - timedelta(days=2)),
        TrendDay(_LAST - timedelta(days=1), 1_500, figures(late[1])),
    ]
    assert lateness_trend(table, _LAST, 10) == tuple(expected)
    assert lateness_trend(table, _LAST, 3) == tuple(expected[-1:])
    assert lateness_trend(table, _LAST, 1) == ()


@pytest.fixture(scope="module")
def deployment(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("trend")) as made:
        yield made


def by_day(spark: SparkSession, state: str) -> list[dict[str, Any]]:
    """Returns the trend of the rows of a state, computed in Python."""
    found: dict[str, list[int]] = {}
    for row in last_verdicts(spark, state).where("fate = 'delivered'").collect():
        due = datetime.fromtimestamp(row["last_due_ms"] / 1_000, UTC).date()
        found.setdefault(due.isoformat(), []).append(row["ended_ms"] - row["last_due_ms"])
    return [
        {"day": day, "delivered": len(values), "lateness_ms": figures(values)} for day, values in sorted(found.items())
    ]


@pytest.mark.timeout(900)
def test_the_trend_covers_all_runs_of_a_state(
    deployment: SidecarDeployment, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forged, state, page = Forged.on(deployment), str(tmp_path / "state"), tmp_path / "page.html"
    now_ms = forged.due_ms
    for number in range(6):
        forged.sound(at=now_ms - number % 2 * _DAY_MS)
    first = forged.audited(capsys, state=state, trend=True)
    assert [one["delivered"] for one in first["trend"]] == [3, 3]
    assert first["trend"] == by_day(spark, state)
    for number in range(3):
        forged.sound(at=now_ms - (1 + number % 2) * _DAY_MS)
    second = forged.audited(capsys, state=state, html=str(page))
    assert [one["delivered"] for one in second["trend"]] == [1, 5, 3]
    assert second["trend"] == by_day(spark, state)
    assert "Lateness by day of the due time (UTC), ms" in page.read_text()
    _leave_rows_of_a_killed_run(spark, state)
    idle = forged.audited(capsys, state=state, trend=True, trend_days=2)
    assert idle["state"]["run"] == second["state"]["run"]
    yesterday = datetime.fromtimestamp(idle["snapshot_ms"] / 1_000 - 86_400, UTC).date().isoformat()
    assert idle["trend"] == [one for one in second["trend"] if one["day"] >= yesterday] != []
    assert forged.audited(capsys, state=state)["trend"] is None, "nobody wants it"


def _leave_rows_of_a_killed_run(spark: SparkSession, path: str) -> None:
    store = StateStore(spark, path)
    rows = store.origins().where("fate = 'delivered'")
    store.prepare(store.newest(), TableForm(rows.schema))
    store.add("origins", rows.withColumn("offset", rows["offset"] + 1_000))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trend": True}, "name one with --state"),
        ({"state": "s", "trend_days": 0}, "between 1 and 366 days, not 0"),
        ({"state": "s", "trend_days": 367}, "between 1 and 366 days, not 367"),
    ],
)
def test_invalid_options_of_a_trend_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(JobUsageError, match=message):
        AuditOptions("b:1", **options)
