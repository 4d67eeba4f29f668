"""A word for a person who waits for Kafka: why it does not answer, where the client library knows.

The library tries for as long as it was given, which is right for a broker that is about to start and looks like
nothing at all where an address or a password is mistyped. So while a first question waits, another client listens for
what goes wrong. It decides nothing: the question goes on, and its own error ends it.

Thread rule: who listens is a thread of its own, which is over when the `with` block has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LISTEN_AFTER_S: Final = 1.0
"""A cluster that runs has answered by then, and nobody is told of a broker that was only just not up."""


@contextmanager
def told_of_silence(complaint: Callable[[Callable[[], bool]], str], tell: Callable[[str], None]) -> Iterator[None]:
    """Tells what `complaint` says where the block takes longer than a moment; that one is given what says whether the
    block is over."""
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
