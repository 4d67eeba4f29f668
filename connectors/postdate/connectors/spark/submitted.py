"""What the programs for `spark-submit` have in common on their command lines.

The sidecar's own reading of times serves options alone; no verdict comes from it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from postdate.connectors.spark.errors import AuditUsageError
from postdate.connectors.wire.durations import parse_duration_ms
from postdate.connectors.wire.instants import parse_instant_ms


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Adds how the cluster is reached: -b, -X, -F."""
    parser.add_argument("-b", "--bootstrap-server", required=True, metavar="HOST:PORT")
    parser.add_argument("-X", dest="property", action="append", default=[], metavar="NAME=VALUE", help="Java client's")
    parser.add_argument("-F", "--command-config", metavar="FILE", help="Java client properties")


def client_properties(given: argparse.Namespace) -> dict[str, str]:
    """Client properties of the file, then of the command line. Raises AuditUsageError, OSError."""
    lines = Path(given.command_config).read_text().splitlines() if given.command_config else []
    return pairs([line for line in lines if line.strip() and not line.lstrip().startswith("#")] + given.property)


def pairs(texts: list[str]) -> dict[str, str]:
    """Each NAME=VALUE by its name. Raises AuditUsageError: one is none."""
    unclear = [text for text in texts if "=" not in text]
    if unclear:
        raise AuditUsageError(f"{unclear[0]!r} is not NAME=VALUE.")
    return {name.strip(): value.strip() for name, _, value in (text.partition("=") for text in texts)}


def instant(text: str) -> int:
    """Epoch milliseconds of an option."""
    return parse_instant_ms(text)


def duration(text: str) -> int:
    """Milliseconds of an option."""
    return parse_duration_ms(text)
