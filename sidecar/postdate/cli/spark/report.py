"""`postdate report`: the upcoming load, and the lateness of deliveries. The job is `postdate.spark.report.job`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from postdate.cli.options import Loader, configured, from_option, output_option, requests_option
from postdate.cli.spark.audit import common_to
from postdate.cli.spark.spark_jobs import job_options, reached, require_spark, run_planned, spark_options
from postdate.sidecar.config.loader import require_bootstrap


@click.command(short_help="Report upcoming load and past lateness.")
@configured
@requests_option(multiple=True)
@from_option("Lateness of messages delivered at or after this time.", "--since", "since_ms")
@click.option("--late", type=int, metavar="N", help="Number of messages with the highest lateness to list. [20]")
@click.option("--write", metavar="DIR", help="Write the tables as Parquet to this new directory.")
@click.option("--html", metavar="FILE", help="Write a page with charts.")
@spark_options
@output_option
def report(loader: Loader, requests: tuple[str, ...], **options: Any) -> None:
    """Report, from the topics, the upcoming load by minute, hour, target and partition, and the lateness of deliveries.

    Needs pyspark: pip install 'postdate[spark]'.
    """
    config = loader({"request_topics": requests}).config
    require_bootstrap(config)
    require_spark("the report")
    from postdate.spark.report.job import run_report
    from postdate.spark.report.options import ReportOptions

    def planned(is_brief: bool) -> Callable[[], int]:
        job = ReportOptions(
            requests=config.request_topic_names,
            levels_ms=common_to(config, "levels_ms"),
            dialects=common_to(config, "dialects"),
            default_target=common_to(config, "default_target"),
            is_brief=is_brief,
            **reached(config, config.kafka.consumer),
            **job_options(options),
        )
        return partial(run_report, job)

    run_planned(config, planned)
