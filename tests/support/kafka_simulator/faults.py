"""Random faults from a seeded source: the same seed and the same calls give the same results.

Thread rule: one thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

#: All faults -> their descriptions. A rate for any other name is an error of the caller.
FAULTS: Mapping[str, str] = {
    "request-lost": "a request never arrives, and the connection breaks",
    "answer-lost": "a request is carried out, and the connection breaks before the response",
    "slow": "a response takes up to some seconds",
    "end-copied": "an EndTxn is delayed in the network, repeated and answered; the first copy arrives later",
    "end-refused": "an EndTxn that is repeated after a delayed copy fails with an error that requires an abort",
    "coordinator-away": "no coordinator responds for some seconds",
    "markers-late": "the outcome of a transaction is decided, its markers are written later, in each log separately",
    "added-apart": "the partitions of a transaction are added to it one by one, and not in one request",
    "sent-early": "records leave the client before a flush",
    "any-order": "one flush writes to its logs in random order",
}

#: Milliseconds: the maximum delay of the first copy of an EndTxn after the connection broke; see `Faults`.
COPY_MS_MAX = 160.0


class Faults:
    """Draws faults from `random`; a fault without a rate never happens. `struck` counts the faults by name.
    `copy_ms_max`: the maximum delay of the first copy of an EndTxn."""

    def __init__(self, random: Random | None = None, rates: Mapping[str, float] | None = None) -> None:
        self._random = random or Random(0)  # reproducible on purpose; not used for secrets
        self.rates = dict(rates or {})
        unknown = self.rates.keys() - FAULTS.keys()
        assert not unknown, f"no such fault: {sorted(unknown)}"
        self.copy_ms_max = COPY_MS_MAX
        self.struck: Counter[str] = Counter()

    def strikes(self, name: str) -> bool:
        """True if this fault happens now."""
        rate = self.rates.get(name, 0.0)
        if not rate or self._random.random() >= rate:
            return False
        self.struck[name] += 1
        return True

    def between(self, least: float, most: float) -> float:
        """Returns a random number from `least` to `most`."""
        return self._random.uniform(least, most)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Returns the items in random order."""
        mixed = list(items)
        self._random.shuffle(mixed)
        return mixed
