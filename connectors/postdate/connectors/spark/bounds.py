"""Which records an audit reads: beginnings and fixed ends, and what they hide.

Ends are fixed once, cause before effect: requests, dispatch log, then targets and dead letters, and at last how far the
dispatch log is read once more. A read_committed end stands before the oldest open transaction; it is waited for up to
a bound and then taken as it is, `capped`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from postdate.connectors.spark.cluster import Partition, Place
from postdate.connectors.spark.errors import CannotRun
from postdate.connectors.spark.limits import CLOCK_MARGIN_MS

NEVER_MS = 2**63 - 1
"""Later than every timestamp: all of a partition may have left it."""
_POLL_S = 0.1


class Offsets(Protocol):
    """What is asked of the cluster; `Cluster` answers it."""

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]: ...
    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, int]: ...
    def ends(self, partitions: Iterable[Partition], *, committed: bool) -> dict[Partition, int]: ...
    def first_at(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, Place | None]: ...


@dataclass(frozen=True)
class Range:
    """The offsets of one partition that are read: `start` to `end`, the latter excluded.

    `log_start` is the first offset that the partition still has, `high_watermark` its end with open transactions.
    `capped`: an open transaction hides what lies between. `lost_before_ms`: what was written before that time may have
    left the partition by retention; -1 where nothing that is read for has.
    """

    role: str
    partition: Partition
    log_start: int
    start: int
    end: int
    high_watermark: int
    capped: bool
    lost_before_ms: int


def existing(cluster: Offsets, topics: Iterable[str]) -> list[Partition]:
    """All partitions of `topics`, which must exist; raises CannotRun naming those that do not."""
    wanted = list(topics)
    counts = cluster.partition_counts(wanted)
    absent = [topic for topic in wanted if topic not in counts]
    if absent:
        raise CannotRun(
            f"There is no topic {', '.join(absent)} on this cluster (`postdate topics create` makes the topics)."
        )
    return [Partition(topic, index) for topic in wanted for index in range(counts[topic])]


def fixed_ranges(
    cluster: Offsets,
    role: str,
    partitions: Iterable[Partition],
    *,
    from_ms: int | None = None,
    to_ms: int | None = None,
    settle_ms: int = 0,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> dict[Partition, Range]:
    """The range of each partition as of now.

    `from_ms` and `to_ms` cut it by timestamp. An end that an open transaction hides is waited for up to `settle_ms`:
    what was written before this call then lies inside, unless the range is `capped`.
    """
    wanted = list(partitions)
    starts = cluster.beginnings(wanted)
    marks = cluster.ends(wanted, committed=False)
    ends = _settled(cluster, marks, settle_ms, clock, wait)
    firsts = cluster.first_at([partition for partition in wanted if starts[partition] > 0], 0)
    lower = cluster.first_at(wanted, from_ms) if from_ms is not None else {}
    upper = cluster.first_at(wanted, to_ms) if to_ms is not None else {}
    ranges = {}
    for partition in wanted:
        log_start, end = starts[partition], ends[partition]
        start = _cut(lower[partition], end) if partition in lower else log_start
        stop = _cut(upper[partition], end) if partition in upper else end
        first = firsts.get(partition)
        lost_before_ms = -1 if log_start == 0 or start > log_start else first.timestamp_ms if first else NEVER_MS
        ranges[partition] = Range(
            role,
            partition,
            log_start,
            max(log_start, min(start, stop)),
            stop,
            marks[partition],
            end < marks[partition],
            lost_before_ms,
        )
    return ranges


def margin_before(from_ms: int | None) -> int | None:
    """The beginning of what is read for a window of requests: effects follow causes, clocks differ a little."""
    return None if from_ms is None else max(0, from_ms - CLOCK_MARGIN_MS)


def _cut(place: Place | None, end: int) -> int:
    return end if place is None else min(place.offset, end)


def _settled(
    cluster: Offsets,
    marks: Mapping[Partition, int],
    settle_ms: int,
    clock: Callable[[], float],
    wait: Callable[[float], None],
) -> dict[Partition, int]:
    """The high watermarks `marks` where every transaction below them has ended in time, else the last stable offset."""
    deadline = clock() + settle_ms / 1000
    ends: dict[Partition, int] = {}
    while True:
        open_still = [partition for partition in marks if ends.get(partition, -1) < marks[partition]]
        stable = cluster.ends(open_still, committed=True)
        ends.update({partition: min(stable[partition], marks[partition]) for partition in open_still})
        if all(ends[partition] >= marks[partition] for partition in marks) or clock() >= deadline:
            return ends
        wait(_POLL_S)
