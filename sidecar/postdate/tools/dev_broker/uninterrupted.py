"""Defers SIGINT and SIGTERM while a process is started, so that every started process will be stopped.

A handler that raises can do so between the start of a child and the assignment that remembers it. Blocking the signals
instead would not do: the child inherits the mask, and any other thread of ours takes the signal for the main one.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_HELD = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Runs the block to its end; a signal that arrives meanwhile is handled afterwards.

    Only for short blocks. Signal handlers run only in the main thread, so other threads defer nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    earlier = {number: signal.signal(number, note) for number in _HELD}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            # None: a handler that Python did not install, and cannot put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if came:
            signal.raise_signal(came[0])
