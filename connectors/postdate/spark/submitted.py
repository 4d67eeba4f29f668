"""Shared by the programs for `spark-submit`: their start, and the options of their command lines.

An option sets a field of the job's options; if the option is absent, the default of the field applies. The sidecar's
parser of times reads only options, so no verdict depends on it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from postdate.spark.errors import JobUsageError
from postdate.wire.values.durations import parse_duration_ms, require_unit
from postdate.wire.values.instants import parse_time_ms


def run_program(
    parser: argparse.ArgumentParser,
    planned: Callable[[dict[str, Any]], Callable[[], int]],
    arguments: Sequence[str] | None,
) -> int:
    """Runs the job that `planned` creates from `arguments`; None stands for the arguments of the process. Returns the
    exit code of the job, or 2 if the options are invalid.

    Exits with 2 if `parser` rejects the arguments. Python puts the directory of a script first in its search path. This
    function removes the directory, so that no module of this package can be imported without its package name.
    """
    own = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != own]
    given = vars(parser.parse_args(arguments))
    try:
        properties = _client_properties(given.pop("command_config", None), given.pop("property", []))
        repeated = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
        job = planned(given | repeated | {"properties": properties})
    except (JobUsageError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return JobUsageError.exit_code
    return job()


class _Parser(argparse.ArgumentParser):
    """A parser whose error messages begin with `error:`, like those of all commands."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(JobUsageError.exit_code, f"error: {message}\n")


def program_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Returns a parser with the options of every job: the cluster (-b, -X, -F), and the form of the output."""
    parser = _Parser(prog=name, description=description, argument_default=argparse.SUPPRESS)
    parser.add_argument("-b", "--bootstrap-server", dest="bootstrap_servers", required=True, metavar="HOST:PORT")
    parser.add_argument("-X", dest="property", action="append", metavar="NAME=VALUE", help="Java client property")
    parser.add_argument("-F", "--command-config", metavar="FILE", help="Java client properties")
    parser.add_argument("--output", choices=("text", "json"))
    return parser


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for reading requests: level table and dialects."""
    parser.add_argument(
        "--levels", dest="levels_ms", type=levels, metavar="1s,5s,…", help="level table of the request topics"
    )
    parser.add_argument(
        "--dialect", dest="dialects", action="append", metavar="NAME", help="accepted on the request topics"
    )
    parser.add_argument("--default-target", metavar="TOPIC", help="target of requests in a dialect that names none")


def add_sending_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for sending requests: allowed targets, horizon, rate."""
    parser.add_argument("--horizon", dest="horizon_ms", type=duration, metavar="DURATION", help="default: 400d")
    parser.add_argument("--allow", action="append", metavar="PATTERN", help="allowed targets; default: all")
    parser.add_argument("--rate", type=int, metavar="N", help="requests a second")


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Returns the value of each NAME=VALUE by name. Raises JobUsageError for an argument of another form."""
    unclear = [text for text in texts if "=" not in text]
    if unclear:
        raise JobUsageError(f"{unclear[0]!r} is not NAME=VALUE.")
    return {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in texts)}


def instant(text: str) -> int:
    """Returns the epoch milliseconds that an option names."""
    return parse_time_ms(text, time.time_ns() // 1_000_000)


def duration(text: str) -> int:
    """Returns the milliseconds of a duration option."""
    try:
        return parse_duration_ms(require_unit(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None


def levels(text: str) -> tuple[int, ...]:
    """Returns a level table in milliseconds."""
    return tuple(parse_duration_ms(level.strip()) for level in text.split(","))


def _client_properties(file: str | None, more: Sequence[str]) -> dict[str, str]:
    """Returns the client properties in `file`, overridden by `more`, those of the command line.

    Raises JobUsageError if a property is not NAME=VALUE, OSError if the file cannot be read.
    """
    lines = Path(file).read_text().splitlines() if file else []
    return pairs([*(line for line in lines if line.strip() and not line.lstrip().startswith("#")), *more])
