"""Confirms a halt before the shard halts: what was found of a log or a topic must stand, asked of a new client.

Offsets and metadata come from the broker that the client knows, and one that was deposed while it was frozen answers
with what it last knew. So a halt that rests on such answers is found again and again, by an admin client that was made
for it, for longer than a broker's session lasts; only then does it stand. Meanwhile the shard retries with backoff.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from postdate.connectors.kafka.errors import Retriable
from postdate.sidecar.errors import EVIDENT, Halted, HaltReason
from postdate.sidecar.limits import HALT_CONFIRM_MS, HALT_FINDINGS_MIN
from postdate.sidecar.shard_context import ShardContext


class Confirmation:
    """What the takeovers of one shard have found and not yet confirmed."""

    def __init__(self, ctx: ShardContext) -> None:
        self._ctx = ctx
        self._reason: HaltReason | None = None
        self._found_at = 0.0
        self._findings = 0
        self._in_doubt = False

    @contextmanager
    def asking(self) -> Iterator[ShardContext]:
        """The context of the next takeover: with an admin client of its own while an answer is in doubt."""
        if not self._in_doubt:
            yield self._ctx
            return
        admin = self._ctx.kafka.admin()
        try:
            yield replace(self._ctx, admin=admin)
        finally:
            admin.close()

    def doubt(self) -> None:
        """An answer was wrong: the next takeover asks with a new client."""
        self._in_doubt = True

    def clear(self) -> None:
        """A takeover has succeeded: nothing is in doubt."""
        self._reason, self._in_doubt = None, False

    def confirm(self, halt: Halted, standing: HaltReason | None) -> None:
        """Return if the shard must halt. `standing`: the reason for which it halted before, also in another process.

        Raises Retriable while the finding is not confirmed: take over again, later.
        """
        if halt.reason in EVIDENT or halt.reason is standing:
            return
        steady = self._ctx.clock.steady_ms()
        if self._reason is not halt.reason:
            self._reason, self._found_at, self._findings = halt.reason, steady, 0
        self._findings += 1
        if self._findings < HALT_FINDINGS_MIN or steady - self._found_at < HALT_CONFIRM_MS:
            self._in_doubt = True
            raise Retriable(f"{halt} (found {self._findings} times; asking again before the shard halts)")
