"""The audit as a program for `spark-submit`, on any cluster, with Postdate installed for the driver's Python.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 \\
        …/postdate/connectors/spark/audit_main.py --bootstrap-server HOST:PORT --output json

`spark-submit` merges the two output streams of a Python program: the JSON object is the last line. Executors need no
Python: nothing of the audit runs there but Spark's own code; with `--dialect` they need Postdate for theirs. Exit codes
are those of `postdate audit`: 0 clean, 4 violations, 2 usage, 1 could not judge.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from postdate.connectors.spark.follow import planned_audit
from postdate.connectors.spark.limits import SAMPLES_DEFAULT, SLACK_MS_DEFAULT
from postdate.connectors.spark.options import LEVELS_MS_DEFAULT, AuditOptions
from postdate.connectors.spark.submitted import (
    add_client_options,
    add_meaning_options,
    client_properties,
    duration,
    instant,
    run_program,
)
from postdate.connectors.spark.unanswered import MODES
from postdate.connectors.wire.topics import DEFAULT_REQUESTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Audits as the arguments say; returns the exit code."""
    return run_program(_parser(), _planned, arguments)


def _planned(given: argparse.Namespace) -> Callable[[], int]:
    options = AuditOptions(
        bootstrap_servers=given.bootstrap_server,
        requests=tuple(given.requests or [DEFAULT_REQUESTS]),
        targets=tuple(given.target),
        levels_ms=tuple(given.levels or LEVELS_MS_DEFAULT),
        dialects=tuple(given.dialect),
        default_target=given.default_target,
        verdicts=given.verdicts,
        from_ms=given.from_ms,
        to_ms=given.to_ms,
        slack_ms=given.slack,
        samples=given.samples,
        output=given.output,
        write=given.write,
        state=given.state,
        html=given.html,
        count_aborted=given.aborted,
        properties=client_properties(given),
    )
    return planned_audit(options, given.follow, every_ms=given.every, steps=given.steps, to_topic=given.to_topic)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="audit_main", description="Did every request end exactly once?")
    add_client_options(parser)
    add_meaning_options(parser)
    parser.add_argument("--requests", action="append", metavar="TOPIC", help=f"default: {DEFAULT_REQUESTS}")
    parser.add_argument("--target", action="append", default=[], metavar="TOPIC", help="read only these targets")
    parser.add_argument("--verdicts", choices=MODES, default="none", help="which answers must be there")
    parser.add_argument("--from", dest="from_ms", type=instant, metavar="TIME", help="judge requests from then on")
    parser.add_argument("--to", dest="to_ms", type=instant, metavar="TIME", help="judge requests before then")
    parser.add_argument("--slack", type=duration, default=SLACK_MS_DEFAULT, metavar="DURATION", help="default: 60s")
    parser.add_argument("--samples", type=int, default=SAMPLES_DEFAULT, metavar="N", help="origins a violation")
    parser.add_argument("--write", metavar="PATH", help="keep all rows there as Parquet")
    parser.add_argument("--html", metavar="FILE", help="write a page with charts")
    parser.add_argument("--state", metavar="PATH", help="audit what is new since the last audit with this directory")
    parser.add_argument("--follow", action="store_true", help="go on, step by step, with --state")
    parser.add_argument("--every", type=duration, metavar="DURATION", help="from step to step; default: 10s")
    parser.add_argument("--steps", type=int, metavar="N", help="follow for so many steps")
    parser.add_argument("--to-topic", metavar="TOPIC", help="tell what is found there too, while following")
    parser.add_argument("--aborted", action="store_true", help="count the copies that aborted, too")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    return parser


if __name__ == "__main__":
    sys.exit(main())
