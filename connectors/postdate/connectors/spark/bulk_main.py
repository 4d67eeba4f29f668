"""Bulk schedule as a program for `spark-submit`, on any cluster, with Postdate installed for the driver's Python.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \\
        …/postdate/connectors/spark/bulk_main.py --bootstrap-server HOST:PORT reminders.parquet

Executors need no Python: nothing runs there but Spark's own code. Exit codes are those of `postdate bulk`: 0 sent,
2 usage, 1 bad rows, or Kafka or Spark did not allow it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial

from postdate.connectors.spark.bulk import run_bulk
from postdate.connectors.spark.bulk_options import BulkOptions, Source
from postdate.connectors.spark.limits import SAMPLES_DEFAULT
from postdate.connectors.spark.submitted import (
    add_client_options,
    client_properties,
    duration,
    instant,
    pairs,
    run_program,
)
from postdate.connectors.wire.limits import HORIZON_MS_DEFAULT
from postdate.connectors.wire.topics import DEFAULT_REQUESTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Schedules as the arguments say; returns the exit code."""
    return run_program(_parser(), _planned, arguments)


def _planned(given: argparse.Namespace) -> Callable[[], int]:
    source = Source.named(given.source, given.format, pairs(given.source_option))
    options = BulkOptions(
        bootstrap_servers=given.bootstrap_server,
        requests=given.requests,
        target=given.target,
        columns=pairs(given.column),
        rejects=given.rejects,
        rate=given.rate,
        only_new=given.only_new,
        since_ms=given.since_ms,
        unknown_targets=given.unknown_targets,
        dry_run=given.dry_run,
        horizon_ms=given.horizon,
        allow=tuple(given.allow or ["*"]),
        samples=given.samples,
        output=given.output,
        properties=client_properties(given),
    )
    return partial(run_bulk, options, source)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bulk_main", description="Schedule every row of a table.")
    parser.add_argument("source", metavar="SOURCE", help="path, URL or table with the rows")
    add_client_options(parser)
    parser.add_argument("--format", metavar="NAME", help="parquet, csv, json, … or table; default: by the ending")
    parser.add_argument("--source-option", action="append", default=[], metavar="NAME=VALUE", help="of Spark's reader")
    parser.add_argument("--requests", default=DEFAULT_REQUESTS, metavar="TOPIC", help=f"default: {DEFAULT_REQUESTS}")
    parser.add_argument("--target", metavar="TOPIC", help="target of every row")
    parser.add_argument(
        "--column", action="append", default=[], metavar="FIELD=COLUMN", help="a column of another name"
    )
    parser.add_argument("--rejects", metavar="PATH", help="new directory for the rows that are refused")
    parser.add_argument("--rate", type=int, metavar="N", help="rows a second")
    parser.add_argument("--only-new", action="store_true", help="leave out rows whose id was asked already")
    parser.add_argument("--since", dest="since_ms", type=instant, metavar="TIME", help="look for ids from then on")
    parser.add_argument("--unknown-targets", action="store_true", help="targets that do not exist are no mistake")
    parser.add_argument("--dry-run", action="store_true", help="check and tell, send nothing")
    parser.add_argument(
        "--horizon", type=duration, default=HORIZON_MS_DEFAULT, metavar="DURATION", help="default: 400d"
    )
    parser.add_argument("--allow", action="append", metavar="PATTERN", help="targets that are allowed; default: all")
    parser.add_argument("--samples", type=int, default=SAMPLES_DEFAULT, metavar="N", help="refused rows that are shown")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    return parser


if __name__ == "__main__":
    sys.exit(main())
