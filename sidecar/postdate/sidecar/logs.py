"""Log lines of the daemon: one line an event on stderr, with time, level, shard thread and logger. Never a payload."""

from __future__ import annotations

import logging


def configure_logging(level: str) -> None:
    """Send the logs of this process to stderr from `level` on."""
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s [%(threadName)s] %(message)s", force=True
    )
