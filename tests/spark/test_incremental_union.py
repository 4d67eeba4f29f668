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
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from postdate.connectors.spark import folded_judging
from postdate.connectors.spark.answer_rows import answer_rows
from postdate.connectors.spark.audit_state import AuditState, StateStore
from postdate.connectors.spark.bounds import Range
from postdate.connectors.spark.cluster import Partition
from postdate.connectors.spark.errors import CannotRun
from postdate.connectors.spark.fate_rows import log_rows
from postdate.connectors.spark.fresh_ranges import since, without_renewed
from postdate.connectors.spark.history import TARGETS
from postdate.connectors.spark.incremental import Advance, advance, last_verdicts
from postdate.connectors.spark.job_options import LEVELS_MS_DEFAULT
from postdate.connectors.spark.record_rows import dead_letter_rows, delivered_messages
from postdate.connectors.spark.request_rows import understood_rows
from postdate.connectors.spark.sifting import History as Read
from postdate.connectors.spark.sifting import Sifting
from postdate.connectors.spark.small_tables import small_table
from postdate.connectors.spark.sources import RECORDS
from postdate.connectors.spark.spans import Spans
from postdate.connectors.spark.verdicts import VIOLATIONS
from support.answer_cases import answer_cases
from support.history import LETTERS, REQUESTS, VERDICTS, History
from support.history import Row as Record
from support.judging import Bounds, judged, target_row
from support.verdict_cases import DUE, SNAPSHOT, Cases, T, all_cases

_WIDE = "POSTDATE_TEST_CUTS" in os.environ
_SEEDS = range(int(os.environ.get("POSTDATE_TEST_CUTS", "1")))
_CUTS = 2 if _WIDE else 1
_END = 10_000
_TABLE = [target_row()]
_SAME = ("target", "first_due_ms", "last_due_ms", "action", "request_ms", "fate", "lateness_ms", "ended_ms")
_SAME_IN_ANY_ORDER = ("records", "fates", "answers", "verdicts", "details")


def whole_history() -> Cases:
    """All cases, with dispatch-log records that say how far their owner had read: not far beyond what they end; and at
    the end a second record of what was delivered first."""
    cases = answer_cases(all_cases()) if _WIDE else all_cases()
    cases.deliver(cases.expected["delivered"].offset)
    cases.requests.sort(key=lambda record: record[2])
    read = 0
    for place, record in enumerate(cases.log):
        said = json.loads(record[6] or b"{}")
        read = max(read, 1 + max((number for fate in said["fates"] for number in (fate[0], *fate[4:])), default=0))
        cases.log[place] = (*record[:6], json.dumps(said | {"next_request": read}).encode(), record[7])
    return cases


def offset_of(record: Record) -> int:
    """The last request that a record tells of."""
    value, headers = record[6] or b"", dict(record[7] or [])
    if record[0].endswith(".dispatch-log"):
        return max((fate[0] for fate in json.loads(value)["fates"]), default=0)
    if record[0].endswith(".verdicts"):
        return int(json.loads(value)["origin"].rpartition("/")[2])
    return int((headers.get("postdate-origin") or b"0").rpartition(b"/")[2])


@dataclass(frozen=True)
class Ends:
    """How many records of each side a run sees; of the requests the first offset that it does not; `again` of the log
    once more."""

    requests: int = 0
    log: int = 0
    delivered: int = 0
    letters: int = 0
    answers: int = 0
    again: int = 0

    @classmethod
    def at(cls, history: History, at: int, chance: random.Random | None) -> Ends:
        """Ends at the request `at`; by `chance` each a little further than the one before it."""
        place, found = at, [at]
        for records in (history.log, history.delivered, history.letters, history.answers, history.log):
            place += chance.randrange(0, 12) if chance is not None else 0
            found.append(sum(1 for _ in takewhile(lambda record: offset_of(record) < place, records)))  # noqa: B023
        return cls(*found)


def all_of(history: History) -> Ends:
    log = len(history.log)
    return Ends(_END, log, len(history.delivered), len(history.letters), len(history.answers), log)


