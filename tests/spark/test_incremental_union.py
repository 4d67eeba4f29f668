"""Audits one after the other, each of what is new. Goal: the last verdict on each origin is that of one full audit.

Method: the cases of all verdicts and answers, one history in the order in which it was written, cut at random places:
each run sees requests, dispatch log, targets, dead letters and verdicts up to ends that are fixed in that order, as the
audit fixes them, so effects come before their causes, and what settles doubts is read twice. What the runs leave is
held against the same history judged at once, origin by origin. POSTDATE_TEST_CUTS=N adds the cases of answers, a second
cut, a run that is killed before it has made its state the newest, and one without anything new, which must tell nothing
again; and it makes N schedules of it all: one seed is one schedule.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from postdate.spark.audit.reading import since, without_renewed
from postdate.spark.errors import CannotRun
from postdate.spark.job.bounds import Range
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.judging import origin_rows as folded
from postdate.spark.rules.verdicts import VIOLATIONS
from postdate.spark.state.store import AuditState
from support.audit_cases.answers import answer_cases
from support.audit_cases.verdicts import DUE, TO_ORDERS, Cases, T, all_cases
from support.audits.judging import judged
from support.audits.runs_with_state import Ends, Runs, all_of
from support.audits.written_records import RandomHistory

_WIDE = "POSTDATE_TEST_CUTS" in os.environ
_SEEDS = range(int(os.environ.get("POSTDATE_TEST_CUTS", "1")))
_CUTS = 2 if _WIDE else 1
_SAME = ("target", "first_due_ms", "last_due_ms", "action", "request_ms", "fate", "lateness_ms", "ended_ms")
_SAME_IN_ANY_ORDER = ("records", "fates", "answers", "verdicts", "details")


def whole_history() -> Cases:
    """Returns all cases, with dispatch-log records that say how far their owner had read: not far beyond what they end;
    and at the end a second record of what was delivered first, which differs."""
    cases = answer_cases(all_cases()) if _WIDE else all_cases()
    cases.deliver(cases.expected["delivered"].offset, value=b"another")
    cases.requests.sort(key=lambda record: record[2])
    read = 0
    for place, record in enumerate(cases.log):
        said = json.loads(record[6] or b"{}")
        read = max(read, 1 + max((number for fate in said["fates"] for number in (fate[0], *fate[4:])), default=0))
        cases.log[place] = (*record[:6], json.dumps(said | {"next_request": read}).encode(), record[7])
    return cases


@pytest.fixture(scope="module")
def history() -> Cases:
    return whole_history()


@pytest.fixture(scope="module")
def full(spark: SparkSession, history: Cases) -> dict[int, Row]:
    """Returns the same judged at once."""
    return {row["offset"]: row for row in judged(spark, history)[0].collect()}


def comparable(row: Row, *, with_places: bool = True) -> tuple[Any, ...]:
    """What two audits must agree on; where several records are named, in whatever order.

    Without places, since an audit does not look where the records of a consistent chunk lie, nor, without ids, when its
    requests were sent.
    """
    unseen = () if with_places else ("records", "details", "request_ms")
    names = [name for name in _SAME_IN_ANY_ORDER if name not in unseen]
    words = [sorted(" ".join(row[name] or []).replace(",", " ").split()) for name in names]
    return (*(row[name] for name in _SAME if name not in unseen), *words)


@pytest.mark.timeout(900)  # some ten Spark jobs with large plans for each run
@pytest.mark.parametrize("seed", _SEEDS)
def test_the_union_of_runs_is_the_full_audit(
    spark: SparkSession,
    history: Cases,
    full: dict[int, Row],
    tmp_path: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if seed % 2 == 0:
        monkeypatch.setattr(folded, "AROUND_ROWS_MAX", 0)  # related rows are looked up first, as among many rows
    chance = random.Random(seed)
    runs = Runs(spark, history, tmp_path, (0, None, 2)[seed % 3])
    # One cut between a message that has ended and the cancel that came too late; another one anywhere.
    late = [case.offset for name, case in history.expected.items() if name.startswith("too-late") and not case.word]
    cuts: dict[int, random.Random | None] = {chance.choice(late): None} if late else {}
    while len(cuts) < _CUTS:
        cuts[chance.randrange(10, history.next)] = chance
    closed = [runs.audit(Ends.at(history, at, cuts[at])).closed for at in sorted(cuts)]
    if _WIDE:
        runs.audit(all_of(history), keep=False)
    last = runs.audit(all_of(history))
    closed.append(last.closed)
    union = runs.union()
    assert union.keys() == full.keys()
    for offset, row in full.items():
        same = runs.bits is None or row["verdicts"] not in (["delivered"], ["duplicate", "mismatch"])
        assert comparable(union[offset], with_places=same) == comparable(row, with_places=same), offset
    assert all(closed), "each run has judged something for good"
    counts = Counter(verdict for row in full.values() for verdict in row["verdicts"])
    assert {name: count for name, count in last.state.counts.items() if count} == counts
    assert last.state.open == sum(1 for row in union.values() if row["state"] != "closed")
    opened = {(offset, verdict) for _, offset, verdict in runs.violations()}
    broken = {(offset, verdict) for offset, row in full.items() for verdict in row["verdicts"] if verdict in VIOLATIONS}
    assert broken <= opened, "what breaks a rule in the end was opened by one of the runs"

    if _WIDE:
        idle = runs.audit(all_of(history), keep=False)
        told = [row for row in idle.fresh.collect() if set(row["verdicts"]) & set(VIOLATIONS)]
        assert (told, idle.chain.breaks.count()) == ([], 0)


def test_rows_of_consistent_chunks_are_written_without_the_columns_that_they_lack(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nulls of all nested columns cost a third of writing such a row."""
    history = RandomHistory(T)
    for offset in (1, 2):
        history.ask(offset, TO_ORDERS, ("postdate-delay", b"1s"))
        history.deliver(offset)
        history.commit([offset, DUE, "delivered"])
    runs = Runs(spark, history, tmp_path, bits=2)
    runs.audit()
    assert [row["verdicts"] for row in runs.union().values()] == [["delivered"]] * 2
    written = spark.read.parquet(f"{runs.path}/origins/state=closed")
    assert {"offset", "fates"} <= {*written.columns}
    assert {"facts", "position"} & {*written.columns} == set()


def test_a_partition_is_read_from_where_the_last_run_stopped() -> None:
    partition = TopicPartition("r", 0)
    state = AuditState(1, 5, {"r": "id-1"}, {"r/0": 7}, {"r/0": -1}, {"r/0": 3})

    def cut(log_start: int, end: int) -> tuple[int, int, int]:
        span = Range("requests", partition, log_start, log_start, end, end, False, 99 if log_start else -1)
        whole, fresh = since({partition: span}, state)
        return fresh[partition].start, whole[partition].start, whole[partition].lost_before_ms

    assert cut(0, 10) == (7, 0, -1)
    assert cut(5, 10) == (7, 5, -1), "what has left the topic was read before"
    assert cut(8, 10) == (8, 8, 99), "what has left it was not read"
    with pytest.raises(CannotRun, match="ends at 6"):
        cut(0, 6)
    with pytest.raises(CannotRun, match="r was deleted and created again"):
        without_renewed(state, {"r": "id-2"}, ["r"])
    renewed = without_renewed(state, {"r": "id-2"}, [])
    assert (renewed.next, renewed.known_ms, renewed.recreated) == ({}, {}, frozenset({"r"}))
    assert without_renewed(state, {"r": "id-1"}, ["r"]) == state
