"""Options that many commands share, and the configuration that a command loads from them.

-b, -X and -F are named as in kcat, and --bootstrap-server and --command-config as in Kafka's own tools. A command
decorated with `@configured` gets a `Loader` as its first argument, and calls it with the values of its other options,
by the path of each setting.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from postdate.kafka.errors import Unreachable
from postdate.sidecar.config.loader import Flags, Loaded, load
from postdate.sidecar.errors import TransientError
from postdate.wire.topics import DEFAULT_REQUESTS
from postdate.wire.values.durations import parse_duration_ms, require_unit
from postdate.wire.values.instants import parse_time_ms, resolve_time

Command = TypeVar("Command", bound=Callable[..., Any])
Loader = Callable[[Mapping[str, object]], Loaded]


def name_value(text: str) -> tuple[str, str]:
    """Returns the pair of `name=value`; the value may contain equal signs. Raises BadParameter if there is no equal
    sign, or no name."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not name=value")
    return name, value


def header_pair(text: str) -> tuple[str, bytes | None]:
    """Returns the record header of `name=value`, or of `name` alone for a null value. Raises BadParameter if there is
    no name."""
    name, equals, value = text.partition("=")
    if not name:
        raise click.BadParameter(f"{text!r} has no name")
    return name, as_bytes(value) if equals else None


def as_bytes(text: str | None) -> bytes | None:
    """Returns the bytes that the shell passed for an argument, even if they are not UTF-8."""
    return None if text is None else text.encode("utf-8", "surrogateescape")


def now_ms() -> int:
    """Returns the time of this machine's clock, epoch ms."""
    return time.time_ns() // 1_000_000


def time_ms(text: str) -> int:
    """Parses a time, absolute or relative to now, as epoch ms. Raises BadParameter if it is malformed."""
    return _parsed_time_ms(text, "now, 10s or -2h")


def _parsed_time_ms(text: str, examples: str) -> int:
    try:
        return parse_time_ms(text, now_ms(), examples)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from None


def time_text(text: str) -> str:
    """Returns a time as the text of a header (`resolve_time`). Errors about the header then quote this text, not
    milliseconds. Raises BadParameter as `time_ms` does."""
    try:
        return resolve_time(text, now_ms())
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from None


def past_ms(text: str) -> int:
    """Parses a time for a search in the past, as `time_ms` does. Also raises BadParameter for a duration without a
    minus sign, which would be a time in the future."""
    try:
        is_ahead = not text.isdigit() and parse_duration_ms(text) > 0
    except ValueError:
        is_ahead = False
    if is_ahead:
        raise click.BadParameter(f"{text!r} is in the future; write -{text} for {text} ago")
    return _parsed_time_ms(text, "now or -2h")


_TIME_FORMS: Mapping[Callable[[str], int], str] = {
    time_ms: "RFC 3339, epoch milliseconds, now, 10s (from now) or -2h (ago)",
    past_ms: "RFC 3339, epoch milliseconds, now or -2h (ago)",
}
"""The accepted forms of a TIME, by the function that parses it."""


def duration_text(text: str) -> str:
    """Returns a duration, or an interval and its phase, as the text of a header. Raises BadParameter for a number
    without a unit, except 0."""
    try:
        return "/".join(map(require_unit, text.split("/")))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from None


def duration_ms(text: str) -> int:
    """Parses a duration as milliseconds. Raises BadParameter if it is malformed."""
    try:
        return parse_duration_ms(require_unit(text))
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from None


def seconds_option(name: str, default: str, least: str, most: str, text: str) -> Callable[[Command], Command]:
    """Returns a decorator that adds an option, which takes a duration and passes it in seconds. A number without a unit
    counts as seconds, for compatibility with earlier versions. `least`, `most`: the bounds of the option, as
    durations."""
    bounds_ms = parse_duration_ms(least), parse_duration_ms(most)

    def seconds(value: str) -> float:
        try:
            length_ms = parse_duration_ms(value if value[-1:].isalpha() else f"{value}s")
        except ValueError as error:
            raise click.BadParameter(f"{value!r} {error}") from None
        if not bounds_ms[0] <= length_ms <= bounds_ms[1]:
            raise click.BadParameter(f"{value!r} is not between {least} and {most}")
        return length_ms / 1000

    text = f"{text} {least} to {most}."
    return click.option(name, type=seconds, default=default, show_default=True, metavar="DURATION", help=text)


