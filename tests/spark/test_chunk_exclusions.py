"""Goal: origins that chunks exclude are judged one by one, even if too many messages were delivered within the slack,
and even before their requests are read. Method: small histories, judged in chunks of four requests and by the rules
alone.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from postdate.spark.judging import stages
from postdate.spark.judging.chunk_digests import ChunkDigests
from postdate.spark.judging.inputs import folded
from postdate.spark.judging.origin_rows import JudgingParameters
from postdate.spark.session.caching import cached
from support.audit_cases.verdicts import DUE, SNAPSHOT, TO_ORDERS, T
from support.audits import judging
from support.audits.judging import JudgingBounds, by_offset, judged, staged
from support.audits.written_records import RandomHistory

_RECENT_MS = SNAPSHOT - 30_000


def _recent() -> RandomHistory:
    """Returns a chunk of three overdue messages and a message that was delivered within the slack."""
    history = RandomHistory(T)
    for offset, due_ms in enumerate((DUE, DUE, DUE, _RECENT_MS)):
        history.ask(offset, TO_ORDERS, ("postdate-at", b"%d" % due_ms))
        history.deliver(offset, due_ms=due_ms)
        history.commit([offset, due_ms, "delivered"], at_ms=due_ms)
    return history


@pytest.mark.parametrize(("rows_max", "left"), [(1_000, {3}), (0, {0, 1, 2, 3})], ids=["few", "too many"])
def test_a_message_delivered_within_the_slack_leaves_its_chunk_unless_they_are_too_many(
    spark: SparkSession, rows_max: int, left: set[int]
) -> None:
    found = staged(spark, _recent(), bits=2, separate_rows_max=rows_max)
    assert found.rows is not None
    assert found.plain is not None
    assert found.plain.counts == {"delivered": 4 - len(left), "pending": 0}
    by_rules = by_offset(judged(spark, _recent())[0])
    assert by_offset(found.rows) == {offset: by_rules[offset] for offset in left}


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
