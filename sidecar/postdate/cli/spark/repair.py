"""`postdate repair`: requests the missing messages of an audit again. The job is `postdate.spark.repair.job`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from postdate.cli.options import Loader, configured, output_option, requests_option
from postdate.cli.spark.spark_jobs import (
    job_options,
    only_topic,
    reached,
    require_spark,
    run_planned,
    sent_to,
    spark_options,
)
from postdate.sidecar.config.loader import require_bootstrap


@click.command(short_help="Request missing messages again.")
@click.argument("audited", metavar="AUDITED")
@configured
@requests_option()
@click.option("--apply", is_flag=True, help="Send the requests; without this option, only print the plan.")
@click.option("--any-share", is_flag=True, help="Send even if so many are missing that the audit may be wrong.")
@click.option("--rate", type=click.IntRange(min=1), metavar="N", help="Requests per second. [unlimited]")
@click.option("--samples", type=int, metavar="N", help="Number of unrepairable requests to show. [10]")
@spark_options
@output_option
def repair(loader: Loader, audited: str, requests: str | None, **options: Any) -> None:
    """Request missing messages again, each at most once. AUDITED is the path that an audit had as --state.

    Without --apply the command only prints its plan. Exit code 1 if a message cannot be repaired. Needs pyspark: pip
    install 'postdate[spark]'.
    """
    config = loader({"request_topics": (requests,) if requests else ()}).config
    require_bootstrap(config)
    require_spark("repair")
    from postdate.spark.repair.job import run_repair
    from postdate.spark.repair.options import RepairOptions

    topic = only_topic(config, "one request topic is repaired at a time: name it with --requests")

    def planned(_: bool) -> Callable[[], int]:
        job = RepairOptions(
            audited=audited,
            requests=topic.name,
            levels_ms=topic.levels_ms,
            dialects=topic.dialects,
            default_target=topic.default_target,
            **sent_to(topic),
            **reached(config, config.kafka.producer),
            **job_options(options),
        )
        return partial(run_repair, job)

    run_planned(config, planned)
