"""`postdate audit`: verifies all deliveries with Spark. The job is `postdate.spark.audit.job`."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from typing import Any

import click

from postdate.cli.options import (
    Loader,
    configured,
    duration_ms,
    from_option,
    output_option,
    requests_option,
    until_option,
)
from postdate.cli.spark.spark_jobs import job_options, reached, require_spark, run_planned, spark_options
from postdate.sidecar.config.loader import require_bootstrap
from postdate.sidecar.config.settings import Config
from postdate.sidecar.errors import ConfigError


@click.group(short_help="Verify that every request ended exactly once.", invoke_without_command=True)
@configured
@requests_option("Request topic to audit", multiple=True)
@click.option("--target", "targets", multiple=True, metavar="TOPIC", help="Read only these targets; repeatable.")
@click.option("--dialect", "dialects", multiple=True, metavar="NAME", help="Dialect of the request topic; repeatable.")
@click.option("--default-target", metavar="TOPIC", help="Target of requests in a dialect that names none.")
@click.option(
    "--verdicts",
    type=click.Choice(["none", "control", "all"]),
    help="Require an answer to these requests; existing answers are always checked. [none]",
)
@from_option("Audit only requests written at or after this time.", "from_ms")
@until_option("Audit only requests written before this time.", "--to", "to_ms")
@click.option(
    "--slack",
    "slack_ms",
    type=duration_ms,
    metavar="DURATION",
    help="How long after its due time a request without a fate is missing. [60s]",
)
@click.option("--samples", type=int, metavar="N", help="Origins shown for each kind of violation. [10]")
@click.option("--html", metavar="FILE", help="Write a page with charts, verdicts and samples.")
@click.option("--openmetrics", metavar="FILE", help="Write the figures as OpenMetrics text, for Prometheus.")
@click.option(
    "--state",
    metavar="PATH",
    help="Keep results in Delta tables, and read only records that are new since the last run.",
)
@click.option("--keep-days", type=click.IntRange(min=1), metavar="N", help="How long --state keeps closed rows. [90]")
@click.option("--trend", is_flag=True, help="Print the lateness by day, with --state.")
@click.option("--trend-days", type=int, metavar="N", help="How many days --trend and --html show. [30]")
@click.option("--follow", is_flag=True, help="Audit step by step until Ctrl-C, with --state.")
@click.option("--every", "every_ms", type=duration_ms, metavar="DURATION", help="Interval of --follow. [10s]")
@click.option("--steps", type=click.IntRange(min=1), metavar="N", help="End --follow after N steps.")
@click.option("--to-topic", metavar="TOPIC", help="Also write the results of --follow to this topic.")
@click.option("--strict", is_flag=True, help="Exit with 5 if something that could be verified was not.")
@click.option(
    "--fail-on-lateness",
    multiple=True,
    metavar="FIGURE=DURATION",
    help="Exit with 3 if lateness exceeds this, such as p99=250ms or max=5s; repeatable.",
)
@click.option("--aborted", "count_aborted", is_flag=True, help="Also count the records of aborted transactions.")
@spark_options
@output_option
def audit(loader: Loader, requests: tuple[str, ...], **options: Any) -> None:
    """Verify from the topics alone that every request ended exactly once, and that its message was delivered unchanged
    and not early.

    Exit code 4 if a violation is open; 1 if no verdict was possible; 5 with --strict if something that could be
    verified was not; 3 if messages were later than --fail-on-lateness allows. Needs pyspark: pip install
    'postdate[spark]'.
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    config = loader({"request_topics": requests}).config
    require_bootstrap(config)
    require_spark("the audit")
    from postdate.spark.audit.continuous import planned_audit
    from postdate.spark.audit.options import AuditOptions

    given = job_options(options)
    follows = given.pop("follow")
    following = {name: given.pop(name) for name in ("every_ms", "steps", "to_topic") if name in given}
    given["dialects"] = given["dialects"] or common_to(config, "dialects")
    given["default_target"] = options["default_target"] or common_to(config, "default_target")

    def planned(is_brief: bool) -> Callable[[], int]:
        options = AuditOptions(
            requests=config.request_topic_names,
            levels_ms=common_to(config, "levels_ms"),
            is_brief=is_brief and not follows,
            **reached(config, config.kafka.consumer),
            **given,
        )
        return planned_audit(options, follows, **following)

    run_planned(config, planned)


@audit.command(short_help="Close the violations that a run has found.")
@click.argument("run", type=click.IntRange(min=1))
@click.option("--state", required=True, metavar="PATH", help="The --state of the audit.")
@click.option("--by", metavar="NAME", help="Name of the person. [the user of this process]")
@click.option("--note", metavar="TEXT", help="The reason.")
@spark_options
def acknowledge(run: int, state: str, by: str | None, note: str | None, **options: Any) -> None:
    """Close the violations that RUN of an audit with --state has found, so that later audits no longer exit with 4.

    The violations stay in their table. The table acknowledgements records the person, the time and the reason.
    """
    require_spark("the audit")
    from postdate.spark.audit.acknowledging import AcknowledgeOptions, run_acknowledge

    given = job_options(options)
    sys.exit(run_acknowledge(AcknowledgeOptions("", run, state, by or _user(), note, **given)))


def _user() -> str:
    """Returns the name of this process's user. Raises ConfigError if the user has no name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise ConfigError("this user has no name: give one with --by") from None


def common_to(config: Config, setting: str) -> Any:
    """Returns the value of a setting that all configured request topics share. Raises ConfigError if their values
    differ."""
    values = {getattr(topic, setting) for topic in config.request_topics}
    if len(values) != 1:
        raise ConfigError(f"these request topics differ in {setting}: audit them one at a time with --requests")
    return values.pop()
