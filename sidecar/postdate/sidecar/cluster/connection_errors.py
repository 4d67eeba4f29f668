"""Prints librdkafka's connection errors while a command waits for Kafka.

The library retries until its time-out. That is right for a broker that is about to start, but a mistyped address or
password shows nothing meanwhile. So during the first request, another client listens for connection errors. It decides
nothing: the request continues, and ends with its own error.

Thread rule: the listener is a separate thread, which ends before the `with` block does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LISTEN_AFTER_S: Final = 1.0
"""A cluster that runs has answered by then, and nobody is told of a broker that was only just not up."""


@contextmanager
def reported_connection_errors(
    complaint: Callable[[Callable[[], bool]], str], tell: Callable[[str], None]
) -> Iterator[None]:
    """Passes the text of `complaint` to `tell` if the block takes longer than a moment. `complaint` is called with a
    function that returns whether the block is over."""
    over = threading.Event()

    def listen() -> None:
        if over.wait(LISTEN_AFTER_S):
            return
        why = complaint(over.is_set)
        if why and not over.is_set():
            tell(f"no answer from Kafka yet, still trying: {why}")

    listener = threading.Thread(target=listen, name="silence")
    listener.start()
    try:
        yield
    finally:
        over.set()
        listener.join()
