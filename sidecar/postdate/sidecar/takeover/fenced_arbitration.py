"""Decides whether a fenced shard may take its transactional id back. First it finds out who holds the id now.

Step 5 of docs/protocol.md, "Running". The dispatch log is read *before* any new init. Otherwise two deployments would
fence each other for ever. If the log shows a newer owner of another group whose group id sorts first, this shard gives
up. The order of group ids is the same for all shards. If the last owner of each shard won instead, each deployment
could keep some shards; after one of the two stops, nobody would serve the shards that the other had given up. The shard
takes the id back only under two conditions: the group confirms that this process still holds the partition, and the
other owner either belongs to the same group or has had time to write its owner record.

Thread rule: `note_ownership_confirmed` from the poll thread, which also reads `foreign`; everything else from the
shard's thread.
"""

from __future__ import annotations

from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.takeover import takeover
from postdate.sidecar.takeover.limits import OWNER_RECORD_TIMEOUT_MS


class FencedArbitration:
    """The state of one shard between a fence and the decision. `foreign` describes the deployment that has taken over
    for good; empty if there is none."""

    def __init__(self, ctx: ShardContext) -> None:
        self._ctx = ctx
        self._takeover = 0
        self._fenced_at = 0.0
        self._is_ownership_confirmed = False
        self.foreign = ""

    def begin(self, takeover_number: int | None) -> None:
        """Starts the arbitration after a fence. `takeover_number`: the number of the last takeover that this process
        knows; None keeps the number of the previous call."""
        if takeover_number is not None:
            self._takeover = takeover_number
        self._is_ownership_confirmed = False
        self._fenced_at = self._ctx.clock.steady_ms()

    def note_ownership_confirmed(self) -> None:
        """Notes that the group has confirmed, after the fence, that this process still holds the partition."""
        self._is_ownership_confirmed = True

    def may_return(self) -> bool:
        """Returns True if the shard may fence again. After False, the caller checks again later, unless `foreign` is
        set."""
        ctx = self._ctx
        last = takeover.last_record(ctx)
        is_newer = last is not None and last.takeover > self._takeover
        if last is not None and is_newer and last.group < ctx.config.group_id:
            self.foreign = (
                f"group {last.group} (instance {last.instance}) has taken over {ctx.name}: two deployments must not "
                "serve one request topic; stop one of them"
            )
            return False
        ours = last is not None and is_newer and last.group == ctx.config.group_id
        is_waiting = ctx.clock.steady_ms() - self._fenced_at < OWNER_RECORD_TIMEOUT_MS
        # An immediate fence would hide the other owner, and the two would fence each other for ever.
        return self._is_ownership_confirmed and (ours or not is_waiting)
