"""Handles the abort of a transaction: finds the target or entry to blame, and decides when the next attempt follows and
how large it may be.

Step 3 of docs/protocol.md, "Running". `fault_attribution` attributes an abort to targets or entries. This module passes
it the known facts about the transaction, and backs off if `fault_attribution` demands it (`Finding.BACK_OFF`).

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from postdate.kafka.classification import Blame, blame
from postdate.kafka.errors import AbortRequired, KafkaFault, RecordRejected
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.due.batch_limit import BatchLimit
from postdate.sidecar.dispatch.due.due_reader import Due
from postdate.sidecar.dispatch.limits import OWN_RETRY_MS
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution, Finding, FinishedTransaction
from postdate.sidecar.dispatch.targets.isolated_targets import OWN
from postdate.sidecar.dispatch.targets.targets import Targets
from postdate.sidecar.limits import BACKOFF_MS_MAX, BACKOFF_MS_MIN
from postdate.sidecar.transaction.transaction import GivenUp, ShardOwnership
from postdate.wire.delivered import record_size_bytes

log = logging.getLogger(__name__)


class Aborts:
    """Handles the aborts of one shard, and the pause after an abort."""

    def __init__(self, ctx: ShardContext, targets: Targets, faults: FaultAttribution, limit: BatchLimit) -> None:
        self._ctx = ctx
        self._targets = targets
        self._faults = faults
        self._limit = limit
        self._retry_at = 0.0
        self._delay_ms = 0.0

    @property
    def is_pausing(self) -> bool:
        """True until the pause after an abort is over."""
        return self._ctx.clock.steady_ms() < self._retry_at

    def retry_at(self) -> float | None:
        """Returns the steady time in ms of the next retry, after an abort or while Postdate's own topics are isolated;
        None if no retry is pending."""
        steady = self._ctx.clock.steady_ms()
        if self._retry_at > steady:
            return self._retry_at
        return steady + OWN_RETRY_MS if self._faults.get(OWN) is not None else None

    def committed(self) -> None:
        """Resets the pause after a commit: the next call of `back_off` sets no pause."""
        self._delay_ms = 0.0
        self._faults.note_commit()

    def aborted(self, ownership: ShardOwnership, batch: Batch, due: Due, fault: AbortRequired) -> None:
        """Attributes an abort to targets or entries. On `Finding.BACK_OFF`, backs off and, unless a trial was aborted,
        makes the next transactions smaller. Does neither for a `GivenUp` transaction."""
        if isinstance(fault, GivenUp):  # nothing to attribute: the metadata shows that the target fails
            log.info("shard %s: %s", self._ctx.name, fault)
            return
        finished = finished_transaction(ownership, batch, due)
        finished.took_ms = self._ctx.clock.steady_ms() - ownership.began_at
        finished.is_refused, finished.log_failed = isinstance(fault, RecordRejected), ownership.log_failed
        finished.log_acknowledged = ownership.log_acknowledged
        self._limit_own(finished, batch)
        if self._faults.aborted(finished, due.now_ms) is Finding.ATTRIBUTED:
            log.log(
                logging.INFO if due.trial is None else logging.DEBUG,
                "shard %s: a transaction was aborted: %s",
                self._ctx.name,
                fault,
            )
            return
        self._targets.refresh_soon(batch.targets)
        if due.trial is None:
            self._limit.failed()
        self.back_off(fault)

    def back_off(self, fault: KafkaFault) -> None:
        """Sets the pause before the next transaction: 0 at the first call after a commit, then BACKOFF_MS_MIN. Each
        further call doubles it, up to BACKOFF_MS_MAX."""
        log.warning("shard %s: a transaction was aborted, next try in %d ms: %s", self._ctx.name, self._delay_ms, fault)
        self._retry_at = self._ctx.clock.steady_ms() + self._delay_ms
        self._delay_ms = min(max(self._delay_ms * 2, BACKOFF_MS_MIN), BACKOFF_MS_MAX)

    def missing_target(self, batch: Batch) -> Callable[[], bool]:
        """Returns a function that returns True once a target of the transaction is unusable. The first call of that
        function requests new metadata of all these targets. Without this check, the transaction and every message in it
        would wait until message.timeout.ms."""
        is_requested = False

        def is_missing() -> bool:
            nonlocal is_requested
            if not is_requested:
                self._targets.refresh_soon(batch.targets)
                is_requested = True
            self._targets.poll()
            return any((target := self._targets.get(name)) is not None and not target.works for name in batch.targets)

        return is_missing

    def _limit_own(self, finished: FinishedTransaction, batch: Batch) -> None:
        """Lowers the known size limit of one of Postdate's own topics that refused a record as too large. Ignores
        topics with more than one record in the transaction, since size limits apply to batches."""
        for _, topic, _, key, value, headers in batch.messages if finished.outcomes else ():
            if topic not in self._ctx.own.names() or finished.counts[topic] > 1:
                continue
            outcome = finished.outcomes.get(topic)
            if outcome is not None and any(blame(fault) is Blame.TOO_LARGE for fault in outcome.faults.values()):
                self._targets.limit(topic, record_size_bytes(key, value, headers) - 1)


def finished_transaction(ownership: ShardOwnership, batch: Batch, due: Due) -> FinishedTransaction:
    """Returns a summary of the transaction that has just ended. Counts its messages only if it was a trial or has
    outcomes."""
    trial, outcomes, took_ms = due.trial, ownership.outcomes, ownership.took_ms
    counts = Counter(message[1] for message in batch.messages) if trial is not None or outcomes else Counter[str]()
    if trial is not None:
        size = len(batch.fates) if trial.name == OWN else counts[trial.name]
        return FinishedTransaction(trial, size, counts, outcomes, took_ms, batch.targets, due_ms=due.due_ms())
    return FinishedTransaction(trial, len(batch.fates), counts, outcomes, took_ms, batch.targets)
