"""Repair as a program for `spark-submit`, on any cluster, with Postdate installed for the driver's Python.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \\
        …/postdate/connectors/spark/repair_main.py --bootstrap-server HOST:PORT s3a://bucket/postdate-audit

Exit codes are those of `postdate repair`: 0 all that is missing is repaired, or with a dry run would be, 2 usage, 1
something cannot be repaired, or Kafka or Spark did not allow it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial

from postdate.connectors.spark.limits import SAMPLES_DEFAULT
from postdate.connectors.spark.options import LEVELS_MS_DEFAULT
from postdate.connectors.spark.repair import run_repair
from postdate.connectors.spark.repair_options import RepairOptions
from postdate.connectors.spark.submitted import (
    add_client_options,
    add_meaning_options,
    client_properties,
    duration,
    run_program,
)
from postdate.connectors.wire.limits import HORIZON_MS_DEFAULT
from postdate.connectors.wire.topics import DEFAULT_REQUESTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Repairs as the arguments say; returns the exit code."""
    return run_program(_parser(), _planned, arguments)


def _planned(given: argparse.Namespace) -> Callable[[], int]:
    options = RepairOptions(
        bootstrap_servers=given.bootstrap_server,
        audited=given.audited,
        requests=given.requests,
        apply=given.apply,
        levels_ms=tuple(given.levels or LEVELS_MS_DEFAULT),
        dialects=tuple(given.dialect),
        default_target=given.default_target,
        horizon_ms=given.horizon,
        allow=tuple(given.allow or ["*"]),
        rate=given.rate,
        samples=given.samples,
        output=given.output,
        properties=client_properties(given),
    )
    return partial(run_repair, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="repair_main", description="Ask anew for what an audit calls missing.")
    parser.add_argument("audited", metavar="AUDITED", help="what an audit has left with --write or --state")
    add_client_options(parser)
    add_meaning_options(parser)
    parser.add_argument("--requests", default=DEFAULT_REQUESTS, metavar="TOPIC", help=f"default: {DEFAULT_REQUESTS}")
    parser.add_argument("--apply", action="store_true", help="send; otherwise it is only told what would be sent")
    parser.add_argument(
        "--horizon", type=duration, default=HORIZON_MS_DEFAULT, metavar="DURATION", help="default: 400d"
    )
    parser.add_argument("--allow", action="append", metavar="PATTERN", help="targets that are allowed; default: all")
    parser.add_argument("--rate", type=int, metavar="N", help="requests a second")
    parser.add_argument("--samples", type=int, default=SAMPLES_DEFAULT, metavar="N", help="unrepaired ones shown")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    return parser


if __name__ == "__main__":
    sys.exit(main())
