"""What lies between one process and the cluster: every request and every answer goes through it.

A process may be cut off here, slowed down, or stopped between the moment at which its request was carried out and the
moment at which it learns of it: `at_step` is called with the name of the request and where it is, and may raise to end
the process there, or let others run first.

Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from postdate.connectors.kafka.sim.answers import no_answer
from postdate.connectors.kafka.sim.faults import Faults
from postdate.connectors.kafka.sim.time import SimTime

T = TypeVar("T")

#: ms. One way through a calm network.
LATENCY_MS = 0.3
#: ms. The longest that a slow answer takes: beyond the second after which an end of a transaction is suspicious.
SLOW_MS_MAX = 3_000.0
#: ms. How long it takes to notice that a connection is gone, and to have another.
RECONNECT_MS = 50.0


def _nothing(_step: str) -> None:
    return


class Link:
    """The connection of one process; `cut_until_ms` and `cut_answers` cut it off, both ways or only the way back."""

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

    def ask(self, what: str, request: Callable[[], T]) -> T:
        """Have the cluster carry out `request`, and return or raise its answer.

        Raises KafkaException: a refusal, or that there was no answer, which says nothing about what was done.
        """
        self.at_step(f"{what}.sent")
        if (self._is_cut() and not self.cut_answers) or self.faults.strikes("request-lost"):
            self.wait(RECONNECT_MS)
            raise no_answer()
        self.wait(LATENCY_MS)
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

    def _is_cut(self) -> bool:
        return self.time.now_ms < self.cut_until_ms
