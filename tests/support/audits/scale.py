"""Measures how the time of an audit grows: with the rows, with other histories, with a state, and compared with
counting.

A program. It fills a fresh broker on this machine as sidecars would have left it (`past_dispatches`). Then it measures
the following in one Spark session of two threads and 4 GB:

1. Counting the records of the topics, twice. The second time is used.
2. A full audit of these topics, three times. The last time is used. For comparison: hashing each record, without any
   rule.
3. A full audit with a new `--state`, three times. Then an audit of one per cent more rows with that state, three times,
   and audits without new records. For comparison: writing the rows of the last full audit and of the last step with
   Spark and Delta, without an audit.
4. An audit of a mixed history with as many rows. Some of its requests were cancelled, moved, replaced, dead or stored,
   some have ids or no keys, and its targets also have records of another producer.
5. An audit of a skewed history with as many rows: nine in ten lie in one partition, and all have one target.
6. An audit of a live history with as many rows. Its due times are spread over an hour before and after the present, so
   each chunk has messages that fall due while the audit reads.
7. An audit of 10,000 more rows, with the state of a history of which half is still open.
8. `postdate audit` as a separate process over 900 requests, without a state and with a new state.
9. Counting and the full audit again, with twice the rows.

With `--bootstrap` and `--history`, the topics of the even history are on a running broker, and a file records the
positions of this history. A second run then audits the topics without writing them again.

Each full audit must find all written requests, and no audit may find a violation. The aims are those of
benchmarks/audit.md. The program prints the elapsed time, which other programs affect, and the processor time of Spark's
JVM, which they hardly affect.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from postdate.spark.audit.job import audit, audit_with_state
from postdate.spark.audit.options import AuditOptions
from postdate.spark.audit.output import AuditOutcome
from postdate.spark.job.bounds import Range
from postdate.spark.job.progress import Reporter
from postdate.spark.job.topic_reads import read_records
from postdate.spark.limits import CHUNK_BITS
from postdate.spark.session.start import spark_session
from postdate.spark.state.delta import DeltaTables, empty_table
from postdate.spark.state.origins import form_of
from postdate.spark.state.store import ORIGINS
from support.audits.past_dispatches import Filling, fill
from support.brokers.broker import local_broker
from support.deployments.sidecar_deployment import SidecarDeployment
from support.deployments.sidecars import environment

Found = TypeVar("Found")

_PARTITIONS, _TARGETS, _TARGET_PARTITIONS = 4, 3, 4
#: The share of a skewed history that lies in one request partition. The whole history has one target.
_SKEW = 0.9
_MEMORY = "4g"
_HEADER = ("key", "value")
#: In an open history, each second request is pending.
_OPEN_EVERY, _STEP_ROWS = 2, 10_000
_ROUND = 20 * _PARTITIONS
_SPREAD_MS = 3_600_000
_PARTS = ("state", "mixed", "skew", "live", "open", "small", "twice")
_SMALL_ROWS = 900
#: Only the last time counts. In the times before, compiling the job's code takes the JVM as long as the job itself.
_TIMES = range(1, 4)

#: The aims of benchmarks/audit.md.
COUNT_TIMES_MAX, TWICE_TIMES_MAX, FIRST_TIMES_MAX, STEP_SHARE_MAX = 2.5, 2.2, 1.6, 0.15
MIXED_TIMES_MAX, SKEW_TIMES_MAX, LIVE_TIMES_MAX, EMPTY_CPU_S_MAX = 1.5, 1.5, 1.5, 3.0
SMALL_S_MAX, SMALL_IN_SPARK_S_MAX = 25.0, 15.0


@dataclass(frozen=True)
class Took:
    """The duration of a job: seconds by the clock, and seconds of processor time of Spark's JVM."""

    clock_s: float
    cpu_s: float


