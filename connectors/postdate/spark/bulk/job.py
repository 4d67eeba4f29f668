"""Bulk schedule: turns the rows of a table into requests.

1. Parse the columns as parameters of a request; the rows are cached, so that the input is read once.
2. Check every row, with the reasons of dead letters. Depending on the options, bad rows stop the job before it sends
   any request, are written to a separate table, or are skipped.
3. With `only_new`, skip rows whose id already has a request on the topic.
4. Send the requests, at a rate if the options have one. A dry run sends nothing, and only reports the added load.

`schedule` is for other Spark programs, `run_bulk` for the command. All rows are processed by Spark SQL, not in Python.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, replace

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postdate.spark.bulk.columns import field_columns, parsed_rows
from postdate.spark.bulk.options import FIELDS, BulkOptions, Source
from postdate.spark.bulk.output import BadRow, BulkOutcome, write_bulk_outcome
from postdate.spark.bulk.records import record_rows_of, requested_ids
from postdate.spark.bulk.rules import TARGETS, BulkContext, checked_rows, named_targets, repeated_ids
from postdate.spark.errors import CannotRun, JobUsageError
from postdate.spark.job.bounds import existing, fixed_ranges
from postdate.spark.job.lifecycle import Job, run_job
from postdate.spark.job.progress import Reporter
from postdate.spark.job.sending import send, send_at_rate
from postdate.spark.limits import (
    QUOTED_CHARACTERS_MAX,
    REPEATED_IDS_BROADCAST_MAX,
    SETTLE_MS_DEFAULT,
    TARGETS_MAX,
    TARGETS_SHOWN,
)
from postdate.spark.output.load import gathered_load
from postdate.spark.session.output_paths import require_new
from postdate.spark.session.small_tables import small_table

_BYTES_MAX = "max.message.bytes"


def run_bulk(options: BulkOptions, source: Source) -> int:
    """Schedules the rows of `source` and writes the outcome to standard output. Returns the exit code.

    0: sent (dry run: could be sent). 1: bad rows stopped the job, or an error of Kafka or Spark. 2: invalid options.
    """

    def job(spark: SparkSession, reporter: Reporter) -> int:
        outcome = schedule(rows_of(spark, source), options, reporter)
        write_bulk_outcome(outcome, options.output, sys.stdout)
        return outcome.exit_code

    return run_job(options, job, "a part may have been sent: run it again with --only-new, or again as it was")


def rows_of(spark: SparkSession, source: Source) -> DataFrame:
    """Returns the rows of a source. Raises JobUsageError if the source cannot be read."""
    try:
        if source.form == "table":
            return spark.table(source.path)
        return spark.read.format(source.form).options(**source.options).load(source.path)
    except (PySparkException, Py4JJavaError) as error:
        raise JobUsageError(f"{source.path} cannot be read: {str(error).splitlines()[0][:300]}") from error


def schedule(rows: DataFrame, options: BulkOptions, reporter: Reporter | None = None) -> BulkOutcome:
    """Schedules the rows of a DataFrame whose computation must be deterministic.

    Raises JobUsageError for invalid columns or options, CannotRun for errors of Kafka or Spark. After CannotRun, some
    of the requests may have been sent.
    """
    spark = rows.sparkSession
    if options.rejects is not None:
        require_new(spark, options.rejects, "--rejects")
    with _Bulk.begun(spark, options, reporter or Reporter()) as begun:
        return begun.outcome(rows)


@dataclass(frozen=True)
class _Bulk(Job[BulkOptions]):
    """One running bulk schedule."""

    could_not = "Spark could not read, check or send the rows"

    def outcome(self, rows: DataFrame) -> BulkOutcome:
        began_s, now_ms, options = time.monotonic(), time.time_ns() // 1_000_000, self.options
        partitions, bytes_max = self._request_topic()
        fields = FIELDS if options.target is None else tuple(name for name in FIELDS if name != "target")
        columns = field_columns(rows, options.columns, fields)
        if options.target is None and "target" not in columns:
            raise JobUsageError("No column is called target: map one with --column, or give one target for all rows.")
        parsed = parsed_rows(rows, columns, options.target, now_ms).persist(StorageLevel.MEMORY_AND_DISK)
        context = BulkContext(
            *(options.requests, bytes_max, options.horizon_ms, now_ms, "id" in columns, options.unknown_targets)
        )
        checked = self._checked(parsed, context).persist(StorageLevel.MEMORY_AND_DISK)
        with self.reporter.working(self.spark, "checking rows"):
            outcome = self._counted(checked, now_ms, "id" in columns, [*set(rows.columns) - set(columns.values())])
        if outcome.rejected and options.rejects is not None and not options.dry_run:
            with self.reporter.working(self.spark, f"writing {options.rejects}"):
                bad = checked.where(F.size("reasons") > 0)
                bad.select("row.*", "reasons", "details").write.parquet(options.rejects)
        if outcome.exit_code == 0:
            outcome = self._sent(self._to_send(checked), outcome, partitions, bytes_max)
        for cached in (checked, parsed):
            cached.unpersist()
        return replace(outcome, seconds=time.monotonic() - began_s)

    def _request_topic(self) -> tuple[int, int]:
        """Returns the number of partitions of the request topic, and its maximum record size."""
        name = self.options.requests
        count = self.cluster.partition_counts([name]).get(name)
        if count is None:
            raise CannotRun(f"There is no topic {name} on this cluster (`postdate topics create` makes the topics).")
        return count, int(self.cluster.settings([name], _BYTES_MAX)[name])

    def _checked(self, parsed: DataFrame, context: BulkContext) -> DataFrame:
        with self.reporter.working(self.spark, "reading rows"):
            named = [row["target"] for row in named_targets(parsed).limit(TARGETS_MAX + 1).collect()]
            repeated = repeated_ids(parsed).persist()
            count = repeated.count() if context.with_ids else 0
        if len(named) > TARGETS_MAX:
            raise CannotRun(f"The rows name more than {TARGETS_MAX} targets: is the right column named?")
        rules = self.options.rules()
        present = self.cluster.partition_counts(named) if named else {}
        sizes = self.cluster.settings(present, _BYTES_MAX) if present else {}
        facts = [
            (name, rules.permits(name), present.get(name), int(sizes[name]) if name in sizes else None)
            for name in named
        ]
        few = F.broadcast(repeated) if count <= REPEATED_IDS_BROADCAST_MAX else repeated
        return checked_rows(parsed, small_table(self.spark, facts, TARGETS), few if count else None, context)

    def _counted(self, checked: DataFrame, now_ms: int, with_ids: bool, unused: list[str]) -> BulkOutcome:
        """Returns the outcome of the checks, before anything is sent. It has no load yet."""
        is_due = F.count_if(F.col("due_ms") <= now_ms).alias("is_due")
        groups = checked.groupBy("reasons").agg(F.count("*").alias("rows"), is_due).collect()
        bad = [row for row in groups if row["reasons"]]
        reasons: Counter[str] = Counter()
        for row in bad:
            reasons.update(dict.fromkeys(row["reasons"], row["rows"]))
        samples = self._samples(checked.where(F.size("reasons") > 0)) if bad else ()
        notes = [f"ignored columns: {', '.join(sorted(unused))}"] if unused else []
        if not with_ids:
            notes.append("rows have no id: a row that is sent again, by you or by Spark, is delivered again")
        return BulkOutcome(
            requests=self.options.requests,
            dry_run=self.options.dry_run,
            now_ms=now_ms,
            rows=sum(row["rows"] for row in groups),
            rejected=sum(row["rows"] for row in bad),
            due_already=sum(row["is_due"] for row in groups if not row["reasons"]),
            reasons=dict(sorted(reasons.items())),
            samples=samples,
            rejects=self.options.rejects,
            without_bad=self.options.without_bad,
            notes=tuple(notes),
        )

    def _samples(self, bad: DataFrame) -> tuple[BadRow, ...]:
        spelled = F.substring(F.to_json("row"), 1, 3 * QUOTED_CHARACTERS_MAX)
        shown = bad.select("reasons", "details", spelled.alias("row")).limit(self.options.samples).collect()
        return tuple(BadRow(tuple(row["reasons"]), tuple(row["details"]), row["row"]) for row in shown)

    def _to_send(self, checked: DataFrame) -> DataFrame:
        good = checked.where(F.size("reasons") == 0)
        if not self.options.only_new:
            return good
        name = self.options.requests
        spans = fixed_ranges(
            *(self.cluster, "requests", existing(self.cluster, [name])),
            from_ms=self.options.since_ms,
            settle_ms=SETTLE_MS_DEFAULT,
        )
        capped = [str(span.partition.number) for span in spans.values() if span.capped]
        if capped:
            raise CannotRun(
                f"Open transactions hide requests of {name}, partitions {', '.join(capped)}, so it is unknown "
                "which ids already have requests. Run the job again when the transactions have ended."
            )
        requested = requested_ids(self.read(spans.values()))
        return good.join(requested.persist(StorageLevel.MEMORY_AND_DISK), "id", "left_anti")

    def _sent(self, good: DataFrame, outcome: BulkOutcome, partitions: int, bytes_max: int) -> BulkOutcome:
        """Sends the requests, unless this is a dry run. Returns the outcome with the added load and the numbers of sent
        and skipped rows."""
        options, valid = self.options, outcome.rows - outcome.rejected
        due_ms = F.greatest(F.col("due_ms"), F.lit(outcome.now_ms).cast("bigint"))
        due = good.select("target", due_ms.alias("due_ms"), F.lit(1).alias("rows"), "size_bytes")
        with self.reporter.working(self.spark, "looking ahead"):
            is_due = F.count_if(F.col("due_ms") <= outcome.now_ms).alias("is_due")
            by_target = due.groupBy("target").agg(F.count("*").alias("count"), is_due)
            counts = by_target.orderBy(F.desc("count"), "target").collect()
            load = gathered_load(due)
        rows = sum(row["count"] for row in counts)
        targets = {row["target"]: row["count"] for row in counts[:TARGETS_SHOWN]}
        due_already = sum(row["is_due"] for row in counts)
        outcome = replace(outcome, skipped=valid - rows, due_already=due_already, targets=targets, load=load)
        if options.dry_run or not rows:
            return outcome
        records = record_rows_of(good, options.requests, partitions)
        if options.rate is None:
            with self.reporter.working(self.spark, f"sending {rows:,} requests"):
                send(records, options.client_settings(), bytes_max)
            return replace(outcome, sent=rows)
        self.reporter.report(f"sending {rows:,} requests at {options.rate:,} a second …")
        progress = _Progress(self.reporter)
        send_at_rate(records, options.client_settings(), bytes_max, rows, options.rate, progress.report)
        return replace(outcome, sent=rows)


@dataclass
class _Progress:
    """Reports the progress each time that another tenth of the slices has been sent."""

    reporter: Reporter
    tenth: int = 0

    def report(self, done: int, total: int) -> None:
        if done * 10 // total > self.tenth:
            self.tenth = done * 10 // total
            self.reporter.report(f"sent {done * 100 // total} %")
