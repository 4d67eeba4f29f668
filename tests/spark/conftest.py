"""One Spark for all of these tests: two threads, two shuffle partitions, with the Kafka connector.

Its JVM is tuned for a few small jobs: compiling the generated code of a plan takes longer than interpreting it for ten
rows. The test of `spark-submit` runs the same plans compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from postdate.connectors.spark.session import spark_session
from support.broker import RunningBroker, running_broker

_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the sockets through which results come to the garbage collector, which warns of each."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that the audit itself makes, with less of everything."""
    with spark_session("local[2]", _SMALL, lambda line: print(line, file=sys.stderr)) as session:
        yield session


@pytest.fixture(scope="session")
def broker() -> Iterator[RunningBroker]:
    """A real broker."""
    with running_broker() as running:
        yield running
