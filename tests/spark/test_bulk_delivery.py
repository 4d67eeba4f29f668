"""A table scheduled twice on a real broker. Goal: each valid row is delivered once, and only the invalid rows are
refused. Method: 20,000 rows in Parquet, one in a hundred invalid, are sent at full speed and again at a limited rate,
before the first is due; then a sidecar delivers. A third run, by `spark-submit` on a cluster, sends only the new rows.
A dry run of the same rows measures how far ahead the due time must be for both runs; if that was too short, the test
repeats with more time. POSTDATE_TEST_BULK_ROWS sets the number of rows; POSTDATE_TEST_SPARK_WORKERS=N sends all of them
from a cluster of N workers.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from postdate.spark import bulk_main
from postdate.spark.bulk.job import run_bulk, schedule
from postdate.spark.bulk.options import BulkOptions, Source
from postdate.spark.errors import CannotRun, JobUsageError
from postdate.wire.dispatch_log import decode_record
from postdate.wire.values.murmur2 import partition_for
from support.audits.small_spark import BULK_ROWS
from support.audits.spark_cluster import ALL_ON_CLUSTER, submitted
from support.brokers.broker import RunningBroker
from support.deployments.sidecar_deployment import SidecarDeployment, new_deployment

_BAD_EACH = 100
_TRIES = 3
#: Seconds: the time for the sidecar and for reading, on a machine that runs other tests.
_TIMEOUT_S = 240 + BULK_ROWS / 500


@pytest.fixture(scope="module")
def deployment(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarDeployment]:
    with new_deployment(broker.bootstrap_servers, tmp_path_factory.mktemp("bulk")) as made:
        made.new_requests(2)
        made.new_target(3)
        yield made


@dataclass(frozen=True)
class _Result:
    """The JSON result and the duration of a bulk schedule."""

    exit_code: int
    outcome: dict[str, Any]
    seconds: float


def _bulk(
    deployment: SidecarDeployment, capsys: pytest.CaptureFixture[str], master: str | None, source: Path, **options: Any
) -> _Result:
    """Runs a bulk schedule in the session of these tests, or by `spark-submit` at `master`."""
    began_s = time.monotonic()
    if master is not None:
        arguments = [word for name, value in options.items() for word in _option(name, value)]
        where = ("-b", deployment.bootstrap, "--requests", deployment.requests[0], "--target", deployment.targets[0])
        done = submitted(master, bulk_main, str(source), *where, "--output", "json", *arguments)
        result = json.loads(done.stdout.splitlines()[-1])
        return _Result(done.returncode, result, time.monotonic() - began_s)
    given = BulkOptions(
        deployment.bootstrap, deployment.requests[0], target=deployment.targets[0], output="json", **options
    )
    exit_code = run_bulk(given, Source.named(str(source), None, {}))
    return _Result(exit_code, json.loads(capsys.readouterr().out), time.monotonic() - began_s)


@dataclass(frozen=True)
class _Sent:
    """Rows that were scheduled twice before the first of them was due."""

    #: The prefix of their ids.
    name: str
    source: Path
    due_ms: int
    #: The number of valid rows sent, including attempts that were too late.
    sent: int
    #: Seconds: the durations of the dry run, the first run and the second run.
    seconds: list[float]


def _option(name: str, value: object) -> tuple[str, ...]:
    option = f"--{name.replace('_', '-')}"
    return (option,) if value is True else (option, str(value))


def _rows(spark: SparkSession, name: str, first: int, end: int, due_ms: int) -> DataFrame:
    """Returns rows with different ids, due within a second of `due_ms`; each hundredth has one of two mistakes."""
    number = F.col("number")
    id = _text(F.lit(f"{name}-"), number)
    is_bad = number % _BAD_EACH == 7
    rows = spark.range(first, end).withColumnRenamed("id", "number")
    return rows.select(
        F.when(is_bad & (number % 200 == 7), F.lit("")).otherwise(id).alias("id"),
        _text(F.lit("key-"), number % 100).alias("key"),
        F.encode(_text(F.lit("value-"), number), "UTF-8").alias("value"),
        F.create_map(F.lit("n"), number.cast("string")).alias("headers"),
        F.when(is_bad & (number % 200 != 7), F.lit(-1)).otherwise(F.lit(due_ms) + number % 1_000).alias("at"),
    )


def _text(*parts: Column) -> Column:
    return F.concat(*(part.cast("string") for part in parts))


def _sent_twice(
    deployment: SidecarDeployment,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    master: str | None,
    directory: Path,
) -> _Sent:
    """Schedules the rows twice, both times before the first of them is due."""
    allowed_s, sent, bad = 5.0, 0, BULK_ROWS // _BAD_EACH
    for attempt in range(_TRIES):
        name, source = f"row-{attempt}", directory / f"rows-{attempt}.parquet"
        _rows(spark, name, 0, BULK_ROWS, int(time.time() * 1_000) + 60_000).write.parquet(str(source))
        dry = _bulk(deployment, capsys, master, source, dry_run=True)
        assert (dry.exit_code, dry.outcome["rejected"], dry.outcome["sent"]) == (1, bad, 0)
        due_ms = int((time.time() + allowed_s + 4 * dry.seconds) * 1_000)
        _rows(spark, name, 0, BULK_ROWS, due_ms).write.mode("overwrite").parquet(str(source))
        first = _bulk(deployment, capsys, master, source, rejects=str(directory / f"bad-{attempt}"))
        again = _bulk(
            deployment, capsys, master, source, rejects=str(directory / f"again-{attempt}"), rate=BULK_ROWS // 2
        )
        for run in (first, again):
            reasons = {"bad-id": bad // 2, "bad-time": bad // 2}
            assert (run.exit_code, run.outcome["reasons"]) == (0, reasons), run.outcome
            assert (run.outcome["sent"], run.outcome["rejected"]) == (BULK_ROWS - bad, bad)
            sent += BULK_ROWS - bad
        assert sum(step["rows"] for step in first.outcome["load"]["steps"]) == BULK_ROWS - bad
        if time.time() * 1_000 < due_ms:
            refused = spark.read.parquet(str(directory / f"bad-{attempt}")).collect()
            numbers = sorted(int(row["headers"]["n"]) for row in refused)
            assert numbers == list(range(7, BULK_ROWS, _BAD_EACH)), "just the bad rows are in the table of rejects"
            assert all(row["reasons"] == (["bad-id"] if row["id"] == "" else ["bad-time"]) for row in refused)
            return _Sent(name, source, due_ms, sent, [run.seconds for run in (dry, first, again)])
        allowed_s = 3 * (first.seconds + again.seconds)
    raise AssertionError("this machine is too slow to send the rows twice before they are due")


@pytest.mark.timeout(900 + BULK_ROWS / 50)  # up to three attempts on a busy machine
def test_each_sound_row_is_delivered_once(
    deployment: SidecarDeployment, spark: SparkSession, capsys: pytest.CaptureFixture[str], master: str, tmp_path: Path
) -> None:
    sent = _sent_twice(deployment, spark, capsys, master if ALL_ON_CLUSTER else None, tmp_path)
    name = sent.name
    sidecar = deployment.new_sidecar()
    sidecar.start()
    good = BULK_ROWS - BULK_ROWS // _BAD_EACH
    more = tmp_path / "more.parquet"
    wider = _rows(spark, name, BULK_ROWS, BULK_ROWS + 1_000, 5).where("id != '' and at >= 0").limit(10)
    spark.read.parquet(str(sent.source)).where("id != '' and at >= 0").unionByName(wider).write.parquet(str(more))
    new = _bulk(deployment, capsys, master, more, only_new=True)
    assert (new.exit_code, new.outcome["skipped"], new.outcome["sent"], new.outcome["due_already"]) == (0, good, 10, 10)
    deployment.wait_for_ends(sent.sent + 10, _TIMEOUT_S + max(0.0, sent.due_ms / 1_000 - time.time()))
    assert sidecar.stop() == 0
    spelled = ", ".join(f"{each:.1f}" for each in (*sent.seconds, new.seconds))
    print(f"seconds of the dry run, both runs and the third: {spelled}; the session's JVM: {_peak_mib(spark)} MiB")

    counts = _delivered(deployment, name)
    assert (len(counts), set(counts.values())) == (good + 10, {1})
    log = deployment.reader(f"{deployment.requests[0]}.dispatch-log")
    fates = Counter(fate.name for seen in log.passing(_TIMEOUT_S) for fate in decode_record(seen.value).fates)
    log.close()
    assert fates["replaced"] >= good


def _delivered(deployment: SidecarDeployment, name: str) -> Counter[bytes]:
    """Returns the number of deliveries of each id; compares every 97th record with its row."""
    counts: Counter[bytes] = Counter()
    reader = deployment.reader(deployment.targets[0])
    for seen in reader.passing(_TIMEOUT_S):
        id = seen.last("postdate-id")
        if id.startswith(name.encode()):
            counts[id] += 1
            number = int(seen.last("n"))
            if number % 97 == 0:
                assert (seen.key, seen.value) == (b"key-%d" % (number % 100), b"value-%d" % number)
                assert int(seen.origin.split(b"/")[1]) == partition_for(id, 2)
    reader.close()
    return counts


def _peak_mib(spark: SparkSession) -> int:
    """Returns the peak memory of the JVM of this session."""
    jvm: Any = spark.sparkContext._jvm
    status = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def test_a_bad_row_stops_everything(
    deployment: SidecarDeployment, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = spark.createDataFrame([("ok", 5), (None, 5)], "id string, delay int")
    outcome = schedule(rows, BulkOptions(deployment.bootstrap, deployment.requests[0], target=deployment.targets[0]))
    assert (outcome.exit_code, outcome.sent, outcome.reasons) == (1, 0, {"missing-id": 1})
    assert outcome.samples[0].details == ("the column of ids has none here",)


def test_a_missing_topic_or_column_is_an_error(
    deployment: SidecarDeployment, spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.createDataFrame([("ok", 5)], "id string, delay int")
    with pytest.raises(CannotRun, match="no topic nobody"):
        schedule(rows, BulkOptions(deployment.bootstrap, "nobody", target=deployment.targets[0]))
    with pytest.raises(JobUsageError, match="No column is called target"):
        schedule(rows, BulkOptions(deployment.bootstrap, deployment.requests[0]))
    with pytest.raises(JobUsageError, match="exists already"):
        schedule(
            rows,
            BulkOptions(
                deployment.bootstrap, deployment.requests[0], target=deployment.targets[0], rejects=str(tmp_path)
            ),
        )
