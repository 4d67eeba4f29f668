"""Repair as a program for `spark-submit`, on any cluster, with Postdate installed for the driver's Python.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \\
        …/postdate/spark/repair_main.py --bootstrap-server HOST:PORT s3a://bucket/postdate-audit

Exit codes are those of `postdate repair`: 0 all missing requests are repaired (dry run: can be repaired), 2 usage, 1 a
request cannot be repaired, or an error of Kafka or Spark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from postdate.spark.repair.job import run_repair
from postdate.spark.repair.options import RepairOptions
from postdate.spark.submitted import add_reading_options, add_sending_options, program_parser, run_program
from postdate.wire.topics import DEFAULT_REQUESTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the repair that the command line describes; returns the exit code."""
    return run_program(_parser(), _planned, arguments)


def _planned(given: dict[str, Any]) -> Callable[[], int]:
    return partial(run_repair, RepairOptions(**given))


def _parser() -> argparse.ArgumentParser:
    parser = program_parser("repair_main", "Request missing messages of an audit again.")
    parser.add_argument("audited", metavar="AUDITED", help="the --state of an audit")
    add_reading_options(parser)
    add_sending_options(parser)
    parser.add_argument("--requests", metavar="TOPIC", help=f"default: {DEFAULT_REQUESTS}")
    parser.add_argument("--apply", action="store_true", help="send; without this option, only print the plan")
    parser.add_argument("--any-share", action="store_true", help="send even if implausibly many are missing")
    parser.add_argument("--samples", type=int, metavar="N", help="number of unrepairable requests to show")
    return parser


if __name__ == "__main__":
    sys.exit(main())
