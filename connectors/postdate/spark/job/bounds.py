"""The offsets that a job reads: the start and the fixed end of each partition, and bounds of the records that it cannot
read.

A job fixes each end once, in an order that the job defines (for an audit: `audit.ranges`). In each partition, only the
records before the oldest open transaction can be read. A job may wait a bounded time for this transaction to end. If
the transaction is still open after that time, the range ends before it and is `capped`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from postdate.spark.errors import CannotRun
from postdate.spark.job.cluster_queries import OffsetAndTimestamp, Retention, TopicPartition
from postdate.spark.limits import CLOCK_MARGIN_MS, RETENTION_MARGIN_MS, RETENTION_MARGIN_SHARE

NEVER_MS = 2**63 - 1
"""A time later than every timestamp. As `lost_before_ms`: the partition may have lost any of its records."""
DISPATCH_LOG, TARGET = "dispatch-log", "target"
_POLL_S = 0.1


class Offsets(Protocol):
    """The offset queries that this module needs; `Cluster` implements them."""

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]: ...
    def beginnings(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def ends(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]: ...
    def first_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]: ...
    def retentions(self, topics: Iterable[str]) -> dict[str, Retention]: ...


@dataclass(frozen=True)
class Range:
    """The offsets of one partition that a job reads: [`start`, `end`).

    `log_start` is the first offset that the partition keeps during the job, `high_watermark` its end including open
    transactions. `capped`: an open transaction hides the records between the last stable offset and `high_watermark`.
    `lost_before_ms`: retention may have deleted records older than this; -1 if no relevant record was deleted.
    `known_ms`: the earliest time at which the partition of a target is known to exist; NEVER_MS if unknown.
    `capped_from_ms`: an open transaction may hide records from this time on; -1 if the time is unknown, NEVER_MS if
    there is no such transaction. `outside`: the number of offsets outside the window. `hidden`: the number of offsets
    in the window that an open transaction hides, and whose records should be readable by now.
    """

    role: str
    partition: TopicPartition
    log_start: int
    start: int
    end: int
    high_watermark: int
    capped: bool
    lost_before_ms: int
    known_ms: int = NEVER_MS
    capped_from_ms: int = NEVER_MS
    outside: int = 0
    hidden: int = 0


def existing(cluster: Offsets, topics: Iterable[str]) -> list[TopicPartition]:
    """Returns all partitions of `topics`. Raises CannotRun with the names of topics that do not exist."""
    wanted = list(topics)
    counts = cluster.partition_counts(wanted)
    absent = [topic for topic in wanted if topic not in counts]
    if absent:
        raise CannotRun(
            f"There is no topic {', '.join(absent)} on this cluster (`postdate topics create` makes the topics)."
        )
    return [TopicPartition(topic, index) for topic in wanted for index in range(counts[topic])]


def fixed_ranges(
    cluster: Offsets,
    role: str,
    partitions: Iterable[TopicPartition],
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    settle_ms: int = 0,
    hidden_before_ms: int | None = None,
    now_ms: int | None = None,
) -> dict[TopicPartition, Range]:
    """Returns the current range of each partition.

    `from_ms` and `to_ms` limit the range to a window of timestamps. If an open transaction hides the end, the call
    waits up to `settle_ms`. So all records of the window that were written before the call are in the range, unless it
    is `capped`. In a capped range, the hidden offsets before the first record of `hidden_before_ms` or later count as
    `hidden`. Later offsets do not count, since a transactional producer always hides some. Pass the current time as
    `now_ms` if reading takes long: the range then skips records that retention may soon delete (RETENTION_MARGIN_MS).
    The timestamps of a target's records do not bound its lost records, since any producer may have written them;
    `bounded` adds the known bounds.
    """
    wanted = list(partitions)
    retained = _Retained.of(cluster, wanted, now_ms)
    if role == DISPATCH_LOG:
        # A dispatch log always contains heartbeats. If it has no records, somebody emptied it, and any fate may be
        # lost.
        retained = replace(retained, expired_ms={})
    if role == TARGET:
        retained = replace(retained, firsts={})
    marks = cluster.ends(wanted, committed=False)
    ends = _settled(cluster, marks, settle_ms)
    lower = cluster.first_at(wanted, from_ms) if from_ms is not None else {}
    upper = cluster.first_at(wanted, to_ms) if to_ms is not None else {}
    capped = [partition for partition in wanted if ends[partition] < marks[partition]]
    young = cluster.first_at(capped, hidden_before_ms) if capped and hidden_before_ms is not None else {}
    ranges = {}
    for partition in wanted:
        log_start, end, mark = retained.starts[partition], ends[partition], marks[partition]
        window_start = _cut(lower[partition], mark) if partition in lower else log_start
        window_end = _cut(upper[partition], mark) if partition in upper else mark
        start, stop = min(window_start, end), min(window_end, end)
        hidden_end = min(_cut(young[partition], mark), window_end) if partition in young else end
        is_capped, is_cut = end < mark, start > log_start and role != TARGET
        ranges[partition] = Range(
            role,
            partition,
            log_start,
            max(log_start, min(start, stop)),
            stop,
            mark,
            is_capped,
            -1 if log_start == 0 or is_cut else retained.lost_before_ms(partition),
            capped_from_ms=-1 if is_capped else NEVER_MS,
            outside=max(0, window_start - log_start) + mark - window_end,
            hidden=max(0, hidden_end - max(window_start, end)),
        )
    return ranges


def bounded(span: Range, broker_ms: int | None, now_ms: int) -> Range:
    """Returns the range of a target with the bounds that follow from `broker_ms`.

    `broker_ms` is the time of the first record that has the broker's time. The range stays as it is if `broker_ms` is
    None, which means that there is no such record, or is later than `now_ms`.
    """
    if broker_ms is None or broker_ms > now_ms:
        return span
    return replace(span, known_ms=min(span.known_ms, broker_ms), lost_before_ms=broker_ms if span.log_start else -1)


@dataclass(frozen=True)
class _Retained:
    """The records that each partition keeps during a job: the start offset, and the first record at or after it.

    `expired_ms` is the time before which retention may have deleted records, according to the settings of the topic. It
    is -1 if retention deletes no records, and NEVER_MS if it deletes them by size. `expired_ms` is empty if the
    settings were not queried; it is then unknown which records an empty partition has lost.
    """

    starts: dict[TopicPartition, int]
    firsts: dict[TopicPartition, OffsetAndTimestamp | None]
    expired_ms: dict[TopicPartition, int]
    now_ms: int

    @classmethod
    def of(cls, cluster: Offsets, wanted: list[TopicPartition], now_ms: int | None) -> _Retained:
        starts, firsts = cluster.beginnings(wanted), cluster.first_at(wanted, 0)
        if now_ms is None:
            return cls(starts, firsts, {}, NEVER_MS)
        retentions = cluster.retentions({partition.topic for partition in wanted})
        expired_ms = {partition: _expired_ms(retentions[partition.topic], now_ms) for partition in wanted}
        for topic, kept_ms in ((topic, kept.ms) for topic, kept in retentions.items() if kept.ms >= 0):
            sure_ms = now_ms - kept_ms + min(RETENTION_MARGIN_MS, kept_ms // RETENTION_MARGIN_SHARE)
            leaving = [
                partition
                for partition, first in firsts.items()
                if partition.topic == topic and first is not None and first.timestamp_ms < sure_ms
            ]
            for partition, place in cluster.first_at(leaving, sure_ms).items() if leaving else ():
                if place is not None:
                    starts[partition], firsts[partition] = place.offset, place
                    expired_ms[partition] = max(expired_ms[partition], sure_ms)
        return cls(starts, firsts, expired_ms, now_ms)

    def lost_before_ms(self, partition: TopicPartition) -> int:
        """Returns the time before which records may be missing from a partition that has lost records.

        A timestamp in the future comes from a producer with a wrong clock, and is ignored.
        """
        first = self.firsts.get(partition)
        if first is not None and first.timestamp_ms <= self.now_ms:
            return first.timestamp_ms
        return self.expired_ms.get(partition, NEVER_MS)


def known_ms(spans: list[Range]) -> list[int]:
    """Returns the earliest time at which each partition of a topic is known to exist.

    A partition exists if a partition with a higher number exists. A partition that has lost records existed at its
    `lost_before_ms`.
    """
    known = [span.known_ms if span.lost_before_ms < 0 else min(span.known_ms, span.lost_before_ms) for span in spans]
    return [min(known[number:]) for number in range(len(known))]


def _expired_ms(kept: Retention, now_ms: int) -> int:
    return NEVER_MS if kept.by_size else now_ms - kept.ms if kept.ms >= 0 else -1


def margin_before(from_ms: int | None) -> int | None:
    """Returns the time from which the effects of a window of requests are read, None if the window has no start.

    Effects follow their requests, but clocks differ a little.
    """
    return None if from_ms is None else max(0, from_ms - CLOCK_MARGIN_MS)


def _cut(place: OffsetAndTimestamp | None, end: int) -> int:
    return end if place is None else min(place.offset, end)


def _settled(cluster: Offsets, marks: Mapping[TopicPartition, int], settle_ms: int) -> dict[TopicPartition, int]:
    """Returns for each partition its high watermark in `marks` if all transactions below it end within `settle_ms`,
    otherwise its last stable offset."""
    deadline = time.monotonic() + settle_ms / 1000
    ends: dict[TopicPartition, int] = {}
    while True:
        open_still = [partition for partition in marks if ends.get(partition, -1) < marks[partition]]
        stable = cluster.ends(open_still, committed=True)
        ends.update({partition: min(stable[partition], marks[partition]) for partition in open_still})
        if all(ends[partition] >= marks[partition] for partition in marks) or time.monotonic() >= deadline:
            return ends
        time.sleep(_POLL_S)
