"""Goal: while a transaction is open, the log before its first record can be read, so that the transaction verifies a
bound of recovery.

Method: after the replayed records, a log has committed records, aborted records or none. Then a transaction begins, and
the gap between the replayed records and its first record is verified.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from postdate.kafka.interface import Kafka, OnDelivery, Partition
from postdate.sidecar.clock import Clock, SystemClock
from postdate.sidecar.transaction.bound_check import BoundCheck, UnverifiedBound
from support.brokers.kafka_steps import abort_values, commit_values, new_topic, open_producer
from support.waiting.timeouts import WAIT_TIMEOUT_S


def _clock(kafka: Kafka) -> Clock:
    """Returns the clock of a simulated cluster, otherwise the system's."""
    clock = getattr(kafka, "clock", None)
    return SystemClock() if clock is None else clock


def _verify(kafka: Kafka, replayed_to: int, committed: Sequence[bytes], aborted: Sequence[bytes]) -> int:
    """Verifies the gap before the first record of an open transaction. Returns the offset of that record."""
    topic = new_topic(kafka)
    older, ours = open_producer(kafka), open_producer(kafka)
    commit_values(older, topic, [b"replayed"])
    if committed:
        commit_values(older, topic, committed)
    if aborted:
        abort_values(older, topic, aborted)
    offsets: list[int] = []
    note: OnDelivery = lambda fault, offset, _: offsets.append(offset)  # noqa: E731
    ours.begin()
    ours.produce(topic, b"ours", None, [], 0, note)
    assert ours.flush(WAIT_TIMEOUT_S) == 0
    try:
        BoundCheck(kafka, Partition(topic, 0), replayed_to, _clock(kafka)).verify(offsets[0])
    finally:
        ours.abort()
        ours.destroy()
        older.destroy()
    return offsets[0]


def test_an_empty_gap_verifies_the_bound(kafka: Kafka) -> None:
    assert _verify(kafka, 2, [], []) == 2


def test_a_marker_in_the_gap_verifies_the_bound(kafka: Kafka) -> None:
    assert _verify(kafka, 1, [], []) == 2


def test_aborted_records_in_the_gap_verify_the_bound(kafka: Kafka) -> None:
    assert _verify(kafka, 2, [], [b"x", b"x"]) == 5


def test_a_committed_record_in_the_gap_is_refused(kafka: Kafka) -> None:
    with pytest.raises(UnverifiedBound, match="records lie between"):
        _verify(kafka, 2, [b"missed"], [b"x"])


def test_a_log_that_has_lost_its_end_is_refused(kafka: Kafka) -> None:
    with pytest.raises(UnverifiedBound, match="has lost its end"):
        _verify(kafka, 3, [], [])
