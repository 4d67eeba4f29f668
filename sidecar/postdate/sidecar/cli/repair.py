"""`postdate repair`: what an audit calls missing, asked for anew. The job is `postdate.connectors.spark.repair`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from postdate.sidecar.cli.options import Loader, configured, output_option
from postdate.sidecar.cli.spark_jobs import asked_of, require_spark, run_planned, spark_options
from postdate.sidecar.config_load import require_bootstrap
from postdate.sidecar.errors import ConfigError


@click.command(short_help="Ask anew for what an audit calls missing.")
@click.argument("audited", metavar="AUDITED")
@configured
@click.option("--requests", metavar="TOPIC", help="Request topic.")
@click.option("--apply", is_flag=True, help="Send; without it, tell what would be sent.")
@click.option("--rate", type=click.IntRange(min=1), metavar="N", help="Requests a second. [as fast as it goes]")
@click.option("--samples", type=int, metavar="N", help="Requests shown that cannot be repaired. [10]")
@spark_options
@output_option
def repair(loader: Loader, audited: str, requests: str | None, **asked: Any) -> None:
    """Ask anew for the messages that an audit calls missing, once; AUDITED is the directory of its --write or --state.

    Without --apply nothing is sent. Exit code 1 when something cannot be repaired. Needs pyspark: pip install
    'postdate[spark]'.
    """
    config = loader({"request_topics": (requests,) if requests else ()}).config
    require_bootstrap(config)
    require_spark("repair")
    from postdate.connectors.spark.kafka_properties import java_properties
    from postdate.connectors.spark.repair import run_repair
    from postdate.connectors.spark.repair_options import RepairOptions
    from postdate.connectors.wire.topics import OwnTopics

    if len(config.request_topics) != 1:
        raise ConfigError("one request topic is repaired at a time: name it with --requests")
    topic = config.request_topics[0]

    def planned() -> Callable[[], int]:
        options = RepairOptions(
            bootstrap_servers=config.kafka.bootstrap_servers,
            audited=audited,
            requests=topic.name,
            levels_ms=topic.levels_ms,
            dialects=topic.dialects,
            default_target=topic.default_target,
            horizon_ms=topic.horizon_ms,
            allow=topic.allow,
            forbidden=OwnTopics.of(topic.name).names(),
            properties=java_properties({**config.kafka.common, **config.kafka.producer}),
            **asked_of(asked),
        )
        return partial(run_repair, options)

    run_planned(config, planned)
