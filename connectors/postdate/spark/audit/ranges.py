"""Fixes the end offsets of all topics of an audit in a defined order, and builds the tables of partitions and
targets."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from postdate.spark.audit.options import AuditOptions
from postdate.spark.errors import CannotRun
from postdate.spark.job.bounds import (
    DISPATCH_LOG,
    NEVER_MS,
    TARGET,
    Offsets,
    Range,
    existing,
    fixed_ranges,
    known_ms,
    margin_before,
)
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.session.small_tables import small_table
from postdate.wire.topics import OwnTopics

PARTITIONS = (
    "topic string, partition int, request_log_start bigint, request_start bigint, request_end bigint,"
    " log_topic string, log_end bigint, log_is_whole boolean, log_capped boolean, fates_lost_before_ms bigint,"
    " letters_capped boolean, letters_lost_before_ms bigint, answers_capped boolean, answers_lost_before_ms bigint,"
    " letters_capped_from_ms bigint, request_present_end bigint"
)
"""The columns of the table of partitions.

`request_end` is fixed before the ends of all other topics, `request_present_end` after them. So no effect that an audit
reads can belong to a request at or above `request_present_end`.
"""
TARGETS = (
    "target string, target_partitions int, target_capped boolean, target_compacted boolean,"
    " target_lost_before_ms array<bigint>, target_capped_from_ms array<bigint>, target_known_ms array<bigint>,"
    " target_began_ms bigint, target_recreated_ms bigint"
)
"""The columns of the table of targets.