class Renamed(click.Option):
    """An option whose help shows only its first name. The other names are former ones, which stay valid."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names, self.opts = self.opts, self.opts[:1]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = names


def from_option(text: str, *names: str, kind: Callable[[str], int] = past_ms) -> Callable[[Command], Command]:
    """Returns a decorator that adds the option --from of a time range. `names`: its former names, then the name of the
    parameter."""
    text = f"{text} TIME: {_TIME_FORMS[kind]}."
    return click.option("--from", *names, cls=Renamed, type=kind, metavar="TIME", help=text)


def until_option(text: str, *names: str, kind: Callable[[str], int] = past_ms) -> Callable[[Command], Command]:
    """Returns a decorator that adds the option --until of a time range, exclusive. `names` as in `from_option`."""
    return click.option("--until", *names, cls=Renamed, type=kind, metavar="TIME", help=text)


def requests_option(text: str = "Request topic", multiple: bool = False) -> Callable[[Command], Command]:
    """Returns a decorator that adds the option --requests, for a command whose default is the configured request
    topics."""
    text = f"{text}{'; repeatable' if multiple else ''}. [{DEFAULT_REQUESTS}]"
    return click.option("--requests", multiple=multiple, metavar="TOPIC", help=text)


def data_option(command: Command) -> Command:
    """Adds --data, passed as `data_dir`."""
    text = "Directory of the timer indexes, a disposable copy of data in Kafka. [~/.local/state/postdate]"
    return click.option("--data", "data_dir", metavar="DIR", help=text)(command)


def configured(command: Command) -> Callable[..., Any]:
    """Adds -b, -X, -F and --config to a command, and gives it a `Loader` as its first argument."""
    return _configured(command, needs_kafka=True)


def configured_without_kafka(command: Command) -> Callable[..., Any]:
    """Does the same as `configured` for a command that needs no broker. The options -b, -X and -F are valid, so that an
    operator can pass the same options to each command, but the help does not show them."""
    return _configured(command, needs_kafka=False)


def _configured(command: Command, needs_kafka: bool) -> Callable[..., Any]:
    @click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap",
        metavar="HOST:PORT",
        hidden=not needs_kafka,
        help="Address of one or more brokers, comma separated.",
    )
    @click.option(
        "-X",
        "properties",
        type=name_value,
        multiple=True,
        metavar="NAME=VALUE",
        hidden=not needs_kafka,
        help="librdkafka property; repeatable.",
    )
    @click.option(
        "-F",
        "--command-config",
        "properties_file",
        type=click.Path(path_type=Path),
        hidden=not needs_kafka,
        help="File of librdkafka properties, one name=value per line.",
    )
    @click.option(
        "--config", "config_file", type=click.Path(path_type=Path), help="Configuration file of Postdate (TOML)."
    )
    @functools.wraps(command)
    def wrapped(
        bootstrap: str | None,
        properties: tuple[tuple[str, str], ...],
        properties_file: Path | None,
        config_file: Path | None,
        **rest: Any,
    ) -> Any:
        servers = ""

        def loader(values: Mapping[str, object]) -> Loaded:
            nonlocal servers
            values = {"kafka.bootstrap_servers": bootstrap, **values}
            loaded = load(Flags(config_file, properties_file, properties, values), os.environ)
            servers = loaded.config.kafka.bootstrap_servers
            return loaded

        try:
            return command(loader, **rest)
        except Unreachable as fault:
            raise TransientError(f"no answer from {servers}; is that the address of a broker? ({fault})") from fault

    return wrapped


def max_option(listed: str) -> Callable[[Command], Command]:
    """Returns a decorator that adds `--max`, passed as `entries_max`. `listed`: the plural noun in its help."""
    return click.option(
        "--max",
        "entries_max",
        type=click.IntRange(1),
        default=100,
        show_default=True,
        metavar="N",
        help=f"List at most N {listed}.",
    )


def output_option(command: Command) -> Command:
    """Adds `--output json|text`; the command gets it as `output`."""
    return click.option(
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Format on stdout; json: one object per line.",
    )(command)
