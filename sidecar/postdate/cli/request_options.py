"""What the options of a command say of a request, as headers.

Texts of the shell become header values as they are: what they mean is said by the parser alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from postdate.cli.options import as_bytes, time_ms
from postdate.sidecar.cluster.producing import RequestRecord
from postdate.sidecar.config.settings import Config
from postdate.sidecar.errors import ConfigError
from postdate.wire import headers as names
from postdate.wire.errors import RequestRefused
from postdate.wire.headers import Headers
from postdate.wire.requests import RequestRules, parse_request

Command = TypeVar("Command", bound=Callable[..., Any])
TIMES = {"at": names.AT, "delay": names.DELAY, "level": names.LEVEL}


def time_options(command: Command) -> Command:
    """Add --at, --delay and --level, of which `time_headers` takes one."""
    for option in (
        click.option("--level", metavar="N", help="Delay level; 0: immediately."),
        click.option("--delay", metavar="DURATION", help="Delay: 1500ms, 90s, 2h30m, 1d12h, PT5M."),
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
    """The header of the one time among these options, none where there is none. Raises UsageError: several."""
    given = [(header, as_bytes(str(options[name]))) for name, header in TIMES.items() if options[name] is not None]
    if len(given) > 1:
        raise click.UsageError("give only one of --at, --delay, --level")
    return given


def the_time(options: Mapping[str, Any]) -> Headers:
    """The header that says when. Raises UsageError: not exactly one of --at, --delay, --level."""
    if sum(options[name] is not None for name in TIMES) != 1:
        raise click.UsageError("give exactly one of --at, --delay, --level")
    return time_headers(options)


def the_request_topic(config: Config) -> str:
    """The one request topic of this configuration. Raises ConfigError: there are several to choose from."""
    if len(config.request_topics) > 1:
        raise ConfigError(f"--requests is needed: {', '.join(config.request_topic_names)} are configured")
    return config.request_topic_names[0]


def due_ms(rules: RequestRules, draft: RequestRecord, partition: int, timestamp_ms: int) -> int | None:
    """When a request with the broker's timestamp is due, epoch ms; None: it will be refused after all, since the
    broker's clock is another than this machine's."""
    try:
        return parse_request(rules, partition, timestamp_ms, draft.key, draft.headers, draft.value is None).due_ms
    except RequestRefused:
        return None
