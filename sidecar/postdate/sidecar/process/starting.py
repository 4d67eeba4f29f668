"""The start of a process while brokers are unavailable: it waits, alive but not ready, until they answer.

The wait also ends if the process is asked to stop, or at any error except Unreachable: a broker does not accept the
credentials or the TLS handshake, a right is missing, a topic rule is broken. Each attempt uses a new client. An older
client may keep sending requests to a broker that has frozen; a new client cannot connect to that broker, and so uses
another one.

Thread rule: the main thread calls `wait_for_kafka` and stays free for signals; each attempt runs in a separate thread.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from postdate.kafka.errors import KafkaFault, NotAuthorized, Unreachable
from postdate.kafka.interface import Admin, Kafka
from postdate.sidecar.cluster.connection_errors import LISTEN_AFTER_S
from postdate.sidecar.errors import ConfigError
from postdate.sidecar.group.poller import Poller
from postdate.sidecar.process.limits import START_PAUSE_S_MAX, START_PAUSE_S_MIN

log = logging.getLogger(__name__)

T = TypeVar("T")

_TICK_S: Final = 0.1


def wait_for_kafka(kafka: Kafka, request: Callable[[Admin], T], poller: Poller) -> T | None:
    """Returns the result of `request` once the brokers answer; None if the process is asked to stop before that.

    Logs the cause of each failed attempt, and sets it as `poller.waits_for` for probes. Raises ConfigError if a broker
    refuses this process, and every error of `request` or of the new client except Unreachable.
    """
    pause_s, began = START_PAUSE_S_MIN, time.monotonic()
    while not poller.is_stopping:
        answer, refusal = _attempt(kafka, request, poller)
        if not answer.done():
            return None
        try:
            result = answer.result()
        except Unreachable as fault:
            why = str(refusal or fault)
        else:
            poller.waits_for = ""
            return result
        poller.waits_for = why
        log.warning(
            "Kafka does not answer for %.0f s: %s. This process waits; the next attempt is in %.0f s",
            time.monotonic() - began,
            why,
            pause_s,
        )
        _wait(poller, pause_s)
        pause_s = min(2 * pause_s, START_PAUSE_S_MAX)
    return None


def _attempt(kafka: Kafka, request: Callable[[Admin], T], poller: Poller) -> tuple[Future[T], Unreachable | None]:
    """Returns the future answer, and a connection fault if one was found while the answer was late. The future is done
    unless the process is asked to stop. Raises ConfigError if a broker refuses this process."""
    answer: Future[T] = Future()

    def send_request() -> None:
        try:
            admin = kafka.admin()
            try:
                answer.set_result(request(admin))
            finally:
                admin.close()
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=send_request, name="start", daemon=True).start()
    concurrent.futures.wait([answer], LISTEN_AFTER_S)

    def is_over() -> bool:
        poller.turned_at = time.monotonic()
        return answer.done() or poller.is_stopping

    fault: KafkaFault | None = None
    while not is_over():
        # Each call listens for some seconds; on a busy machine an error may arrive only during a later call.
        fault = fault or kafka.connection_fault(is_over)
        if isinstance(fault, NotAuthorized) and not answer.done():
            raise ConfigError(
                f"Kafka refuses this process: {fault}. Check kafka.bootstrap_servers and the properties security.*, "
                "sasl.* and ssl.* in kafka.common"
            )
        concurrent.futures.wait([answer], _TICK_S)
    return answer, fault if isinstance(fault, Unreachable) else None


def _wait(poller: Poller, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until and not poller.is_stopping:
        poller.turned_at = now
        time.sleep(_TICK_S)
