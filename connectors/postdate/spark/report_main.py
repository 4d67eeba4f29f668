"""The report as a program for `spark-submit`, on any cluster, with Postdate installed for the driver's Python.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \\
        …/postdate/spark/report_main.py --bootstrap-server HOST:PORT --html s3a://bucket/postdate.html

Exit codes are those of `postdate report`: 0 success, 2 usage, 1 an error of Kafka or Spark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from postdate.spark.report.job import run_report
from postdate.spark.report.options import ReportOptions
from postdate.spark.submitted import add_reading_options, instant, program_parser, run_program
from postdate.wire.topics import DEFAULT_REQUESTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the report that the command line describes; returns the exit code."""
    return run_program(_parser(), _planned, arguments)


def _planned(given: dict[str, Any]) -> Callable[[], int]:
    return partial(run_report, ReportOptions(**given))


def _parser() -> argparse.ArgumentParser:
    parser = program_parser("report_main", "Report upcoming load and past lateness.")
    add_reading_options(parser)
    parser.add_argument("--requests", action="append", metavar="TOPIC", help=f"default: {DEFAULT_REQUESTS}")
    parser.add_argument(
        "--from", "--since", dest="since_ms", type=instant, metavar="TIME", help="lateness from then on"
    )
    parser.add_argument("--late", type=int, metavar="N", help="number of latest messages to list")
    parser.add_argument("--write", metavar="PATH", help="write the tables there as Parquet")
    parser.add_argument("--html", metavar="FILE", help="write a page with charts")
    return parser


if __name__ == "__main__":
    sys.exit(main())
