"""Attributes failed and slow transactions to targets, and limits how many messages these targets get afterwards.

`slow_topics` finds slow targets; the reports of aborted transactions name the failing ones.

A target that is to blame becomes *isolated*: its entries are parked and leave in separate transactions, called trials,
so that no transaction with messages for other targets aborts or waits because of it. One state for each isolated target
covers all cases:

- `messages_max`: the most messages of one trial. A failed trial at least halves this number, down to one, unless it
  retried an entry alone, or only a few of its entries were refused. A fast trial at most doubles it. So a slow target
  gets as many messages as it can accept. If the target refuses all records, the number falls to one, and the trials
  are the probes of an open circuit breaker.
- `failing_since`, `failed_at`: a message for an unavailable target becomes a dead letter only if the target's trials
  kept failing for the retry budget, the target acknowledged no record meanwhile, and the message's own budget is used
  up. A refusal sets `acknowledged_at`, but not `accepted_at`.
- `refused`: entries that were refused alone, or that were the few refused ones of a transaction. They are retried
  alone. A further refusal may *condemn* an entry: the entry ends as a dead letter with the broker's reason. If time
  cannot resolve the refusal (`classification.is_final`), the entry is condemned immediately. Otherwise it is condemned
  once it has been refused for the length of the retry budget, or once it is late by that length and the target has
  accepted nothing for that long.

An isolated target without refused entries returns to the common transactions after a fast trial, once its trials may
have LARGE_TRANSACTION_FATES messages, or after its probation, a time without a fault. A committed trial counts as a
fault while the median of the target's trials exceeds the aim; so does a used-up credit. The first probation is short,
since a network outage or a busy machine also isolates healthy targets. Each further probation is twice as long, up to
PROBATION_MS. Trials get at most a quarter of a shard's time, and the isolated targets take turns. If messages for other
targets wait for a trial at least as long as the aim, the trial uses up credit of its target, unless common transactions
exceed the aim as much. A target without credit must pause (`trial_pauses`). If a target accepts nothing, messages for
other targets wait for its trials for at most a thirtieth of the time.

Postdate's own topics (store, dead letters, verdicts) count as one target, OWN. Its trials contain the entries under key
0.

This module neither calls Kafka nor reads the index: it only keeps state, which the outcomes of transactions change.
Thread rule: belongs to the shard's thread. Source of the idea: the circuit breaker, and the window of TCP's congestion
control.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import NamedTuple

from postdate.kafka.classification import Blame, blame, is_final
from postdate.kafka.errors import KafkaFault
from postdate.sidecar.clock import Clock
from postdate.sidecar.context.limits import LARGE_TRANSACTION_FATES
from postdate.sidecar.dispatch.limits import (
    AFTER_FAULT_ENTRIES_MAX,
    FIRST_PAUSE_MS_MAX,
    FIRST_PROBATION_MS,
    ISOLATED_MAX,
    LATE_CREDIT,
    LATE_TRIAL_REST_MS_MAX,
    PROBATION_FORGOTTEN_MS,
    PROBATION_MS,
    REFUSED_TRIAL_REST,
    REFUSING_MS,
    REPORTED_ENTRIES_MAX,
    SLOW_WAIT_MS,
    SMALL_TRIAL_MESSAGES,
    TARGET_PROBE_MS_MAX,
    TRIAL_AIM_MS,
    TRIAL_MS_MAX,
    TRIAL_REST,
    TRIAL_REST_MS_MIN,
)
from postdate.sidecar.dispatch.targets.isolated_targets import OWN, Isolated, RecentDurations
from postdate.sidecar.dispatch.targets.slow_topics import SlowTopics
from postdate.sidecar.dispatch.targets.targets import Refusal
from postdate.sidecar.dispatch.targets.trial_pauses import GrowingLimit
from postdate.sidecar.limits import BACKOFF_MS_MIN
from postdate.sidecar.transaction.transaction import TopicOutcome
from postdate.wire.reasons import Reason

log = logging.getLogger(__name__)

#: If at most one in this many messages of a transaction was refused, trials leave out the refused entries and are not
#: made smaller.
_FEW = 4

#: One bound of the aim: this multiple of the median duration of common transactions. A trial is fast if it is shorter
#: than the aim.
_USUAL = 1.25

#: A larger trial is worthwhile if the time for each message is less than this share of that in the last trial. Also the
#: share of the aim that a larger trial may be expected to take.
_FASTER = 0.75

#: Faults by topic, then by request offset.
_Blamed = Mapping[str, Mapping[int, KafkaFault]]

_REASONS = {
    Blame.UNKNOWN_TARGET: Reason.UNKNOWN_TARGET,
    Blame.UNAUTHORIZED: Reason.UNAUTHORIZED,
    Blame.UNAVAILABLE: Reason.TARGET_UNAVAILABLE,
    Blame.TOO_LARGE: Reason.TOO_LARGE,
    Blame.REFUSED: Reason.RECORD_REFUSED,
}
_OF_THE_TARGET = frozenset({Blame.UNKNOWN_TARGET, Blame.UNAUTHORIZED, Blame.UNAVAILABLE})


class Finding(Enum):
    """The result of attributing an abort. ATTRIBUTED: the next attempt may follow immediately. BACK_OFF: it must wait
    and be smaller."""

    ATTRIBUTED = auto()
    BACK_OFF = auto()


@dataclass(slots=True)
class FinishedTransaction:
    """One finished transaction. `size`: for a trial of a user's target, the messages for it; otherwise the number of
    fates. `counts`: the messages for each topic; empty if the transaction is no trial and got no delivery reports.
    `due_ms`: the due times of a trial's entries, by offset."""

    trial: Isolated | None
    size: int
    counts: Mapping[str, int]
    outcomes: Mapping[str, TopicOutcome]
    took_ms: float
    targets: Collection[str] = ()
    """The targets that the transaction was built to write to."""
    log_failed: bool = False
    log_acknowledged: bool = False
    is_refused: bool = False
    """True if the transaction failed because a record was refused."""
    due_ms: Mapping[int, int] = field(default_factory=dict)
    late_ms: float = 0.0
    """How long the first message of a common transaction had been due when the transaction began; 0 unless
    `needs_late_ms` is True."""


