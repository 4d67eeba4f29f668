"""Prints librdkafka's connection errors while a command waits for Kafka, and ends the wait if no broker can be reached.

The library retries until its time-out. That is right for a broker that is about to start, but if an address or a
password is mistyped, the user sees no message meanwhile. So if the first request takes longer than `LISTEN_AFTER_S`,
another client listens for connection errors. If it reports one, the request gets a few seconds more.

Thread rule: the request runs in a separate thread, which ends with its client.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from postdate.kafka.errors import KafkaFault

T = TypeVar("T")

LISTEN_AFTER_S: Final = 1.0
"""A running cluster answers within this time. If a broker starts within this time, no message is printed."""

RESTART_TIMEOUT_S: Final = 3.0
"""A broker that is being restarted often listens again within this time. A wrong address never answers, so a longer
wait would be useless."""


def answered(
    request: Callable[[], T],
    connection_fault: Callable[[Callable[[], bool]], KafkaFault | None],
    report: Callable[[str], None],
    restart_timeout_s: float = RESTART_TIMEOUT_S,
) -> T:
    """Returns the result of `request`. Raises its error, or the result of `connection_fault` if no broker can be
    reached.

    `connection_fault` is called if the request takes longer than `LISTEN_AFTER_S`, with a function that returns True
    once the request is over. `report` gets the text of the fault.
    """
    answer: Future[T] = Future()

    def send_request() -> None:
        try:
            answer.set_result(request())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=send_request, name="first request", daemon=True).start()
    if concurrent.futures.wait([answer], LISTEN_AFTER_S).not_done:
        fault = connection_fault(answer.done)
        if fault is not None and not answer.done():
            report(f"no answer from Kafka yet, still trying: {fault}")
            if concurrent.futures.wait([answer], restart_timeout_s).not_done:
                raise fault
    return answer.result()
