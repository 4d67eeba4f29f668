"""Bulk schedule as a program for `spark-submit`, on any cluster, with Postdate installed for the driver's Python.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \\
        …/postdate/spark/bulk_main.py --bootstrap-server HOST:PORT reminders.parquet

Executors run only Spark's own code and need no Python. Exit codes are those of `postdate bulk`: 0 sent (dry run: could
be sent), 2 usage, 1 refused rows without `--rejects`, or an error of Kafka or Spark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from postdate.spark.bulk.job import run_bulk
from postdate.spark.bulk.options import BulkOptions, Source
from postdate.spark.submitted import add_sending_options, instant, pairs, program_parser, run_program
from postdate.wire.topics import DEFAULT_REQUESTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the bulk schedule that the command line describes; returns the exit code."""
    return run_program(_parser(), _planned, arguments)


def _planned(given: dict[str, Any]) -> Callable[[], int]:
    settings = pairs(given.pop("source_option", ()))
    source = Source.named(given.pop("source"), given.pop("format", None), settings)
    return partial(run_bulk, BulkOptions(columns=pairs(given.pop("column", ())), **given), source)


def _parser() -> argparse.ArgumentParser:
    parser = program_parser("bulk_main", "Schedule every row of a table.")
    parser.add_argument("source", metavar="SOURCE", help="path, URL or table with the rows")
    add_sending_options(parser)
    parser.add_argument("--format", metavar="NAME", help="parquet, csv, json, … or table; default: by the suffix")
    parser.add_argument("--source-option", action="append", metavar="NAME=VALUE", help="option of Spark's reader")
    parser.add_argument("--requests", metavar="TOPIC", help=f"default: {DEFAULT_REQUESTS}")
    parser.add_argument("--target", metavar="TOPIC", help="target of every row")
    parser.add_argument(
        "--column", action="append", metavar="FIELD=COLUMN", help="column with another name than its field"
    )
    parser.add_argument("--rejects", metavar="PATH", help="new directory for refused rows")
    parser.add_argument("--only-new", action="store_true", help="skip rows whose id has a request")
    parser.add_argument(
        "--from", "--since", dest="since_ms", type=instant, metavar="TIME", help="with --only-new: search from then on"
    )
    parser.add_argument("--unknown-targets", action="store_true", help="accept targets that do not exist yet")
    parser.add_argument("--dry-run", action="store_true", help="check the rows, send nothing")
    parser.add_argument("--samples", type=int, metavar="N", help="number of refused rows to show")
    return parser


if __name__ == "__main__":
    sys.exit(main())
