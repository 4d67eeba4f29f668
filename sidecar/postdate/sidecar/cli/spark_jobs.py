"""What the commands that run a Spark job have in common: where Spark runs, and how the job is started.

Nothing of Spark is imported before a command asks for it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import click

from postdate.sidecar.cli.options import name_value
from postdate.sidecar.errors import ConfigError


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --master and --spark-conf to a command; `asked_of` understands them."""
    conf = click.option(
        "--spark-conf", type=name_value, multiple=True, metavar="NAME=VALUE", help="Spark setting; repeatable."
    )
    return click.option("--master", metavar="URL", help="Spark cluster; absent: this machine.")(conf(command))


def asked_of(given: dict[str, Any]) -> dict[str, Any]:
    """The options of a job that were given; those that are none keep the job's own default."""
    said = given | {"spark_conf": dict(given["spark_conf"])}
    return {name: value for name, value in said.items() if value is not None}


def require_spark(what: str) -> None:
    """Raises ConfigError where pyspark is not installed; `what` begins the sentence."""
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError(f"{what} needs pyspark: pip install 'postdate[spark]'")


def run_planned(planned: Callable[[], Callable[[], int]]) -> None:
    """Ends the process with the exit code of the job that is `planned`. Raises ConfigError: it makes no sense."""
    from postdate.connectors.spark.errors import JobUsageError

    try:
        job = planned()
    except JobUsageError as error:
        raise ConfigError(str(error)) from error
    sys.exit(job())
