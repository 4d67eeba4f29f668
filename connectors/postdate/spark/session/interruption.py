"""Handles Ctrl-C (SIGINT) and SIGTERM while Spark works: the program unwinds, prints one sentence and leaves no JVM.

PySpark's own handler asks the JVM to cancel its jobs from inside the interrupted call, which fails with a traceback of
Py4J. Here the signal only raises an exception, and stopping the session ends the jobs. PySpark's clean-up of the
interrupted call uses the same connection once more, and may raise a Py4J error instead of KeyboardInterrupt, or
suppress it. So this module remembers that there was a signal. Spark's JVM ignores SIGINT and ends when the pipe from
this process closes. Requires the main thread, otherwise does nothing.
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
    """Makes the signals raise KeyboardInterrupt. Must be called again after a session has started, which sets its own
    handler."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, _interrupt)


def is_interrupted() -> bool:
    """Whether a signal arrived in the present context of `interruptible`."""
    return _asked.is_set()


@contextmanager
def interruptible() -> Iterator[None]:
    """A context that a signal ends with KeyboardInterrupt; afterwards the previous handlers are restored."""
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
    """A context in which the signals are ignored, since resources are already being released."""
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
    """The process ids of this process's children; empty on a system that does not list them."""
    lists = Path("/proc/self/task").glob("*/children")
    found: set[int] = set()
    for path in lists:
        with suppress(OSError):  # a thread may end between listing and reading
            found.update(int(pid) for pid in path.read_text().split())
    return frozenset(found)


def end_children_since(earlier: frozenset[int]) -> None:
    """Ends the children that are not among `earlier`: a JVM that is still starting does not notice the closed pipe
    yet."""
    for pid in children() - earlier:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
