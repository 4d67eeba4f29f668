"""SIGINT and SIGTERM for commands that must clean up: the first signal unwinds the program, later ones are ignored."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived: stop all started processes and exit."""


@contextmanager
def interruptible() -> Iterator[None]:
    """The first SIGINT or SIGTERM raises Interrupted in the running code. Later ones are ignored, since the program is
    already stopping. Requires the main thread."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted

    earlier = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
