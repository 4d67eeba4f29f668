"""The options and ranges of an audit, without Spark. Goal: ends of effects are fixed after those of their causes, and
invalid options are refused. Method: a fake cluster that answers from a table and records each query; each option alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from postdate.spark.audit.options import AuditOptions
from postdate.spark.audit.ranges import began_ms, fix_causes, fix_effects
from postdate.spark.errors import CannotRun, JobUsageError
from postdate.spark.job.bounds import NEVER_MS, Range, bounded, fixed_ranges, known_ms
from postdate.spark.job.cluster_queries import OffsetAndTimestamp, Retention, TopicPartition
from postdate.spark.rules.unanswered import Mode
from postdate.spark.session.interruption import children, end_children_since

REQUESTS = "r"
OWN = (REQUESTS, f"{REQUESTS}.dispatch-log", f"{REQUESTS}.dead-letters", f"{REQUESTS}.verdicts")


class _Cluster:
    """A fake cluster with one partition per topic, ten records in each. `queried` has the topics whose ends were
    queried, in order."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = set(topics)
        self.queried: list[str] = []

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: 1 for topic in topics if topic in self.topics}

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        self.queried += [topic for topic, _ in wanted if not committed]
        return dict.fromkeys(wanted, 10)

    def first_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return {partition: OffsetAndTimestamp(5, timestamp_ms) for partition in partitions}

    def retentions(self, topics: Iterable[str]) -> dict[str, Retention]:
        return dict.fromkeys(topics, Retention(-1, by_size=False))


_NOW, _WEEK_MS = 1_795_258_284_000, 7 * 24 * 3_600_000


