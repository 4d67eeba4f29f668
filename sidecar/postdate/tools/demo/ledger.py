"""The demo's ledger: the requests, the arrivals, and whether any message is lost, repeated or early.

The ledger is independent of Postdate. The due time is computed from the request and from the timestamp that the broker
gave it. The time of arrival is the time of this machine's clock when a read_committed reader returned the record.
Thread rule: one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from postdate.tools.demo.plan import DemoMessage

#: The number of newest arrivals in the live percentiles.
RECENT_MAX = 500


@dataclass(frozen=True, slots=True)
class Arrival:
    """One record at a read_committed reader. `at_ms`: the time at which the reader returned it."""

    target: str
    key: bytes | None
    value: bytes | None
    origin: str
    due_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Account:
    """The errors in the deliveries; all lists are empty if there are none. `lost`, `repeated` and `early` have the
    `number` of each such message, `altered` has a text for each difference."""

    lost: list[int]
    repeated: list[int]
    early: list[int]
    altered: list[str]

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.repeated or self.early or self.altered)


@dataclass(slots=True)
class SentMessage:
    """A message whose request the broker has acknowledged."""

    message: DemoMessage
    origin: str
    due_ms: int
    arrivals: list[Arrival]


class Ledger:
    """Requests by origin, and arrivals; an arrival may precede the acknowledgement of its request."""

    def __init__(self) -> None:
        self._sent: dict[str, SentMessage] = {}
        self._arrivals: dict[str, list[Arrival]] = {}
        self._recent: list[int] = []
        self.last_due_ms = 0

    @property
    def sent(self) -> int:
        """The number of requests that the broker has acknowledged."""
        return len(self._sent)

    @property
    def distinct(self) -> int:
        """The number of different requests with an arrival."""
        return len(self._arrivals)

    def note_sent(self, message: DemoMessage, origin: str, due_ms: int) -> None:
        """Records that the broker has acknowledged the request of `message`."""
        self._sent[origin] = SentMessage(message, origin, due_ms, self._arrivals.get(origin, []))
        self.last_due_ms = max(self.last_due_ms, due_ms)

    def note_arrival(self, arrival: Arrival) -> None:
        """Records that a record was read from its target."""
        arrivals = self._arrivals.setdefault(arrival.origin, [])
        arrivals.append(arrival)
        if arrival.origin in self._sent:
            self._sent[arrival.origin].arrivals = arrivals
        self._recent.append(arrival.at_ms - arrival.due_ms)
        if len(self._recent) > 2 * RECENT_MAX:
            del self._recent[:RECENT_MAX]

    def overdue(self, now_ms: int) -> int:
        """Returns how many requests are due at `now_ms` and have not arrived. O(requests)."""
        return sum(1 for sent in self._sent.values() if sent.due_ms <= now_ms and not sent.arrivals)

    def recent_lateness_ms(self) -> list[int]:
        """Returns the lateness of each of the newest arrivals, ascending, relative to the due time in its header."""
        return sorted(self._recent[-RECENT_MAX:])

    def lateness_ms(self) -> list[int]:
        """Returns the lateness of the first arrival of each request, ascending, relative to the requested due time."""
        return sorted(sent.arrivals[0].at_ms - sent.due_ms for sent in self._sent.values() if sent.arrivals)

    def account(self) -> Account:
        """Returns the errors so far. Requires that all deliveries have arrived."""
        account = Account([], [], [], [])
        for sent in self._sent.values():
            number = sent.message.number
            if not sent.arrivals:
                account.lost.append(number)
            if len(sent.arrivals) > 1:
                account.repeated.append(number)
            if any(arrival.at_ms < sent.due_ms for arrival in sent.arrivals):
                account.early.append(number)
            account.altered.extend(wrong for arrival in sent.arrivals if (wrong := _difference(sent, arrival)))
        strangers = self._arrivals.keys() - self._sent.keys()
        account.altered.extend(f"{origin} arrived, but no such request was sent" for origin in sorted(strangers))
        return account


def percentile(ascending: Sequence[int], share: float) -> int:
    """Returns the value that `share` of the values in ascending order precede, at most the last one. Returns 0 if there
    are no values. O(1)."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else 0


def _difference(sent: SentMessage, arrival: Arrival) -> str:
    """Returns a description of the first difference between the record and its request, or "" if there is none."""
    message = sent.message
    if (arrival.target, arrival.key, arrival.value) != (message.target, message.key, message.value):
        return f"message {message.number} arrived changed"
    if arrival.due_ms != sent.due_ms:
        return f"message {message.number} was held until {arrival.due_ms} instead of {sent.due_ms}"
    return ""
