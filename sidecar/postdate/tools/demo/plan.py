"""The messages of the demo, with mixed delays. Some are due at one instant, so that the kill hits a dispatch.

Pure: the same numbers give the same plan. Thread rule: callable from any thread.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from postdate.wire import headers as names
from postdate.wire.headers import Headers

REQUESTS = "postdate.requests"
PARTITIONS = 4
TARGETS = ("demo.orders", "demo.reminders")
TARGET_PARTITIONS = 2

#: Seconds: the shortest delay.
DELAY_MIN_S = 0.5
#: Requests are sent over this share of the longest delay, so that sending and delivering overlap.
SENDING_SHARE = 0.25
#: The time from the start of sending to the burst, as a share of the longest delay. By then, the whole burst is sent.
BURST_SHARE = 0.5
#: This share of all messages is due at one instant.
BURST_MESSAGES_SHARE = 0.3

_SEED = 20


@dataclass(frozen=True, slots=True)
class DemoMessage:
    """One message. `delay_ms` -1: due at the burst; otherwise counted from the request's timestamp."""

    number: int
    send_after_ms: int
    delay_ms: int
    target: str

    @property
    def key(self) -> bytes:
        return b"customer-%d" % (self.number % 97)

    @property
    def value(self) -> bytes:
        return b'{"number": %d}' % self.number

    def headers(self, burst_ms: int) -> Headers:
        """Returns the headers of the request; `burst_ms` is the instant of the burst in epoch ms."""
        when = (names.AT, str(burst_ms)) if self.delay_ms < 0 else (names.DELAY, _delay_text(self))
        return [
            (names.TOPIC, self.target.encode()),
            (when[0], when[1].encode()),
            ("demo-number", str(self.number).encode()),
        ]

    def due_ms(self, sent_ms: int, burst_ms: int) -> int:
        """Returns the due time, epoch ms. `sent_ms`: the timestamp that the broker gave the request."""
        return burst_ms if self.delay_ms < 0 else sent_ms + self.delay_ms


def plan(messages: int, seconds: float) -> list[DemoMessage]:
    """Returns `messages` messages in the order of sending, with delays from 0.5 s to `seconds`. Requires seconds >=
    0.5."""
    chance = random.Random(_SEED)  # noqa: S311  # not a secret: the same demo every time
    sending_ms = seconds * 1000 * SENDING_SHARE
    planned = []
    for number in range(messages):
        in_burst = chance.random() < BURST_MESSAGES_SHARE
        delay_ms = -1 if in_burst else round(chance.uniform(DELAY_MIN_S, seconds) * 1000)
        planned.append(DemoMessage(number, round(sending_ms * number / messages), delay_ms, chance.choice(TARGETS)))
    return planned


def _delay_text(message: DemoMessage) -> str:
    """Returns the delay in one of the notations that a request may use."""
    match message.number % 3:
        case 0:
            return str(message.delay_ms)
        case 1:
            return f"{message.delay_ms}ms"
        case _:
            return f"PT{message.delay_ms / 1000:.3f}S"
