"""Goal: after an abort without a known cause, a shard pauses and makes its transactions smaller; a commit ends the
pauses.

Method: `Aborts` runs with stand-ins: a clock that stands still, an attribution that blames no target, and targets that
record their look-ups.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from postdate.kafka.classification import classify_delivery
from postdate.kafka.errors import AbortRequired, RecordRejected
from postdate.sidecar.dispatch.aborts import Aborts, finished_transaction
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.due.due_reader import Due
from postdate.sidecar.dispatch.limits import OWN_RETRY_MS
from postdate.sidecar.dispatch.targets.fault_attribution import Finding, FinishedTransaction
from postdate.sidecar.dispatch.targets.isolated_targets import OWN, Isolated
from postdate.sidecar.limits import BACKOFF_MS_MAX, BACKOFF_MS_MIN
from postdate.sidecar.transaction.transaction import GivenUp, TopicOutcome
from postdate.wheel.keys import entry_key
from postdate.wire.delivered import record_size_bytes
from postdate.wire.dispatch_log import DELIVERED, PlainFate
from postdate.wire.topics import OwnTopics

OWN_TOPICS = OwnTopics.of("requests")
_FAULT = AbortRequired("the log has no leader")
_NOW_MS = 5_000.0


class Parts:
    """`Aborts` of one shard with stand-ins for its collaborators."""

    def __init__(self) -> None:
        self.now_ms = _NOW_MS
        self.looked_up: list[str] = []
        self.polls = self.failures = self.commits = 0
        self.works: dict[str, bool] = {}
        self.isolated: dict[str, object] = {}
        self.attempts: list[FinishedTransaction] = []
        self.finding = Finding.BACK_OFF
        self.began_at = _NOW_MS - 70
        self.limited: list[tuple[str, int]] = []
        ctx: Any = SimpleNamespace(clock=SimpleNamespace(steady_ms=lambda: self.now_ms), name="r/0", own=OWN_TOPICS)
        self.aborts = Aborts(ctx, self._targets(), self._faults(), self._limit())

    def _targets(self) -> Any:
        def get(name: str) -> Any:
            return SimpleNamespace(works=self.works[name]) if name in self.works else None

        def poll() -> None:
            self.polls += 1

        def limit(topic: str, size_bytes: int) -> None:
            self.limited.append((topic, size_bytes))

        return SimpleNamespace(refresh_soon=self.looked_up.extend, get=get, poll=poll, limit=limit)

    def _faults(self) -> Any:
        def aborted(attempt: FinishedTransaction, _now_ms: int) -> Finding:
            self.attempts.append(attempt)
            return self.finding

        def note_commit() -> None:
            self.commits += 1

        return SimpleNamespace(get=self.isolated.get, aborted=aborted, note_commit=note_commit)

    def _limit(self) -> Any:
        def failed() -> None:
            self.failures += 1

        return SimpleNamespace(failed=failed)

    def abort(
        self,
        fault: AbortRequired = _FAULT,
        trial: Isolated | None = None,
        topics: tuple[str, ...] = ("orders", "mails"),
        outcomes: dict[str, TopicOutcome] | None = None,
    ) -> None:
        """Aborts a transaction with a message for each of these topics."""
        ownership = _ownership(outcomes or {}, began_at=self.began_at)
        self.aborts.aborted(ownership, _batch(*topics), Due([], [], trial=trial), fault)


def _ownership(outcomes: dict[str, TopicOutcome], began_at: float = 0.0) -> Any:
    return SimpleNamespace(outcomes=outcomes, took_ms=30.0, began_at=began_at, log_failed=True, log_acknowledged=True)


def _batch(*topics: str) -> Batch:
    """Returns a batch with a message for each of these topics, and with two fates."""
    return Batch(
        messages=[(offset, topic, 0, b"key", b"value", []) for offset, topic in enumerate(topics)],
        fates=[PlainFate(0, 1, DELIVERED), PlainFate(1, 1, DELIVERED)],
        targets=dict.fromkeys(topics, 1),
    )


def _isolated(name: str) -> Isolated:
    return Isolated(name, 1, 0.0, 0.0, 0.0)


def _too_large(*topics: str) -> dict[str, TopicOutcome]:
    error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    return {topic: TopicOutcome(faults={0: classify_delivery(error, topic)}) for topic in topics}


@pytest.fixture
def parts() -> Parts:
    return Parts()


def test_the_first_abort_is_retried_at_once_and_each_further_one_after_twice_the_time(parts: Parts) -> None:
    assert not parts.aborts.is_pausing
    pauses = []
    for _ in range(9):
        parts.aborts.back_off(_FAULT)
        retry_at = parts.aborts.retry_at()
        assert parts.aborts.is_pausing == (retry_at is not None)
        pauses.append(0 if retry_at is None else retry_at - parts.now_ms)
    assert pauses == [0, *(min(BACKOFF_MS_MIN * 2**n, BACKOFF_MS_MAX) for n in range(8))]


def test_after_a_commit_the_next_abort_is_retried_at_once(parts: Parts) -> None:
    for _ in range(4):
        parts.aborts.back_off(_FAULT)
    parts.now_ms += BACKOFF_MS_MAX
    parts.aborts.committed()
    assert parts.commits == 1, "it shows that Kafka works"
    parts.aborts.back_off(_FAULT)
    assert parts.aborts.retry_at() is None
    parts.aborts.back_off(_FAULT)
    assert parts.aborts.retry_at() == parts.now_ms + BACKOFF_MS_MIN


def test_the_pause_ends_on_time(parts: Parts) -> None:
    parts.aborts.back_off(_FAULT)
    parts.aborts.back_off(_FAULT)
    parts.now_ms += BACKOFF_MS_MIN - 1
    assert parts.aborts.is_pausing
    parts.now_ms += 1
    assert not parts.aborts.is_pausing
    assert parts.aborts.retry_at() is None


def test_an_own_topic_that_is_isolated_is_retried_soon(parts: Parts) -> None:
    parts.isolated[OWN] = object()
    assert parts.aborts.retry_at() == _NOW_MS + OWN_RETRY_MS


def test_after_an_abort_without_a_cause_transactions_shrink_and_targets_are_looked_up(parts: Parts) -> None:
    parts.abort()
    assert (parts.failures, sorted(parts.looked_up)) == (1, ["mails", "orders"])
    parts.abort()
    assert parts.aborts.is_pausing
    (first, _) = parts.attempts
    assert (first.took_ms, first.is_refused) == (70, False)
    assert first.log_failed
    assert first.log_acknowledged


def test_a_failed_trial_does_not_make_the_other_transactions_smaller(parts: Parts) -> None:
    parts.abort(trial=_isolated(OWN))
    assert parts.failures == 0
    assert parts.looked_up
    parts.abort(trial=_isolated(OWN))
    assert parts.aborts.is_pausing


def test_after_an_abort_with_a_cause_the_shard_continues(parts: Parts) -> None:
    parts.finding = Finding.ATTRIBUTED
    for _ in range(2):
        parts.abort(RecordRejected("too large"))
    assert [attempt.is_refused for attempt in parts.attempts] == [True, True]
    assert (parts.failures, parts.looked_up, parts.aborts.is_pausing) == (0, [], False)


def test_an_abandoned_transaction_blames_no_target(parts: Parts) -> None:
    for _ in range(2):
        parts.abort(GivenUp("its target is gone"))
    assert (parts.attempts, parts.failures, parts.looked_up, parts.aborts.is_pausing) == ([], 0, [], False)


def test_while_a_transaction_waits_its_targets_are_looked_up_once(parts: Parts) -> None:
    is_missing = parts.aborts.missing_target(Batch(targets={"orders": 1, "mails": 1}))
    assert parts.looked_up == []
    assert not is_missing()
    parts.works = {"orders": True}
    assert not is_missing()
    parts.works["mails"] = False
    assert is_missing()
    assert (sorted(parts.looked_up), parts.polls) == (["mails", "orders"], 3)


def test_a_shard_may_begin_at_any_time_of_the_steady_clock(parts: Parts) -> None:
    parts.now_ms = 0.0
    assert not parts.aborts.is_pausing


def test_the_only_record_of_an_own_topic_that_is_too_large_limits_the_topic(parts: Parts) -> None:
    size_bytes = record_size_bytes(b"key", b"value", [])
    parts.abort(topics=("orders", OWN_TOPICS.dead_letters), outcomes=_too_large("orders", OWN_TOPICS.dead_letters))
    assert parts.limited == [(OWN_TOPICS.dead_letters, size_bytes - 1)]


def test_one_of_two_records_of_an_own_topic_proves_no_size_limit(parts: Parts) -> None:
    parts.abort(topics=(OWN_TOPICS.dead_letters,) * 2, outcomes=_too_large(OWN_TOPICS.dead_letters))
    assert parts.limited == []


@pytest.mark.parametrize(
    ("trial", "outcomes", "size", "counts"),
    [
        (None, {}, 2, {}),
        (None, _too_large("mails"), 2, {"orders": 1, "mails": 2}),
        ("mails", {}, 2, {"orders": 1, "mails": 2}),
        ("orders", {}, 1, {"orders": 1, "mails": 2}),
        (OWN, {}, 2, {"orders": 1, "mails": 2}),
    ],
)
def test_a_transaction_that_can_be_attributed_is_bounded_by_messages(
    trial: str | None, outcomes: dict[str, TopicOutcome], size: int, counts: dict[str, int]
) -> None:
    due = Due(
        [entry_key(5, 0)], [b""], parked=[(entry_key(6, 1), b"")], trial=None if trial is None else _isolated(trial)
    )
    attempt = finished_transaction(_ownership(outcomes), _batch("orders", "mails", "mails"), due)
    assert (attempt.trial, attempt.outcomes, attempt.took_ms) == (due.trial, outcomes, 30)
    assert (attempt.size, attempt.counts) == (size, counts)
    assert attempt.due_ms == ({} if trial is None else {0: 5, 1: 6})
