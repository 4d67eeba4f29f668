"""Repair: sends the requests again that an audit reports as missing, if nothing can deliver their messages any more.

1. Read the missing origins from the audit's state.
2. Read the current topics: requests from the first missing request on, dispatch log, store topic, targets.
3. Report the requests that cannot be repaired, with reasons (`repair_rows`).
4. Send the other requests as a bulk schedule. The id of each is derived from its origin. The bulk schedule skips an id
   that already has a request on the topic, so a second repair sends nothing twice.

Two repairs at the same time do not see each other's requests: run one at a time.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postdate.spark.bulk.job import schedule
from postdate.spark.columns.by_origin import ORIGIN
from postdate.spark.errors import CannotRun
from postdate.spark.job.bounds import NEVER_MS, TARGET, Range, existing, fixed_ranges, known_ms, margin_before
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.job.lifecycle import Job, run_job
from postdate.spark.job.progress import Reporter
from postdate.spark.limits import COMMIT_MS_MAX, REPAIRED_SHARE_MAX, REPAIRED_SURELY_MAX, TARGETS_MAX
from postdate.spark.records.deliveries import delivered_rows
from postdate.spark.records.fates import fate_rows, log_rows
from postdate.spark.records.requests import understood_rows
from postdate.spark.repair.options import RepairOptions
from postdate.spark.repair.output import RepairOutcome, Unrepaired, write_repair_outcome
from postdate.spark.repair.rows import (
    ID_PREFIX,
    PARTITION_PROGRESS,
    PROVABLE,
    RepairEvidence,
    low_waters,
    missing_rows,
    repair_rows,
    requests_of,
    stored_offsets,
)
from postdate.spark.session.small_tables import small_table
from postdate.spark.state.store import last_verdicts
from postdate.wire.topics import is_topic_name

_LOGS = "topic string, partition int, log_topic string, log_end bigint, log_is_whole boolean"
_ID = re.compile(rf'"id":"{ID_PREFIX}([0-9]+/[0-9]+)"')
Ranges = dict[TopicPartition, Range]


def run_repair(options: RepairOptions) -> int:
    """Repairs, or in a dry run reports the planned repair. Returns the exit code.

    0: each missing request is repaired (dry run: can be repaired) or has ended since the audit. 1: a request cannot be
    repaired, or an error of Kafka or Spark. 2: invalid options.
    """

    def job(spark: SparkSession, reporter: Reporter) -> int:
        outcome = repair(spark, options, reporter)
        write_repair_outcome(outcome, options.output, sys.stdout)
        return outcome.exit_code

    return run_job(options, job, "a part may have been sent: run it again, nothing is sent twice")


def repair(spark: SparkSession, options: RepairOptions, reporter: Reporter) -> RepairOutcome:
    """Repairs with the session `spark`, which must be able to read Kafka.

    Raises JobUsageError if the state of an audit does not exist, CannotRun for errors of the cluster or Spark.
    """
    with _Repair.begun(spark, options, reporter) as begun:
        return begun.outcome()


def require_plausible(found: RepairOutcome, options: RepairOptions) -> None:
    """Raises CannotRun if the repair would send so large a share of the audited requests that the audit is probably
    wrong. Does not raise in a dry run, with `any_share`, or for at most REPAIRED_SURELY_MAX requests."""
    share = found.repairable / max(1, found.judged)
    if not options.apply or options.any_share or found.repairable <= REPAIRED_SURELY_MAX:
        return
    if share > REPAIRED_SHARE_MAX:
        raise CannotRun(
            f"{found.repairable:,} of {found.judged:,} audited requests ({100 * share:.1f} %) would be sent again. "
            "So many are rarely lost: was a topic created again, or another cluster audited? To send them "
            "anyway, add --any-share."
        )


def provable_from_ms(spans: list[Range]) -> list[int]:
    """Returns for each partition of a topic the time from which the partition still has every delivered record.

    The topic has existed at least since its first record with the broker's time. A partition that has lost records
    still has all records from its first record with the broker's time on. The time in a record may be earlier than the
    write by the duration of one transaction, and the fate may be committed later than the write by another. So the
    function adds the durations of two transactions.
    """
    exists_ms = min(span.known_ms for span in spans)

    def kept_from_ms(span: Range) -> int:
        if not span.log_start:
            return exists_ms
        return max(exists_ms, span.known_ms + 2 * COMMIT_MS_MAX + 1) if span.known_ms < NEVER_MS else NEVER_MS

    return [kept_from_ms(span) for span in spans]


@dataclass(frozen=True)
class _Repair(Job[RepairOptions]):
    """One running repair."""

    could_not = "Spark could not read or send"

    def outcome(self) -> RepairOutcome:
        began_s, options = time.monotonic(), self.options
        judged = last_verdicts(self.spark, options.audited)
        elsewhere = judged.where(F.array_contains("verdicts", "missing") & (F.col("topic") != options.requests))
        missing = missing_rows(judged, options.requests).persist(StorageLevel.MEMORY_AND_DISK)
        with self.reporter.working(self.spark, f"reading {options.audited}"):
            firsts = missing.groupBy("partition").agg(F.min("offset").alias("first"), F.min("request_ms").alias("ms"))
            first = {row["partition"]: (row["first"], row["ms"]) for row in firsts.collect()}
            others = elsewhere.count()
        found = RepairOutcome(
            requests=options.requests,
            audited=options.audited,
            applied=options.apply,
            missing=missing.count(),
            elsewhere=others,
            judged=judged.where(F.col("topic") == options.requests).count(),
        )
        if found.missing:
            planned, *read = self._planned(missing, first)
            with self.reporter.working(self.spark, "finding repairable requests"):
                found = self._with_unrepairable(planned, found)
            for cached in read:
                cached.unpersist()
            found = self._sent(planned, found)
            planned.unpersist()
        missing.unpersist()
        return replace(found, seconds=time.monotonic() - began_s)

    def _planned(
        self, missing: DataFrame, first: Mapping[int, tuple[int, int]]
    ) -> tuple[DataFrame, DataFrame, DataFrame]:
        """Returns the rows of `repair_rows`, and the requests and the dispatch log from which they are derived. All are
        cached."""
        options, own, now_ms = self.options, self.options.own(), time.time_ns() // 1_000_000
        ranges, log, store, again = self._ranges(first)
        requests = understood_rows(
            self.read(
                replace(span, start=max(span.start, first[part.number][0]))
                for part, span in ranges.items()
                if part.number in first
            ),
            options.levels_ms,
            options.dialect_options(),
        ).persist(StorageLevel.MEMORY_AND_DISK)
        ends = [
            (own.requests, part.number, own.dispatch_log, span.end, span.log_start == 0) for part, span in log.items()
        ]
        rows = log_rows(self.read(again.values()), small_table(self.spark, ends, _LOGS))
        rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
        marks = {row["partition"]: row["low_water"] for row in low_waters(rows).collect()}
        lost_ms = {part.number: span.lost_before_ms for part, span in again.items()}
        partition_progress = [
            (part.number, marks.get(part.number), lost_ms.get(part.number), span.log_start)
            for part, span in ranges.items()
        ]
        partitions = small_table(self.spark, partition_progress, PARTITION_PROGRESS)
        stored = stored_offsets(self.read(store.values()))
        delivered, targets = self._delivered(missing, requests, margin_before(min(ms for _, ms in first.values())))
        evidence = RepairEvidence(requests, fate_rows(rows), stored, partitions, delivered, targets)
        planned = repair_rows(missing, evidence, now_ms)
        return planned.persist(StorageLevel.MEMORY_AND_DISK), requests, rows

    def _delivered(self, missing: DataFrame, requests: DataFrame, from_ms: int | None) -> tuple[DataFrame, DataFrame]:
        """Returns the delivered records that are on the targets of the missing requests now, and these targets with the
        columns of PROVABLE.

        Raises CannotRun if the requests name too many targets.
        """
        named_targets = requests.join(missing.select(*ORIGIN), list(ORIGIN), "left_semi").select("target").distinct()
        names = [row["target"] for row in named_targets.where("target is not null").limit(TARGETS_MAX + 1).collect()]
        if len(names) > TARGETS_MAX:
            raise CannotRun(f"The missing requests name more than {TARGETS_MAX} targets.")
        counts = self.cluster.partition_counts([name for name in names if is_topic_name(name)])
        parts = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        settle_ms, now_ms = self.options.settle_ms, time.time_ns() // 1_000_000
        spans = fixed_ranges(self.cluster, TARGET, parts, from_ms=from_ms, settle_ms=settle_ms, now_ms=now_ms)
        spans = self.bounded(spans)
        policies = self.cluster.settings(counts, "cleanup.policy") if counts else {}
        rows = []
        for topic, count in counts.items():
            own = [spans[TopicPartition(topic, number)] for number in range(count)]
            hides = "compact" in policies[topic] or any(span.capped for span in own)
            rows.append((topic, count, known_ms(own), [NEVER_MS] * count if hides else provable_from_ms(own)))
        return delivered_rows(self.read(spans.values()), [self.options.requests]), small_table(
            self.spark, rows, PROVABLE
        )

    def _ranges(self, first: Mapping[int, tuple[int, int]]) -> tuple[Ranges, Ranges, Ranges, Ranges]:
        """Returns the ranges of the requests, the dispatch log, the store topic, and the dispatch log again, fixed in
        this order.

        Low-water marks come from the first range of the dispatch log. A request below its mark is in the range of the
        store topic, or has ended within the second range of the dispatch log. Raises CannotRun if an open transaction
        hides an end.
        """
        own, settle_ms = self.options.own(), self.options.settle_ms
        since_ms = margin_before(min(ms for _, ms in first.values()))

        def fixed(role: str, topic: str, from_ms: int | None = None) -> Ranges:
            parts = existing(self.cluster, [topic])
            return fixed_ranges(self.cluster, role, parts, from_ms=from_ms, settle_ms=settle_ms)

        requests, log = fixed("requests", own.requests), fixed("dispatch-log", own.dispatch_log, since_ms)
        store, again = fixed("store", own.store), fixed("dispatch-log", own.dispatch_log, since_ms)
        spans = [span for some in (requests, log, store, again) for span in some.values()]
        capped = {f"{span.partition.topic}/{span.partition.number}" for span in spans if span.capped}
        if capped:
            raise CannotRun(
                f"An open transaction hides the end of {', '.join(sorted(capped))}: a missing message may be "
                "about to end. Run the job again later."
            )
        return requests, log, store, again

    def _with_unrepairable(self, planned: DataFrame, found: RepairOutcome) -> RepairOutcome:
        """Returns `found` with the number of repairable requests, and with counts and samples of the others."""
        counts = {row["reason"]: row["count"] for row in planned.groupBy("reason").count().collect()}
        bad = planned.where("reason is not null").orderBy(*("topic", "partition", "offset"))
        shown = bad.select("topic", "partition", "offset", "reason", "detail").limit(self.options.samples).collect()
        samples = tuple(
            Unrepaired(f"{row['topic']}/{row['partition']}/{row['offset']}", row["reason"], row["detail"])
            for row in shown
        )
        repairable = counts.pop(None, 0)
        return replace(found, repairable=repairable, reasons=counts, samples=samples)

    def _sent(self, planned: DataFrame, found: RepairOutcome) -> RepairOutcome:
        """Sends the repairable requests, or in a dry run only checks them."""
        if not found.repairable:
            return found
        require_plausible(found, self.options)
        done = schedule(requests_of(planned), self.options.bulk(), self.reporter)
        refused = tuple(
            Unrepaired(self._origin(bad.row), bad.reasons[0], "; ".join(bad.details)) for bad in done.samples
        )
        return replace(
            found,
            repairable=done.accepted,
            already=done.skipped,
            sent=done.sent,
            reasons={**found.reasons, **done.reasons},
            samples=(*found.samples, *refused)[: self.options.samples],
        )

    def _origin(self, row: str) -> str:
        """Returns the origin of a refused row, from the id in `row`, its truncated JSON; `row` if it has no such id."""
        found = _ID.search(row)
        return f"{self.options.requests}/{found[1]}" if found is not None else row
