"""The connection between one process and the cluster: every request and every response passes it.

A process may be cut off here, slowed down, or stopped after its request took effect and before it gets the response.
The link calls `at_step` with the name of the request and its progress (`sent` or `done`). `at_step` may raise to end
the process there, or let other processes run first.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from support.kafka_simulator.brokers import Node
from support.kafka_simulator.error_responses import no_answer, refusal
from support.kafka_simulator.faults import Faults
from support.kafka_simulator.time import SimTime

T = TypeVar("T")

#: Milliseconds: the latency in one direction without a fault.
LATENCY_MS = 0.3
#: Milliseconds: the maximum delay of a slow response. It exceeds the second after which the end of a transaction is
#: suspicious.
SLOW_MS_MAX = 3_000.0
#: Milliseconds: the time to detect a broken connection and to open another.
RECONNECT_MS = 50.0
#: Milliseconds: the interval at which a request to a frozen broker is checked.
_FROZEN_POLL_INTERVAL_MS = 100.0


def _nothing(_step: str) -> None:
    return


class Link:
    """The connection of one process. Until `cut_until_ms` it is cut: in both directions, or only for responses
    (`cut_answers`)."""

    def __init__(
        self,
        time: SimTime,
        faults: Faults | None = None,
        wait: Callable[[float], None] | None = None,
        at_step: Callable[[str], None] = _nothing,
    ) -> None:
        self.time = time
        self.faults = faults or Faults()
        self.wait = wait or time.wait
        self.at_step = at_step
        self.cut_until_ms = 0.0
        self.cut_answers = False

    def ask(self, what: str, request: Callable[[], T], node: Node | None = None, timeout_ms: float = 0.0) -> T:
        """Lets the cluster carry out `request`; returns its response. `node`: the broker that gets the request. A
        frozen broker carries it out after it resumes, and the client waits for at most `timeout_ms`.

        Raises KafkaException for an error response, or if there was no response, so that the outcome is unknown.
        """
        self.at_step(f"{what}.sent")
        if (self._is_cut() and not self.cut_answers) or self.faults.strikes("request-lost"):
            self.wait(RECONNECT_MS)
            raise no_answer()
        self.wait(LATENCY_MS)
        if node is not None and node.is_frozen:
            self._await(node, timeout_ms)
        refused: KafkaException | None = None
        answer: T | None = None
        try:
            answer = request()
        except KafkaException as error:
            refused = error
        self.at_step(f"{what}.done")
        self.wait(self.faults.between(0.0, SLOW_MS_MAX) if self.faults.strikes("slow") else LATENCY_MS)
        if self._is_cut() or self.faults.strikes("answer-lost"):
            self.wait(RECONNECT_MS)
            raise no_answer()
        if refused is not None:
            raise refused
        return answer  # type: ignore[return-value]  # T may itself admit None

    def _await(self, node: Node, timeout_ms: float) -> None:
        give_up_ms = self.time.now_ms + timeout_ms
        while node.is_frozen:
            if self.time.now_ms >= give_up_ms:
                raise refusal(KafkaError._TIMED_OUT, f"broker {node.number} does not answer")
            self.wait(min(_FROZEN_POLL_INTERVAL_MS, give_up_ms - self.time.now_ms))

    def _is_cut(self) -> bool:
        return self.time.now_ms < self.cut_until_ms
