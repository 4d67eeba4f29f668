"""Closes the violations that one run of an audit has found (`postdate audit acknowledge`)."""

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
    """The options of `postdate audit acknowledge`, which uses no broker.

    `by` names the person who acknowledges the violations of `run` in `state`. `note` may be None.
    """

    run: int
    state: str
    by: str
    note: str | None

    @property
    def needs_delta(self) -> bool:
        return True

    def __post_init__(self) -> None:
        """Skips the checks of JobOptions: no broker is named."""


def run_acknowledge(options: AcknowledgeOptions) -> int:
    """Closes the violations of `options.run`, and prints their number. Returns 0, or 2 if the run has found none."""

    def job(spark: SparkSession, reporter: Reporter) -> int:
        count = acknowledge(spark, options.state, options.run, options.by, options.note)
        sys.stdout.write(f"run {options.run}: {count:,} violations acknowledged by {options.by}\n")
        return 0

    return run_job(options, job, "nothing was acknowledged")