@dataclass
class Scale:
    """A history that grows, and the session that audits it."""

    spark: SparkSession
    fillings: list[Filling]
    noted: Path | None = None
    is_skewed: bool = False

    @property
    def rows(self) -> int:
        """The number of requests that were written."""
        return sum(one.next_request for one in self.fillings)

    def grow(self, rows: int) -> None:
        """Adds `rows` requests and their deliveries, and saves the positions of the next ones."""
        if rows <= 0:
            return
        began_s = time.monotonic()
        large = int(rows * _SKEW) if self.is_skewed else rows // _PARTITIONS
        small = (rows - large) // (_PARTITIONS - 1)
        shares = [rows - small * (_PARTITIONS - 1), *[small] * (_PARTITIONS - 1)]
        self.fillings = fill(self.fillings, shares)
        if self.noted is not None:
            self.noted.write_text(json.dumps([asdict(one) for one in self.fillings]))
        _say(f"wrote {rows:,} requests with their deliveries", Took(time.monotonic() - began_s, 0))

    def options(self, state: str | None = None) -> AuditOptions:
        return AuditOptions(self.fillings[0].bootstrap, (self.fillings[0].requests,), state=state)

    def audited(self, what: str, state: str | None = None) -> tuple[Took, AuditOutcome]:
        """Returns the duration and the outcome of a full audit; with `state`, of an audit of the records since the last
        audit with that state."""

        def job() -> AuditOutcome:
            if state is None:
                return audit(self.spark, self.options(), Reporter())
            return audit_with_state(self.spark, self.options(state), Reporter(), lambda _: None)[0]

        took, outcome = self._timed(what, job)
        assert not outcome.summary.violations, outcome.summary.samples
        self.spark.catalog.clearCache()
        return took, outcome

    def counted(self, what: str, ranges: Sequence[Range]) -> Took:
        """Returns the duration of counting the records in `ranges`."""
        properties = {"bootstrap.servers": self.fillings[0].bootstrap}
        took, count = self._timed(what, lambda: read_records(self.spark, ranges, properties).count())
        sys.stdout.write(f"    {count:,} records\n")
        return took

    def hashed(self, what: str, ranges: Sequence[Range]) -> Took:
        """Returns the duration of hashing each record, without any rule.

        The job reads each record with its headers, computes its SHA-256, and combines these hashes for each thousand
        offsets.
        """
        properties = {"bootstrap.servers": self.fillings[0].bootstrap}
        header_bytes = (F.array_join(F.col(f"headers.{part}").cast("array<string>"), ",", "-") for part in _HEADER)
        parts = (F.coalesce(F.col(part), F.lit(b"")).cast("binary") for part in ("key", "value"))
        digest = F.sha2(F.concat(*parts, *(text.cast("binary") for text in header_bytes)), 256)
        names = ("one", "other")
        hashes = [F.bit_xor(F.xxhash64(F.lit(name), digest)).alias(name) for name in names]

        def job() -> int:
            records = read_records(self.spark, ranges, properties)
            by_chunk = records.groupBy("topic", "partition", F.shiftright("offset", CHUNK_BITS).alias("chunk"))
            return len(by_chunk.agg(*hashes).agg(*map(F.bit_xor, names)).collect())

        took, _ = self._timed(what, job)
        return took

    def counted_plainly(self, what: str, ranges: Sequence[Range]) -> Took:
        """Returns the duration of counting the same topics with Spark's default reader, as in Spark's guide."""
        topics = ",".join(sorted({span.partition.topic for span in ranges}))
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.fillings[0].bootstrap)
        took, count = self._timed(what, lambda: reader.option("subscribe", topics).load().count())
        sys.stdout.write(f"    {count:,} records\n")
        return took

    def copied(self, what: str, state: str, run: int) -> Took:
        """Returns the duration of writing the rows of this run to another table of the same form, without any audit.

        No audit that keeps these rows can write them faster. Like an audit, the job leaves out the column `facts` of
        rows without facts.
        """
        rows = self.spark.read.format("delta").load(f"{state}/{ORIGINS}").where(F.col("run") == run)
        form = form_of(cast(StructType, rows.schema["facts"].dataType))
        tables = DeltaTables(self.spark, f"{state}-copy-{run}")

        def job() -> None:
            parts = (rows.where("facts is null").drop("facts"), rows.where("facts is not null"))
            for part in (empty_table(self.spark, form), *parts):
                tables.append(ORIGINS, part, form)

        took, _ = self._timed(what, job)
        return took

    def expect(self, outcome: AuditOutcome) -> None:
        """Checks that an audit has found all written requests."""
        written = Counter(one.verdict(offset) for one in self.fillings for offset in range(one.next_request))
        counts = {name: count for name, count in outcome.summary.counts.items() if count}
        assert counts == written, counts

    def _timed(self, what: str, job: Callable[[], Found]) -> tuple[Took, Found]:
        began_s, began_cpu_s = time.monotonic(), self._cpu_s()
        found = job()
        took = Took(time.monotonic() - began_s, self._cpu_s() - began_cpu_s)
        _say(what, took)
        return took, found

    def _cpu_s(self) -> float:
        jvm: Any = self.spark.sparkContext._jvm
        return float(jvm.java.lang.ProcessHandle.current().info().totalCpuDuration().get().toMillis()) / 1_000


