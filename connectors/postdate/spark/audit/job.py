"""The batch audit: did every request end exactly once, and does its message match the request?

The audit reads only the topics. It shares with the sidecar only the names, limits and formats in `postdate.wire` and,
for a dialect, the parser of the requests.

1. Fix the end offsets in this order: requests; dispatch log; targets, dead letters and verdicts; the end of the second
   reading of the dispatch log.
2. Group requests, fates, delivered records, dead letters and answers by origin. If there are many requests, first
   verify chunks of them as a whole.
3. Judge each remaining origin, and the chain of each dispatch log.
4. Report counts, lateness and samples. `AuditOutcome.exit_code` has the exit codes; 2 stands for invalid options.

A process runs one audit at a time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from postdate.spark.audit.chart_data import audit_picture
from postdate.spark.audit.incremental import audit_since, outcome_of
from postdate.spark.audit.metrics import audit_metrics
from postdate.spark.audit.options import AuditOptions
from postdate.spark.audit.output import AuditOutcome, write_outcome
from postdate.spark.audit.page import audit_page
from postdate.spark.audit.reading import Reading
from postdate.spark.audit.steps import AuditSteps
from postdate.spark.job.lifecycle import run_job
from postdate.spark.job.progress import Reporter
from postdate.spark.judging.stages import judged_history, with_occurrences_of
from postdate.spark.judging.summary import Counted, UnreadableRecords, by_verdicts, summarise
from postdate.spark.session.output_paths import write_text
from postdate.spark.session.start import require_connectors
from postdate.spark.state.chain import Chain
from postdate.spark.state.store import AuditState, StateStore, last_verdicts, state_lock


@dataclass(frozen=True)
class AuditResult:
    """The result of `run`: the outcome, and DataFrames over the tables of the state. Spark reads a table when its
    DataFrame is used.

    `origins` has the last verdict on each origin. `violations` has all violations in the state, each with the `run`
    that found it; the number of this run is `outcome.state.run`. docs/pipeline.md describes the columns.
    """

    outcome: AuditOutcome
    origins: DataFrame
    violations: DataFrame


def run(
    spark: SparkSession, bootstrap_servers: str, requests: str | Sequence[str], *, state: str, **options: Any
) -> AuditResult:
    """Audits, in the session of a notebook, the new records since the last audit with `state`, and commits the result.

    `options` are further fields of AuditOptions; `master`, `spark_conf` and `output` have no effect. The session needs
    Spark's Kafka connector and Delta Lake. It keeps running with its former settings, and nothing stays cached. `run`
    prints nothing. It raises JobUsageError if the options are invalid, and CannotRun if no result is possible. After an
    error, nothing is committed. A process runs one audit at a time.
    """
    topics = (requests,) if isinstance(requests, str) else tuple(requests)
    given = AuditOptions(bootstrap_servers, requests=topics, state=state, **options)
    require_connectors(spark, with_delta=True)
    reporter = Reporter(Console(quiet=True))
    outcome, committed = audit_with_state(spark, given, reporter, partial(write_files, spark, given))
    store = StateStore(spark, state)
    return AuditResult(outcome, last_verdicts(spark, state), store.known_violations(committed))


def run_audit(options: AuditOptions) -> int:
    """Audits, writes the page and the metrics to their files, the outcome to standard output and messages to standard
    error, and returns the exit code.

    With `options.state`, the run is committed after the outcome has been written. If the program ends before the
    commit, the next audit reports the same findings again. After Ctrl-C or SIGTERM, the exit code is 1.
    """

    def job(spark: SparkSession, reporter: Reporter) -> int:
        def report(outcome: AuditOutcome) -> None:
            write_files(spark, options, outcome)
            write_outcome(outcome, options.output, sys.stdout)
            sys.stdout.flush()

        if options.state is not None:
            return audit_with_state(spark, options, reporter, report)[0].exit_code
        outcome = audit(spark, options, reporter)
        report(outcome)
        return outcome.exit_code

    return run_job(options, job, "nothing was judged")


def write_files(spark: SparkSession, options: AuditOptions, outcome: AuditOutcome) -> None:
    """Writes the page and the metrics to the paths or URLs in `options`. Raises CannotRun if one of them cannot be
    written."""
    if options.html is not None and outcome.picture is not None:
        write_text(spark, options.html, audit_page(outcome, outcome.picture))
    if options.openmetrics is not None:
        write_text(spark, options.openmetrics, audit_metrics(outcome, time.time_ns() // 1_000_000))


def audit(spark: SparkSession, options: AuditOptions, reporter: Reporter) -> AuditOutcome:
    """Audits with a session that can read Kafka.

    Raises CannotRun if the cluster, Spark or the history does not allow a verdict.
    """
    with AuditSteps.begun(spark, options, reporter) as steps:
        return _outcome(steps)


def audit_with_state(
    spark: SparkSession,
    options: AuditOptions,
    reporter: Reporter,
    report: Callable[[AuditOutcome], None],
    after: AuditState | None = None,
) -> tuple[AuditOutcome, AuditState]:
    """Audits the records since the last audit with `options.state`, calls `report` with the outcome, and then commits.

    Returns the outcome, and the state from which to continue. `after` is the state that the last step of this process
    has committed, or None. Raises CannotRun as `audit` does, and JobUsageError if `options.state` holds a state of an
    earlier version of Postdate that cannot be read.
    """
    assert options.state is not None, "without a state there is no last audit"
    with state_lock(spark, options.state), AuditSteps.begun(spark, options, reporter) as steps:
        return audit_since(steps, report, after)


def _outcome(steps: AuditSteps) -> AuditOutcome:
    began_s, spark, options = time.monotonic(), steps.spark, steps.options
    read = Reading.of(steps, AuditState()).in_order(steps)
    history, needs_rows = read.history, options.html is not None
    with steps.reporter.working(spark, "comparing requests, fates and records"):
        # No later audit reads these records again, so none of them counts as late.
        chain = Chain.of(history.log.withColumn("late", F.lit(False)), (), few=read.parameters.is_short)
        history = with_occurrences_of(history, chain.zones, chain.recurs)
        judgement = judged_history(history, read.parameters, read.digests, None if needs_rows else read.request_chunks)
        judged = judgement.rows
        groups = by_verdicts(judged, few=read.parameters.is_short)
        others = steps.unreadable(read.dead_letter_ranges, history.records if judgement.has_garbled else None)
        unreadable = UnreadableRecords(history.answers.where("malformed"), others)
        summary = summarise(
            *(judged, chain.breaks, unreadable, options.samples, judgement.plain),
            Counted(groups, chain.broken, read.verdict_records.malformed),
        )
        holes = steps.holes(judged, read.causes.log.values()) if judged is not None else ()
        aborted = steps.aborted_copies(read.effects.targets.values()) if options.count_aborted else None
        picture = audit_picture(judged) if options.html is not None and judged is not None else None
    return replace(
        outcome_of(read, options, summary, began_s),
        from_ms=options.from_ms,
        to_ms=options.to_ms,
        ranges=tuple(
            span
            for spans in (read.causes.requests, read.causes.log, *read.effects.records())
            for span in spans.values()
        ),
        holes=holes,
        aborted_copies=aborted,
        order_checked=bool(history.overtaken),
        picture=picture,
        returned_again=read.returned_again(),
    )
