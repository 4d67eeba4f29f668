"""SIGINT and SIGTERM for commands that must tidy up: the first one unwinds the program, the rest change nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived: stop what was started and end well."""


@contextmanager
def interruptible() -> Iterator[None]:
    """The first SIGINT or SIGTERM raises Interrupted where the program stands; later ones change nothing, since
    everything is being stopped already. Requires the main thread."""

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
