"""`postdate cancel`, `reschedule` and `deliver` for many messages, selected by target, id, key or due time.

One control is sent to each partition of the request topic, since a shard acts only on the messages of one partition. A
dry run queries the running processes instead, and sends nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import click

from postdate.cli.commands import fail, warn
from postdate.cli.operation.processes import deployment_of, warn_about_unqueried_shards
from postdate.cli.options import Command, Loader, as_bytes, from_option, now_ms, time_ms, until_option
from postdate.cli.request_options import check, the_request_topic
from postdate.cli.requests.waiting import first_verdict, require_verdicts, waiting
from postdate.kafka.errors import KafkaFault
from postdate.kafka.interface import Admin, Isolation, Partition
from postdate.sidecar.cluster.producing import (
    DeliveryReport,
    PartlyProduced,
    ReusedProducer,
    UnsentRequest,
    accepted,
    look_up,
    partitions_of,
    produce_to_each,
)
from postdate.sidecar.config.settings import Config
from postdate.sidecar.errors import PostdateError
from postdate.wire import headers as names
from postdate.wire.headers import SELECTOR_FIELDS, Headers
from postdate.wire.origins import format_origin
from postdate.wire.topics import OwnTopics, is_topic_name
from postdate.wire.values.durations import format_duration
from postdate.wire.values.texts import counted

_DONE: Final = {"cancel": "cancelled", "reschedule": "moved"}


def selector_options(command: Command) -> Command:
    """Adds the selectors, --partition, --dry-run and --yes, and the options for finding the processes that count the
    messages."""
    for option in (
        click.option(
            "--token-file",
            type=click.Path(path_type=Path),
            help="To count messages: file with the bearer token. [http.token_file]",
        ),
        click.option(
            "--url", "urls", multiple=True, metavar="URL", help="To count messages: process to query; repeatable."
        ),
        click.option("--group-id", metavar="ID", help="To count messages: consumer group of the sidecars."),
        click.option("--yes", "is_sure", is_flag=True, help="Do not ask for confirmation. Only needed on a terminal."),
        click.option("--dry-run", is_flag=True, help="Print how many messages are selected, and change nothing."),
        click.option(
            "--partition",
            "partitions",
            type=click.IntRange(min=0),
            multiple=True,
            metavar="N",
            help="Only this partition of the request topic; repeatable. [all]",
        ),
        until_option("Messages due before this time.", kind=time_ms),
        from_option("Messages due at or after this time.", kind=time_ms),
        click.option("--key", metavar="TEXT", help="Messages with this key."),
        click.option("--id-prefix", metavar="TEXT", help="Messages whose id begins with this text."),
        click.option("--target", metavar="TOPIC", help="Messages for this target."),
    ):
        command = option(command)
    return command


def is_selection(options: dict[str, Any]) -> bool:
    """True if the options contain at least one selector."""
    return any(options[name] is not None for name in SELECTOR_FIELDS)


def is_bulk(options: dict[str, Any]) -> bool:
    """True if the options contain selectors. Raises UsageError if they contain selectors and also name one message, if
    they contain neither, or if they contain --dry-run or --partition without a selector."""
    if is_selection(options):
        if options["request_id"] is not None or options["origin"] is not None:
            raise click.UsageError("give --id or --origin, or selectors, not both")
        return True
    for option in ("dry_run", "partitions"):
        if options[option]:
            name = option.replace("_", "-").removesuffix("s")
            raise click.UsageError(f"--{name} needs a selector: --target, --id-prefix, --key, --from or --until")
    if options["request_id"] is None and options["origin"] is None:
        raise click.UsageError("give one of --id and --origin, or selectors such as --target")
    return False


def control_selected(loader: Loader, headers: Headers, options: dict[str, Any]) -> None:
    """Sends a bulk control with these headers to each partition, or to those of --partition; with --dry-run, only
    counts the selected messages. Ends the process with code 1 if the command waits for verdicts, and one does not
    arrive or has no count."""
    from postdate.sidecar.cluster.connection import admin_of, kafka_of
    from postdate.sidecar.ingest.request_rules import rules_of

    requests, output = options["requests"], options["output"]
    wait = waiting(options["wait_verdict"], options["timeout"])
    values: dict[str, object] = {"request_topics": (requests,) if requests else ()}
    config = loader({**values, "group_id": options["group_id"]}).config
    topic = the_request_topic(config)
    action = (dict(headers)[names.ACTION] or b"").decode()
    record = UnsentRequest(None, None, [*headers, *_headers(options)])
    if options["dry_run"]:
        query = _query(topic, options)
        _count(deployment_of(config, options["urls"], options["token_file"]), query, output)
        if config.kafka.bootstrap_servers:
            with admin_of(kafka_of(config)) as admin:
                _warn_of_missing(admin, options["target"])
        return
    check(config, topic, record, 0)
    if not options["is_sure"] and sys.stdin.isatty():
        click.confirm(f"{action.capitalize()} {_matching(config, topic, options)}?", abort=True, err=True)
    kafka = kafka_of(config)
    with admin_of(kafka) as admin:
        _warn_of_missing(admin, options["target"])
        live = look_up(admin, topic, config.kafka.bootstrap_servers, (OwnTopics.of(topic).verdicts,))
        require_verdicts(wait, config, topic, live.existing)
        accepted(rules_of(config, topic, live.retention_ms), record, 0, now_ms())
        partitions = partitions_of(live, topic, options["partitions"])
        verdicts = {index: Partition(OwnTopics.of(topic).verdicts, index) for index in partitions}
        ends = admin.end_offsets([*verdicts.values()], Isolation.READ_UNCOMMITTED) if wait.wanted else {}
    producer = ReusedProducer(kafka)
    try:
        reports = produce_to_each(producer, topic, partitions, record)
    except PartlyProduced as partly:
        for index, delivery in partly.produced.items():
            _print(_sent(topic, index, delivery, action), output)
        raise
    finally:
        producer.close()
    total, silent = 0, 0
    for index, delivery in reports.items():
        fields = _sent(topic, index, delivery, action)
        if wait.wanted:
            part, origin = verdicts[index], str(fields["origin"])
            answer = first_verdict(kafka, part, ends[part], origin, wait.timeout_ms)
            count = None if answer is None else answer.count
            fields |= {"verdict": None if answer is None else answer.verdict, "count": count}
            total, silent = total + (count or 0), silent + (count is None)
        _print(fields, output)
    if silent:
        limit = format_duration(wait.timeout_ms)
        remedy = "each control is carried out, unless it was refused: postdate dead-letters list"
        fail(f"no count from {counted(silent, 'partition')} within {limit}; {remedy}")
    if wait.wanted and output == "text":
        click.echo(f"{counted(total, 'message')} {_DONE[action]}", err=True)


def _warn_of_missing(admin: Admin, target: str | None) -> None:
    """Warns if the selected target does not exist, since its name may be mistyped."""
    if target is not None and not (is_topic_name(target) and admin.describe([target])):
        warn(f"target topic {target} does not exist")


def _sent(topic: str, index: int, delivery: DeliveryReport, action: str) -> dict[str, object]:
    origin = format_origin(topic, index, delivery.offset).decode()
    return {"origin": origin, "action": action, "sent_ms": delivery.timestamp_ms}


def _print(fields: dict[str, object], output: str) -> None:
    if output == "json":
        click.echo(json.dumps(fields))
    else:
        click.echo(f"{fields['origin']} {fields['count']}" if fields.get("count") is not None else fields["origin"])


def _headers(options: dict[str, Any]) -> Headers:
    values = ((header, options[name]) for name, header in SELECTOR_FIELDS.items())
    return [(header, as_bytes(str(value))) for header, value in values if value is not None]


def _query(topic: str, options: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the query of a dry run. Raises UsageError for several partitions, and for text that is not UTF-8."""
    query = [("topic", topic), *(("partition", str(index)) for index in options["partitions"])]
    if len(options["partitions"]) > 1:
        raise click.UsageError("--dry-run takes one --partition")
    query += [(name, str(options[name])) for name in SELECTOR_FIELDS if options[name] is not None]
    try:
        "".join(text for _, text in query).encode()
    except UnicodeEncodeError:
        raise click.UsageError("--dry-run accepts only UTF-8 text") from None
    return query


def _matching(config: Config, topic: str, options: dict[str, Any]) -> str:
    """Returns a phrase for the selected messages, with their number if it can be queried. Otherwise warns."""
    try:
        counts = deployment_of(config, options["urls"], options["token_file"]).selected(_query(topic, options))
    except (PostdateError, KafkaFault, click.UsageError) as error:
        warn(f"the messages cannot be counted: {error}")
        return "every pending message that matches"
    return f"{_total(counts)} in {counted(len(counts['shards']), 'partition')}"


def _total(counts: dict[str, Any]) -> str:
    is_exact = counts["exact"] and not counts["not_asked"]
    return f"{'' if is_exact else 'at least '}{counted(counts['count'], 'message')}"


def _count(deployment: Any, query: list[tuple[str, str]], output: str) -> None:
    fields = deployment.selected(query)
    if output == "json":
        click.echo(json.dumps(fields))
    else:
        for shard in fields["shards"]:
            for target, count in shard["targets"].items():
                click.echo(f"{shard['topic']}/{shard['partition']} {target} {count}")
        click.echo(f"{_total(fields)} selected")
    warn_about_unqueried_shards(deployment)
