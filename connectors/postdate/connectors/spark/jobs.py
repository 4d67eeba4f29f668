"""How every job starts and ends: Spark, a reporter, sentences for what went wrong, the exit code.

A job gets a session and a reporter, writes its result to standard output and returns its exit code; everything else
goes to standard error. One job at a time in a process; a signal ends it where this is the main thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Protocol

from pyspark.sql import SparkSession

from postdate.connectors.spark.errors import CannotRun, JobError
from postdate.connectors.spark.interruption import arm, interruptible
from postdate.connectors.spark.progress import Reporter
from postdate.connectors.spark.session import spark_session


class Startable(Protocol):
    """What the options of every job say of Spark."""

    @property
    def master(self) -> str | None: ...
    @property
    def spark_conf(self) -> Mapping[str, str]: ...


def run_job(name: str, options: Startable, job: Callable[[SparkSession, Reporter], int], stopped: str) -> int:
    """Runs `job`, called `postdate NAME`, in a session; returns its exit code, or that of the JobError that it raised.

    `stopped` is said when Ctrl-C or SIGTERM ended it, which returns 1.
    """
    reporter = Reporter()
    try:
        reporter.say("starting Spark …")
        with interruptible(), spark_session(options.master, options.spark_conf, reporter.say) as spark:
            arm()
            exit_code = job(spark, reporter)
            sys.stdout.flush()
        return exit_code
    except JobError as error:
        reporter.say(f"postdate {name}: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        reporter.say(f"stopped; {stopped}")
        return CannotRun.exit_code
