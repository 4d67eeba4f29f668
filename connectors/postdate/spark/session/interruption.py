"""Handles Ctrl-C (SIGINT) and SIGTERM while Spark works: the program unwinds, prints one sentence and leaves no JVM
behind.

PySpark's handler calls the JVM from inside the interrupted call, to cancel the jobs. This fails with a Py4J traceback.
The handler of this module only raises an exception, and stopping the session ends the jobs. PySpark's clean-up of the
interrupted call uses the same connection again, and may raise a Py4J error instead of KeyboardInterrupt, or suppress
KeyboardInterrupt. So this module remembers the signal. Spark's JVM ignores SIGINT and ends when the pipe from this
process closes. Outside the main thread, no handler changes.
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
_signalled = threading.Event()


def _interrupt(number: int, frame: FrameType | None) -> None:
    _signalled.set()
    logging.disable(logging.CRITICAL)  # Py4J logs a traceback for each interrupted call
    raise KeyboardInterrupt


def arm() -> None:
    """Makes the signals raise KeyboardInterrupt. Must be called again after the start of a session, since PySpark
    installs its own handler then."""
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, _interrupt)


def is_interrupted() -> bool:
    """True if a signal arrived in the current context of `interruptible`."""
    return _signalled.is_set()


@contextmanager
def interruptible() -> Iterator[None]:
    """Makes a signal end the context with KeyboardInterrupt; restores the previous handlers at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = {number: signal.getsignal(number) for number in _SIGNALS}
    _signalled.clear()
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
def signals_ignored() -> Iterator[None]:
    """Ignores the signals in the context. The context is for releasing resources after a signal."""
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
    """Returns the process ids of this process's children; empty on a system that does not list them."""
    lists = Path("/proc/self/task").glob("*/children")
    pids: set[int] = set()
    for path in lists:
        with suppress(OSError):  # a thread may end between listing and reading
            pids.update(int(pid) for pid in path.read_text().split())
    return frozenset(pids)


def end_children_since(earlier: frozenset[int]) -> None:
    """Terminates the children that are not in `earlier`. A JVM that is still starting does not yet notice that the pipe
    has closed."""
    for pid in children() - earlier:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