class LastTrial(NamedTuple):
    """The last trial, until the next common transaction is committed. `ended_at`: steady ms. `size`: its messages; 0 if
    it failed. `is_refused`: True if the broker refused one of its records. `hangs`: True if the broker acknowledged the
    log record, but no record for the target: the network works, and the target does not."""

    isolated: Isolated
    ended_at: float
    took_ms: float
    size: int = 0
    is_refused: bool = False
    hangs: bool = False


def _is_refusal(why: KafkaFault) -> bool:
    """True if the target is available, but does not accept the record."""
    return blame(why) not in _OF_THE_TARGET


class FaultAttribution:
    """The isolated targets of one shard, and the suspicions against all others."""

    def __init__(self, clock: Clock, budget_ms: int, own_topics: Collection[str]) -> None:
        self._clock = clock
        self._budget_ms = budget_ms
        self._own_topics = own_topics
        self._isolated: dict[str, Isolated] = {}
        self._entries_max = inf
        self._slow_unreported = False  # the last common transaction was slow, and its messages had no delivery reports
        self._common_ms = RecentDurations()
        self._slow_topics = SlowTopics(clock, own_topics)
        self._rests_until = 0.0
        self._rests = GrowingLimit(FIRST_PAUSE_MS_MAX, PROBATION_MS)
        self._probations: dict[str, GrowingLimit] = {}
        self._last_trial: LastTrial | None = None
        self._committed_at = -inf
        self.condemned: dict[int, Refusal] = {}
        """Parked entries that end as dead letters in the next common transaction, by request offset."""

    # ---- queries of the dispatcher ---------------------------------------------------------------------------------

    def get(self, name: str) -> Isolated | None:
        """Returns the state of an isolated target; None if the target is not isolated. O(1)."""
        return self._isolated.get(name)

    @property
    def any(self) -> bool:
        """True if some target is isolated."""
        return bool(self._isolated)

    @property
    def is_attributing(self) -> bool:
        """True after the abort of a common transaction, after a trial in which other topics failed, or after long waits
        for one topic: the next common transaction is small, and each of its messages has a delivery report."""
        return self._entries_max < inf

    @property
    def needs_late_ms(self) -> bool:
        """True if the next common transaction must state `late_ms`, since its messages may have waited for a trial, or
        for a slow transaction with messages for one target only."""
        return bool(self._isolated) or self._slow_topics.awaits_next

    def entries_max(self, limit: int) -> int:
        """Returns the most entries of the next common transaction, at most `limit`."""
        return int(min(limit, self._entries_max))

    def must_report(self, trial: Isolated | None, size: int) -> bool:
        """True if each message of the next transaction, with `size` entries, needs a delivery report.

        A large transaction needs reports only on suspicion. Since more entries become due while transactions wait for a
        slow target, all of them may be large.
        """
        slow = self._slow_topics
        is_suspicion = self.is_attributing or self._slow_unreported or slow.suspects_any or slow.awaits_next
        return trial is not None or is_suspicion or size < LARGE_TRANSACTION_FATES

    def ready_trials(self, steady_ms: float) -> list[Isolated]:
        """Returns the isolated targets that may be tried now; the one that has waited longest comes first. O(isolated
        log isolated)."""
        if not self._isolated or steady_ms < self._rests_until:
            return []
        ready = [isolated for isolated in self._isolated.values() if isolated.waits and isolated.retry_at <= steady_ms]
        return sorted(ready, key=lambda isolated: isolated.retry_at)

    def next_at(self) -> float:
        """Returns the steady time in ms at which a trial may run, or a condemned entry may end; infinite if none waits.

        While Postdate's own topics are isolated, the next common transaction shows whether the end of a condemned entry
        writes to an isolated topic. If it does, the entry waits for the next trial of OWN."""
        own = self._isolated.get(OWN)
        if self.condemned and (own is None or not own.waits):
            return 0.0
        first = min((isolated.retry_at for isolated in self._isolated.values() if isolated.waits), default=inf)
        return max(first, self._rests_until)

    def spent(self, name: str, due_ms: int, now_ms: int) -> Refusal | None:
        """Returns the refusal that ends an entry of an isolated target; None if the entry must wait. It ends if the
        trials have failed for the whole retry budget, the target has acknowledged nothing since the first failed trial,
        and the budget of the entry is used up."""
        isolated = self._isolated.get(name)
        if isolated is None or isolated.acknowledged_at > isolated.failing_since:
            return None
        if isolated.failed_at - isolated.failing_since < self._budget_ms:
            return None
        return isolated.refusal if now_ms >= due_ms + self._budget_ms else None

    def parked(self, names: Collection[str]) -> None:
        """Notes that entries of these targets were parked."""
        for name in names:
            isolated = self._isolated.get(name)
            if isolated is not None:
                isolated.waits = True

    def ended(self, offsets: Collection[int]) -> None:
        """Notes that these requests have ended: they are no longer condemned. O(offsets) if any entry is condemned,
        otherwise O(1)."""
        if self.condemned:
            for offset in offsets:
                self.condemned.pop(offset, None)

    def is_isolated(self, name: str) -> bool:
        """True if a target is isolated. First ends the isolation if no entries wait and the probation is over, since no
        trial would end it."""
        isolated = self._isolated.get(name)
        if isolated is not None and not isolated.waits:
            self.nothing_waits(isolated)
        return name in self._isolated

    def nothing_waits(self, isolated: Isolated) -> None:
        """Notes that no entry of an isolated target may leave in a trial. Ends the isolation if its probation is
        over."""
        isolated.waits = False
        if isolated.is_through_probation(self._clock.steady_ms()):
            self._return(isolated)

    def all_wait(self) -> None:
        """Lets the next common transaction read twice as many entries, to reach messages that may leave. All entries
        that the last one read wait for Postdate's own topics, and after a fault a transaction reads only a few."""
        self._entries_max = max(self._entries_max, min(2 * self._entries_max, REPORTED_ENTRIES_MAX))

    # ---- outcomes of transactions ----------------------------------------------------------------------------------

    def committed(self, finished: FinishedTransaction, first_wait_ms: float, log_waited_ms: float) -> None:
        """Notes the commit of a transaction with fates. It waited `first_wait_ms` for its first acknowledgement, and
        `log_waited_ms` for that of its log record."""
        now = self._clock.steady_ms()
        trial = finished.trial
        if trial is not None:
            self._slow_topics.interrupted()
            self._accepted(trial, finished.size, finished.took_ms, now)
            return
        self._rest_longer(finished, now)
        if finished.targets:  # a transaction with verdicts only is usually shorter than a trial
            self._common_ms.add(finished.took_ms)
        self._slow_unreported = not finished.outcomes and finished.took_ms >= SLOW_WAIT_MS
        times = (first_wait_ms, log_waited_ms, finished.took_ms, finished.late_ms)
        for slow in self._slow_topics.observe(finished.outcomes, *times):
            if slow.is_long:  # entries that become due meanwhile would make the next transaction wait for longer
                self._entries_max = AFTER_FAULT_ENTRIES_MAX
            if slow.is_blamed:
                name = OWN if slow.topic in self._own_topics else slow.topic
                # The last transactions also waited for this topic: only the shortest one shows how long they take
                # without it.
                aim_ms = max(TRIAL_AIM_MS, 2 * self._common_ms.shortest)
                messages_max = max(1, int(slow.messages * aim_ms / slow.waited_ms))
                self._isolate(name, messages_max, None, now, {slow.topic})
        if not self._slow_topics.delays(finished.outcomes):
            self._entries_max = 2 * self._entries_max if self._entries_max < REPORTED_ENTRIES_MAX else inf

    def aborted(self, finished: FinishedTransaction, now_ms: int) -> Finding:
        """Attributes the abort of a transaction. `now_ms`: the broker's time."""
        steady = self._clock.steady_ms()
        self._slow_topics.interrupted()
        blamed = {topic: outcome.faults for topic, outcome in finished.outcomes.items() if outcome.faults}
        if (trial := finished.trial) is not None:
            names = self._own_topics if trial.name == OWN else (trial.name,)
            others = {topic: faults for topic, faults in blamed.items() if topic not in names}
            blamed = {topic: faults for topic, faults in blamed.items() if topic in names}
            finding = self._failed(finished, trial, blamed, now_ms, steady)
            return finding if finished.log_failed or not others else self._blame(finished, others, steady)
        if finished.log_failed or not blamed:
            is_first, self._entries_max = not self.is_attributing, min(self._entries_max, REPORTED_ENTRIES_MAX)
            if finished.is_refused and not finished.log_failed and not finished.outcomes and is_first:
                log.info("a transaction was refused; the next one reports each message")
                return Finding.ATTRIBUTED
            return Finding.BACK_OFF
        return self._blame(finished, blamed, steady)

    def _blame(self, finished: FinishedTransaction, blamed: _Blamed, steady: float) -> Finding:
        """Isolates the topics that are to blame for an abort."""
        self._entries_max = AFTER_FAULT_ENTRIES_MAX
        finding = Finding.ATTRIBUTED
        own = {topic for topic in blamed if topic in self._own_topics}
        if own:
            count = sum(finished.counts[topic] for topic in own)
            why = next(iter(blamed[min(own)].values()))
            self._isolate(OWN, max(count // 2, 1), why, steady, own)
            finding = Finding.BACK_OFF
        for topic in blamed.keys() - own:
            count, faults = finished.counts[topic], blamed[topic]
            is_answered = finished.outcomes[topic].acknowledged or any(map(_is_refusal, faults.values()))
            are_few = self._are_few(faults, count)
            messages_max = count if are_few else max(count // 2, 1)
            isolated = self._isolate(topic, messages_max, next(iter(faults.values())), steady)
            if finished.log_acknowledged and not is_answered:
                isolated.failing_since = steady  # like a failed trial
            if are_few:
                isolated.retry_alone(faults, steady)
        return finding

    def note_commit(self) -> None:
        """Notes the commit of a transaction of any kind, even a `beat`: it shows that Kafka works."""
        self._committed_at = self._clock.steady_ms()

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _accepted(self, trial: Isolated, count: int, took_ms: float, now: float) -> None:
        self._rest(trial, took_ms, now, count)
        if not count:  # its entries ended without a message for the target, such as expired ones
            return
        trial.acknowledged_at = trial.accepted_at = now
        trial.good_trials += 1
        trial.delay_ms = BACKOFF_MS_MIN
        aim_ms, pace_ms = self._aim_ms(), took_ms / count
        is_fast, is_full = took_ms < aim_ms, count >= trial.messages_max
        if took_ms > aim_ms * TRIAL_MS_MAX / TRIAL_AIM_MS:
            trial.messages_max = max(1, min(trial.messages_max, int(count * aim_ms / took_ms)))
        elif is_full and is_fast:
            usual_ms = max(took_ms, trial.took_ms.median)
            fitting = max(int(count * _FASTER * aim_ms / usual_ms), SMALL_TRIAL_MESSAGES)
            trial.messages_max = max(trial.messages_max, min(2 * trial.messages_max, fitting))
        elif is_full and pace_ms < trial.pace_ms * _FASTER:
            trial.messages_max = min(2 * trial.messages_max, LARGE_TRANSACTION_FATES)
        trial.pace_ms = pace_ms
        trial.took_ms.add(took_ms)
        if trial.took_ms.median > aim_ms:
            trial.fault(now)
        is_ready = trial.messages_max >= LARGE_TRANSACTION_FATES or trial.is_through_probation(now)
        if is_fast and is_ready and not trial.refused:
            self._return(trial)

    def _failed(
        self, finished: FinishedTransaction, trial: Isolated, blamed: _Blamed, now_ms: int, now: float
    ) -> Finding:
        """Attributes the abort of a trial. `blamed`: the faults of its target; in a trial of OWN, those of Postdate's
        own topics."""
        count = finished.size
        faults = {offset: why for topic_faults in blamed.values() for offset, why in topic_faults.items()}
        outcome = finished.outcomes.get(trial.name)
        acknowledged = outcome.acknowledged if outcome is not None else 0
        if acknowledged:
            trial.acknowledged_at = trial.accepted_at = now
        hangs = finished.log_acknowledged and not acknowledged
        self._rest(trial, finished.took_ms, now, hangs=hangs)
        if not faults:
            trial.messages_max = max(trial.messages_max // 2, 1)  # this target may still delay the log record
            return Finding.BACK_OFF
        trial.fault(now)
        trial.topics |= blamed.keys()
        why = next(iter(faults.values()))
        kind = blame(why)
        trial.refusal = Refusal(_REASONS[kind], str(why))
        if trial.name == OWN or kind in _OF_THE_TARGET:
            half = max(min(count // 2, trial.messages_max), 1)
            trial.messages_max = min(half, acknowledged) if acknowledged else half
            if not acknowledged:
                trial.retry_at = max(trial.retry_at, now + trial.delay_ms)
                trial.delay_ms = min(trial.delay_ms * 2, TARGET_PROBE_MS_MAX)
                if trial.failing_since < trial.acknowledged_at:
                    trial.failing_since = now
                if finished.log_acknowledged or self._committed_at > trial.tried_at:
                    trial.failed_at = now  # the rest of the cluster works
            trial.tried_at = now
            return Finding.ATTRIBUTED
        trial.acknowledged_at = now  # a refusal is an answer
        self._last_trial = LastTrial(trial, now, finished.took_ms, is_refused=True)
        if count == 1:
            for offset, refusal in faults.items():
                refused = trial.refused.get(offset)
                is_spent = refused is not None and now - refused.since >= self._budget_ms
                is_late = now_ms >= finished.due_ms[offset] + self._budget_ms
                if is_final(refusal) or is_spent or (is_late and now - trial.accepted_at >= self._budget_ms):
                    trial.refused.pop(offset, None)
                    self.condemned[offset] = trial.refusal
                else:
                    trial.refuse_again(offset, now)
        elif self._are_few(faults, count):
            trial.retry_alone(faults, now)
        else:
            trial.messages_max = count // 2
        return Finding.ATTRIBUTED

    def _are_few(self, faults: Mapping[int, KafkaFault], count: int) -> bool:
        """True if the entries with `faults` are to blame and not their target: they were refused, and are few of
        `count` messages."""
        return len(faults) * _FEW <= count and all(map(_is_refusal, faults.values()))

    def _isolate(
        self, name: str, messages_max: int, why: KafkaFault | None, now: float, topics: Collection[str] = ()
    ) -> Isolated:
        isolated = self._isolated.get(name)
        if isolated is None:
            while len(self._isolated) >= ISOLATED_MAX:
                del self._isolated[next(iter(self._isolated))]
            isolated = self._isolated[name] = Isolated(name, messages_max, now, now, now, self._probation_ms(name, now))
            if name:
                subject = f"target {name} is isolated, with at most {messages_max} messages"
            else:
                names = ", ".join(sorted(topics))
                subject = f"Postdate's own topics are isolated ({names}), with at most {messages_max} entries"
            log.warning("%s in a transaction: %s", subject, why or "it acknowledges slowly")
        isolated.messages_max = min(isolated.messages_max, messages_max)
        isolated.fault(now)
        isolated.waits = True
        isolated.topics.update(topics)
        return isolated

    def _return(self, isolated: Isolated) -> None:
        if self._isolated.get(isolated.name) is isolated:
            del self._isolated[isolated.name]
            subject = f"target {isolated.name} is" if isolated.name else "Postdate's own topics are"
            log.info("%s no longer isolated", subject)

    def _probation_ms(self, name: str, now: float) -> float:
        """Returns the probation of a target that is now being isolated, in ms; each call counts as one isolation.
        O(1)."""
        limit = self._probations.pop(name, None) or GrowingLimit(FIRST_PROBATION_MS, PROBATION_FORGOTTEN_MS)
        while len(self._probations) >= ISOLATED_MAX:
            del self._probations[next(iter(self._probations))]
        self._probations[name] = limit
        return limit.limited(PROBATION_MS, now)

    def _rest(self, trial: Isolated, took_ms: float, now: float, size: int = 0, hangs: bool = False) -> None:
        """Schedules the next trials: no trial runs during the pause, and the next trial of this target comes after
        those of the targets that already wait."""
        rest_ms = max(TRIAL_REST * took_ms, TRIAL_REST_MS_MIN)
        self._rests_until = trial.retry_at = now + (rest_ms if hangs else self._rests.limited(rest_ms, now))
        self._last_trial = LastTrial(trial, now, took_ms, size, hangs=hangs) if trial.name != OWN else None

    def _rest_longer(self, finished: FinishedTransaction, now: float) -> None:
        """Delays the next trial of a target if its credit is used up, and makes it smaller if smaller trials were fast.

        Called once after each trial, when the next common transaction is committed: `finished.late_ms` shows how long
        messages for other targets waited for that trial. After a refused trial, if the target has accepted nothing for
        REFUSING_MS, the pause is proportional to their longest wait.
        """
        last, self._last_trial = self._last_trial, None
        if last is None:
            return
        trial, aim_ms = last.isolated, self._aim_ms()
        since_trial_ms = now - finished.took_ms - last.ended_at
        waited_ms = min(finished.late_ms - since_trial_ms, last.took_ms)
        if last.is_refused:
            if now - trial.accepted_at >= REFUSING_MS:  # otherwise a pause would delay messages that the target accepts
                rest_ms = min(REFUSED_TRIAL_REST * waited_ms, LATE_TRIAL_REST_MS_MAX)
                trial.retry_at = max(trial.retry_at, last.ended_at + rest_ms)
            return
        late_ms = last.took_ms - aim_ms if waited_ms >= aim_ms else 0.0
        rest_ms = trial.credit.spend(
            late_ms - self._common_ms.mean_above(aim_ms), LATE_CREDIT * aim_ms, now, last.hangs
        )
        if not rest_ms:
            return
        trial.retry_at = max(trial.retry_at, last.ended_at + rest_ms)
        trial.fault(trial.retry_at)
        if last.size and trial.took_ms.shortest < aim_ms:
            trial.messages_max = max(1, min(trial.messages_max, int(last.size * aim_ms / last.took_ms)))

    def _aim_ms(self) -> float:
        """Returns the aim for the duration of a trial in ms; a shorter trial is fast. On a busy machine, or with
        distant brokers, all transactions take longer, and a trial that takes as long delays other targets no more than
        any transaction. The upper quartile serves as a bound, since the median of healthy trials rarely exceeds it,
        however much they vary."""
        return max(TRIAL_AIM_MS, _USUAL * self._common_ms.median, self._common_ms.upper_quartile)
