"""A Spark cluster on this machine: a standalone master and workers, from the distribution in PySpark.

Master and workers are separate processes with log files, and end with the context. `submitted` runs one of the job
programs on the cluster, as docs/pipeline.md describes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType

import pyspark

from postdate.spark.session.start import connector_package
from support.audits.small_spark import EXECUTOR_MEMORY, WORKER_MEMORY, sized_spark
from support.deployments.sidecars import wait_until
from support.repository import ROOT

_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"

#: These JVMs run for a minute. Java's second compiler and a parallel collector cost more at the start than they save.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: Executors have no Python, since only dialects need it there.
_PYTHON = {"PYSPARK_DRIVER_PYTHON": sys.executable, "PYSPARK_PYTHON": "/nowhere/python"}

#: The number of workers in a cluster for tests.
WORKERS = int(os.environ.get("POSTDATE_TEST_SPARK_WORKERS", "2"))
#: True if jobs that could also run in the session of the tests run on the cluster.
ALL_ON_CLUSTER = "POSTDATE_TEST_SPARK_WORKERS" in os.environ


@contextmanager
def spark_cluster(directory: Path, workers: int) -> Iterator[str]:
    """Yields the URL of a master with `workers` workers of one core and WORKER_MEMORY each."""
    with ExitStack() as started:
        log = directory / "master.log"
        at = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        started.enter_context(_running("org.apache.spark.deploy.master.Master", at, log))
        wait_until(lambda: _MASTER.search(log.read_text()) is not None, f"a master says where it is, in {log}")
        found = _MASTER.search(log.read_text())
        assert found is not None
        for number in range(workers):
            log = directory / f"worker-{number}.log"
            size = ("--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(directory / f"worker-{number}"))
            started.enter_context(_running("org.apache.spark.deploy.worker.Worker", (*at, *size, found[1]), log))
            wait_until(lambda: _REGISTERED in log.read_text(), f"a worker has found its master, in {log}")  # noqa: B023
        yield found[1]


def submitted(master: str, program: ModuleType, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end with PySpark's own `spark-submit`, and returns the completed process."""
    settings = {**sized_spark(), "spark.driver.host": "127.0.0.1", "spark.executor.memory": EXECUTOR_MEMORY}
    settings |= {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    settings |= {"spark.executor.defaultJavaOptions": _SHORT_LIVED}
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", master]
    command += ["--packages", connector_package()]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    sources = os.pathsep.join(str(ROOT / source) for source in ("sidecar", "wheel", "connectors"))
    return subprocess.run(
        [*command, str(program.__file__), *arguments],
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
        env={**os.environ, "PYTHONPATH": sources, **_PYTHON},
    )


@contextmanager
def _running(name: str, arguments: tuple[str, ...], log: Path) -> Iterator[None]:
    """Runs a process of Spark for as long as the context is open."""
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"SPARK_DAEMON_MEMORY": "512m", "SPARK_DAEMON_JAVA_OPTS": _SHORT_LIVED}
    with log.open("wb") as output:
        command = [str(home / "bin" / "spark-class"), name, *arguments]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
