"""What a fenced shard does before it may take its transactional id back: find out who holds it now.

Step 5 of docs/protocol.md, "Running". The dispatch log is read *before* any new init: two deployments that fence each
other back would never end, so an owner of another group that has spoken there stays in peace, if its group comes first
in the order of names. That order is the same for all shards of both. Where each shard is left to who came last, one
deployment may keep some and the other the rest, and what was given up nobody serves once one of them is stopped. Only
when the group confirms that the partition is still ours, and whoever fenced has spoken or has had the time to, is the
id taken back.

Thread rule: `reassure` from the poll thread, everything else from the shard's.
"""

from __future__ import annotations

from postdate.sidecar import takeover
from postdate.sidecar.limits import FENCED_PATIENCE_MS
from postdate.sidecar.shard_context import ShardContext


class AfterFence:
    """The time from a fence until its end; `foreign` is who has taken over for good, empty where nobody has."""

    def __init__(self, ctx: ShardContext) -> None:
        self._ctx = ctx
        self._takeover = 0
        self._at = 0.0
        self._reassured = False
        self.foreign = ""

    def begin(self, takeover_number: int | None) -> None:
        """The shard was fenced in the takeover of this number; None: that of the fence before."""
        if takeover_number is not None:
            self._takeover = takeover_number
        self._reassured = False
        self._at = self._ctx.clock.steady_ms()

    def reassure(self) -> None:
        """The group has confirmed, after the fence, that this partition is still ours."""
        self._reassured = True

    def may_return(self) -> bool:
        """True where the shard may fence anew; False: look again later, or never where `foreign` says who is there."""
        ctx = self._ctx
        last = takeover.last_record(ctx)
        spoke = last is not None and last.takeover > self._takeover
        if last is not None and spoke and last.group < ctx.config.group_id:
            self.foreign = (
                f"group {last.group} (instance {last.instance}) has taken over {ctx.name}: two deployments must not "
                "serve one request topic; stop one of them"
            )
            return False
        ours = last is not None and spoke and last.group == ctx.config.group_id
        patient = ctx.clock.steady_ms() - self._at < FENCED_PATIENCE_MS
        return self._reassured and (ours or not patient)  # to fence back at once would hide who it is, and never end