The arrays have one value for each partition, in ascending order: `target_lost_before_ms` and `target_capped_from_ms` as
in `Range`, and `target_known_ms`, the time since which the partition is known to exist. `target_began_ms` and
`target_recreated_ms` are the time since which the topic is known to exist, or -1. `target_began_ms` is -1 if the topic
has lost records. `target_recreated_ms` is -1 unless the topic is known to have been deleted and created again.
"""


@dataclass(frozen=True)
class Causes:
    """The ranges whose ends are fixed first: requests, then dispatch logs."""

    requests: dict[TopicPartition, Range]
    log: dict[TopicPartition, Range]


@dataclass(frozen=True)
class Effects:
    """The ranges whose ends are fixed once the targets are known: targets, dead letters and verdicts, then the dispatch
    logs a second time. `present_ends` are the high watermarks of the request topics after all ends have been fixed."""

    targets: dict[TopicPartition, Range]
    absent_targets: tuple[str, ...]
    compacted_targets: frozenset[str]
    dead_letters: dict[TopicPartition, Range]
    answers: dict[TopicPartition, Range]
    absent_answers: tuple[str, ...]
    log_again: dict[TopicPartition, Range]
    present_ends: dict[TopicPartition, int]
    recreated: frozenset[str] = frozenset()

    def records(self) -> tuple[dict[TopicPartition, Range], ...]:
        """Returns the ranges of targets, of dead letters and of verdicts."""
        return self.targets, self.dead_letters, self.answers


def fix_causes(cluster: Offsets, own: Iterable[OwnTopics], options: AuditOptions) -> Causes:
    """Fixes the ranges of requests, then of dispatch logs. Raises CannotRun if a topic does not exist."""
    own_topics = list(own)
    request_partitions = existing(cluster, [topics.requests for topics in own_topics])
    log_partitions = existing(cluster, [topics.dispatch_log for topics in own_topics])
    now_ms = _now_ms()
    requests = fixed_ranges(
        *(cluster, "requests", request_partitions),
        from_ms=options.from_ms,
        to_ms=options.to_ms,
        hidden_before_ms=now_ms - options.settle_ms,
        now_ms=now_ms,
    )
    log = _fixed(cluster, DISPATCH_LOG, log_partitions, margin_before(options.from_ms), options)
    return Causes(requests, log)


def fix_effects(
    cluster: Offsets,
    own: Iterable[OwnTopics],
    targets: Iterable[str],
    options: AuditOptions,
    compacted_targets: Iterable[str] = (),
) -> Effects:
    """Fixes the ranges of targets, dead letters and verdicts, then the ends of the second reading of the dispatch logs.

    Finally queries the present ends of the request topics. Raises CannotRun if a topic of Postdate does not exist. A
    verdicts topic may be absent unless `options` require answers.
    """
    own_topics, wanted = list(own), sorted(set(targets))
    since_ms = margin_before(options.from_ms)
    counts = cluster.partition_counts(wanted) if wanted else {}
    partitions = [TopicPartition(topic, index) for topic, count in counts.items() for index in range(count)]
    target_ranges = _fixed(cluster, TARGET, partitions, since_ms, options)
    dead_letter_partitions = existing(cluster, [topics.dead_letters for topics in own_topics])
    dead_letters = _fixed(cluster, "dead-letters", dead_letter_partitions, since_ms, options)
    answers, absent_answers = _fix_answers(cluster, own_topics, options, since_ms)
    log_partitions = existing(cluster, [topics.dispatch_log for topics in own_topics])
    again = _fixed(cluster, DISPATCH_LOG, log_partitions, since_ms, options)
    absent = tuple(topic for topic in wanted if topic not in counts)
    present = cluster.ends(existing(cluster, [topics.requests for topics in own_topics]), committed=False)
    return Effects(
        target_ranges, absent, frozenset(compacted_targets), dead_letters, answers, absent_answers, again, present
    )


def _fix_answers(
    cluster: Offsets, own_topics: list[OwnTopics], options: AuditOptions, since_ms: int | None
) -> tuple[dict[TopicPartition, Range], tuple[str, ...]]:
    """Returns the ranges of the existing verdicts topics, and the names of the missing ones."""
    names = [topics.verdicts for topics in own_topics]
    present = cluster.partition_counts(names)
    absent = tuple(name for name in names if name not in present)
    if absent and options.verdicts != "none":
        raise CannotRun(
            f"There is no topic {', '.join(absent)}, so nothing can have been answered: run `postdate topics create`, "
            "or audit without --verdicts."
        )
    partitions = existing(cluster, [name for name in names if name in present])
    return _fixed(cluster, "verdicts", partitions, since_ms, options), absent


def _fixed(
    cluster: Offsets, role: str, partitions: Iterable[TopicPartition], from_ms: int | None, options: AuditOptions
) -> dict[TopicPartition, Range]:
    return fixed_ranges(cluster, role, partitions, from_ms=from_ms, settle_ms=options.settle_ms, now_ms=_now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def log_ranges(causes: Causes, effects: Effects) -> list[Range]:
    """Returns the ranges of the dispatch logs, extended to the ends of the second reading."""
    return [
        replace(first, end=max(first.end, effects.log_again[partition].end))
        for partition, first in causes.log.items()
        if partition in effects.log_again
    ]


def partition_table(spark: SparkSession, own: Iterable[OwnTopics], causes: Causes, effects: Effects) -> DataFrame:
    """Returns one row for each request partition, with the columns PARTITIONS, which `judge` needs.

    Raises CannotRun if one of Postdate's topics has fewer partitions than the request topic.
    """
    by_requests = {topics.requests: topics for topics in own}
    rows = []
    for partition, span in causes.requests.items():
        names = by_requests[partition.topic]
        log = _of_same_partition(causes.log, names.dispatch_log, partition)
        dead_letters = _of_same_partition(effects.dead_letters, names.dead_letters, partition)
        again = _of_same_partition(effects.log_again, names.dispatch_log, partition)
        answers = None
        if names.verdicts not in effects.absent_answers:
            answers = _of_same_partition(effects.answers, names.verdicts, partition)
        rows.append(
            (
                *(partition.topic, partition.number, span.log_start, span.start, span.end),
                *(names.dispatch_log, log.end, log.start == 0, again.capped, log.lost_before_ms),
                *(dead_letters.capped, dead_letters.lost_before_ms),
                *((answers.capped, answers.lost_before_ms) if answers else (None, None)),
                dead_letters.capped_from_ms,
                max(span.end, effects.present_ends[partition]),
            )
        )
    return small_table(spark, rows, PARTITIONS)


def _by_topic(effects: Effects) -> dict[str, list[Range]]:
    """Returns the ranges of each target, in the order of their partition numbers."""
    by_topic: dict[str, list[Range]] = {}
    for partition, span in sorted(effects.targets.items()):
        by_topic.setdefault(partition.topic, []).append(span)
    return by_topic


def target_table(spark: SparkSession, effects: Effects) -> DataFrame:
    """Returns one row for each target, with the columns TARGETS, which `judge` needs. A target that does not exist
    counts as one that has lost all records."""
    rows: list[tuple[object, ...]] = [
        (
            *(topic, len(spans), any(span.capped for span in spans), topic in effects.compacted_targets),
            *([span.lost_before_ms for span in spans], [span.capped_from_ms for span in spans]),
            *(known_ms(spans), began_ms(spans), _exists_ms(spans) if topic in effects.recreated else -1),
        )
        for topic, spans in _by_topic(effects).items()
    ]
    rows += [(topic, None, False, False, [NEVER_MS], [NEVER_MS], [], -1, -1) for topic in effects.absent_targets]
    return small_table(spark, rows, TARGETS)


def began_ms(spans: list[Range]) -> int:
    """Returns the time since which a topic is known to exist, or -1 if it has lost records."""
    return _exists_ms(spans) if all(span.lost_before_ms < 0 for span in spans) else -1


def _exists_ms(spans: list[Range]) -> int:
    return min(span.known_ms for span in spans)


def _of_same_partition(ranges: dict[TopicPartition, Range], topic: str, partition: TopicPartition) -> Range:
    span = ranges.get(TopicPartition(topic, partition.number))
    if span is None:
        raise CannotRun(
            f"{topic} has no partition {partition.number}, though {partition.topic} has: run `postdate topics check`."
        )
    return span
