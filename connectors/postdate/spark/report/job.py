"""The load and lateness report: upcoming load, and the lateness of past deliveries.

1. Fix the end offsets: requests, store topic, then dispatch log. So a request without a fate in the log had no fate
   when the end of the requests was fixed.
2. Group requests, stored requests and fates by origin (`report.rows`): a message without a final fate counts as
   ahead.
3. Sum up the load and the lateness by hour, target and partition, and the load also over time; percentiles are exact.
4. Write the report to standard output, and also to Parquet tables and a page if the options name a place for them.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postdate.spark.job.bounds import Range, existing, fixed_ranges
from postdate.spark.job.lifecycle import Job, run_job
from postdate.spark.job.progress import Reporter
from postdate.spark.limits import GROUPS_MAX
from postdate.spark.output.load import gathered_load, load_by
from postdate.spark.records.fates import fate_rows, log_rows
from postdate.spark.records.policies import recorded_policies
from postdate.spark.records.requests import understood_rows
from postdate.spark.report.options import ReportOptions
from postdate.spark.report.output import Group, ReportOutcome, write_report_outcome
from postdate.spark.report.page import report_page
from postdate.spark.report.rows import (
    ended_rows,
    lateness_table,
    load_table,
    past_rows,
    schedule_requests,
    sized_requests,
    stored_rows,
    upcoming_rows,
)
from postdate.spark.session.caching import cached, materialised
from postdate.spark.session.output_paths import require_new, write_text
from postdate.spark.session.small_tables import small_table

_LOGS = "topic string, partition int, log_topic string, log_end bigint, log_is_whole boolean"
_MINUTE_MS = 60_000


def run_report(options: ReportOptions) -> int:
    """Creates a report and writes it to standard output. Returns the exit code: 0 success, 1 failure, 2 invalid
    options."""

    def job(spark: SparkSession, reporter: Reporter) -> int:
        outcome = report(spark, options, reporter)
        if options.html is not None:
            write_text(spark, options.html, report_page(outcome))
        write_report_outcome(outcome, options.output, sys.stdout)
        return 0

    return run_job(options, job, "no report was written")


def report(spark: SparkSession, options: ReportOptions, reporter: Reporter) -> ReportOutcome:
    """Returns the report, and writes the tables to `options.write` if it is given. Requires a session that can read
    Kafka.

    Raises CannotRun for errors of the cluster or Spark, JobUsageError if `options.write` exists already.
    """
    if options.write is not None:
        require_new(spark, options.write, "--write")
    with _Report.begun(spark, options, reporter) as begun:
        return begun.outcome()


@dataclass(frozen=True)
class _Report(Job[ReportOptions]):
    """One running report."""

    could_not = "Spark could not read the topics"

    def outcome(self) -> ReportOutcome:
        began_s, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        ahead, behind, notes = self._rows()
        ahead, behind = cached(ahead), cached(behind)
        with self.reporter.working(self.spark, "looking ahead"):
            counts = ahead.agg(
                F.count("*").alias("ahead"),
                F.count_if(F.col("due_ms") < now_ms).alias("overdue"),
                F.count_if("is_stored").alias("stored"),
            ).collect()[0]
            due_ms = F.greatest(F.col("due_ms"), F.lit(now_ms).cast("bigint"))
            due = ahead.select(due_ms.alias("due_ms"), F.lit(1).alias("rows"), "size_bytes")
            load, loads = gathered_load(due), self._groups(load_table(ahead))
        with self.reporter.working(self.spark, "looking back"):
            lateness, late = self._groups(lateness_table(behind)), self._late(behind)
        if self.options.write is not None:
            with self.reporter.working(self.spark, f"writing {self.options.write}"):
                self._write(self.options.write, ahead, behind, due)
        outcome = ReportOutcome(self.options.requests, now_ms, counts["ahead"], counts["overdue"], counts["stored"])
        return replace(
            outcome,
            load=load,
            loads=loads,
            lateness=lateness,
            late=late,
            notes=notes,
            written=self.options.write,
            html=self.options.html,
            seconds=time.monotonic() - began_s,
        )

    def _rows(self) -> tuple[DataFrame, DataFrame, tuple[str, ...]]:
        """Returns the upcoming messages, the delivered messages, and notes about open transactions that hide
        records."""
        options, own = self.options, self.options.own_topics()
        requests = self._fixed("requests", [topics.requests for topics in own])
        store = self._fixed("store", [topics.store for topics in own])
        log = self._fixed("dispatch-log", [topics.dispatch_log for topics in own])
        requests_of = {topics.dispatch_log: topics.requests for topics in own}
        ends = [
            (requests_of[span.partition.topic], span.partition.number, span.partition.topic, span.end, False)
            for span in log
        ]
        records = log_rows(self.read(log), small_table(self.spark, ends, _LOGS))
        scheduled = self._scheduled(requests, records)
        ended = materialised(ended_rows(fate_rows(records)))
        stored = stored_rows(self.read(store), {topics.store: topics.requests for topics in own})
        notes = tuple(
            f"an open transaction hides the end of {span.partition.topic}/{span.partition.number}"
            for span in (*requests, *store, *log)
            if span.capped
        )
        return upcoming_rows(scheduled, stored, ended), past_rows(scheduled, ended, options.since_ms), notes

    def _scheduled(self, requests: list[Range], log: DataFrame) -> DataFrame:
        """Returns the rows of `schedule_requests`. Computes the due times of returns only if there are returns, since
        this computation costs most."""

        def sized(policies: DataFrame | None, reads_returns: bool) -> DataFrame:
            settings = (self.options.levels_ms, self.options.dialect_options(), policies)
            return sized_requests(understood_rows(self.read(requests), *settings, reads_returns=reads_returns))

        sized_rows = sized(None, False)
        if not sized_rows.where("is_return").isEmpty():
            sized_rows = sized(recorded_policies(self.spark, log), True)
        return schedule_requests(sized_rows)

    def _fixed(self, role: str, topics: list[str]) -> list[Range]:
        settle_ms = self.options.settle_ms
        return [*fixed_ranges(self.cluster, role, existing(self.cluster, topics), settle_ms=settle_ms).values()]

    def _groups(self, groups: DataFrame) -> tuple[Group, ...]:
        """Returns the groups as dictionaries, the largest first, at most GROUPS_MAX."""
        rows = groups.orderBy(F.desc("messages"), "by", "name").limit(GROUPS_MAX).collect()
        return tuple(row.asDict() for row in rows)

    def _late(self, behind: DataFrame) -> tuple[Group, ...]:
        rows = self._latest(behind).collect()
        return tuple(row.asDict() for row in rows)

    def _latest(self, behind: DataFrame) -> DataFrame:
        origin = F.concat_ws("/", "topic", "partition", "offset").alias("origin")
        latest = behind.orderBy(F.desc("lateness_ms"), "topic", "partition", "offset").limit(self.options.late)
        return latest.select(origin, "target", "due_ms", "ended_ms", "lateness_ms")

    def _write(self, path: str, ahead: DataFrame, behind: DataFrame, due: DataFrame) -> None:
        minutes = load_by(due, _MINUTE_MS).select("start_ms", F.col("rows").alias("messages"), "size_bytes")
        tables = {"load": load_table(ahead), "minutes": minutes, "lateness": lateness_table(behind)}
        for name, rows in {**tables, "late": self._latest(behind)}.items():
            rows.write.parquet(f"{path}/{name}")