def measure(scale: Scale, rows: int, directory: Path, parts: Sequence[str] = _PARTS) -> None:
    """Measures the `parts`, and writes each figure to standard output as soon as it is known.

    The topics may already hold more than `rows` requests.
    """
    scale.grow(rows - scale.rows)
    rows = scale.rows
    _, outcome = scale.audited("an audit, the first of the session")
    scale.expect(outcome)
    scale.counted("counting, the first time", outcome.ranges)
    counted = scale.counted("counting", outcome.ranges)
    for number in _TIMES:
        audited, _ = scale.audited(f"audit, time {number}")
    scale.counted_plainly("counting with Spark's default reader, the first time", outcome.ranges)
    plainly = scale.counted_plainly("counting with Spark's default reader", outcome.ranges)
    scale.hashed("hashing each record, the first time", outcome.ranges)
    hashed = scale.hashed("hashing each record", outcome.ranges)
    _ratio("audit ÷ counting with the audit's own reader", audited, counted, COUNT_TIMES_MAX)
    _ratio("hashing each record ÷ counting", hashed, counted, COUNT_TIMES_MAX)
    _ratio("audit ÷ counting with Spark's default reader", audited, plainly, COUNT_TIMES_MAX)

    if "state" in parts:
        _measure_state(scale, rows, str(directory / "state"), audited)
        audited, _ = scale.audited("audit, once more")
    if "mixed" in parts:
        _measure_beside(_beside(scale, is_mixed=True), rows, "mixed", audited, MIXED_TIMES_MAX)
    if "skew" in parts:
        _measure_beside(_beside(scale, is_skewed=True), rows, "skewed", audited, SKEW_TIMES_MAX)
    if "live" in parts:
        live = _beside(scale, pending_every=_OPEN_EVERY, spread_ms=_SPREAD_MS)
        _measure_beside(live, rows, "live", audited, LIVE_TIMES_MAX)
    if "open" in parts:
        _measure_open(_beside(scale, pending_every=_OPEN_EVERY), rows, str(directory / "open"), audited)
    if "small" in parts:
        small = _beside(scale)
        small.grow(_SMALL_ROWS)
        for state in (None, str(directory / "small")):
            _measure_small(small.options(state))
    if "twice" in parts:
        scale.grow(2 * rows - scale.rows)
        twice, outcome = scale.audited("audit of twice the rows")
        scale.expect(outcome)
        _ratio("twice the rows ÷ once", twice, audited, TWICE_TIMES_MAX)
        counted = scale.counted("counting twice the rows", outcome.ranges)
        _ratio("audit ÷ counting, twice the rows", twice, counted, COUNT_TIMES_MAX)


