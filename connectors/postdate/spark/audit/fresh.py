"""The part of each topic that is new since the last audit, what was deleted before it was read, and its order.

A new message may have been overtaken by one that an earlier run has read. That one left at most ORDER_LATE_MS_MAX
before it, or the new message left late, so it lies a little before the first unread offset. So each partition is read
again from some records before that offset on: as many as are new, and at least ORDER_AGAIN_MIN. The dispatch log as
well, whose record tells how far the owner of the earlier message had read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame

from postdate.spark.audit.ranges import Effects
from postdate.spark.audit.steps import AuditSteps
from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.errors import CannotRun
from postdate.spark.job.bounds import DISPATCH_LOG, TARGET, Range
from postdate.spark.job.cluster import Partition
from postdate.spark.judging.stages import History
from postdate.spark.limits import ORDER_AGAIN_MIN
from postdate.spark.records.fates import log_rows
from postdate.spark.session.small_tables import small_table
from postdate.spark.state.store import AuditState, place_of

Ranges = dict[Partition, Range]


def since(ranges: Mapping[Partition, Range], state: AuditState) -> tuple[Ranges, Ranges]:
    """The ranges, with what was lost *unread*, and the unread part of each.

    Records that left a topic after they were read are not lost. Raises CannotRun if a partition ends before the last
    read.
    """
    whole, fresh = {}, {}
    for partition, span in ranges.items():
        place = place_of(partition)
        read, lost_ms = state.next.get(place), state.lost_before_ms.get(place, -1)
        if read is None:
            whole[partition] = fresh[partition] = span
            continue
        if span.end < read:
            raise CannotRun(
                f"{place} ends at {span.end}, though it was read up to {read}: it was cut or made anew. Name a new "
                "--state."
            )
        if span.log_start > read:
            lost_ms = max(lost_ms, span.lost_before_ms)
        whole[partition] = replace(span, lost_before_ms=lost_ms)
        fresh[partition] = replace(whole[partition], start=max(span.start, read))
    return whole, fresh


def since_effects(effects: Effects, state: AuditState) -> tuple[Effects, tuple[Ranges, Ranges, Ranges]]:
    """The same for targets, dead letters and verdicts; the second reading of the log is unchanged."""
    pairs = [since(ranges, state) for ranges in effects.records()]
    targets, letters, answers = (whole for whole, _ in pairs)
    fresh = (pairs[0][1], pairs[1][1], pairs[2][1])
    return replace(effects, targets=targets, letters=letters, answers=answers), fresh


def by_partition(ranges: Iterable[Range]) -> Ranges:
    """Ranges by their partition."""
    return {span.partition: span for span in ranges}


def without_renewed(state: AuditState, ids: Mapping[str, str], own: Iterable[str]) -> AuditState:
    """The state that forgets what it read of targets that were deleted and created again, and notes that they were.

    `ids` are the present ids of the topics. Raises CannotRun if one of Postdate's own topics, `own`, was created again.
    """
    renewed = {topic for topic, id in ids.items() if state.topic_ids.get(topic, id) != id}
    broken = sorted(renewed & set(own))
    if broken:
        raise CannotRun(f"{', '.join(broken)} was made anew since the last audit: name a new --state.")

    def kept(numbers: Mapping[str, int]) -> dict[str, int]:
        return {place: number for place, number in numbers.items() if place.rpartition("/")[0] not in renewed}

    return replace(
        state,
        next=kept(state.next),
        lost_before_ms=kept(state.lost_before_ms),
        known_ms=kept(state.known_ms),
        recreated=state.recreated | renewed,
    )


_STARTS = "target string, place int, start bigint"


def overtaken_since(
    steps: AuditSteps, new: History, fresh: Iterable[Range], partitions: DataFrame, earlier: DataFrame | None
) -> tuple[DataFrame, ...]:
    """The new messages that are out of order, as `AuditSteps.overtaken` finds them.

    `new` is what this run reads, from the ranges `fresh`; `partitions` as for `judge`. `earlier`: the origins of the
    state with their targets; None if nothing was read before.
    """
    spans = list(fresh)
    targets = [span for span in spans if span.role == TARGET and span.start < span.end]
    requests = new.understood.select(*ORIGIN, "target")
    if earlier is None or not targets:
        return steps.overtaken(targets, new, requests)
    starts = [(span.partition.topic, span.partition.number, span.start) for span in targets]
    again = [_from_before(span) for span in targets]
    log = steps.read(_from_before(span) for span in spans if span.role == DISPATCH_LOG)
    history = replace(new, messages=steps.messages(again), log=log_rows(log, partitions))
    known = requests.unionByName(earlier.select(*ORIGIN, "target"))
    return steps.overtaken(again, history, known, small_table(steps.spark, starts, _STARTS))


def _from_before(span: Range) -> Range:
    """The range with some records before it that are still there."""
    before = max(span.end - span.start, ORDER_AGAIN_MIN)
    return replace(span, start=max(span.log_start, span.start - before))