class Runs:
    """One audit after the other over a history; `bits` says how many requests are a span, None: no spans."""

    def __init__(self, spark: SparkSession, history: History, directory: Path, bits: int | None = None) -> None:
        self.spark, self.history, self.bits = spark, history, bits
        self.path = str(directory / "state")
        self.last = Ends()

    def audit(self, ends: Ends, *, keep: bool = True) -> Advance:
        """What a run says that sees the history up to `ends`."""
        store = StateStore(self.spark, self.path)
        state, history, last = store.newest(), self.history, self.last
        partitions = Bounds(request_end=ends.requests, log_end=ends.log).table(self.spark)
        asked = [record for record in history.requests if last.requests <= record[2] < ends.requests]
        understood = understood_rows(self._records(asked), LEVELS_MS_DEFAULT)
        new = Read(
            understood,
            delivered_messages(self._records(history.delivered[last.delivered : ends.delivered]), [REQUESTS]),
            log_rows(self._records(history.log[last.log : ends.again]), partitions).persist(),
            dead_letter_rows(self._records(history.letters[last.letters : ends.letters]), {LETTERS: REQUESTS}),
            answer_rows(self._records(history.answers[last.answers : ends.answers]), {VERDICTS: REQUESTS}),
        )
        how = Sifting(
            *(partitions, small_table(self.spark, _TABLE, TARGETS), False, False, "none"),
            *(SNAPSHOT, 60_000),
            left_share_max=1.0,
        )
        spans = Spans(SNAPSHOT - 60_000, self.bits or 0)
        found = advance(
            *(store, state, new, how, spans),
            spans.of_requests(understood) if self.bits is not None else None,
        )
        if keep:
            read = replace(found.state, next={f"{REQUESTS}/0": ends.requests}, targets=["orders"])
            store.commit(read, {"judged": 0, "lateness_ms": {}, "settings": {}})
            self.last = ends
        return found

    def union(self) -> dict[int, Row]:
        """The verdict on each origin."""
        rows = last_verdicts(self.spark, self.path).collect()
        found = {row["offset"]: row for row in rows}
        assert len(found) == len(rows)
        return found

    def _records(self, records: list[Record]) -> Any:
        return small_table(self.spark, records, RECORDS)


@pytest.fixture(scope="module")
def history() -> Cases:
    return whole_history()


@pytest.fixture(scope="module")
def full(spark: SparkSession, history: Cases) -> dict[int, Row]:
    """The same judged at once."""
    return {row["offset"]: row for row in judged(spark, history)[0].collect()}


def comparable(row: Row, *, with_places: bool = True) -> tuple[Any, ...]:
    """What two audits must agree on; where several records are named, in whatever order.

    Without places, since an audit does not look where the records of a whole span lie.
    """
    names = _SAME_IN_ANY_ORDER if with_places else [n for n in _SAME_IN_ANY_ORDER if n not in ("records", "details")]
    words = [sorted(" ".join(row[name] or []).replace(",", " ").split()) for name in names]
    return (*(row[name] for name in _SAME), *words)


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
        monkeypatch.setattr(folded_judging, "AROUND_ROWS_MAX", 0)  # kin are looked up first, as among many rows
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
        same = runs.bits is None or row["verdicts"] not in (["delivered"], ["duplicate"])
        assert comparable(union[offset], with_places=same) == comparable(row, with_places=same), offset
    assert all(closed), "each run has judged something for good"
    counts = Counter(verdict for row in full.values() for verdict in row["verdicts"])
    assert {name: count for name, count in last.state.counts.items() if count} == counts
    assert last.state.open == sum(1 for row in union.values() if row["state"] != "closed")

    if _WIDE:
        idle = runs.audit(all_of(history), keep=False)
        told = [row for row in idle.fresh.collect() if set(row["verdicts"]) & set(VIOLATIONS)]
        assert (told, idle.chain.breaks.count()) == ([], 0)


def test_a_partition_is_read_from_where_the_last_run_stopped() -> None:
    partition = Partition("r", 0)
    state = AuditState(1, 5, {"r": "id-1"}, {"r/0": 7}, {"r/0": -1})

    def cut(log_start: int, end: int) -> tuple[int, int, int]:
        span = Range("requests", partition, log_start, log_start, end, end, False, 99 if log_start else -1)
        whole, fresh = since({partition: span}, state)
        return fresh[partition].start, whole[partition].start, whole[partition].lost_before_ms

    assert cut(0, 10) == (7, 0, -1)
    assert cut(5, 10) == (7, 5, -1), "what has left the topic was read before"
    assert cut(8, 10) == (8, 8, 99), "what has left it was not read"
    with pytest.raises(CannotRun, match="ends at 6"):
        cut(0, 6)
    with pytest.raises(CannotRun, match="r was made anew"):
        without_renewed(state, {"r": "id-2"}, ["r"])
    assert without_renewed(state, {"r": "id-2"}, []).next == {}
    assert without_renewed(state, {"r": "id-1"}, ["r"]) == state


def test_what_names_no_due_time_meets_the_row_of_its_origin(spark: SparkSession, tmp_path: Path) -> None:
    """A second dead letter is all that a run reads: no record of that run says on which day its request was due."""
    history = History(T)
    history.ask(1)
    history.commit([1, DUE, "dead"])
    history.bury(1)
    runs = Runs(spark, history, tmp_path)
    runs.audit(all_of(history))
    assert runs.union()[1]["verdicts"] == ["dead"]
    history.bury(1)
    runs.audit(all_of(history))
    assert runs.union()[1]["verdicts"] == ["duplicate"]
