"""The start and end of every job: Spark session, progress reporter, error messages, exit code.

A job gets a session and a reporter, writes its result to standard output and returns its exit code. Messages for the
user go to standard error. A process runs one job at a time. SIGINT or SIGTERM ends a job that runs in the main thread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Self, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from postdate.spark.errors import CannotRun, JobError, first_cause
from postdate.spark.job.bounds import Range, bounded
from postdate.spark.job.cluster_queries import Cluster, TopicPartition
from postdate.spark.job.options import JobOptions
from postdate.spark.job.progress import Reporter
from postdate.spark.job.topic_reads import broker_times, read_records
from postdate.spark.limits import FRONT_RECORDS_MAX
from postdate.spark.session.caching import released
from postdate.spark.session.interruption import arm, interruptible
from postdate.spark.session.start import spark_session

Options = TypeVar("Options", bound=JobOptions)


@dataclass(frozen=True)
class Job(Generic[Options]):
    """One running job: its session, its cluster, its options."""

    could_not: ClassVar[str]
    """The beginning of the message if Spark fails; the cause follows."""

    spark: SparkSession
    cluster: Cluster
    options: Options
    reporter: Reporter

    @classmethod
    @contextmanager
    def begun(cls, spark: SparkSession, options: Options, reporter: Reporter) -> Iterator[Self]:
        """Provides a job in a context, and releases all rows that were `cached` in the context at its end. Requires a
        session that can read Kafka.

        Raises CannotRun for errors of the cluster or of Spark in the context.
        """
        try:
            with Cluster(spark, options.client_settings()) as cluster, released():
                yield cls(spark, cluster, options, reporter)
        except (Py4JJavaError, PySparkException) as error:
            raise CannotRun(cls.failure(str(error))) from error

    @classmethod
    def failure(cls, text: str) -> str:
        """Returns a sentence for the operator about the Spark error `text`."""
        message = f"{cls.could_not}: {first_cause(text)}"
        if "OutOfMemoryError" not in text:
            return message
        remedy = "--spark-conf spark.driver.memory=8g, for spark-submit --driver-memory 8g and --executor-memory 8g"
        return f"{message}. Give Spark more memory: {remedy}"

    def read(self, ranges: Iterable[Range]) -> DataFrame:
        """Returns the committed records of `ranges`."""
        return read_records(self.spark, ranges, self.options.client_settings())

    def broker_times(self, ranges: Iterable[Range]) -> dict[TopicPartition, int]:
        """Returns the time of the first record in each of `ranges` that has the broker's time. Cost: one job."""
        return broker_times(self.spark, ranges, self.options.client_settings())

    def bounded(self, targets: Mapping[TopicPartition, Range]) -> dict[TopicPartition, Range]:
        """Returns the ranges of targets, each bounded by the time of the first record that has the broker's time.

        Cost: one job. If the first FRONT_RECORDS_MAX offsets of a partition do not include such a record, a second job
        searches the whole range.
        """
        ends = {part: min(span.log_start + FRONT_RECORDS_MAX, span.high_watermark) for part, span in targets.items()}
        times = self.broker_times(replace(span, start=span.log_start, end=ends[part]) for part, span in targets.items())
        times |= self.broker_times(
            span for part, span in targets.items() if part not in times and span.end > ends[part]
        )
        now_ms = time.time_ns() // 1_000_000
        return {partition: bounded(span, times.get(partition), now_ms) for partition, span in targets.items()}


def run_job(
    options: JobOptions,
    job: Callable[[SparkSession, Reporter], int],
    stopped: str,
    *,
    stopped_code: int = CannotRun.exit_code,
) -> int:
    """Runs `job` in a session. Returns its exit code, or the exit code of the JobError that the job or the start of the
    session raised.

    If Ctrl-C or SIGTERM ends the job, prints `stopped` and returns `stopped_code`.
    """
    reporter = Reporter()
    try:
        reporter.report("starting Spark …")
        with (
            interruptible(),
            spark_session(
                *(options.master, options.spark_conf, reporter.report),
                with_delta=options.needs_delta,
                is_brief=options.is_brief,
            ) as spark,
        ):
            arm()
            exit_code = job(spark, reporter)
            sys.stdout.flush()
        return exit_code
    except JobError as error:
        reporter.report(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        reporter.report(f"stopped; {stopped}")
        return stopped_code