def _measure_state(scale: Scale, rows: int, state: str, full: Took) -> None:
    for number in _TIMES:
        path = f"{state}-{number}"
        first, outcome = scale.audited(f"audit with a new state, time {number}", path)
        scale.expect(outcome)
    _ratio("audit with a new state ÷ audit", first, full, FIRST_TIMES_MAX)
    written = scale.copied("writing its rows alone", path, 1)
    together = Took(full.clock_s + written.clock_s, full.cpu_s + written.cpu_s)
    _ratio("audit and writing its rows alone ÷ audit", together, full, FIRST_TIMES_MAX)
    for number in _TIMES:
        scale.grow(rows // 100)
        step, _ = scale.audited(f"audit of one per cent more, time {number}", path)
    _ratio("one per cent more ÷ audit", step, full, STEP_SHARE_MAX)
    scale.copied("writing its rows alone", path, 1 + len(_TIMES))
    scale.audited("audit of nothing more", path)
    empty, _ = scale.audited("audit of nothing more, again", path)
    verdict = "" if empty.cpu_s < EMPTY_CPU_S_MAX else ": MISSED"
    sys.stdout.write(f"  nothing more: {empty.cpu_s:.1f} s of processor time; less than {EMPTY_CPU_S_MAX} s{verdict}\n")


def _measure_beside(other: Scale, rows: int, name: str, full: Took, most: float) -> None:
    """Compares the audit of another history with the audit of the even history, which has as many rows.

    The first audit of the other history does not count: it compiles plans that the even history does not need.
    """
    other.grow(rows // _ROUND * _ROUND)
    _, outcome = other.audited(f"audit of a {name} history, the first")
    other.expect(outcome)
    took, _ = other.audited(f"audit of a {name} history")
    _ratio(f"a {name} history ÷ an even one", took, full, most)


def _measure_open(other: Scale, rows: int, state: str, full: Took) -> None:
    other.grow(rows)
    _, outcome = other.audited("audit with a new state of an open history", state)
    other.expect(outcome)
    for what in ("10,000 more, the first", "10,000 more"):
        other.grow(_STEP_ROWS)
        step, _ = other.audited(f"audit of {what}", state)
    sys.stdout.write(
        f"  10,000 more ÷ audit: {step.clock_s / full.clock_s:.2f}, {step.cpu_s / full.cpu_s:.2f} by cpu\n"
    )


def _measure_small(options: AuditOptions) -> None:
    """Measures the whole duration of the command, and its duration after the start of Spark. The first line about
    topics shows that Spark has started."""
    command = [sys.executable, "-m", "postdate.cli", "audit", "-b", options.bootstrap_servers, "--master", "local[2]"]
    command += [word for name in options.requests for word in ("--requests", name)]
    command += [] if options.state is None else ["--state", options.state]
    began_s, started_s = time.monotonic(), 0.0
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if not started_s and line.startswith("requests "):
                started_s = time.monotonic() - began_s
    assert running.returncode == 0
    assert started_s
    took_s = time.monotonic() - began_s
    verdict = "" if took_s <= SMALL_S_MAX and took_s - started_s <= SMALL_IN_SPARK_S_MAX else ": MISSED"
    what = "without" if options.state is None else "with a new"
    sys.stdout.write(
        f"  postdate audit of {_SMALL_ROWS} requests, {what} state: {took_s:.1f} s in all, at most {SMALL_S_MAX:.0f}; "
        f"{took_s - started_s:.1f} s after the start of Spark, at most {SMALL_IN_SPARK_S_MAX:.0f}{verdict}\n"
    )
    sys.stdout.flush()


def _beside(scale: Scale, *, is_skewed: bool = False, **how: Any) -> Scale:
    """Returns a further, empty history on the same broker. `how` are fields of its fillings."""
    fillings = [replace(one, **how) for one in _new_fillings(scale.fillings[0].bootstrap, is_skewed)]
    return Scale(scale.spark, fillings, is_skewed=is_skewed)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scale", description="How the audit's time grows with the rows.")
    parser.add_argument("--rows", type=int, default=200_000, metavar="N", help="requests; twice as many at the end")
    parser.add_argument("--bootstrap", metavar="SERVERS", help="a broker that runs, instead of one of its own")
    parser.add_argument("--history", type=Path, metavar="FILE", help="where what was written there is noted")
    parser.add_argument(
        "--parts", nargs="*", choices=_PARTS, default=_PARTS, help="measured beside counting and a full audit"
    )
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark's")
    given = parser.parse_args(arguments)
    settings = {"spark.driver.memory": _MEMORY, **dict(pair.split("=", 1) for pair in given.conf)}
    with (
        tempfile.TemporaryDirectory(prefix="postdate-scale-") as made,
        _broker(given.bootstrap) as bootstrap,
        spark_session("local[2]", settings, Reporter().report, with_delta=True) as spark,
    ):
        scale = Scale(spark, _fillings(bootstrap, given.history), given.history)
        measure(scale, given.rows, Path(made), given.parts)


@contextmanager
def _broker(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with local_broker() as broker:
        yield broker.bootstrap_servers


def _fillings(bootstrap: str, noted: Path | None) -> list[Filling]:
    """Returns the positions of an earlier run from the file `noted`, or those of new, empty topics."""
    if noted is not None and noted.exists():
        said = json.loads(noted.read_text())
        return [Filling(**{**one, "targets": tuple(one["targets"])}) for one in said]
    return _new_fillings(bootstrap, is_skewed=False)


def _new_fillings(bootstrap: str, is_skewed: bool) -> list[Filling]:
    deployment = SidecarDeployment(bootstrap, Path())
    requests = deployment.new_requests(_PARTITIONS)
    targets = tuple(deployment.new_target(_TARGET_PARTITIONS) for _ in range(1 if is_skewed else _TARGETS))
    return [Filling(bootstrap, requests, number, targets) for number in range(_PARTITIONS)]


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
