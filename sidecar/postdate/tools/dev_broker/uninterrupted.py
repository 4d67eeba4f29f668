"""Defers SIGINT and SIGTERM while a process is started, so that every started process will be stopped.

A signal handler may raise between the start of a child and the assignment of the child to a variable. Blocking the
signals instead does not help: the child inherits the mask, and any other thread of this process accepts the signal in
place of the main thread.
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
    """Runs the block to its end. The first SIGINT or SIGTERM that arrives meanwhile is handled afterwards; later ones
    are dropped.

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
            # None stands for a handler that Python did not install, and cannot restore.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if came:
            signal.raise_signal(came[0])
