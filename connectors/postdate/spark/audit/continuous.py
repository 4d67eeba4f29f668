"""The continuous audit: audits the new records in steps, one after the other, until a signal or the last step.

A step is an audit with a state (`incremental`). It fixes the end offsets of all topics in a defined order (`ranges`),
reads from where the last step stopped, judges the new records with the stored rows that they affect, reports, and then
commits. So the state is the checkpoint: after any termination, the next process continues after the last committed
step. If a process ends between the report and the commit of a step, the next process reports that step again with the
same `run`. A step without new records and without rows to judge again commits nothing.

The outputs of a step:

1. On standard output, one line with counts and lateness, and one line for each violation in the samples. If `output`
   is `json`, one line with a JSON object instead.
2. With `to_topic`, the same data as records. The key is the origin (null for the step itself), the value is JSON.
3. All verdicts, in the tables of the state (`state.store`).

Structured Streaming is not an alternative. Its sources fix the end offsets of the topics in no defined order, so the
effect of a newer request would look like an effect without a request. Its state would also be separate from the state
of the nightly audit.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from postdate.spark.audit.job import audit_with_state, run_audit
from postdate.spark.audit.options import AuditOptions
from postdate.spark.audit.output import AuditOutcome, as_json
from postdate.spark.errors import CannotRun, JobUsageError
from postdate.spark.job.cluster_queries import Cluster
from postdate.spark.job.lifecycle import run_job
from postdate.spark.job.progress import Reporter
from postdate.spark.job.sending import send
from postdate.spark.limits import STEP_MS_DEFAULT, STEPS_FAILED_MAX
from postdate.spark.output.lateness import spelled_figure
from postdate.spark.output.page import spelled_instant
from postdate.spark.session.small_tables import small_table

_RECORD = "topic string, partition int, key binary, value binary, headers array<struct<key:string,value:binary>>"
_BYTES_MAX = "max.message.bytes"


@dataclass(frozen=True)
class FollowOptions:
    """The options of a continuous audit. Raises JobUsageError if they are invalid.

    `audit` are the options of each step, including a state. `every_ms` is the time from the start of one step to the
    start of the next; a longer step delays the next one. The audit ends after `steps` successful steps, or at a signal.
    If `steps` is None, only a signal ends it. With `to_topic`, each step also sends its figures and the violations in
    its samples as records.
    """

    audit: AuditOptions
    every_ms: int = STEP_MS_DEFAULT
    steps: int | None = None
    to_topic: str | None = None

    def __post_init__(self) -> None:
        if self.audit.state is None:
            raise JobUsageError("--follow needs --state: it continues from there.")
        for name in ("html", "openmetrics", "fail_on_lateness", "trend"):
            if getattr(self.audit, name):
                raise JobUsageError(f"--{name.replace('_', '-')} is for a single run, not for --follow.")
        if self.every_ms < 0 or (self.steps is not None and self.steps < 1):
            raise JobUsageError("--every must not be negative, and --steps must be at least 1.")


def planned_audit(audit: AuditOptions, follows: bool, **following: Any) -> Callable[[], int]:
    """Returns a function that runs a single or a continuous audit.

    Values of `following` that are None were not given. Raises JobUsageError if the options are invalid.
    """
    given = {name: value for name, value in following.items() if value is not None}
    if follows:
        return partial(run_follow, FollowOptions(audit, **given))
    if given:
        raise JobUsageError("--every, --steps and --to-topic need --follow.")
    return partial(run_audit, audit)


def run_follow(options: FollowOptions) -> int:
    """Audits in steps and returns the exit code: that of the last step, or 0 after SIGTERM or Ctrl-C.

    A step that could not judge is reported and retried. If more than STEPS_FAILED_MAX steps in a row could not judge,
    the exit code is 1.
    """

    def job(spark: SparkSession, reporter: Reporter) -> int:
        return follow(spark, options, reporter, lambda outcome: _write(outcome, options.audit.output))

    return run_job(options.audit, job, "the next run continues after the last step", stopped_code=0)


def follow(
    spark: SparkSession, options: FollowOptions, reporter: Reporter, report: Callable[[AuditOutcome], None]
) -> int:
    """Runs the steps in a session that can read Kafka and Delta tables, and calls `report` with the outcome of each.
    Returns the exit code of the last successful step.

    Raises CannotRun if more than STEPS_FAILED_MAX steps in a row could not judge.
    """
    code, failed, done, state = 0, 0, 0, None

    def report_everywhere(outcome: AuditOutcome) -> None:
        report(outcome)
        if options.to_topic is not None:
            _send(spark, options.audit, options.to_topic, outcome)

    while options.steps is None or done < options.steps:
        began_s = time.monotonic()
        try:
            outcome, state = audit_with_state(spark, options.audit, reporter, report_everywhere, state)
            code, failed, done = outcome.exit_code, 0, done + 1
        except CannotRun as error:
            failed, state = failed + 1, None
            spark.catalog.clearCache()
            if failed > STEPS_FAILED_MAX:
                raise
            reporter.report(f"this step could not judge and is retried: {error}")
        rest_s = began_s + options.every_ms / 1_000 - time.monotonic()
        if rest_s > 0 and (options.steps is None or done < options.steps):
            time.sleep(rest_s)
    return code


def step_records(outcome: AuditOutcome) -> list[tuple[bytes | None, bytes]]:
    """Returns the keys and values of the records of a step: first the step itself, then each violation in its
    samples."""
    fields = as_json(outcome)
    run = fields["state"]["run"]
    figures = ("snapshot_ms", "origins", "violations", "counts", "lateness_ms", "state")
    step = {"v": 1, "kind": "step", "run": run, **{name: fields[name] for name in figures}}
    records: list[tuple[bytes | None, bytes]] = [(None, _encoded(step))]
    for verdict, samples in fields["samples"].items():
        for sample in samples:
            one = {"v": 1, "kind": "violation", "run": run, "verdict": verdict, **sample}
            records.append((str(sample["origin"]).encode(), _encoded(one)))
    return records


def step_line(outcome: AuditOutcome) -> str:
    """Returns one line of text that sums up a step."""
    summary, state = outcome.summary, outcome.state
    assert state is not None, "a step has a state"
    counts = "  ".join(f"{name} {count:,}" for name, count in summary.counts.items() if count)
    late = "  ".join(f"{spelled_figure(name)} {value:,}" for name, value in summary.lateness_ms.items())
    parts = [f"{spelled_instant(outcome.snapshot_ms)}  run {state.run}", counts or "nothing new"]
    parts += [f"late by ms: {late}"] if late else []
    parts += [f"standing {state.standing:,}"] if state.standing else []
    return "  |  ".join(parts)


def _write(outcome: AuditOutcome, form: str) -> None:
    if form == "json":
        sys.stdout.write(json.dumps(as_json(outcome), ensure_ascii=False) + "\n")
    else:
        lines = [step_line(outcome)]
        for verdict, samples in outcome.summary.samples.items():
            lines += [f"  {verdict} {one.origin}: {'; '.join(one.details)}" for one in samples]
        sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _send(spark: SparkSession, options: AuditOptions, topic: str, outcome: AuditOutcome) -> None:
    """Sends the records of a step to a topic. Raises CannotRun if the topic does not exist."""
    with Cluster(spark, options.client_settings()) as cluster:
        if topic not in cluster.partition_counts([topic]):
            raise CannotRun(f"There is no topic {topic}: create it, or name another with --to-topic.")
        bytes_max = int(cluster.settings([topic], _BYTES_MAX)[topic])
    rows = [(topic, None, key, value, None) for key, value in step_records(outcome)]
    send(small_table(spark, rows, _RECORD), options.client_settings(), bytes_max)


def _encoded(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()
