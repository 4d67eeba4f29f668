"""`postdate audit`: Spark's verdict on what was delivered. The job itself is `postdate.connectors.spark.audit`."""

from __future__ import annotations

import sys

import click

from postdate.sidecar.cli.options import Loader, configured, output_option
from postdate.sidecar.config_load import require_bootstrap
from postdate.sidecar.errors import ConfigError


@click.command()
@configured
@click.option("--requests", multiple=True, metavar="TOPIC", help="Request topic to judge; repeatable.")
@output_option
def audit(loader: Loader, requests: tuple[str, ...], output: str) -> None:
    """Judge from the topics alone whether every request was delivered exactly once, unchanged and not early.

    Exit code 4 when a violation was found, 1 when it could not judge. Needs pyspark: pip install 'postdate[spark]'.
    """
    config = loader({"request_topics": requests}).config
    require_bootstrap(config)
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError("the audit needs pyspark: pip install 'postdate[spark]'") from error
    from postdate.connectors.spark.audit import run_audit

    sys.exit(run_audit(config, output))
