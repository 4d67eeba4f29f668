"""Acknowledging: closes the violations that a run of an audit has found."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pyspark.sql import SparkSession

from postdate.spark.job.lifecycle import run_job
from postdate.spark.job.options import JobOptions
from postdate.spark.job.progress import Reporter
from postdate.spark.state.store import acknowledge


@dataclass(frozen=True)
class AcknowledgeOptions(JobOptions):
    """Acknowledge the violations of `run` in `state`: `by` whom, with a `note` or None. Uses no broker."""

    run: int
    state: str
    by: str
    note: str | None

    @property
    def needs_delta(self) -> bool:
        return True

    def __post_init__(self) -> None:
        """No broker is named."""


def run_acknowledge(options: AcknowledgeOptions) -> int:
    """Closes them and prints how many there are; returns 0, 2 if the run has found none."""

    def job(spark: SparkSession, reporter: Reporter) -> int:
        count = acknowledge(spark, options.state, options.run, options.by, options.note)
        sys.stdout.write(f"run {options.run}: {count:,} violations acknowledged by {options.by}\n")
        return 0

    return run_job(options, job, "nothing was acknowledged")
