"""The steps of an audit, which use the cluster and Spark. `reading`, `incremental` and `job` call them in order.

The functions of `records` and `judging` do not access the cluster; the steps pass them its metadata.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from postdate.spark.audit.options import AuditOptions
from postdate.spark.audit.output import Hole, VerdictTopicCounts, range_lines
from postdate.spark.audit.ranges import Causes, Effects, fix_effects
from postdate.spark.errors import first_cause
from postdate.spark.job.bounds import Range
from postdate.spark.job.cluster_queries import TopicPartition
from postdate.spark.job.lifecycle import Job
from postdate.spark.job.topic_reads import read_records
from postdate.spark.judging.stages import History
from postdate.spark.limits import LOCAL_ROWS_MAX, ORDER_RECORDS_MAX
from postdate.spark.records.deliveries import (
    DEAD_LETTER_ROWS,
    UNREADABLE,
    dead_letter_rows,
    delivered_messages,
    delivered_rows,
    unreadable_dead_letters,
    unreadable_records,
)
from postdate.spark.records.fates import fate_rows
from postdate.spark.records.requests import understood_rows
from postdate.spark.records.verdict_records import ANSWER_ROWS, answer_rows
from postdate.spark.rules.ordering import overtaken
from postdate.spark.session.small_tables import small_table
from postdate.spark.state.store import AuditState, state_path


class AuditSteps(Job[AuditOptions]):
    """One running audit."""

    could_not = "Spark could not read or compare the topics"

    @classmethod
    def failure(cls, text: str) -> str:
        if "data may have been lost" in text or "OffsetOutOfRange" in text or "offset was changed" in text:
            return (
                "Records left a topic while it was read (retention, or the topic was created again). Audit a window "
                f"that begins later. Spark reports: {first_cause(text)}"
            )
        return super().failure(text)

    def understood(
        self, ranges: Iterable[Range], policies: DataFrame | None = None, *, reads_returns: bool = True
    ) -> DataFrame:
        """Returns the parsed requests in `ranges` with their messages; `policies` and `reads_returns` as for
        `understood_rows`."""
        options = self.options
        interpretation = (options.levels_ms, options.dialect_options(), policies)
        return understood_rows(self.read(ranges), *interpretation, reads_returns=reads_returns)

    def report_ranges(self, *ranges: Mapping[TopicPartition, Range]) -> None:
        """Prints the offsets to read."""
        for line in range_lines(span for spans in ranges for span in spans.values()):
            self.reporter.report(line)

    def answers(self, ranges: Iterable[Range]) -> DataFrame:
        """Returns the verdict records in `ranges`."""
        own = {topics.verdicts: topics.requests for topics in self.options.own_topics()}
        return self._rows(ranges, lambda records: answer_rows(records, own), ANSWER_ROWS)

    def messages(self, ranges: Iterable[Range]) -> DataFrame:
        """Returns the records in `ranges`. A record that names a request of an audited topic has the origin of this
        request."""
        return delivered_messages(self.read(ranges), [topics.requests for topics in self.options.own_topics()])

    def dead_letters(self, ranges: Iterable[Range]) -> DataFrame:
        """Returns the dead letters in `ranges`."""
        own = {topics.dead_letters: topics.requests for topics in self.options.own_topics()}
        judges = not self.options.dialects
        return self._rows(
            ranges, lambda records: dead_letter_rows(records, own, judges_refusals=judges), DEAD_LETTER_ROWS
        )

    def _rows(self, ranges: Iterable[Range], make: Callable[[DataFrame], DataFrame], columns: str) -> DataFrame:
        """Returns the rows with `columns` that `make` creates from the records in `ranges`.

        Most audits read no dead letter and no verdict record. Spark then plans nothing for these records.
        """
        spans = [span for span in ranges if span.start < span.end]
        return make(self.read(spans)) if spans else small_table(self.spark, [], columns)

    def unreadable(self, dead_letters: Iterable[Range], records: DataFrame | None) -> DataFrame:
        """Returns the dead letters, and the rows of `records`, whose origin cannot be read."""
        own = {topics.dead_letters: topics.requests for topics in self.options.own_topics()}
        unreadable = self._rows(dead_letters, lambda records: unreadable_dead_letters(records, own), UNREADABLE)
        return unreadable if records is None else unreadable.unionByName(unreadable_records(records))

    def overtaken(
        self, targets: Iterable[Range], history: History, requests: DataFrame, starts: DataFrame | None = None
    ) -> tuple[DataFrame, ...]:
        """Returns the messages of `history` that are out of order, in the form of `ordering.overtaken`.

        The tuple is empty if the ranges of `targets` have more than ORDER_RECORDS_MAX offsets, unless the audit is
        strict.
        """
        records = sum(span.end - span.start for span in targets)
        if records > ORDER_RECORDS_MAX and not self.options.strict:
            return ()
        with self.reporter.working(self.spark, "comparing the order of records"):
            few = records <= LOCAL_ROWS_MAX
            return (overtaken(history.records, fate_rows(history.log), requests, starts, few=few),)

    def count(self, answers: DataFrame) -> VerdictTopicCounts:
        """Returns the numbers of verdict records in `answers`."""
        row = answers.agg(F.count("*").alias("read"), F.count_if("malformed").alias("malformed")).collect()[0]
        return VerdictTopicCounts(self.options.verdicts, row["read"], row["malformed"])

    def effects(self, targets: Iterable[str], state: AuditState) -> Effects:
        """Fixes the ranges of `targets` and of all other topics except the causes. `state` has the times since which
        partitions of some targets are known to exist."""
        wanted = list(targets)
        present = self.cluster.partition_counts(wanted) if wanted else {}
        policies = self.cluster.settings(present, "cleanup.policy") if present else {}
        compacted = [topic for topic, policy in policies.items() if "compact" in policy]
        fixed = fix_effects(self.cluster, self.options.own_topics(), wanted, self.options, compacted)
        return replace(
            fixed,
            targets=self._cap_times(self._known_since(fixed.targets, state)),
            dead_letters=self._cap_times(fixed.dead_letters),
            recreated=state.recreated,
        )

    def _known_since(self, targets: Mapping[TopicPartition, Range], state: AuditState) -> dict[TopicPartition, Range]:
        """Returns the ranges of targets with their bounds. `known_ms` is the time in `state`, or now if `state` has no
        time. If the first record that has the broker's time is earlier, its time counts instead.

        Reads records only of partitions that the state does not know, or that have lost unread records.
        """
        new = {
            part: span
            for part, span in targets.items()
            if state_path(part) not in state.known_ms or span.log_start > state.next.get(state_path(part), 0)
        }
        bounded, now_ms = {**targets, **self.bounded(new)}, time.time_ns() // 1_000_000
        return {
            part: replace(span, known_ms=min(span.known_ms, state.known_ms.get(state_path(part), now_ms)))
            for part, span in bounded.items()
        }

    def _cap_times(self, ranges: Mapping[TopicPartition, Range]) -> dict[TopicPartition, Range]:
        """Returns the ranges. Each capped range gets, as `capped_from_ms`, the time of the record at its end, if that
        record has the broker's time."""
        times = self.broker_times(
            replace(span, start=span.end, end=span.end + 1) for span in ranges.values() if span.capped
        )
        return {
            partition: replace(span, capped_from_ms=times.get(partition, span.capped_from_ms))
            for partition, span in ranges.items()
        }

    def holes(self, judged: DataFrame, log: Iterable[Range]) -> tuple[Hole, ...]:
        """Returns the holes: ranges of requests whose fates are gone. Empty unless `log` has lost fates."""
        if all(span.lost_before_ms < 0 for span in log):
            return ()
        lost = judged.where("is_fate_lost").groupBy("topic", "partition")
        rows = lost.agg(F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("requests"))
        return tuple(
            Hole(row["topic"], row["partition"], row["first"], row["last"], row["requests"])
            for row in rows.orderBy("topic", "partition").collect()
        )

    def aborted_copies(self, targets: Iterable[Range]) -> int:
        """Returns the number of records of aborted transactions in `targets` that name a request of an audited topic.
        Occurrences and extra deliveries of schedules do not count."""
        names, spans = [topics.requests for topics in self.options.own_topics()], list(targets)
        settings = self.options.client_settings()
        counts = [
            delivered_rows(read_records(self.spark, spans, settings, committed=committed), names).count()
            for committed in (False, True)
        ]
        return counts[0] - counts[1]


def notes_of(causes: Causes, effects: Effects) -> tuple[str, ...]:
    """Returns notes about the topics that were read: open transactions, and topics that do not exist."""
    spans = [
        span
        for ranges in (causes.requests, effects.log_again, *effects.records())
        for span in ranges.values()
        if span.capped
    ]
    notes = [
        f"an open transaction hides offsets {span.end} to {span.high_watermark} of "
        f"{span.partition.topic}/{span.partition.number}"
        for span in spans
    ]
    if effects.absent_answers:
        notes.append(f"no verdicts were checked: there is no topic {', '.join(effects.absent_answers)}")
    if effects.absent_targets:
        notes.append(f"targets that do not exist: {', '.join(effects.absent_targets[:20])}")
    return tuple(notes)
