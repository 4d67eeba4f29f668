"""Confirms a halt before the shard halts: new clients must find the same problem again.

Offsets and metadata come from the broker that the client knows. A broker that was deposed while it was frozen returns
old values. So if a halt depends on such an answer, new admin clients repeat the check for longer than a broker's
session lasts. The shard halts only if all of them agree; until then it retries with backoff.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from postdate.kafka.errors import Retriable
from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.errors import EVIDENT, Halted, HaltReason, Loss
from postdate.sidecar.takeover.limits import HALT_CONFIRM_MS, HALT_FINDINGS_MIN


class Confirmation:
    """The unconfirmed findings in the takeovers of one shard."""

    def __init__(self, ctx: ShardContext) -> None:
        self._ctx = ctx
        self._findings: dict[HaltReason, tuple[float, int, int]] = {}
        """By reason: the time of the first finding, the number of findings, and the end of the last named range. One
        takeover may find two problems."""
        self._is_in_doubt = False
        self.requests_end = 0
        """The highest end of the request topic that an attempt of this takeover saw when it found a truncated dispatch
        log."""

    @contextmanager
    def context(self) -> Iterator[ShardContext]:
        """Provides the context of the next attempt, with a new admin client while an answer is in doubt."""
        if not self._is_in_doubt:
            yield self._ctx
            return
        admin = self._ctx.kafka.admin()
        try:
            yield replace(self._ctx, admin=admin)
        finally:
            admin.close()

    def note_wrong_answer(self) -> None:
        """Notes that an answer may have been wrong: until `clear`, each attempt uses a new admin client."""
        self._is_in_doubt = True

    def clear(self) -> None:
        """Forgets all findings and doubts. Called after a successful takeover."""
        self._is_in_doubt, self.requests_end = False, 0
        self._findings.clear()

    def confirm(self, halt: Halted, reason: HaltReason | None, loss: Loss | None) -> None:
        """Returns if the halt is confirmed; never waits. `reason`, `loss`: the reason and the loss of the shard's last
        halt, in this or another process.

        Raises Retriable if the finding is not confirmed yet: the next takeover checks it again.
        """
        end = _end(halt.loss)
        if halt.reason in EVIDENT or (halt.reason is reason and end >= _end(loss)):
            return
        steady = self._ctx.clock.steady_ms()
        found_at, findings, end_before = self._findings.get(halt.reason, (steady, 0, end))
        if end < end_before:  # the range ends earlier than before: a deposed leader may have answered now
            found_at, findings = steady, 0
        self._findings[halt.reason] = found_at, findings + 1, end
        if findings + 1 < HALT_FINDINGS_MIN or steady - found_at < HALT_CONFIRM_MS:
            self._is_in_doubt = True
            raise Retriable(f"{halt} (found {findings + 1} times; asking again before the shard halts)")


def _end(loss: Loss | None) -> int:
    return -1 if loss is None else loss.end
