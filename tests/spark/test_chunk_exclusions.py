"""Goal: the rules judge each origin that a chunk excludes. If a chunk excludes too many, they judge all its origins. An
audit with a state also keeps an excluded origin whose request it reads later. A late message that is not missing leaves
its chunk, unless most chunks have one.

Method: small histories, judged in chunks of four requests and by the rules alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from postdate.spark.audit.reading import expected_before_ms
from postdate.spark.judging import stages
from postdate.spark.judging.chunk_digests import ChunkDigests
from postdate.spark.judging.inputs import folded
from postdate.spark.judging.origin_rows import JudgingParameters
from postdate.spark.session.caching import cached
from support.audit_cases.verdicts import DUE, SNAPSHOT, TO_ORDERS, T
from support.audits import judging
from support.audits.judging import JudgingBounds, by_offset, judged, staged
from support.audits.runs_with_state import Runs
from support.audits.written_records import RandomHistory

_RECENT_MS, _LATE_MS = SNAPSHOT - 1_000, SNAPSHOT - 30_000


def _chunk(*due_ms: int, undelivered: int = -1) -> RandomHistory:
    """Returns a history of requests with these due times; all but `undelivered` are delivered in time."""
    history = RandomHistory(T)
    for offset, one_ms in enumerate(due_ms):
        history.ask(offset, TO_ORDERS, ("postdate-at", b"%d" % one_ms))
        if offset != undelivered:
            history.deliver(offset, due_ms=one_ms)
            history.commit([offset, one_ms, "delivered"], at_ms=one_ms)
    return history


@pytest.mark.parametrize(("rows_max", "left"), [(1_000, {3}), (0, {0, 1, 2, 3})], ids=["few", "too many"])
def test_a_message_delivered_just_now_leaves_its_chunk_unless_they_are_too_many(
    spark: SparkSession, rows_max: int, left: set[int]
) -> None:
    history = _chunk(DUE, DUE, DUE, _RECENT_MS)
    found = staged(spark, history, bits=2, separate_rows_max=rows_max)
    assert found.rows is not None
    assert found.plain is not None
    assert found.plain.counts == {"delivered": 4 - len(left), "pending": 0}
    by_rules = by_offset(judged(spark, history)[0])
    assert by_offset(found.rows) == {offset: by_rules[offset] for offset in left}


def test_a_message_delivered_within_the_slack_stays_in_its_chunk(spark: SparkSession) -> None:
    found = staged(spark, _chunk(DUE, DUE, DUE, _LATE_MS), bits=2)
    assert found.plain is not None
    assert (found.rows, found.plain.counts) == (None, {"delivered": 4, "pending": 0})


@pytest.mark.parametrize(("share", "pending"), [(1.0, 0), (0.5, 1)], ids=["few chunks", "most chunks"])
def test_a_late_message_leaves_its_chunk_to_the_rules_unless_most_chunks_have_one(
    spark: SparkSession, share: float, pending: int
) -> None:
    history = _chunk(DUE, DUE, DUE, _LATE_MS, undelivered=3)
    found = staged(spark, history, bits=2, left_share_max=share)
    assert found.plain is not None
    assert found.plain.counts == {"delivered": 3 * pending, "pending": pending}
    rows = {} if found.rows is None else by_offset(found.rows)
    by_rules = by_offset(judged(spark, history)[0])
    assert by_rules[3]["verdicts"] == ["pending"]
    assert rows == ({} if pending else by_rules)


def test_a_missing_message_is_found_although_most_chunks_have_late_ones(spark: SparkSession) -> None:
    history = _chunk(DUE, DUE, _LATE_MS, DUE, undelivered=3)
    found = staged(spark, history, bits=2, left_share_max=0.5)
    assert found.plain is None
    assert found.rows is not None
    assert by_offset(found.rows)[3]["verdicts"] == ["missing"]


def test_a_state_continues_after_a_late_message(spark: SparkSession, tmp_path: Path) -> None:
    """The first run finds it pending, and the second one delivered; the other messages stay verified."""
    history = _chunk(DUE, _LATE_MS, DUE, DUE, _LATE_MS, DUE, DUE, DUE, undelivered=4)
    runs = Runs(spark, history, tmp_path, bits=2)
    first = runs.audit()
    history.deliver(4, due_ms=_LATE_MS)
    history.commit([4, _LATE_MS, "delivered"], at_ms=_LATE_MS + 9_000)
    second = runs.audit()
    assert (first.state.counts["delivered"], first.state.counts["pending"]) == (7, 1)
    assert (second.state.counts["delivered"], second.state.counts["pending"]) == (8, 0)
    assert (first.state.open, second.state.open) == (1, 0)
    assert not runs.violations()


@pytest.mark.parametrize(("slack_ms", "before_ms"), [(0, 0), (1_000, 1_000), (2_000, 2_000), (60_000, 2_000)])
def test_a_message_that_may_be_missing_is_expected(slack_ms: int, before_ms: int) -> None:
    assert expected_before_ms(SNAPSHOT, slack_ms) == SNAPSHOT - before_ms


@pytest.mark.parametrize("has_state", [False, True])
def test_an_audit_with_a_state_keeps_a_dead_letter_whose_request_is_read_later(
    spark: SparkSession, has_state: bool
) -> None:
    history = RandomHistory(T)
    history.ask(0, TO_ORDERS, ("postdate-at", b"%d" % (SNAPSHOT + 120_000)))
    history.bury(1)  # no fate, and the request was written after the end of the requests was fixed
    found = judging.tables(spark, history, JudgingBounds(request_end=1, request_present_end=2))
    read, digests = judging._history(spark, history, found), ChunkDigests(SNAPSHOT - 60_000, 2)
    parameters = JudgingParameters(
        found.partitions, judging._targets(spark), "none", SNAPSHOT, slack_ms=60_000, left_share_max=1.0
    )
    doubtful = read.dead_letters.where("false").select("topic", "partition", "offset") if has_state else None
    parts = stages.split(read, parameters, digests, cached(digests.of_requests(read.understood)), doubtful)
    assert parts is not None
    assert parts.plain.counts["pending"] == 1
    left = [] if parts.left is None else [row["offset"] for row in folded(parts.left).collect()]
    assert left == ([1] if has_state else [])
