"""What an audit is asked and what it reads, without Spark. Goal: effects are fixed after causes, nonsense is refused.

Method: a cluster that answers from a table and notes each question; the options one by one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from postdate.connectors.spark.bounds import Range
from postdate.connectors.spark.cluster import Partition, Place
from postdate.connectors.spark.errors import CannotRun, JobUsageError
from postdate.connectors.spark.history import fix_causes, fix_effects
from postdate.connectors.spark.interruption import children, end_children_since
from postdate.connectors.spark.options import AuditOptions
from postdate.connectors.spark.unanswered import Mode

REQUESTS = "r"
OWN = (REQUESTS, f"{REQUESTS}.dispatch-log", f"{REQUESTS}.dead-letters", f"{REQUESTS}.verdicts")


class Cluster:
    """One partition a topic, ten records in each; `asked` are the topics whose ends were asked for, in order."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = set(topics)
        self.asked: list[str] = []

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        return {topic: 1 for topic in topics if topic in self.topics}

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: Iterable[Partition], *, committed: bool) -> dict[Partition, int]:
        wanted = list(partitions)
        self.asked += [topic for topic, _ in wanted if not committed]
        return dict.fromkeys(wanted, 10)

    def first_at(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, Place | None]:
        return {partition: Place(5, timestamp_ms) for partition in partitions}


def options(**more: Any) -> AuditOptions:
    return AuditOptions("b:1", (REQUESTS,), **more)


def test_each_end_is_fixed_after_those_of_its_causes() -> None:
    cluster, given = Cluster([*OWN, "orders"]), options()
    causes = fix_causes(cluster, given.own_topics(), given)
    effects = fix_effects(cluster, given.own_topics(), ["orders"], given)
    assert cluster.asked == [OWN[0], OWN[1], "orders", OWN[2], OWN[3], OWN[1]]
    partition = Partition(OWN[3], 0)
    assert effects.answers == {partition: Range("verdicts", partition, 0, 0, 10, 10, False, -1)}
    assert len(causes.requests) == len(causes.log) == 1


def test_verdicts_are_read_from_before_the_window_on() -> None:
    cluster, given = Cluster([*OWN]), options(from_ms=4_000_000)
    effects = fix_effects(cluster, given.own_topics(), [], given)
    assert [span.start for span in effects.answers.values()] == [5]


@pytest.mark.parametrize("mode", ["none", "control", "all"])
def test_without_a_topic_for_them_no_answers_are_owed(mode: Mode) -> None:
    cluster, given = Cluster(OWN[:3]), options(verdicts=mode)
    if mode == "none":
        effects = fix_effects(cluster, given.own_topics(), [], given)
        assert (effects.answers, effects.absent_answers) == ({}, (OWN[3],))
        return
    with pytest.raises(CannotRun, match=r"no topic r\.verdicts"):
        fix_effects(cluster, given.own_topics(), [], given)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"dialects": ("esperanto",)}, "esperanto"),
        ({"dialects": ("rabbitmq",), "default_target": "a b"}, "a b"),
        ({"verdicts": "some"}, "not some"),
        ({"samples": -1}, "samples"),
        ({"levels_ms": ()}, "level"),
        ({"from_ms": 2, "to_ms": 2}, "window"),
    ],
)
def test_nonsense_is_refused_with_its_name(more: dict[str, Any], said: str) -> None:
    with pytest.raises(JobUsageError, match=said):
        options(**more)


def test_only_later_children_are_ended() -> None:
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
