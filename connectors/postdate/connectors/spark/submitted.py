"""What the programs for `spark-submit` have in common: how they start, and options of their command lines.

The sidecar's own reading of times serves options alone; no verdict comes from it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from postdate.connectors.spark.errors import JobUsageError
from postdate.connectors.wire.durations import parse_duration_ms
from postdate.connectors.wire.instants import parse_instant_ms


def run_program(
    parser: argparse.ArgumentParser,
    planned: Callable[[argparse.Namespace], Callable[[], int]],
    arguments: Sequence[str] | None,
) -> int:
    """Runs the job that is `planned` from the arguments (None: those of the process); returns its exit code, 2 where
    they make no sense.

    Python puts a script's own directory first in its search path; it is taken out, so that nothing that is loaded later
    finds a module of this package under a name without a package.
    """
    own = Path(__file__).resolve().parent
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() != own]
    given = parser.parse_args(arguments)
    try:
        job = planned(given)
    except (JobUsageError, OSError) as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return JobUsageError.exit_code
    return job()


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Adds how the cluster is reached: -b, -X, -F."""
    parser.add_argument("-b", "--bootstrap-server", required=True, metavar="HOST:PORT")
    parser.add_argument("-X", dest="property", action="append", default=[], metavar="NAME=VALUE", help="Java client's")
    parser.add_argument("-F", "--command-config", metavar="FILE", help="Java client properties")


def add_meaning_options(parser: argparse.ArgumentParser) -> None:
    """Adds what says how requests are to be understood: level table and dialects."""
    parser.add_argument("--levels", type=levels, metavar="1s,5s,…", help="level table of the request topics")
    parser.add_argument("--dialect", action="append", default=[], metavar="NAME", help="spoken on the request topics")
    parser.add_argument(
        "--default-target", default="", metavar="TOPIC", help="of requests in a dialect that names none"
    )


def client_properties(given: argparse.Namespace) -> dict[str, str]:
    """Client properties of the file, then of the command line. Raises JobUsageError, OSError."""
    lines = Path(given.command_config).read_text().splitlines() if given.command_config else []
    return pairs([line for line in lines if line.strip() and not line.lstrip().startswith("#")] + given.property)


def pairs(texts: list[str]) -> dict[str, str]:
    """Each NAME=VALUE by its name. Raises JobUsageError: one is none."""
    unclear = [text for text in texts if "=" not in text]
    if unclear:
        raise JobUsageError(f"{unclear[0]!r} is not NAME=VALUE.")
    return {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in texts)}


def instant(text: str) -> int:
    """Epoch milliseconds of an option."""
    return parse_instant_ms(text)


def duration(text: str) -> int:
    """Milliseconds of an option."""
    return parse_duration_ms(text)


def levels(text: str) -> tuple[int, ...]:
    """A level table in milliseconds."""
    return tuple(parse_duration_ms(level.strip()) for level in text.split(","))
