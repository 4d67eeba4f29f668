"""What a state remembers of what audits have found. Goal: whatever is found stays open until a person has acknowledged
it, and nothing that was not verified turns green by waiting.

Method: histories of a few records, audited again and again while records arrive, retention deletes requests, and open
transactions end.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from support.audit_runs import Runs
from support.history import History
from support.verdict_cases import DUE, T


def _delivered(*offsets: int) -> History:
    """Requests that were delivered as they should be."""
    history = History(T)
    for offset in offsets:
        history.ask(offset)
        history.deliver(offset)
    history.commit(*([offset, DUE, "delivered"] for offset in offsets))
    return history


def test_each_new_finding_opens_a_violation_and_an_old_one_none(spark: SparkSession, tmp_path: Path) -> None:
    history = _delivered(1, 2)
    history.deliver(1)
    runs = Runs(spark, history, tmp_path)
    runs.audit()
    assert runs.violations() == [(1, 1, "duplicate")]
    runs.acknowledge(1)
    assert runs.standing() == 0

    history.deliver(1)
    assert runs.audit().fresh.count() == 1
    assert (runs.violations(), runs.standing()) == ([(1, 1, "duplicate"), (2, 1, "duplicate")], 1)
    runs.acknowledge(2)

    history.bury(1)
    runs.audit()
    assert runs.violations()[2:] == [(3, 1, "contradiction")], "the copies were acknowledged, the dead letter was not"


def test_what_is_judged_again_and_found_unchanged_opens_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """An open transaction keeps the row in doubt, so each run judges it again."""
    history = _delivered(1)
    history.deliver(1, partition=1)
    history.deliver(1)
    runs = Runs(spark, history, tmp_path)
    for _ in range(3):
        found = runs.audit(log_capped=True)
    assert found.fresh.count() == 0
    assert runs.violations() == [(1, 1, "duplicate"), (1, 1, "mismatch")]
