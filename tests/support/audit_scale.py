"""How the audit's time grows: held against counting the same topics, against twice the rows, and against one per cent.

A program: it fills a fresh broker on this machine as sidecars would have left it (`past_dispatches`) and measures, in
one Spark session of two threads and 4 GB:

1. counting the records of the topics, twice; the second time counts;
2. a full audit of them;
3. a full audit with a new `--state`, then one per cent more rows, then an audit of these with the same state;
4. with twice the rows, counting and the full audit again.

Each audit must find what was written, and nothing wrong. Bounds are those that docs/pipeline.md names. What runs
beside it on the machine shows in the figures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from postdate.connectors.spark.audit import audit, audit_with_state
from postdate.connectors.spark.bounds import Range
from postdate.connectors.spark.options import AuditOptions
from postdate.connectors.spark.output import Outcome
from postdate.connectors.spark.progress import Reporter
from postdate.connectors.spark.session import spark_session
from postdate.connectors.spark.sources import read_records
from support.bed import Bed, new_bed
from support.broker import local_broker
from support.past_dispatches import PENDING_EVERY, Filling, fill

Found = TypeVar("Found")

_PARTITIONS, _TARGETS, _TARGET_PARTITIONS = 4, 3, 4
#: Of a skewed history this share lies in one request partition, and all of it goes to one target.
_SKEW = 0.9
_MEMORY = "4g"

#: What docs/pipeline.md promises.
COUNT_TIMES_MAX, TWICE_TIMES_MAX, STEP_SHARE_MAX = 2.5, 2.2, 0.10


@dataclass
class Scale:
    """A history that grows, and the session that audits it."""

    spark: SparkSession
    bed: Bed
    fillings: list[Filling]
    rows: int = 0

    def grow(self, rows: int, skew: bool) -> None:
        """Adds so many requests and their deliveries."""
        began_s = time.monotonic()
        large = int(rows * _SKEW) if skew else rows // _PARTITIONS
        small = (rows - large) // (_PARTITIONS - 1)
        shares = [rows - small * (_PARTITIONS - 1), *[small] * (_PARTITIONS - 1)]
        self.fillings = fill(self.fillings, shares)
        self.rows += rows
        _say(f"wrote {rows:,} requests with their deliveries", time.monotonic() - began_s)

    def options(self, state: str | None = None) -> AuditOptions:
        return AuditOptions(self.bed.bootstrap, tuple(self.bed.requests), state=state)

    def audited(self, what: str, state: str | None = None) -> tuple[float, Outcome]:
        """Seconds of a full audit, or with `state` of one since the last, told and kept."""

        def job() -> Outcome:
            if state is None:
                return audit(self.spark, self.options(), Reporter())
            outcome, keep = audit_with_state(self.spark, self.options(state), Reporter())
            keep()
            return outcome

        took_s, outcome = _timed(what, job)
        assert not outcome.summary.violations, outcome.summary.samples
        self.spark.catalog.clearCache()
        return took_s, outcome

    def counted(self, what: str, ranges: Sequence[Range]) -> float:
        """Seconds of counting the records in `ranges`."""
        properties = {"bootstrap.servers": self.bed.bootstrap}
        took_s, count = _timed(what, lambda: read_records(self.spark, ranges, properties).count())
        sys.stdout.write(f"    {count:,} records\n")
        return took_s

    def expect(self, outcome: Outcome) -> None:
        """An audit has seen everything that was written."""
        pending = sum(-(-one.next_request // PENDING_EVERY) for one in self.fillings)
        counts = {name: count for name, count in outcome.summary.counts.items() if count}
        assert counts == {"delivered": self.rows - pending, "pending": pending}, counts


def measure(scale: Scale, rows: int, skew: bool, directory: Path) -> None:
    """The whole of it; writes each figure to standard output as soon as it is known."""
    scale.grow(rows, skew)
    _, outcome = scale.audited("an audit, the first of the session")
    scale.expect(outcome)
    scale.counted("counting, the first time", outcome.ranges)
    counted_s = scale.counted("counting", outcome.ranges)
    audited_s, _ = scale.audited("audit")
    _ratio("audit ÷ counting", audited_s / counted_s, COUNT_TIMES_MAX)

    state = str(directory / "state")
    full_s, outcome = scale.audited("audit with a new state", state)
    scale.expect(outcome)
    scale.grow(rows // 100, skew)
    step_s, _ = scale.audited("audit of one per cent more", state)
    _ratio("one per cent more ÷ audit with a new state", step_s / full_s, STEP_SHARE_MAX)

    scale.grow(2 * rows - scale.rows, skew)
    twice_s, outcome = scale.audited("audit of twice the rows")
    scale.expect(outcome)
    _ratio("twice the rows ÷ once", twice_s / audited_s, TWICE_TIMES_MAX)
    counted_s = scale.counted("counting twice the rows", outcome.ranges)
    _ratio("audit ÷ counting, twice the rows", twice_s / counted_s, COUNT_TIMES_MAX)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="audit_scale", description="How the audit's time grows with the rows.")
    parser.add_argument("--rows", type=int, default=200_000, metavar="N", help="requests; twice as many at the end")
    parser.add_argument("--skew", action="store_true", help="nine rows in ten in one partition, all to one target")
    given = parser.parse_args(arguments)
    settings = {"spark.driver.memory": _MEMORY}
    with tempfile.TemporaryDirectory(prefix="postdate-scale-") as made, local_broker() as broker:
        directory = Path(made)
        with (
            new_bed(broker.bootstrap_servers, directory) as bed,
            spark_session("local[2]", settings, lambda line: _say(line, 0)) as spark,
        ):
            requests = bed.new_requests(_PARTITIONS)
            targets = tuple(bed.new_target(_TARGET_PARTITIONS) for _ in range(1 if given.skew else _TARGETS))
            fillings = [Filling(bed.bootstrap, requests, number, targets) for number in range(_PARTITIONS)]
            measure(Scale(spark, bed, fillings), given.rows, given.skew, directory)


def _timed(what: str, job: Callable[[], Found]) -> tuple[float, Found]:
    began_s = time.monotonic()
    found = job()
    took_s = time.monotonic() - began_s
    _say(what, took_s)
    return took_s, found


def _say(what: str, took_s: float) -> None:
    sys.stdout.write(f"{what:<52}{took_s:8.1f} s\n")
    sys.stdout.flush()


def _ratio(what: str, ratio: float, most: float) -> None:
    sys.stdout.write(f"  {what:<50}{ratio:8.2f}   at most {most}{'' if ratio <= most else ': MISSED'}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
