"""The violations in the state of an audit. Goal: a violation stays open until a person acknowledges it, an unverified
request does not become verified by waiting, and later records are judged together with earlier ones.

Method: histories of a few records, audited repeatedly while records arrive, retention deletes requests, and open
transactions end. Histories that need the same runs are partitions of one topic.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from postdate.spark.audit.incremental_judging import Advance
from postdate.wire.values.murmur2 import partition_for
from support.audit_cases.verdicts import DUE, SNAPSHOT, T
from support.audits.runs_with_state import Runs
from support.audits.written_records import RandomHistory, SideBySide


def _deliver(history: RandomHistory, *offsets: int) -> None:
    """Adds correctly delivered requests."""
    for offset in offsets:
        history.ask(offset)
        history.deliver(offset)
    history.commit(*([offset, DUE, "delivered"] for offset in offsets))


def _fresh(advance: Advance, offset: int) -> list[list[str]]:
    """Returns the verdicts that a run reports on a request."""
    return [row["verdicts"] for row in advance.fresh.where(F.col("offset") == offset).collect()]


_EXPIRED, _FOUND_TWICE, _ANOTHER, _COPIED, _BURIED = 1, 5, 6, 7, 8
_SECOND_FINDINGS = [
    *((2, _EXPIRED, "duplicate"), (2, _FOUND_TWICE, "duplicate"), (2, _ANOTHER, "duplicate")),
    *((2, _ANOTHER, "mismatch"), (2, _COPIED, "duplicate"), (2, _BURIED, "contradiction"), (2, _BURIED, "mismatch")),
]


def _add_second_records(history: RandomHistory) -> None:
    history.deliver(_FOUND_TWICE)
    history.deliver(_ANOTHER, value=b"another")
    history.deliver(_COPIED)
    history.bury(_BURIED, key=b"another")
    history.deliver(_EXPIRED, value=b"another")


#  The offset of a message that a later message of its key overtook, the key, the lateness in ms, and the verdict.
_DISORDERS = ((21, b"k", 1, "order"), (31, b"l", 1_000, "overtaken"))


def _overtaken() -> RandomHistory:
    """Returns messages of two keys: those of the first key left in time, those of the second late. The test adds a
    second record of each overtaken message."""
    history = RandomHistory(T)
    for first, key, _, _ in _DISORDERS:
        for offset in range(first, first + 3):
            due = ("postdate-at", b"%d" % (T + offset))
            history.ask(offset, ("postdate-topic", b"orders"), due, key=key)
    for first, key, late_ms, _ in _DISORDERS:
        for offset in (first + 1, first, first + 2):
            history.commit([offset, T + offset, "delivered"], at_ms=T + offset + late_ms, next_request=34)
            history.deliver(offset, due_ms=T + offset, key=key, partition=partition_for(key, 4))
    return history


_DEAD_LETTER = 40


def _buried() -> RandomHistory:
    """Returns a request that ended as a dead letter. A later run reads only its second dead letter, which does not show
    the due day of the request."""
    history = RandomHistory(T)
    history.ask(_DEAD_LETTER)
    history.commit([_DEAD_LETTER, DUE, "dead"])
    history.bury(_DEAD_LETTER)
    return history


@pytest.mark.parametrize("bits", [None, 0], ids=["one by one", "in a chunk"])
def test_each_new_finding_opens_a_violation_and_a_known_one_does_not(
    spark: SparkSession, tmp_path: Path, bits: int | None
) -> None:
    """A later copy is compared with its request, although a state stores no digests of correctly delivered requests. If
    the request has expired, the copy is a duplicate. The second run does not check the order of messages."""
    history, disordered, buried = RandomHistory(T), _overtaken(), _buried()
    _deliver(history, _EXPIRED, _FOUND_TWICE, _ANOTHER, _COPIED, _BURIED, 9)
    history.deliver(_FOUND_TWICE)
    together, expired = SideBySide([history, disordered, buried]), {0: {"log_start": 5}}
    runs = Runs(spark, together.grown(), tmp_path, bits)
    assert runs.audit(in_order=True).state.open == 0
    opened = [(1, _FOUND_TWICE, "duplicate"), *((1, first, verdict) for first, _, _, verdict in _DISORDERS[:1])]
    assert runs.violations() == opened
    union = runs.union()
    for first, _, _, verdict in _DISORDERS:
        verdicts = [union[offset]["verdicts"] for offset in range(first, first + 3)]
        assert verdicts == [[verdict], ["delivered"], ["delivered"]]
    assert union[_DEAD_LETTER]["verdicts"] == ["dead"]
    runs.acknowledge(1)
    assert runs.standing() == 0

    _add_second_records(history)
    for first, key, _, _ in _DISORDERS:
        disordered.deliver(first, due_ms=T + first, key=key, partition=partition_for(key, 4))
    buried.bury(_DEAD_LETTER)
    together.grown()
    assert len(_fresh(runs.audit(bounds=expired), _FOUND_TWICE)) == 1
    beside = [*((2, first, "duplicate") for first, _, _, _ in _DISORDERS), (2, _DEAD_LETTER, "duplicate")]
    opened += [*_SECOND_FINDINGS, *beside]
    assert runs.violations() == opened
    assert runs.standing() == len(_SECOND_FINDINGS) + len(beside)
    union = runs.union()
    for first, _, _, verdict in _DISORDERS:
        assert set(union[first]["verdicts"]) == {verdict, "duplicate"}
    assert union[_DEAD_LETTER]["verdicts"] == ["duplicate"]
    runs.acknowledge(2)

    history.bury(_FOUND_TWICE)
    together.grown()
    runs.audit(bounds=expired)
    assert runs.violations()[len(opened) :] == [(3, _FOUND_TWICE, "contradiction")], "the copies were acknowledged"


def test_requests_that_may_be_hidden_are_judged_again_and_stay_open(spark: SparkSession, tmp_path: Path) -> None:
    """While an open transaction keeps rows in doubt, each run judges them again; an unchanged verdict opens no new
    violation. A request behind the transaction is judged when the transaction has ended, even if retention has deleted
    the request by then. A request whose fate is lost stays open after it has expired."""
    behind, gone = RandomHistory(T), RandomHistory(T)
    hidden, doubtful, unsettled = 1, 10, 2
    behind.ask(hidden)
    _deliver(behind, doubtful)
    behind.deliver(doubtful, partition=1)
    behind.deliver(doubtful)
    gone.ask(unsettled)
    runs = Runs(spark, SideBySide([behind, gone]).grown(), tmp_path)
    opened = [(1, unsettled, "unsettled"), (1, doubtful, "duplicate"), (1, doubtful, "mismatch")]
    for run, log_start in enumerate((0, 5, 5)):
        lost = {"log_start": log_start, "fates_lost_before_ms": SNAPSHOT}
        advance = runs.audit(bounds={0: {"log_start": log_start, "log_capped": True}, 1: lost})
        assert _fresh(advance, hidden) == [["capped"]], "each run counts it again"
        assert len(_fresh(advance, doubtful)) == (run == 0)
        assert runs.violations() == opened
        assert runs.standing() == 3
        if run == 0:
            assert [row["verdicts"] for row in advance.fresh.where("is_fate_lost").collect()] == [["unsettled"]]
            assert advance.state.counts["unsettled"] == 1
        union = runs.union()
        assert all(union[offset]["state"] != "closed" for offset in (hidden, doubtful))
    runs.acknowledge(1)
    assert runs.standing() == 0
    advance = runs.audit(bounds={0: {"log_start": 5}, 1: lost})
    assert runs.violations() == [*opened, (4, hidden, "missing")]
    union = runs.union()
    assert [union[offset]["state"] for offset in (hidden, doubtful)] == ["closed", "closed"]
