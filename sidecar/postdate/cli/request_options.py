"""Converts the options of a command into the headers of a request.

The time of --at becomes epoch milliseconds. The text of --delay and of --level becomes the value of a header unchanged,
and the request parser interprets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from postdate.cli.options import Command, as_bytes, duration_text, now_ms, time_ms
from postdate.sidecar.cluster.producing import DeliveryReport, UnsentRequest, accepted
from postdate.sidecar.config.settings import Config
from postdate.sidecar.errors import ConfigError
from postdate.wire import headers as names
from postdate.wire.errors import FormatVersionNeeded, RequestRefused
from postdate.wire.headers import Headers
from postdate.wire.requests.parser import parse_request
from postdate.wire.requests.request import Request
from postdate.wire.requests.retry_policies import NamedPolicies
from postdate.wire.requests.returns import NO_POLICIES, schedule_return
from postdate.wire.requests.rules import RequestRules

TIMES = {"at": names.AT, "delay": names.DELAY, "level": names.LEVEL}


def time_options(command: Command) -> Command:
    """Adds --at, --delay and --level; `time_headers` accepts at most one of them."""
    for option in (
        click.option("--level", metavar="N", help="Delay level; 0: immediately."),
        click.option("--delay", type=duration_text, metavar="DURATION", help="Delay: 1500ms, 90s, 2h30m, 1d12h, PT5M."),
        click.option(
            "--at",
            type=time_ms,
            metavar="TIME",
            help="Due time: RFC 3339 such as 2030-01-31T08:00:00Z, epoch milliseconds, now, or 10s (from now).",
        ),
    ):
        command = option(command)
    return command


def time_headers(options: Mapping[str, Any]) -> Headers:
    """Returns the header with the due time; no header if the options have no time. Raises UsageError for several
    times."""
    given = [(header, as_bytes(str(options[name]))) for name, header in TIMES.items() if options[name] is not None]
    if len(given) > 1:
        raise click.UsageError("give only one of --at, --delay, --level")
    return given


def the_time(options: Mapping[str, Any]) -> Headers:
    """Returns the header with the due time. Raises UsageError unless exactly one of --at, --delay, --level is given."""
    if sum(options[name] is not None for name in TIMES) != 1:
        raise click.UsageError("give exactly one of --at, --delay, --level")
    return time_headers(options)


def the_request_topic(config: Config) -> str:
    """Returns the only request topic of this configuration. Raises ConfigError if there are several."""
    if len(config.request_topics) > 1:
        raise ConfigError(f"--requests is needed: {', '.join(config.request_topic_names)} are configured")
    return config.request_topic_names[0]


def check(config: Config, topic: str, record: UnsentRequest, partition: int) -> None:
    """Raises ConfigError if a sidecar with the settings of this command would refuse the request."""
    from postdate.sidecar.ingest.request_rules import rules_of

    rules = rules_of(config, topic)
    try:
        accepted(rules, record, partition, now_ms())
    except ConfigError as error:
        if not isinstance(error.__cause__, FormatVersionNeeded):
            raise
        mine = f"this command has {rules.format_version}: set POSTDATE_FORMAT_VERSION to the number of the sidecars"
        raise ConfigError(f"{error.__cause__.need}, and {mine}") from error


def parsed(
    rules: RequestRules,
    record: UnsentRequest,
    partition: int,
    delivery: DeliveryReport,
    policies: NamedPolicies = NO_POLICIES,
) -> Request | None:
    """Returns a request that was sent, parsed with the timestamp of the broker.

    Returns None if the sidecar will refuse the request because the clock of the broker differs from that of this
    machine. Also returns None if the request names a retry policy that `policies` does not contain.
    """
    at_ms = delivery.timestamp_ms
    try:
        request = parse_request(rules, partition, at_ms, record.key, record.headers, record.value is None)
        if request.retry is not None:
            request = schedule_return(rules, request, partition, delivery.offset, at_ms, policies)
    except RequestRefused:
        return None
    return request


def due_ms(rules: RequestRules, record: UnsentRequest, partition: int, delivery: DeliveryReport) -> int | None:
    """Returns the due time of a control that was sent, epoch ms; None if `parsed` returns None."""
    request = parsed(rules, record, partition, delivery)
    return None if request is None else request.due_ms