@dataclass(frozen=True)
class Kept:
    """A fake cluster with one topic. Each partition has the timestamps of its records, from offset `start` on, and its
    last stable offset."""

    start: int
    records: list[list[int]]
    retention_ms: int = _WEEK_MS
    stable: int | None = None
    by_size: bool = False

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: len(self.records) for topic in topics}

    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.start)

    def ends(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        tops = {partition: self.start + len(self.records[partition.number]) for partition in partitions}
        return tops if not committed or self.stable is None else dict.fromkeys(tops, self.stable)

    def first_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        def first(number: int) -> OffsetAndTimestamp | None:
            found = ((place, at_ms) for place, at_ms in enumerate(self.records[number]) if at_ms >= timestamp_ms)
            return next((OffsetAndTimestamp(self.start + place, at_ms) for place, at_ms in found), None)

        return {partition: first(partition.number) for partition in partitions}

    def retentions(self, topics: Iterable[str]) -> dict[str, Retention]:
        return dict.fromkeys(topics, Retention(self.retention_ms, self.by_size))

    def fixed(self, role: str = "target", **more: Any) -> list[Range]:
        """Returns the ranges of all partitions in an audit at `_NOW`."""
        partitions = [TopicPartition("orders", number) for number in range(len(self.records))]
        return [*fixed_ranges(self, role, partitions, now_ms=_NOW, **more).values()]


def test_only_an_emptied_partition_has_lost_the_records_before_its_retention() -> None:
    found = Kept(500, [[_NOW - 9_000, _NOW], []]).fixed("dead-letters")
    assert [span.lost_before_ms for span in found] == [_NOW - 9_000, _NOW - _WEEK_MS]
    assert [span.lost_before_ms for span in Kept(0, [[], [_NOW]]).fixed()] == [-1, -1]
    assert [span.lost_before_ms for span in Kept(5, [[]], retention_ms=-1).fixed()] == [-1], "nothing ever leaves it"
    assert [span.lost_before_ms for span in Kept(5, [[]], by_size=True).fixed()] == [NEVER_MS], "of any age"
    assert [span.lost_before_ms for span in Kept(5, [[]]).fixed("dispatch-log")] == [NEVER_MS], "emptied by hand"


def test_a_timestamp_in_the_future_excuses_nothing() -> None:
    assert [span.lost_before_ms for span in Kept(5, [[_NOW + 1]]).fixed("dead-letters")] == [_NOW - _WEEK_MS]


@pytest.mark.parametrize("window", [{}, {"from_ms": _NOW - 60_000}])
def test_only_the_brokers_time_bounds_the_lost_records_of_a_target(window: dict[str, Any]) -> None:
    """One of two partitions has lost records. The records that are left have the timestamps of old events."""
    kept = Kept(0, [[_NOW - 90_000, _NOW - 3_000]])
    (whole,) = kept.fixed(**window)
    (cut,) = replace(kept, start=5).fixed(**window)
    assert (whole.lost_before_ms, whole.known_ms) == (-1, NEVER_MS)
    assert (cut.lost_before_ms, cut.known_ms) == (_NOW - _WEEK_MS, NEVER_MS)
    assert (bounded(cut, None, _NOW), bounded(cut, _NOW + 1, _NOW)) == (cut, cut)
    stamped = [bounded(span, _NOW - 3_000, _NOW) for span in (whole, cut)]
    assert [span.lost_before_ms for span in stamped] == [-1, _NOW - 3_000]
    assert [span.known_ms for span in stamped] == [_NOW - 3_000] * 2


def test_an_audit_skips_records_that_may_expire_while_it_reads() -> None:
    old, sure = _NOW - _WEEK_MS + 1, _NOW - _WEEK_MS + 3_600_000
    (span,) = Kept(5, [[old, sure - 1, sure, _NOW]]).fixed()
    assert (span.log_start, span.start, span.lost_before_ms) == (7, 7, sure)
    (span,) = Kept(5, [[_NOW - 7_001, _NOW - 7_000]], retention_ms=8_000).fixed()
    assert (span.start, span.lost_before_ms) == (6, _NOW - 7_000), "of a short retention an eighth is left out"


def test_an_open_transaction_caps_its_partition_from_an_unknown_time_until_that_is_read() -> None:
    assert [span.capped_from_ms for span in Kept(0, [[_NOW], [_NOW]], stable=0).fixed()] == [-1, -1]
    assert [span.capped_from_ms for span in Kept(0, [[_NOW]]).fixed()] == [NEVER_MS]


@pytest.mark.parametrize(
    ("window", "hidden", "outside"),
    [
        ({}, 3, 0),
        ({"to_ms": _NOW - 40_000}, 1, 4),
        ({"from_ms": _NOW - 40_000}, 2, 3),
        ({"from_ms": _NOW - 99_000, "to_ms": _NOW - 59_999}, 0, 6),
        ({"from_ms": _NOW - 5_000}, 0, 6),
    ],
)
def test_only_old_records_that_an_open_transaction_hides_are_a_gap(
    window: dict[str, int], hidden: int, outside: int
) -> None:
    """A transaction that began 45 seconds ago hides five records, three of them older than the settle time of 25 s."""
    ages_ms = [100_000, 60_000, 45_000, 30_000, 26_000, 25_000, 1_000]
    kept = Kept(3, [[_NOW - age_ms for age_ms in ages_ms]], stable=5)
    (span,) = kept.fixed("requests", hidden_before_ms=_NOW - 25_000, **window)
    assert (span.hidden, span.outside) == (hidden, outside)
    (whole,) = replace(kept, stable=10).fixed("requests", hidden_before_ms=_NOW - 25_000, **window)
    assert (whole.hidden, whole.outside) == (0, outside), "nothing is hidden"


def test_a_live_producer_with_transactions_leaves_no_gap() -> None:
    """The open transaction is younger than the settle time, although older records precede it."""
    kept = Kept(0, [[_NOW - 90_000, _NOW - 24_000, _NOW]], stable=1)
    assert [span.hidden for span in kept.fixed("requests", hidden_before_ms=_NOW - 25_000)] == [0]
    assert [span.hidden for span in kept.fixed("requests", hidden_before_ms=_NOW - 24_000)] == [0]
    assert [span.hidden for span in kept.fixed("requests", hidden_before_ms=_NOW - 23_999)] == [1]


def test_when_each_partition_of_a_target_is_known_to_exist() -> None:
    whole, cut = Kept(0, [[], [], [], []]).fixed(), Kept(5, [[], []]).fixed()
    found = [
        bounded(span, at_ms, _NOW) for span, at_ms in zip(whole, (_NOW - 9, _NOW - 3, _NOW - 5, None), strict=True)
    ]
    assert (known_ms(found), began_ms(found)) == ([_NOW - 9, _NOW - 5, _NOW - 5, NEVER_MS], _NOW - 9)
    found = [bounded(span, at_ms, _NOW) for span, at_ms in zip(cut, (_NOW - 9, None), strict=True)]
    assert (known_ms(found), began_ms(found)) == ([_NOW - _WEEK_MS] * 2, -1)
    assert began_ms(whole) == NEVER_MS, "nobody knows how young an empty topic is"


def options(**more: Any) -> AuditOptions:
    return AuditOptions("b:1", (REQUESTS,), **more)


def test_each_end_is_fixed_after_those_of_its_causes() -> None:
    cluster, given = _Cluster([*OWN, "orders"]), options()
    causes = fix_causes(cluster, given.own_topics(), given)
    effects = fix_effects(cluster, given.own_topics(), ["orders"], given)
    assert cluster.queried == [OWN[0], OWN[1], "orders", OWN[2], OWN[3], OWN[1], OWN[0]]
    assert effects.present_ends == {TopicPartition(OWN[0], 0): 10}
    partition = TopicPartition(OWN[3], 0)
    assert effects.answers == {partition: Range("verdicts", partition, 0, 0, 10, 10, False, -1)}
    assert len(causes.requests) == len(causes.log) == 1


def test_verdicts_are_read_from_before_the_window_on() -> None:
    cluster, given = _Cluster([*OWN]), options(from_ms=4_000_000)
    effects = fix_effects(cluster, given.own_topics(), [], given)
    assert [span.start for span in effects.answers.values()] == [5]


@pytest.mark.parametrize("mode", ["none", "control", "all"])
def test_without_a_topic_for_them_no_answers_are_owed(mode: Mode) -> None:
    cluster, given = _Cluster(OWN[:3]), options(verdicts=mode)
    if mode == "none":
        effects = fix_effects(cluster, given.own_topics(), [], given)
        assert (effects.answers, effects.absent_answers) == ({}, (OWN[3],))
        return
    with pytest.raises(CannotRun, match=r"no topic r\.verdicts"):
        fix_effects(cluster, given.own_topics(), [], given)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"dialects": ("esperanto",)}, "esperanto"),
        ({"dialects": ("rabbitmq",), "default_target": "a b"}, "a b"),
        ({"verdicts": "some"}, "not some"),
        ({"samples": -1}, "samples"),
        ({"levels_ms": ()}, "level"),
        ({"from_ms": 2, "to_ms": 2}, "window"),
    ],
)
def test_an_invalid_option_is_refused_by_name(more: dict[str, Any], message: str) -> None:
    with pytest.raises(JobUsageError, match=message):
        options(**more)


def test_only_children_started_later_are_ended() -> None:
    def sleeper() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    with sleeper() as earlier:
        try:
            known = children()
            assert earlier.pid in known
            with sleeper() as later:
                end_children_since(known)
                assert later.wait(30) != 0
            os.kill(earlier.pid, 0)
            assert earlier.poll() is None
        finally:
            earlier.kill()
