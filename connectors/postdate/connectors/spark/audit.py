"""The batch audit: did every request end exactly once, and does its message agree?

Reads the topics alone and shares with the sidecar nothing but header names and the format of the dispatch log.

1. Fix the ends, cause before effect: requests, dispatch log, then targets, dead letters and verdicts, then how far the
   dispatch log is read once more.
2. Bring together by origin: requests, fates, delivered records, dead letters, answers.
3. Judge each origin, and the chain of each dispatch log.
4. Tell: counts, lateness, samples; exit code 0 clean, 4 violations, 1 could not judge, 2 asked amiss.

One audit at a time in a process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from postdate.connectors.spark.answer_rows import answer_rows
from postdate.connectors.spark.answers import judged_answers
from postdate.connectors.spark.bounds import Range
from postdate.connectors.spark.claims import CLAIMING, judged_moves, unfounded_ends
from postdate.connectors.spark.cluster import Cluster
from postdate.connectors.spark.errors import AuditError, AuditUsageError, CannotJudge
from postdate.connectors.spark.fate_rows import chain_breaks, fate_rows, log_rows
from postdate.connectors.spark.history import (
    Causes,
    Effects,
    fix_causes,
    fix_effects,
    log_ranges,
    partition_table,
    target_table,
)
from postdate.connectors.spark.interruption import arm, interruptible
from postdate.connectors.spark.judge import judge
from postdate.connectors.spark.known_rows import known_rows
from postdate.connectors.spark.limits import TARGETS_MAX
from postdate.connectors.spark.options import AuditOptions
from postdate.connectors.spark.output import Hole, Outcome, VerdictRecords, range_lines, write_outcome
from postdate.connectors.spark.progress import Reporter
from postdate.connectors.spark.record_rows import dead_letter_rows, delivered_rows
from postdate.connectors.spark.request_rows import request_rows
from postdate.connectors.spark.session import spark_session
from postdate.connectors.spark.sources import read_records
from postdate.connectors.spark.summary import summarise
from postdate.connectors.spark.unanswered import unanswered_ends
from postdate.connectors.wire.topics import is_topic_name


def run_audit(options: AuditOptions) -> int:
    """Audits, writes the outcome to standard output and everything else to standard error; returns the exit code.

    Ctrl-C and SIGTERM end it with 1: nothing was judged.
    """
    reporter = Reporter()
    try:
        reporter.say("starting Spark …")
        with interruptible(), spark_session(options.master, options.spark_conf, reporter.say) as spark:
            arm()
            outcome = audit(spark, options, reporter)
        write_outcome(outcome, options.output, sys.stdout)
        sys.stdout.flush()
        return outcome.exit_code
    except AuditError as error:
        reporter.say(f"postdate audit: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        reporter.say("stopped; nothing was judged")
        return CannotJudge.exit_code


def audit(spark: SparkSession, options: AuditOptions, reporter: Reporter) -> Outcome:
    """Audits with a session that can read Kafka.

    Raises CannotJudge where the cluster, Spark or the history does not allow a verdict, AuditUsageError where
    `options.write` exists already.
    """
    if options.write is not None:
        _require_new(spark, options.write)
    properties = {**options.properties, "bootstrap.servers": options.bootstrap_servers}
    try:
        with Cluster(spark, properties) as cluster:
            return _Audit(spark, cluster, properties, options, reporter).outcome()
    except (Py4JJavaError, PySparkException) as error:
        raise CannotJudge(_job_failed(error)) from error


@dataclass(frozen=True)
class _Audit:
    """One audit under way."""

    spark: SparkSession
    cluster: Cluster
    properties: Mapping[str, str]
    options: AuditOptions
    reporter: Reporter

    def outcome(self) -> Outcome:
        began_s, snapshot_ms = time.monotonic(), time.time_ns() // 1_000_000
        spark, options, own = self.spark, self.options, self.options.own_topics()
        causes = fix_causes(self.cluster, own, options)
        for line in range_lines([*causes.requests.values(), *causes.log.values()]):
            self.reporter.say(line)
        asked = self._read(causes.requests.values())
        requests = request_rows(asked, options.levels_ms, options.dialect_options())
        requests = requests.persist(StorageLevel.MEMORY_AND_DISK)
        with self.reporter.working(spark, "reading requests"):
            targets = options.targets or self._targets_of(requests)
        effects = self._fix_effects(targets)
        for line in range_lines([*effects.targets.values(), *effects.letters.values(), *effects.answers.values()]):
            self.reporter.say(line)
        partitions = partition_table(spark, own, causes, effects)
        log = log_rows(self._read(log_ranges(causes, effects)), partitions)
        log = log.persist(StorageLevel.MEMORY_AND_DISK)
        with self.reporter.working(spark, "reading the dispatch log"):
            has_claims = self._look_at(log)
        fates = fate_rows(log)
        answers = answer_rows(self._read(effects.answers.values()), {one.verdicts: one.requests for one in own})
        answers = answers.persist(StorageLevel.MEMORY_AND_DISK)
        with self.reporter.working(spark, "reading verdict records"):
            told = self._count(answers)
        delivered = delivered_rows(self._read(effects.targets.values()), [one.requests for one in own])
        letters = dead_letter_rows(
            self._read(effects.letters.values()), {one.dead_letters: one.requests for one in own}
        )
        known = known_rows(requests, fates, answers, partitions).persist(StorageLevel.MEMORY_AND_DISK)
        judged = judge(
            *(requests, fates, delivered, letters),
            self._causes(has_claims, told, known),
            *(partitions, target_table(spark, effects)),
            snapshot_ms=snapshot_ms,
            slack_ms=options.slack_ms,
        ).persist(StorageLevel.MEMORY_AND_DISK)
        breaks = chain_breaks(log)
        with self.reporter.working(spark, "comparing requests, fates and records"):
            summary = summarise(judged, breaks, answers.where("malformed"), options.samples)
            holes = self._holes(judged, causes)
            aborted = self._aborted_copies(effects) if options.count_aborted else None
        if options.write is not None:
            with self.reporter.working(spark, f"writing {options.write}"):
                judged.write.parquet(f"{options.write}/origins")
                breaks.write.parquet(f"{options.write}/chain")
        for cached in (judged, known, answers, log, requests):
            cached.unpersist()
        return Outcome(
            *(options.requests, snapshot_ms, options.from_ms, options.to_ms, summary),
            tuple(span for spans in (causes.requests, causes.log, *effects.records()) for span in spans.values()),
            *(told, holes, aborted, self._notes(causes, effects)),
            time.monotonic() - began_s,
            options.write,
        )

    def _read(self, ranges: Iterable[Range]) -> DataFrame:
        return read_records(self.spark, ranges, self.properties)

    def _count(self, answers: DataFrame) -> VerdictRecords:
        row = answers.agg(F.count("*").alias("read"), F.count_if("malformed").alias("malformed")).collect()[0]
        return VerdictRecords(self.options.verdicts, row["read"], row["malformed"])

    def _causes(self, has_claims: bool, told: VerdictRecords, known: DataFrame) -> list[DataFrame]:
        """What is judged only where there is something for it to look at."""
        found = [unfounded_ends(known), judged_moves(known)] if has_claims else []
        found += [judged_answers(known)] if told.read > told.malformed else []
        return [*found, unanswered_ends(known, self.options.verdicts)] if self.options.verdicts != "none" else found

    def _targets_of(self, requests: DataFrame) -> list[str]:
        named = requests.where(F.col("target").isNotNull()).select("target").distinct().limit(TARGETS_MAX + 1).collect()
        if len(named) > TARGETS_MAX:
            raise CannotJudge(f"The requests name more than {TARGETS_MAX} targets: name those to read, or a window.")
        own = {name for one in self.options.own_topics() for name in one.names()}
        found = [str(row["target"]) for row in named]
        return [name for name in found if is_topic_name(name) and not name.startswith("__") and name not in own]

    def _fix_effects(self, targets: tuple[str, ...] | list[str]) -> Effects:
        present = self.cluster.partition_counts(targets) if targets else {}
        policies = self.cluster.cleanup_policies(present) if present else {}
        compacted = [topic for topic, policy in policies.items() if "compact" in policy]
        return fix_effects(self.cluster, self.options.own_topics(), targets, self.options, compacted)

    def _look_at(self, log: DataFrame) -> bool:
        """Whether there are fates that name a cause; raises CannotJudge where the broker's clock did not stamp them."""
        claims = F.exists("fates", lambda values: F.coalesce(F.get(values, 2).isin(*CLAIMING), F.lit(False)))
        found = log.agg(
            F.bool_or(F.col("parses") & claims).alias("claims"),
            F.min(F.when(~F.col("is_broker_time"), F.concat_ws("/", "log_topic", "partition", "log_offset"))).alias(
                "at"
            ),
        ).collect()[0]
        if found["at"] is not None:
            raise CannotJudge(
                f"The dispatch-log record {found['at']} is not stamped by the broker (LogAppendTime), so nothing can "
                "be said of early or late: run `postdate topics check`."
            )
        return bool(found["claims"])

    def _holes(self, judged: DataFrame, causes: Causes) -> tuple[Hole, ...]:
        if all(span.lost_before_ms < 0 for span in causes.log.values()):
            return ()
        lost = judged.where("is_fate_lost").groupBy("topic", "partition")
        rows = lost.agg(F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("requests"))
        return tuple(
            Hole(row["topic"], row["partition"], row["first"], row["last"], row["requests"])
            for row in rows.orderBy("topic", "partition").collect()
        )

    def _aborted_copies(self, effects: Effects) -> int:
        names = [one.requests for one in self.options.own_topics()]
        counts = [
            delivered_rows(
                read_records(self.spark, effects.targets.values(), self.properties, committed=committed), names
            ).count()
            for committed in (False, True)
        ]
        return counts[0] - counts[1]

    def _notes(self, causes: Causes, effects: Effects) -> tuple[str, ...]:
        capped = [
            span
            for spans in (causes.requests, effects.log_again, *effects.records())
            for span in spans.values()
            if span.capped
        ]
        notes = [
            f"an open transaction hides offsets {span.end} to {span.high_watermark} of "
            f"{span.partition.topic}/{span.partition.number}"
            for span in capped
        ]
        if effects.absent_answers:
            notes.append(f"no verdicts were looked at, there is no topic {', '.join(effects.absent_answers)}")
        if effects.absent_targets:
            notes.append(f"targets that do not exist: {', '.join(effects.absent_targets[:20])}")
        return tuple(notes)


def _require_new(spark: SparkSession, path: str) -> None:
    """Raises AuditUsageError where `path` exists, before hours of work end there."""
    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None, "a classic session has a JVM"
    place = jvm.org.apache.hadoop.fs.Path(path)
    if place.getFileSystem(context._jsc.hadoopConfiguration()).exists(place):
        raise AuditUsageError(f"{path} exists already: name a new directory for --write.")


def _job_failed(error: Py4JJavaError | PySparkException) -> str:
    """What a failed Spark job means for the person who asked, in one sentence."""
    text = str(error)
    if "data may have been lost" in text or "OffsetOutOfRange" in text or "offset was changed" in text:
        return (
            "Records left a topic while it was read (retention, or the topic was made anew). Audit a window that "
            f"begins later. Spark said: {_first_line(text)}"
        )
    return f"Spark could not read or compare the topics: {_first_line(text)}"


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1] if causes else lines[0] if lines else "nothing")[:500]
