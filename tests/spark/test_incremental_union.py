"""Successive audits, each of the new records. Goal: the last verdict on each origin is that of one full audit. Method:
one history has the cases of all verdicts in the order in which they were written, and is cut at random positions. Each
run reads requests, dispatch log, targets, dead letters and verdicts up to ends that are fixed in that order, as an
audit fixes them. So a run may read effects before their causes, and reads twice the records that settle doubts. The
test compares the final state with the same history judged at once, origin by origin. POSTDATE_TEST_CUTS=N runs N random
schedules, one for each seed. It also adds the cases of answers, a second cut, a run that is killed before its state is
the newest, and a run without new records, which must report nothing again.
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
    """Returns all cases. Each dispatch-log record shows that its owner had read little more than the requests that it
    ends. The last record is a second, different one of the first delivered message."""
    cases = answer_cases(all_cases()) if _WIDE else all_cases()
    cases.deliver(cases.expected["delivered"].offset, value=b"another")
    cases.requests.sort(key=lambda record: record[2])
    read = 0
    for place, record in enumerate(cases.log):
        content = json.loads(record[6] or b"{}")
        read = max(read, 1 + max((number for fate in content["fates"] for number in (fate[0], *fate[4:])), default=0))
        cases.log[place] = (*record[:6], json.dumps(content | {"next_request": read}).encode(), record[7])
    return cases


@pytest.fixture(scope="module")
def history() -> Cases:
    return whole_history()


@pytest.fixture(scope="module")
def full(spark: SparkSession, history: Cases) -> dict[int, Row]:
    """Returns the rows of the history, judged at once."""
    return {row["offset"]: row for row in judged(spark, history)[0].collect()}


def comparable(row: Row, *, with_places: bool = True) -> tuple[Any, ...]:
    """Returns the values of a row that must be equal in two audits; lists of records may have any order. Without
    `with_places`, it omits the positions of records, which an audit does not read for consistent chunks, and request
    times, which it does not read without ids.
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
        monkeypatch.setattr(folded, "AROUND_ROWS_MAX", 0)  # related rows are looked up first, as in a large audit
    chance = random.Random(seed)
    runs = Runs(spark, history, tmp_path, (0, None, 2)[seed % 3])
    # One cut is between a message that has ended and a cancel that came too late; the other is at a random position.
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
        reported = [row for row in idle.fresh.collect() if set(row["verdicts"]) & set(VIOLATIONS)]
        assert (reported, idle.chain.breaks.count()) == ([], 0)


def test_rows_of_consistent_chunks_are_written_without_the_columns_that_they_lack(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Writing nulls for all nested columns takes a third of the time for such a row."""
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
