"""Releases a shard's timer index: closes it, and moves its directory aside.

Thread rule: functions, on the shard's thread.
"""

from __future__ import annotations

import logging
from pathlib import Path

from postdate.sidecar.takeover import opening
from postdate.wheel.errors import WheelError, release_frames
from postdate.wheel.index import TimerIndex

log = logging.getLogger(__name__)


def close_index(shard: str, index: TimerIndex, clean: bool = True) -> None:
    """Close the index. A failure is only logged: the index is released anyway, and checked when it is opened again."""
    try:
        index.close(clean)
    except WheelError as fault:
        release_frames(fault)
        log.error("shard %s: the timer index was not closed well: %s", shard, fault)


def put_aside(shard: str, directory: Path, why: str) -> None:
    """Keep the directory of a closed index for the operator; the next takeover rebuilds the index from the topics."""
    if directory.exists():
        log.warning("shard %s: kept as %s, rebuilding", shard, opening.keep(directory, why))
