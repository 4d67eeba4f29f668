"""What a state remembers of what audits have found. Goal: whatever is found stays open until a person has acknowledged
it, and nothing that was not verified turns green by waiting.

Method: histories of a few records, audited again and again while records arrive, retention deletes requests, and open
transactions end.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.audit_runs import Runs
from support.history import History
from support.verdict_cases import DUE, SNAPSHOT, T


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


def test_a_request_whose_fate_is_gone_stays_open_after_it_has_expired(spark: SparkSession, tmp_path: Path) -> None:
    history = History(T)
    history.ask(1)
    runs = Runs(spark, history, tmp_path)
    found = runs.audit(fates_lost_before_ms=SNAPSHOT)
    assert [row["verdicts"] for row in found.fresh.where("is_fate_lost").collect()] == [["unsettled"]]
    assert (runs.violations(), found.state.counts["unsettled"]) == ([(1, 1, "unsettled")], 1)
    for _ in range(2):
        runs.audit(fates_lost_before_ms=SNAPSHOT, log_start=5)
        assert runs.standing() == 1
    runs.acknowledge(1)
    assert runs.standing() == 0


def test_a_request_behind_an_open_transaction_is_judged_when_that_has_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Even if retention deletes the request in between."""
    history = History(T)
    history.ask(1)
    runs = Runs(spark, history, tmp_path)
    for log_start in (0, 5, 5):
        found = runs.audit(log_capped=True, log_start=log_start)
        assert [row["verdicts"] for row in found.fresh.collect()] == [["capped"]], "each run counts it again"
        assert found.state.open == 1
    found = runs.audit(log_start=5)
    assert (runs.violations(), found.state.open) == ([(4, 1, "missing")], 0)


@pytest.mark.parametrize("bits", [None, 0], ids=["one by one", "in a chunk"])
def test_a_later_copy_is_compared_with_its_request(spark: SparkSession, tmp_path: Path, bits: int | None) -> None:
    """A state stores no digests of a message that was delivered as it should be."""
    history = _delivered(1, 2, 3)
    runs = Runs(spark, history, tmp_path, bits)
    runs.audit()
    history.deliver(1, value=b"another")
    history.deliver(2)
    history.bury(3, key=b"another")
    runs.audit()
    assert {(offset, verdict) for _, offset, verdict in runs.violations()} == {
        *((1, "duplicate"), (1, "mismatch"), (2, "duplicate")),
        *((3, "contradiction"), (3, "mismatch")),
    }


def test_a_later_copy_of_a_request_that_has_expired_is_a_duplicate(spark: SparkSession, tmp_path: Path) -> None:
    history = _delivered(1)
    runs = Runs(spark, history, tmp_path)
    runs.audit()
    history.deliver(1, value=b"another")
    runs.audit(log_start=5)
    assert runs.violations() == [(2, 1, "duplicate")]
