"""What a state remembers of what audits have found. Goal: whatever is found stays open until a person has acknowledged
it, and nothing that was not verified turns green by waiting.

Method: histories of a few records, audited again and again while records arrive, retention deletes requests, and open
transactions end.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from postdate.spark.audit.advance import Advance
from support.audit_runs import Runs
from support.history import History
from support.verdict_cases import DUE, SNAPSHOT, T


def _deliver(history: History, *offsets: int) -> None:
    """Adds requests that were delivered as they should be."""
    for offset in offsets:
        history.ask(offset)
        history.deliver(offset)
    history.commit(*([offset, DUE, "delivered"] for offset in offsets))


def _fresh(found: Advance, offset: int) -> list[list[str]]:
    """The verdicts that a run reports of a request."""
    return [row["verdicts"] for row in found.fresh.where(F.col("offset") == offset).collect()]


@pytest.mark.parametrize("bits", [None, 0], ids=["one by one", "in a chunk"])
def test_each_new_finding_opens_a_violation_and_an_old_one_none(
    spark: SparkSession, tmp_path: Path, bits: int | None
) -> None:
    """A later copy is compared with its request, of which a state stores no digests if it was delivered as it should
    be. If the request has expired, the copy is a duplicate."""
    history, (expired, found_twice, another, copied, buried) = History(T), (1, 5, 6, 7, 8)
    _deliver(history, expired, found_twice, another, copied, buried, 9)
    history.deliver(found_twice)
    runs = Runs(spark, history, tmp_path, bits)
    runs.audit()
    assert runs.violations() == [(1, found_twice, "duplicate")]
    runs.acknowledge(1)
    assert runs.standing() == 0

    history.deliver(found_twice)
    history.deliver(another, value=b"another")
    history.deliver(copied)
    history.bury(buried, key=b"another")
    history.deliver(expired, value=b"another")
    assert len(_fresh(runs.audit(log_start=5), found_twice)) == 1
    assert runs.violations()[1:] == [
        *((2, expired, "duplicate"), (2, found_twice, "duplicate"), (2, another, "duplicate")),
        *((2, another, "mismatch"), (2, copied, "duplicate"), (2, buried, "contradiction"), (2, buried, "mismatch")),
    ]
    assert runs.standing() == 7
    runs.acknowledge(2)

    history.bury(found_twice)
    runs.audit(log_start=5)
    assert runs.violations()[8:] == [(3, found_twice, "contradiction")], "the copies were acknowledged"


def test_what_an_open_transaction_keeps_in_doubt_is_judged_again(spark: SparkSession, tmp_path: Path) -> None:
    """Each run judges these rows again. What it finds unchanged opens nothing. A request behind the transaction is
    judged when that has ended, even if retention deletes the request in between."""
    history, (hidden, doubtful) = History(T), (1, 10)
    history.ask(hidden)
    _deliver(history, doubtful)
    history.deliver(doubtful, partition=1)
    history.deliver(doubtful)
    runs, opened = Runs(spark, history, tmp_path), [(1, doubtful, "duplicate"), (1, doubtful, "mismatch")]
    for run, log_start in enumerate((0, 5, 5)):
        found = runs.audit(log_capped=True, log_start=log_start)
        assert _fresh(found, hidden) == [["capped"]], "each run counts it again"
        assert len(_fresh(found, doubtful)) == (run == 0)
        assert runs.violations() == opened
        assert found.state.open == 2
    found = runs.audit(log_start=5)
    assert (runs.violations(), found.state.open) == ([*opened, (4, hidden, "missing")], 0)


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
