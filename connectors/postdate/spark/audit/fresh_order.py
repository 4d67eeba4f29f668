"""The order of the messages that are new since the last audit.

A new message may have been overtaken by one that an earlier run has read. That one left at most ORDER_LATE_MS_MAX
before it, or the new message left late, so it lies a little before the first unread offset. So each partition is read
again from some records before that offset on: as many as are new, and at least ORDER_AGAIN_MIN. The dispatch log as
well, whose record tells how far the owner of the earlier message had read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql import DataFrame

from postdate.spark.audit.steps import AuditSteps
from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.job.bounds import DISPATCH_LOG, TARGET, Range
from postdate.spark.judging.sifting import History
from postdate.spark.limits import ORDER_AGAIN_MIN
from postdate.spark.records.fates import log_rows
from postdate.spark.session.small_tables import small_table

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
