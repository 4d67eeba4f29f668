"""How the audit's time grows: held against counting the same topics, against twice the rows, and against one per cent.

A program: it fills a fresh broker on this machine as sidecars would have left it (`past_dispatches`) and measures, in
one Spark session of two threads and 4 GB:

1. counting the records of the topics, twice; the second time counts;
2. a full audit of them;
3. a full audit with a new `--state`, then one per cent more rows, then an audit of these with the same state;
4. with twice the rows, counting and the full audit again.

Each audit must find what was written, and nothing wrong. Bounds are those that docs/pipeline.md names. What runs
beside it on the machine shows in the seconds, and hardly in the processor time of Spark's JVM, which is told too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from postdate.connectors.kafka.dev.local import LONG_LIFE
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


@dataclass(frozen=True)
class Took:
    """How long something took: seconds by the clock, and of processor time of Spark's JVM."""

    clock_s: float
    cpu_s: float


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
        _say(f"wrote {rows:,} requests with their deliveries", Took(time.monotonic() - began_s, 0))

    def options(self, state: str | None = None) -> AuditOptions:
        return AuditOptions(self.bed.bootstrap, tuple(self.bed.requests), state=state)

    def audited(self, what: str, state: str | None = None) -> tuple[Took, Outcome]:
        """How long a full audit, or with `state` one since the last takes, told and kept."""

        def job() -> Outcome:
            if state is None:
                return audit(self.spark, self.options(), Reporter())
            outcome, keep = audit_with_state(self.spark, self.options(state), Reporter())
            keep()
            return outcome

        took, outcome = self._timed(what, job)
        assert not outcome.summary.violations, outcome.summary.samples
        self.spark.catalog.clearCache()
        return took, outcome

    def counted(self, what: str, ranges: Sequence[Range]) -> Took:
        """How long counting the records in `ranges` takes."""
        properties = {"bootstrap.servers": self.bed.bootstrap}
        took, count = self._timed(what, lambda: read_records(self.spark, ranges, properties).count())
        sys.stdout.write(f"    {count:,} records\n")
        return took

    def expect(self, outcome: Outcome) -> None:
        """An audit has seen everything that was written."""
        pending = sum(-(-one.next_request // PENDING_EVERY) for one in self.fillings)
        counts = {name: count for name, count in outcome.summary.counts.items() if count}
        assert counts == {"delivered": self.rows - pending, "pending": pending}, counts

    def _timed(self, what: str, job: Callable[[], Found]) -> tuple[Took, Found]:
        began_s, began_cpu_s = time.monotonic(), self._cpu_s()
        found = job()
        took = Took(time.monotonic() - began_s, self._cpu_s() - began_cpu_s)
        _say(what, took)
        return took, found

    def _cpu_s(self) -> float:
        jvm: Any = self.spark.sparkContext._jvm
        return float(jvm.java.lang.ProcessHandle.current().info().totalCpuDuration().get().toMillis()) / 1_000


def measure(scale: Scale, rows: int, skew: bool, directory: Path) -> None:
    """The whole of it; writes each figure to standard output as soon as it is known."""
    scale.grow(rows, skew)
    _, outcome = scale.audited("an audit, the first of the session")
    scale.expect(outcome)
    scale.counted("counting, the first time", outcome.ranges)
    counted = scale.counted("counting", outcome.ranges)
    audited, _ = scale.audited("audit")
    _ratio("audit ÷ counting", audited, counted, COUNT_TIMES_MAX)

    state = str(directory / "state")
    full, outcome = scale.audited("audit with a new state", state)
    scale.expect(outcome)
    scale.grow(rows // 100, skew)
    step, _ = scale.audited("audit of one per cent more", state)
    _ratio("one per cent more ÷ audit with a new state", step, full, STEP_SHARE_MAX)

    scale.grow(2 * rows - scale.rows, skew)
    twice, outcome = scale.audited("audit of twice the rows")
    scale.expect(outcome)
    _ratio("twice the rows ÷ once", twice, audited, TWICE_TIMES_MAX)
    counted = scale.counted("counting twice the rows", outcome.ranges)
    _ratio("audit ÷ counting, twice the rows", twice, counted, COUNT_TIMES_MAX)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="audit_scale", description="How the audit's time grows with the rows.")
    parser.add_argument("--rows", type=int, default=200_000, metavar="N", help="requests; twice as many at the end")
    parser.add_argument("--skew", action="store_true", help="nine rows in ten in one partition, all to one target")
    given = parser.parse_args(arguments)
    settings = {"spark.driver.memory": _MEMORY}
    with tempfile.TemporaryDirectory(prefix="postdate-scale-") as made, local_broker(LONG_LIFE) as broker:
        directory = Path(made)
        with (
            new_bed(broker.bootstrap_servers, directory) as bed,
            spark_session("local[2]", settings, Reporter().say) as spark,
        ):
            requests = bed.new_requests(_PARTITIONS)
            targets = tuple(bed.new_target(_TARGET_PARTITIONS) for _ in range(1 if given.skew else _TARGETS))
            fillings = [Filling(bed.bootstrap, requests, number, targets) for number in range(_PARTITIONS)]
            measure(Scale(spark, bed, fillings), given.rows, given.skew, directory)


def _say(what: str, took: Took) -> None:
    sys.stdout.write(f"{what:<52}{took.clock_s:8.1f} s{took.cpu_s:8.1f} s of processor time\n")
    sys.stdout.flush()


def _ratio(what: str, took: Took, of: Took, most: float) -> None:
    ratio, cpu = took.clock_s / of.clock_s, took.cpu_s / of.cpu_s
    verdict = "" if ratio <= most else ": MISSED"
    sys.stdout.write(f"  {what:<50}{ratio:8.2f}  {cpu:8.2f} by processor time; at most {most}{verdict}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
