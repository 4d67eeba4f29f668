"""Finds the topics that transactions wait for, from the times of their acknowledgements.

A broker answers the requests of a connection in order, so the time of an acknowledgement is that since the one before
it. A record is slow if that time is at least SLOW_RECORD_MS, and at least twice what transactions usually wait for
their first acknowledgement. A topic is slow if several transactions in a row waited longest for its slow records. How
many it takes depends on how often the records of other topics are slow: on a busy machine all of them are at times, and
a topic is not slow unless it is slower than the others. It also takes more if there are few messages for other targets
for each message of the slow one, since an isolation helps the former and delays the latter. If a transaction had
messages for the slow target only, those for others that waited for it are in the next one.

This module knows neither Kafka nor entries. Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from math import log as ln
from typing import NamedTuple

from postdate.sidecar.clock import Clock
from postdate.sidecar.dispatch.limits import (
    PROBATION_MS,
    SLOW_IN_A_ROW,
    SLOW_SHARE_MAX,
    SLOW_SHARE_MIN,
    SLOW_TRANSACTIONS,
    SLOW_WAIT_MS,
    SLOW_WEIGHT_MIN,
    SLOW_WEIGHT_SMALLER,
)
from postdate.sidecar.transaction.limits import SLOW_RECORD_MS
from postdate.sidecar.transaction.transaction import TopicOutcome

#: The number of values in each half of the recent past.
_RECENT = 32

#: The weight of a transaction in the share of slow records, against that of the one before; the weight at which all are
#: scaled down, and the scaled count below which a topic is forgotten; the records with which the share starts.
_GROWS = 128 / 127
_WEIGHT_MAX = 1_000.0
_FADED = 0.01
_PRIOR = 20.0


class SlowTopic(NamedTuple):
    """The topic that a transaction waited longest for, by slow records: the messages for it, how long (ms), whether the
    waits of the last transactions for it add up to SLOW_WAIT_MS while other topics are rarely slow, and whether it has
    been slow often enough to be to blame."""

    topic: str
    messages: int
    waited_ms: float
    is_long: bool
    is_found: bool


class SoleTargetTransaction(NamedTuple):
    """A transaction that waited at least SLOW_WAIT_MS for slow records, and had messages for no other target: how many
    for the slow one, the times of its slow records (ms), and when it ended (steady ms)."""

    topic: str
    messages: int
    waits_ms: list[float]
    ended_at: float


@dataclass(slots=True)
class Suspicion:
    """A topic that transactions in a row waited longest for: when the last one of them ended (steady ms), and how many
    there were. The number of its slow records, and the sum of their times, each multiplied by the weight of its
    transaction. Transactions with a weight of 0 do not count."""

    last_at: float
    transactions: int = 0
    records: float = 0.0
    waited_ms: float = 0.0


class RecentLeast:
    """The least of the last 32 to 64 values: what transactions take if nothing holds them up.

    >>> least = RecentLeast()
    >>> least.value
    0.0
    >>> for value in (5.0, 3.0, 4.0):
    ...     least.add(value)
    >>> least.value
    3.0
    """

    def __init__(self) -> None:
        self._least = self._before = inf
        self._count = 0

    def add(self, value: float) -> None:
        self._least = min(self._least, value)
        self._count += 1
        if self._count == _RECENT:
            self._before, self._least, self._count = self._least, inf, 0

    @property
    def value(self) -> float:
        """The least value; 0 before the first."""
        least = min(self._least, self._before)
        return least if least < inf else 0.0


class SlowShare:
    """The share of recent records that were slow: how likely it is that a healthy topic is slow by coincidence.

    On a busy machine any topic can be slow at any time, so a topic is not slow unless it is slower than the others. The
    counts fade: those of 128 transactions ago have a third of the weight.

    >>> share = SlowShare()
    >>> share.add({"busy": [30.0] * 10, "idle": []})
    >>> round(share.without("idle"), 2), round(share.without("busy"), 2)
    (0.35, 0.05)
    """

    def __init__(self) -> None:
        self._weight = 1.0  # of the next counts: it grows, instead of all older counts becoming smaller
        self._records = 0.0
        self._slow: dict[str, float] = {}

    def add(self, slow: Mapping[str, Collection[float]]) -> None:
        """Counts one transaction: the times of slow records by topic. A topic without any counts as one fast record.
        O(topics)."""
        self._weight *= _GROWS
        self._records += self._weight * sum(max(len(each), 1) for each in slow.values())
        for topic, each in slow.items():
            if each:
                self._slow[topic] = self._slow.get(topic, 0.0) + self._weight * len(each)
        if self._weight > _WEIGHT_MAX:
            self._slow = {topic: part for topic, each in self._slow.items() if (part := each / self._weight) > _FADED}
            self._records, self._weight = self._records / self._weight, 1.0

    def without(self, topic: str) -> float:
        """Returns the share among all other topics, from SLOW_SHARE_MIN to SLOW_SHARE_MAX. O(slow topics)."""
        own, slow = self._slow.get(topic, 0.0), sum(self._slow.values())
        prior = _PRIOR * self._weight
        share = (slow - own + prior * SLOW_SHARE_MIN) / (self._records - own + prior)
        return min(max(share, SLOW_SHARE_MIN), SLOW_SHARE_MAX)


class SlowTopics:
    """The topics under suspicion of one shard."""

    def __init__(self, clock: Clock, own_topics: Collection[str]) -> None:
        self._clock = clock
        self._own_topics = frozenset(own_topics)
        self._usual_wait_ms = RecentLeast()
        self._share = SlowShare()
        self._suspected: dict[str, Suspicion] = {}
        self._alone: SoleTargetTransaction | None = None  # the last transaction, if it was one
        self._compared_at = -inf

    @property
    def suspects_any(self) -> bool:
        """True if some topic is suspected."""
        return bool(self._suspected)

    @property
    def awaits_next(self) -> bool:
        """True if the next transaction may show that messages for others waited for the last one."""
        return self._alone is not None

    def interrupted(self) -> None:
        """A trial ended, or a transaction was aborted: the messages of the next one waited for this, too."""
        self._alone = None

    def delays(self, outcomes: Mapping[str, TopicOutcome]) -> bool:
        """True if a suspected topic had records in this transaction, with a weight of at least SLOW_WEIGHT_SMALLER.
        O(suspected * topics)."""
        return any(
            topic in outcomes and self._weight(topic, outcomes) >= SLOW_WEIGHT_SMALLER for topic in self._suspected
        )

    def observe(
        self,
        outcomes: Mapping[str, TopicOutcome],
        first_wait_ms: float,
        log_waited_ms: float,
        took_ms: float,
        late_ms: float,
    ) -> list[SlowTopic]:
        """Takes the reports of a committed common transaction, and returns the topic that it waited longest for, if
        that counts. The topic of the transaction before comes first, if that had messages for it alone, and counts now.

        `outcomes`: empty if its records did not report. `first_wait_ms`, `log_waited_ms`: how long it waited for its
        first acknowledgement, and for that of its log record. `took_ms`: its duration. `late_ms`: how long its first
        message had been due when it began; read only if it `awaits_next`. O(topics).

        A transaction does not count if nothing was slow, if no other messages waited for the slow topic, or if it
        waited longest for its log record, or for its first acknowledgement, which may have any cause. A topic is
        cleared by a transaction with records for it that did not wait for them, unless it answered first and late, and
        PROBATION_MS after the last slow transaction.
        """
        now = self._clock.steady_ms()
        self._suspected = {topic: each for topic, each in self._suspected.items() if now - each.last_at < PROBATION_MS}
        alone, self._alone = self._alone, None
        weight = self._weight_alone(alone, outcomes, now - took_ms, late_ms) if alone is not None else 0.0
        compares = len(outcomes) > 1 or bool(self._own_topics & outcomes.keys()) or weight > 0
        least_ms = self._least_slow_ms(first_wait_ms, now, compares=compares)
        slow = {topic: [wait for wait in each.waits_ms if wait >= least_ms] for topic, each in outcomes.items()}
        found = []
        if alone is not None and weight:
            self._share.add({**slow, alone.topic: alone.waits_ms})
            found.append(self._suspect(alone.topic, alone.messages, alone.waits_ms, weight, now, is_alone=True))
        elif compares:
            self._share.add(slow)
        slowest = max(slow, key=lambda topic: sum(slow[topic]), default="")
        waited_ms = sum(slow.get(slowest, ()))
        if first_wait_ms >= max(least_ms, waited_ms, log_waited_ms):
            return found
        if waited_ms < log_waited_ms or not waited_ms:
            slowest = ""
        self._clear(outcomes, slow, slowest, is_first_late=first_wait_ms >= least_ms)
        if not slowest:
            return found
        outcome = outcomes[slowest]
        if slowest in self._suspected:
            self._suspected[slowest].last_at = now
        if weight := self._weight(slowest, outcomes):
            found.append(self._suspect(slowest, outcome.acknowledged, slow[slowest], weight, now))
        elif waited_ms >= SLOW_WAIT_MS:
            self._alone = SoleTargetTransaction(slowest, outcome.acknowledged, slow[slowest], now)
        return found

    def _least_slow_ms(self, first_wait_ms: float, now: float, *, compares: bool) -> float:
        """Returns the least time of a slow record: at least twice what transactions usually wait for their first
        acknowledgement. That is learned from those that show more than one topic, or whose first wait is short."""
        if compares or first_wait_ms < SLOW_RECORD_MS:  # a single slow topic must not raise what is usual
            if now - self._compared_at >= PROBATION_MS:
                self._usual_wait_ms = RecentLeast()  # it may have changed
            self._usual_wait_ms.add(first_wait_ms)
            self._compared_at = now
        return max(SLOW_RECORD_MS, 2 * self._usual_wait_ms.value)

    def _clear(
        self,
        outcomes: Mapping[str, TopicOutcome],
        slow: Mapping[str, Collection[float]],
        slowest: str,
        *,
        is_first_late: bool,
    ) -> None:
        """Ends the suspicions against topics that a transaction has shown not to be slow."""
        for topic in list(self._suspected):
            outcome = outcomes.get(topic)
            is_unknown = outcome is None or (outcome.is_first and is_first_late)
            if topic != slowest and not (is_unknown or slow[topic]):
                del self._suspected[topic]

    def _weight(self, topic: str, outcomes: Mapping[str, TopicOutcome]) -> float:
        """Returns how much a transaction counts against a topic that it waited for, from 0 to 1: the messages for other
        targets for each message of this one. An isolation helps the former and delays the latter. For a topic of
        Postdate's own it is 1, since messages for any target wait. O(topics)."""
        if topic in self._own_topics:
            return 1.0
        others = self._messages_for_others(topic, outcomes)
        return min(max(others / outcomes[topic].acknowledged, SLOW_WEIGHT_MIN), 1.0) if others else 0.0

    def _weight_alone(
        self, alone: SoleTargetTransaction, outcomes: Mapping[str, TopicOutcome], began_at: float, late_ms: float
    ) -> float:
        """Returns the same for a transaction without messages for others: those of the next one, `outcomes`, waited for
        it. 0 if they are few for each message that it had, if they did not wait or waited for something else, too, or
        if the next one has messages for its target and counts for itself. O(topics)."""
        pause_ms = began_at - alone.ended_at
        if alone.topic in outcomes or pause_ms >= SLOW_WAIT_MS or late_ms - pause_ms < SLOW_RECORD_MS:
            return 0.0
        ratio = self._messages_for_others(alone.topic, outcomes) / alone.messages
        return min(ratio, 1.0) if ratio >= SLOW_WEIGHT_MIN else 0.0

    def _messages_for_others(self, topic: str, outcomes: Mapping[str, TopicOutcome]) -> int:
        return sum(outcomes[each].acknowledged for each in outcomes.keys() - {topic} - self._own_topics)

    def _suspect(
        self, topic: str, messages: int, waits_ms: list[float], weight: float, now: float, *, is_alone: bool = False
    ) -> SlowTopic:
        """Adds slow records to the suspicion against a topic. If it is to blame, the suspicion ends. `is_alone`: their
        times do not count, since stalls of the machine are as long, and no other topic shows that it has none."""
        suspicion = self._suspected.setdefault(topic, Suspicion(now))
        suspicion.transactions += 1
        suspicion.records += weight * len(waits_ms)
        suspicion.waited_ms += 0.0 if is_alone else weight * sum(waits_ms)
        others = self._share.without(topic)
        is_long = suspicion.waited_ms >= SLOW_WAIT_MS and others <= SLOW_SHARE_MIN
        is_found = suspicion.records >= SLOW_IN_A_ROW * ln(SLOW_SHARE_MIN) / ln(others)
        is_found = (is_found or is_long) and suspicion.transactions >= SLOW_TRANSACTIONS
        if is_found:
            del self._suspected[topic]
        return SlowTopic(topic, messages, sum(waits_ms), is_long, is_found)
