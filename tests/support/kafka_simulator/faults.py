"""What goes wrong, decided by a seeded source: the same seed and the same questions give the same answers.

Thread rule: one thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

#: Everything that may strike, and what it is. Closed: a rate for anything else is a mistake of the one who sets it.
FAULTS: Mapping[str, str] = {
    "request-lost": "a request never arrives, and the connection breaks",
    "answer-lost": "a request is carried out, and the connection breaks before the answer",
    "slow": "an answer takes up to some seconds",
    "end-copied": "an EndTxn is delayed in the network, sent again and answered; the first copy arrives later",
    "end-refused": "an end that is sent again after a copy of it was delayed is answered by an error: abort",
    "coordinator-away": "the coordinators answer nobody for some seconds",
    "markers-late": "the outcome of a transaction is decided, its markers are written later, each log by itself",
    "added-apart": "the partitions of a transaction are added to it one by one, and not in one request",
    "sent-early": "records leave the client before anybody flushes",
    "any-order": "the records of one flush reach their logs in any order of the logs",
}

#: ms. The longest that the first copy of an EndTxn stays in the network after the connection broke; see `Faults`.
COPY_MS_MAX = 160.0


class Faults:
    """Draws from `random`; a fault without a rate never strikes. `struck` counts them by name. `copy_ms_max`: the
    longest that the first copy of an EndTxn stays in the network."""

    def __init__(self, random: Random | None = None, rates: Mapping[str, float] | None = None) -> None:
        self._random = random or Random(0)  # reproducible on purpose, nothing secret comes of it
        self.rates = dict(rates or {})
        unknown = self.rates.keys() - FAULTS.keys()
        assert not unknown, f"no such fault: {sorted(unknown)}"
        self.copy_ms_max = COPY_MS_MAX
        self.struck: Counter[str] = Counter()

    def strikes(self, name: str) -> bool:
        """Whether this fault strikes now."""
        rate = self.rates.get(name, 0.0)
        if not rate or self._random.random() >= rate:
            return False
        self.struck[name] += 1
        return True

    def between(self, least: float, most: float) -> float:
        """Any number from `least` to `most`."""
        return self._random.uniform(least, most)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in any order."""
        mixed = list(items)
        self._random.shuffle(mixed)
        return mixed
