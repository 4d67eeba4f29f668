"""SIGINT and SIGTERM for commands that must clean up: the first signal raises an exception, later ones are ignored."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived. The command must stop all processes that it started, and exit."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Raises Interrupted in the block at the first SIGINT or SIGTERM. Ignores later signals, since the program is
    already stopping. Requires the main thread."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        for ignored in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ignored, signal.SIG_IGN)
        raise Interrupted

    earlier = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
