"""Finds the topics that transactions wait for, from the times of their acknowledgements.

A broker answers the requests of a connection in order, so the time of an acknowledgement counts from the previous one.
A record is slow if that time is at least SLOW_RECORD_MS, and at least twice the shortest time that a recent transaction
waited for its first acknowledgement. A topic is slow if several transactions in a row waited longest for its slow
records, and if there were enough such records. The number needed depends on how often the records of other topics are
slow: on a busy machine all topics are slow at times, and a topic counts as slow only if it is slower than the others.
An isolation helps the messages for other targets, and delays those for the slow target. So the fewer messages for other
targets there are for each message of the slow target, the more slow records are needed. If a transaction has messages
for the slow target only, the messages for other targets that waited for it are in the next transaction.

This module neither calls Kafka nor reads entries. Thread rule: belongs to the shard's thread.
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

#: `RecentMinimum` covers the values of the present block, which has at most this many, and of the block before it.
_RECENT = 32

#: In the share of slow records, each transaction weighs _GROWS times as much as the one before it. At a weight of
#: _WEIGHT_MAX all counts are scaled down, and topics whose scaled count is _FADED or less are forgotten. The share
#: starts with _PRIOR assumed records.
_GROWS = 128 / 127
_WEIGHT_MAX = 1_000.0
_FADED = 0.01
_PRIOR = 20.0


class SlowTopic(NamedTuple):
    """The topic for whose slow records a transaction waited longest. `messages`: the messages for it. `waited_ms`: the
    time of this wait. `is_long`: True if the weighted waits of the last transactions for it add up to SLOW_WAIT_MS
    while other topics are rarely slow. `is_blamed`: True if it has been slow often enough to be to blame."""

    topic: str
    messages: int
    waited_ms: float
    is_long: bool
    is_blamed: bool


class SoleTargetTransaction(NamedTuple):
    """A transaction that waited at least SLOW_WAIT_MS for slow records, and had messages for one target only.
    `messages`: the messages for it. `waits_ms`: the times of its slow records. `ended_at`: steady ms."""

    topic: str
    messages: int
    waits_ms: list[float]
    ended_at: float


@dataclass(slots=True)
class Suspicion:
    """A topic for which one or more transactions in a row waited longest. `last_at`: the end of the last such
    transaction, steady ms. `transactions`: the number of these transactions without those of weight 0. `records`,
    `waited_ms`: the number of slow records and the sum of their times, each multiplied by the weight of its
    transaction."""

    last_at: float
    transactions: int = 0
    records: float = 0.0
    waited_ms: float = 0.0


class RecentMinimum:
    """The minimum of the last 32 to 63 values, or of all if there are fewer: the time of a transaction that nothing
    delays.

    >>> minimum = RecentMinimum()
    >>> minimum.value
    0.0
    >>> for value in (5.0, 3.0, 4.0):
    ...     minimum.add(value)
    >>> minimum.value
    3.0
    """

    def __init__(self) -> None:
        self._minimum = self._previous = inf
        self._count = 0

    def add(self, value: float) -> None:
        self._minimum = min(self._minimum, value)
        self._count += 1
        if self._count == _RECENT:
            self._previous, self._minimum, self._count = self._minimum, inf, 0

    @property
    def value(self) -> float:
        """The minimum; 0 before the first value."""
        minimum = min(self._minimum, self._previous)
        return minimum if minimum < inf else 0.0


class SlowShare:
    """The share of recent records that were slow: the probability that a record of a healthy topic is slow by
    coincidence.

    On a busy machine any topic can be slow at any time, so a topic counts as slow only if it is slower than the others.
    Counts fade: after 128 transactions they have about a third of their weight.

    >>> share = SlowShare()
    >>> share.add({"busy": [30.0] * 10, "idle": []})
    >>> round(share.without("idle"), 2), round(share.without("busy"), 2)
    (0.35, 0.05)
    """

    def __init__(self) -> None:
        self._weight = 1.0  # of the next counts: it grows instead of older counts shrinking, up to _WEIGHT_MAX
        self._records = 0.0
        self._slow: dict[str, float] = {}

    def add(self, slow: Mapping[str, Collection[float]]) -> None:
        """Counts one transaction. `slow`: the times of slow records by topic; a topic without slow records counts as
        one fast record. O(topics)."""
        self._weight *= _GROWS
        self._records += self._weight * sum(max(len(times_ms), 1) for times_ms in slow.values())
        for topic, times_ms in slow.items():
            if times_ms:
                self._slow[topic] = self._slow.get(topic, 0.0) + self._weight * len(times_ms)
        if self._weight > _WEIGHT_MAX:
            self._slow = {
                topic: scaled for topic, count in self._slow.items() if (scaled := count / self._weight) > _FADED
            }
            self._records, self._weight = self._records / self._weight, 1.0

    def without(self, topic: str) -> float:
        """Returns the share of slow records if the slow records of `topic` are left out, from SLOW_SHARE_MIN to
        SLOW_SHARE_MAX. The fast records of `topic` still count. O(slow topics)."""
        own, slow = self._slow.get(topic, 0.0), sum(self._slow.values())
        prior = _PRIOR * self._weight
        share = (slow - own + prior * SLOW_SHARE_MIN) / (self._records - own + prior)
        return min(max(share, SLOW_SHARE_MIN), SLOW_SHARE_MAX)


class SlowTopics:
    """The topics under suspicion of one shard."""

    def __init__(self, clock: Clock, own_topics: Collection[str]) -> None:
        self._clock = clock
        self._own_topics = frozenset(own_topics)
        self._usual_wait_ms = RecentMinimum()
        self._share = SlowShare()
        self._suspected: dict[str, Suspicion] = {}
        self._alone: SoleTargetTransaction | None = None  # the last transaction, if it had messages for one target only
        self._compared_at = -inf

    @property
    def suspects_any(self) -> bool:
        """True if some topic is suspected."""
        return bool(self._suspected)

    @property
    def awaits_next(self) -> bool:
        """True if the last transaction had messages for one target only, and the next one may show that other messages
        waited for it."""
        return self._alone is not None

    def interrupted(self) -> None:
        """Notes that a trial has ended, or that a transaction was aborted, which also delayed the messages of the next
        transaction."""
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
        """Evaluates the reports of a committed common transaction. Returns at most two findings. If the previous
        transaction had messages for one target only, and this transaction shows that other messages waited for it, the
        first finding is about that target. If this transaction counts, a finding is about the topic for which it waited
        longest.

        `outcomes`: empty if its records had no delivery reports. `first_wait_ms`, `log_waited_ms`: how long it waited
        for its first acknowledgement, and for that of its log record. `took_ms`: its duration. `late_ms`: how long its
        first message had been due when it began; needed only if `awaits_next` is True. O(topics).

        A transaction does not count if no record was slow, or if no messages for other targets waited for the slow
        topic. It also does not count if its longest wait was for its log record or for its first acknowledgement: the
        wait for the first acknowledgement may have any cause. The suspicion against a topic ends with a transaction
        that has records for the topic and does not wait for them, unless the topic answered first and late. It also
        ends PROBATION_MS after the last slow transaction.
        """
        now = self._clock.steady_ms()
        self._suspected = {
            topic: suspicion for topic, suspicion in self._suspected.items() if now - suspicion.last_at < PROBATION_MS
        }
        alone, self._alone = self._alone, None
        weight = self._weight_alone(alone, outcomes, now - took_ms, late_ms) if alone is not None else 0.0
        compares = len(outcomes) > 1 or bool(self._own_topics & outcomes.keys()) or weight > 0
        slow_ms_min = self._note_first_wait(first_wait_ms, now, compares=compares)
        slow = {
            topic: [wait for wait in outcome.waits_ms if wait >= slow_ms_min] for topic, outcome in outcomes.items()
        }
        findings = []
        if alone is not None and weight:
            self._share.add({**slow, alone.topic: alone.waits_ms})
            findings.append(self._suspect(alone.topic, alone.messages, alone.waits_ms, weight, now, is_alone=True))
        elif compares:
            self._share.add(slow)
        slowest = max(slow, key=lambda topic: sum(slow[topic]), default="")
        waited_ms = sum(slow.get(slowest, ()))
        if first_wait_ms >= max(slow_ms_min, waited_ms, log_waited_ms):
            return findings
        if waited_ms < log_waited_ms or not waited_ms:
            slowest = ""
        self._clear(outcomes, slow, slowest, is_first_late=first_wait_ms >= slow_ms_min)
        if not slowest:
            return findings
        outcome = outcomes[slowest]
        if slowest in self._suspected:
            self._suspected[slowest].last_at = now
        if weight := self._weight(slowest, outcomes):
            findings.append(self._suspect(slowest, outcome.acknowledged, slow[slowest], weight, now))
        elif waited_ms >= SLOW_WAIT_MS:
            self._alone = SoleTargetTransaction(slowest, outcome.acknowledged, slow[slowest], now)
        return findings

    def _note_first_wait(self, first_wait_ms: float, now: float, *, compares: bool) -> float:
        """Notes the time that a transaction waited for its first acknowledgement, and returns the time from which a
        record is slow: the larger of SLOW_RECORD_MS and twice the shortest of these waits in recent transactions.

        A wait counts if it is below SLOW_RECORD_MS, or if the transaction `compares` topics.
        """
        if compares or first_wait_ms < SLOW_RECORD_MS:  # a single slow topic must not raise the usual wait
            if now - self._compared_at >= PROBATION_MS:
                self._usual_wait_ms = RecentMinimum()  # the usual wait may have changed
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
        """Ends the suspicion against each topic that had records in a transaction, none of which was slow. Keeps it if
        the first acknowledgement of the transaction was for this topic and late: this wait may have any cause."""
        for topic in list(self._suspected):
            outcome = outcomes.get(topic)
            is_unknown = outcome is None or (outcome.is_first and is_first_late)
            if topic != slowest and not (is_unknown or slow[topic]):
                del self._suspected[topic]

    def _weight(self, topic: str, outcomes: Mapping[str, TopicOutcome]) -> float:
        """Returns the weight of a transaction against the topic for which it waited. The weight is the ratio of the
        messages for other targets to the messages for this topic, from SLOW_WEIGHT_MIN to 1; it is 0 if there are no
        messages for other targets. The weight of a topic of Postdate is 1, since messages for any target wait for it.
        O(topics)."""
        if topic in self._own_topics:
            return 1.0
        others = self._messages_for_others(topic, outcomes)
        return min(max(others / outcomes[topic].acknowledged, SLOW_WEIGHT_MIN), 1.0) if others else 0.0

    def _weight_alone(
        self, alone: SoleTargetTransaction, outcomes: Mapping[str, TopicOutcome], began_at: float, late_ms: float
    ) -> float:
        """Returns the weight of `alone`, a transaction with messages for one target only, by the messages for other
        targets in the next transaction, `outcomes`. Returns 0 if these are few for each message of `alone`, or if they
        did not wait mainly for `alone`. Also returns 0 if the next transaction has messages for the same target, since
        that transaction then counts instead. O(topics)."""
        pause_ms = began_at - alone.ended_at
        if alone.topic in outcomes or pause_ms >= SLOW_WAIT_MS or late_ms - pause_ms < SLOW_RECORD_MS:
            return 0.0
        ratio = self._messages_for_others(alone.topic, outcomes) / alone.messages
        return min(ratio, 1.0) if ratio >= SLOW_WEIGHT_MIN else 0.0

    def _messages_for_others(self, topic: str, outcomes: Mapping[str, TopicOutcome]) -> int:
        return sum(outcomes[other].acknowledged for other in outcomes.keys() - {topic} - self._own_topics)

    def _suspect(
        self, topic: str, messages: int, waits_ms: list[float], weight: float, now: float, *, is_alone: bool = False
    ) -> SlowTopic:
        """Adds slow records to the suspicion against a topic. If the topic is to blame, the suspicion ends. `is_alone`:
        the transaction had no messages for other targets. Then the times of its records do not count: a stall of the
        machine can take as long, and no other topic shows whether the machine stalled."""
        suspicion = self._suspected.setdefault(topic, Suspicion(now))
        suspicion.transactions += 1
        suspicion.records += weight * len(waits_ms)
        suspicion.waited_ms += 0.0 if is_alone else weight * sum(waits_ms)
        others = self._share.without(topic)
        is_long = suspicion.waited_ms >= SLOW_WAIT_MS and others <= SLOW_SHARE_MIN
        is_blamed = suspicion.records >= SLOW_IN_A_ROW * ln(SLOW_SHARE_MIN) / ln(others)
        is_blamed = (is_blamed or is_long) and suspicion.transactions >= SLOW_TRANSACTIONS
        if is_blamed:
            del self._suspected[topic]
        return SlowTopic(topic, messages, sum(waits_ms), is_long, is_blamed)
