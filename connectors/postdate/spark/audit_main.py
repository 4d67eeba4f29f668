"""The audit as a program for `spark-submit`, on any cluster, with Postdate installed for the driver's Python.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0,io.delta:delta-spark_2.13:4.0.0 \\
        …/postdate/spark/audit_main.py --bootstrap-server HOST:PORT --output json

`spark-submit` merges the two output streams of a Python program, so the JSON object is the last line. Executors run
only Spark's own code and need no Python, with two exceptions: with `--dialect`, or if the topics have recurring
schedules, their Python needs Postdate. Exit codes are those of `postdate audit` (docs/audit.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from postdate.spark.audit.continuous import planned_audit
from postdate.spark.audit.options import AuditOptions
from postdate.spark.rules.unanswered import MODES
from postdate.spark.submitted import add_reading_options, duration, instant, program_parser, run_program
from postdate.wire.topics import DEFAULT_REQUESTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the audit that the command line describes; returns the exit code."""
    return run_program(_parser(), _planned, arguments)


def _planned(given: dict[str, Any]) -> Callable[[], int]:
    follows = given.pop("follow", False)
    following = {name: given.pop(name) for name in ("every_ms", "steps", "to_topic") if name in given}
    return planned_audit(AuditOptions(**given), follows, **following)


def _parser() -> argparse.ArgumentParser:
    parser = program_parser("audit_main", "Did every request end exactly once?")
    add_reading_options(parser)
    parser.add_argument("--requests", action="append", metavar="TOPIC", help=f"default: {DEFAULT_REQUESTS}")
    parser.add_argument("--target", dest="targets", action="append", metavar="TOPIC", help="read only these targets")
    parser.add_argument("--verdicts", choices=MODES, help="require answers to these requests; default: none")
    parser.add_argument("--from", dest="from_ms", type=instant, metavar="TIME", help="only requests at or after this")
    parser.add_argument("--until", "--to", dest="to_ms", type=instant, metavar="TIME", help="only requests before this")
    parser.add_argument("--slack", dest="slack_ms", type=duration, metavar="DURATION", help="default: 60s")
    parser.add_argument("--samples", type=int, metavar="N", help="origins shown for each kind of violation")
    parser.add_argument("--html", metavar="FILE", help="write a page with charts")
    parser.add_argument("--openmetrics", metavar="FILE", help="write the figures as OpenMetrics text")
    parser.add_argument("--state", metavar="PATH", help="keep results in Delta tables, read only new records")
    parser.add_argument(
        "--keep-days", dest="keep_days", type=int, metavar="N", help="how long --state keeps closed rows"
    )
    parser.add_argument("--trend", action="store_true", help="print the lateness by day, with --state")
    parser.add_argument("--trend-days", type=int, metavar="N", help="days of --trend; default: 30")
    parser.add_argument("--follow", action="store_true", help="audit step by step, with --state")
    parser.add_argument("--every", dest="every_ms", type=duration, metavar="DURATION", help="of --follow; default: 10s")
    parser.add_argument("--steps", type=int, metavar="N", help="end --follow after N steps")
    parser.add_argument("--to-topic", metavar="TOPIC", help="also write the results of --follow there")
    parser.add_argument("--strict", action="store_true", help="exit with 5 if something verifiable was not verified")
    parser.add_argument(
        "--fail-on-lateness", action="append", metavar="FIGURE=DURATION", help="exit with 3 if lateness exceeds this"
    )
    parser.add_argument(
        "--aborted", dest="count_aborted", action="store_true", help="also count records of aborted transactions"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
