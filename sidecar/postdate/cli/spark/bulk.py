"""`postdate bulk`: schedules every row of a table. The job is `postdate.spark.bulk.job`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from postdate.cli.options import Loader, configured, from_option, name_value, output_option, requests_option
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


@click.command(short_help="Schedule every row of a table (Parquet, CSV, JSON, …).")
@click.argument("source", metavar="SOURCE")
@configured
@click.option("--format", "form", metavar="NAME", help="parquet, csv, json, … or table. [by the extension of SOURCE]")
@click.option(
    "--source-option",
    type=name_value,
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of Spark's reader; repeatable.",
)
@requests_option()
@click.option("--target", metavar="TOPIC", help="Target of every row, if there is no such column.")
@click.option(
    "--column",
    "columns",
    type=name_value,
    multiple=True,
    metavar="FIELD=COLUMN",
    help="Column of a field, if it has another name; repeatable.",
)
@click.option(
    "--rejects", metavar="DIR", help="Write bad rows to this new directory; absent: one bad row stops everything."
)
@click.option("--rate", type=click.IntRange(min=1), metavar="N", help="Rows per second. [unlimited]")
@click.option("--only-new", is_flag=True, help="Skip rows whose id already has a request on the topic.")
@from_option("With --only-new: search requests written at or after this time.", "--since", "since_ms")
@click.option("--unknown-targets", is_flag=True, help="Accept targets that do not exist yet.")
@click.option("--dry-run", is_flag=True, help="Check the rows and show the load that they would add; send nothing.")
@click.option("--samples", type=int, metavar="N", help="Number of refused rows to show. [10]")
@spark_options
@output_option
def bulk(
    loader: Loader,
    source: str,
    form: str | None,
    source_option: tuple[tuple[str, str], ...],
    requests: str | None,
    **options: Any,
) -> None:
    """Schedule every row of SOURCE: a path or URL that Spark can read, or a table with --format table.

    Columns: target key value headers at delay id grace window spread partition. A target is required, and one of at
    (a time) and delay. Exit code 1 if a row is bad and --rejects is absent. Needs pyspark: pip install
    'postdate[spark]'.
    """
    config = loader({"request_topics": (requests,) if requests else ()}).config
    require_bootstrap(config)
    require_spark("bulk")
    from postdate.spark.bulk.job import run_bulk
    from postdate.spark.bulk.options import BulkOptions, Source

    topic = only_topic(config, "rows go to one request topic: name it with --requests")
    given = job_options(options) | {"columns": dict(options["columns"])}

    def planned(_: bool) -> Callable[[], int]:
        job = BulkOptions(
            requests=topic.name,
            **sent_to(topic),
            **reached(config, config.kafka.producer),
            **given,
        )
        return partial(run_bulk, job, Source.named(source, form, dict(source_option)))

    run_planned(config, planned)
