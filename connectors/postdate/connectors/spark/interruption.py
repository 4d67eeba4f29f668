"""Ctrl-C (SIGINT) and SIGTERM while Spark works: the program unwinds, says one sentence and leaves no JVM behind.

PySpark's own handler asks the JVM to cancel its jobs from inside the very call that is being interrupted, which fails
with a traceback of the bridge to it; here the signal only raises, and stopping the session ends its jobs. PySpark's
clean-up of the call that was cut off uses the same connection once more and may fail with the bridge's own error in
place of KeyboardInterrupt, or swallow it: what a signal began is therefore remembered. Spark's JVM ignores SIGINT by
itself and ends when the pipe from this process closes. Requires the main thread, else does nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_asked = threading.Event()


def _interrupt(number: int, frame: FrameType | None) -> None:
    _asked.set()
    logging.disable(logging.CRITICAL)  # the bridge logs a traceback for each call that is cut off now
    raise KeyboardInterrupt


def arm() -> None:
    """Makes the signals raise KeyboardInterrupt; again after a session has started, which sets a handler of its own."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, _interrupt)


def is_interrupted() -> bool:
    """Whether a signal came in the context of `interruptible` that is open now."""
    return _asked.is_set()


@contextmanager
def interruptible() -> Iterator[None]:
    """A context that a signal ends with KeyboardInterrupt, and after which everything is as it was."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.getsignal(number) for number in _SIGNALS}
    _asked.clear()
    arm()
    try:
        yield
        if is_interrupted():
            raise KeyboardInterrupt
    except Exception:
        if is_interrupted():
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
        logging.disable(logging.NOTSET)


@contextmanager
def undisturbed() -> Iterator[None]:
    """A context in which the signals change nothing: what was started is being stopped already."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def children() -> frozenset[int]:
    """The process ids of this process's children; none on a system that does not tell."""
    lists = Path("/proc/self/task").glob("*/children")
    found: set[int] = set()
    for path in lists:
        with suppress(OSError):  # a thread may end between listing and reading
            found.update(int(pid) for pid in path.read_text().split())
    return frozenset(found)


def end_children_since(earlier: frozenset[int]) -> None:
    """Ends the children that are not among `earlier`: a JVM that was still starting notices no closed pipe yet."""
    for pid in children() - earlier:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
