"""The Spark session of all these tests: two threads, two shuffle partitions, the Kafka connector and Delta Lake.

With another PySpark than the locked one (`make newest`), the session has no connector and no Delta Lake, which suffices
for the DataFrame rules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import Row, SparkSession

from postdate.spark.session.start import spark_session
from support.audit_cases.bulk import bulk_cases
from support.audit_cases.id_policies import id_policy_cases
from support.audit_cases.schedules import schedule_cases
from support.audit_cases.windows import window_cases
from support.audits.judging import by_history, judged, staged
from support.audits.small_spark import session_spark
from support.audits.spark_cluster import WORKERS, spark_cluster
from support.audits.written_records import RandomHistory, side_by_side

_HAS_CONNECTORS = pyspark.__version__.startswith("4.0.")
#  The full name saves the JVM a search of all jars for each parent package.
_DELTA_LOG = "org.apache.spark.sql.delta.DeltaLog"
#: PySpark 4.3 keeps a bit set of 640 bytes with most nodes of a plan. After 85 tests, these filled half of a heap of
#: 1.5 GB, and garbage collection took all the time.
_MEMORY = "4g"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignores warnings about unclosed sockets: PySpark leaves the sockets of results to the garbage collector."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yields the session that an audit creates, with fewer threads and partitions and less memory."""
    if not _HAS_CONNECTORS:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Python workers read requests in dialects
        builder = SparkSession.builder.master("local[2]")
        settings = {"spark.sql.session.timeZone": "UTC", "spark.ui.enabled": "false", "spark.driver.memory": _MEMORY}
        for name, value in {**session_spark(), **settings}.items():
            builder = builder.config(name, value)
        bare = builder.getOrCreate()
        yield bare
        bare.stop()
        return
    with spark_session(
        "local[2]", session_spark(), lambda line: print(line, file=sys.stderr), with_delta=True
    ) as session:
        yield session


@pytest.fixture(autouse=True)
def forgotten_tables(request: pytest.FixtureRequest) -> Iterator[None]:
    """Clears the caches of Spark and Delta after each test.

    Spark compares each query with every table that is still cached. Delta keeps the latest snapshot of each table, with
    the plans that read it, for an hour; the snapshots of all tests fill a heap of 1 GB.
    """
    yield
    if "spark" in request.fixturenames:
        spark = request.getfixturevalue("spark")
        spark.catalog.clearCache()
        if _HAS_CONNECTORS:
            getattr(spark._jvm, _DELTA_LOG).clearCache()


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the URL of the cluster on which `spark-submit` runs its jobs."""
    with spark_cluster(tmp_path_factory.mktemp("cluster"), WORKERS) as url:
        yield url


#  Cases whose rules do not depend on the presence of schedules, so that one plan judges all of them.
_CASES: Mapping[str, RandomHistory] = {"windows": window_cases(), "ids": id_policy_cases(), "bulks": bulk_cases()}
_TOGETHER = side_by_side([*_CASES.values()])


@pytest.fixture(scope="session")
def ruled(spark: SparkSession) -> dict[str, dict[int, Row]]:
    """Returns the rows of _CASES by offset, judged by the rules alone."""
    return by_history(judged(spark, _TOGETHER, rules_alone=True)[0], _CASES)


@pytest.fixture(scope="session")
def one_by_one(spark: SparkSession) -> dict[str, dict[int, Row]]:
    """Returns the rows of _CASES as an audit of few requests judges them."""
    return by_history(judged(spark, _TOGETHER)[0], _CASES)


@pytest.fixture(scope="session")
def in_one_chunk(spark: SparkSession) -> dict[str, dict[int, Row]]:
    """Returns the rows of _CASES and of the schedules by offset. Each history is judged as one chunk, and then by the
    rules. Plain messages of consistent chunks have no row."""
    cases = {**_CASES, "schedules": schedule_cases()}
    rows = staged(spark, side_by_side([*cases.values()]), bits=10).rows
    assert rows is not None
    return by_history(rows, cases)


@pytest.fixture(scope="session")
def chunk_by_chunk(spark: SparkSession) -> dict[str, dict[int, Row]]:
    """Returns the rows of _CASES, judged in a chunk for each origin and then by the rules."""
    rows = staged(spark, _TOGETHER, bits=0).rows
    assert rows is not None
    return by_history(rows, _CASES)


@pytest.fixture(scope="session", params=["chunk_by_chunk", "in_one_chunk"])
def chunked(request: pytest.FixtureRequest) -> dict[str, dict[int, Row]]:
    """Returns first the rows of `chunk_by_chunk`, then those of `in_one_chunk`."""
    rows: dict[str, dict[int, Row]] = request.getfixturevalue(request.param)
    return rows
