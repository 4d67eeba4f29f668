"""`postdate send`: checks one request by the rules of the sidecar, and produces it as any client does.

With `--id` the id becomes the key of the record, and the header `postdate-key` contains the key of the message, so that
a later cancel with the same id goes to the same partition. Values are the bytes of the argument or of standard input,
unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from postdate.cli.commands import warn
from postdate.cli.options import (
    Command,
    Loader,
    as_bytes,
    configured,
    duration_text,
    header_pair,
    now_ms,
    output_option,
    requests_option,
)
from postdate.cli.request_options import TIMES, check, parsed, the_request_topic, the_time, time_options
from postdate.cli.requests.waiting import (
    CheckedRequest,
    Waiting,
    outcome_options,
    require_verdicts,
    send_and_report,
    waiting,
)
from postdate.kafka.interface import Partition
from postdate.sidecar.cluster.producing import DeliveryReport, UnsentRequest, accepted, look_up, partition_of
from postdate.sidecar.config.settings import Config
from postdate.wire import headers as names
from postdate.wire.headers import Headers
from postdate.wire.topics import OwnTopics

STDIN = "-"


def message_options(command: Command) -> Command:
    """Adds the options that messages and schedules share: --requests, the partition of the target, the key, the value
    and the headers."""
    for option in (
        click.option(
            "--target-partition",
            "partition",
            metavar="N",
            help="Partition of the target; absent: by the key, as Java producers choose.",
        ),
        click.option(
            "-H",
            "--header",
            "headers",
            type=header_pair,
            multiple=True,
            metavar="NAME=VALUE",
            help="Header of the message; repeatable; NAME alone: a null value.",
        ),
        click.option("--value", help="Value of the message; -: standard input; absent: a null value."),
        click.option("--key", help="Key of the message; absent: a null key."),
        requests_option(),
    ):
        command = option(command)
    return command


@click.command(short_help="Schedule one message.")
@configured
@click.option("--topic", required=True, metavar="TOPIC", help="Target topic of the message.")
@message_options
@time_options
@click.option(
    "--retry",
    metavar="POLICY",
    help="Retry policy instead of a time, such as base=1s,factor=2,attempts=12, or its name. Needs format_version = 2.",
)
@click.option(
    "--id", "request_id", metavar="ID", help="Id of the message; it replaces a pending message with the same id."
)
@click.option(
    "--grace",
    type=duration_text,
    metavar="DURATION",
    help="If the message would be later than this, write a dead letter instead.",
)
@click.option(
    "--window",
    type=duration_text,
    metavar="DURATION",
    help="Deliver within this time after the due time, at a moment that follows from the origin.",
)
@click.option(
    "--spread",
    metavar="even",
    help="Choose the emptiest moments of the window instead of moments that follow from the origin.",
)
@click.option(
    "--if-pending",
    metavar="replace|keep",
    help="If a message with the same id is pending: replace it, or keep it and end this request. [replace]",
)
@click.option(
    "--if-ended",
    metavar="drop",
    help="Drop this request if a message with the same id, also sent with this option, was delivered recently (setting "
    "ended_window_ms).",
)
@click.option(
    "--latest",
    type=duration_text,
    metavar="DURATION",
    help="Deliver at most this long after the first request, however often later ones with the same id replace it.",
)
@outcome_options
@output_option
def send(
    loader: Loader,
    requests: str | None,
    wait_delivery: bool,
    wait_verdict: bool,
    timeout: int | None,
    output: str,
    **message: Any,
) -> None:
    """Schedule one message, and print the origin of the request.

    The command checks the request by the rules of the sidecar, and does not send one that the sidecar would refuse
    (exit code 2). --wait-verdict also prints the first verdict: `replaced` with the origin of the replaced message,
    `kept` with the origin of the message that stays, `dropped` with the origin of the message that was delivered, or,
    with the setting verdicts = all, `accepted` if the message is stored for a long delay, otherwise its outcome.
    --wait-delivery prints the outcome and the lateness, which it reads from the dispatch log.

    \b
      postdate send -b localhost:9092 --topic orders --key 42 --value hello --delay 5s
    """
    if wait_verdict and wait_delivery:
        raise click.UsageError("give only one of --wait-verdict and --wait-delivery")
    requested = waiting(wait_verdict or wait_delivery, timeout)
    record = request_record_of(message)
    config = loader({"request_topics": (requests,) if requests else ()}).config
    # A message that cannot be delivered ends only when its retry budget is used up.
    delivery_timeout_ms = requested.timeout_ms + (config.dispatch.retry_budget_ms if timeout is None else 0)
    wait = Waiting(wait_verdict, requested.timeout_ms)
    send_request(config, record, str(message["topic"]), wait, output, delivery_timeout_ms if wait_delivery else None)


def send_request(
    config: Config,
    record: UnsentRequest,
    target: str,
    wait: Waiting,
    output: str,
    delivery_timeout_ms: int | None = None,
) -> None:
    """Checks a request by the rules of the sidecar, sends it, and reports it. `delivery_timeout_ms`: how long after the
    due time or the window the command waits for the delivery. If it is None, the command does not wait for the
    delivery.

    Raises ConfigError if the sidecar would refuse the request.
    """
    from postdate.cli.requests.named_policies import policies_for
    from postdate.cli.requests.waiting import FateWatch
    from postdate.sidecar.cluster.connection import admin_of, kafka_of
    from postdate.sidecar.ingest.request_rules import rules_of

    name = the_request_topic(config)
    check(config, name, record, 0)
    kafka, own = kafka_of(config), OwnTopics.of(name)
    with admin_of(kafka) as admin:
        live = look_up(admin, name, config.kafka.bootstrap_servers, (target, own.verdicts))
        if target not in live.existing:
            warn(
                f"target topic {target} does not exist now; without it the message becomes a dead letter when it is due"
            )
        require_verdicts(wait, config, name, live.existing)
        rules = rules_of(config, name, live.retention_ms)
        part = Partition(name, partition_of(record.key, live.partitions))
        request = accepted(rules, record, part.index, now_ms())
        policies = policies_for(kafka, admin, part, Partition(own.dispatch_log, part.index), request)

        def facts(delivery: DeliveryReport) -> Mapping[str, object]:
            sent = parsed(rules, record, part.index, delivery, policies)
            return {"topic": target, "due_ms": None if sent is None else sent.due_ms, "sent_ms": delivery.timestamp_ms}

        watch = FateWatch(kafka, admin, part) if delivery_timeout_ms is not None else None
        delivery = send_and_report(CheckedRequest(kafka, admin, part, record), wait, output, facts)
        if watch is not None and delivery_timeout_ms is not None:
            watch.report(delivery, parsed(rules, record, part.index, delivery, policies), delivery_timeout_ms, output)


def request_record_of(message: Mapping[str, Any]) -> UnsentRequest:
    """Returns the record that the options of `send` describe.

    Raises UsageError unless exactly one of --at, --delay, --level and --retry is given.
    """
    retry = message["retry"]
    if sum(message[name] is not None for name in (*TIMES, "retry")) != 1:
        raise click.UsageError("give exactly one of --at, --delay, --level, --retry")
    when = the_time(message) if retry is None else [(names.RETRY, as_bytes(retry))]
    return record_of(message, when)


def record_of(message: Mapping[str, Any], when: Headers) -> UnsentRequest:
    """Returns the request record of the message that the options describe. `when`: the headers of its time. Reads
    standard input if the value is `-`."""
    headers: Headers = [*message["headers"], *when]
    own = {
        names.TOPIC: message["topic"],
        names.ID: message["request_id"],
        names.PARTITION: message["partition"],
        names.GRACE: message["grace"],
        names.WINDOW: message["window"],
        names.SPREAD: message.get("spread"),
        names.IF_PENDING: message.get("if_pending"),
        names.IF_ENDED: message.get("if_ended"),
        names.LATEST: message.get("latest"),
    }
    headers += [(name, as_bytes(value)) for name, value in own.items() if value is not None]
    key = as_bytes(message["key"])
    if message["request_id"] is not None:
        headers.append((names.KEY, key))
        key = as_bytes(message["request_id"])
    value = message["value"]
    return UnsentRequest(key, sys.stdin.buffer.read() if value == STDIN else as_bytes(value), headers)
