"""Parks entries whose target fails, is isolated, is held or cannot be looked up in time, and moves parked entries back.
(`after_commit` parks entries beyond a rate.)

Parked entries lie under parked keys, ordered by target and then by delivery order, so that they delay no other entries.
Parking is a local change that does not appear in the dispatch log. An owner that rebuilds the index from the topics
finds these entries among the due ones, and parks them again.

While entries of a target are parked, later entries of that target are parked too, whatever the reason for parking the
first: otherwise they would overtake the parked ones, in particular after a restart, since isolations are in memory
only.

Thread rule: the shard's thread.
"""

from __future__ import annotations

from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.dispatch.batch_content import Batch
from postdate.sidecar.dispatch.limits import TARGET_FRESH_MS_MAX, UNPARK_ENTRIES_MAX
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution
from postdate.sidecar.dispatch.targets.target_rates import TargetRates
from postdate.sidecar.dispatch.targets.targets import Target, Targets
from postdate.sidecar.index.overlay import IndexOverlay
from postdate.wheel.entry import Entry, decode_entry, encode_entry
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import (
    ENTRY_KEY_SIZE_BYTES,
    entry_key,
    parked_prefix,
    split_key,
    split_parked_key,
)


class Parking:
    """The parked entries of one shard."""

    def __init__(
        self, ctx: ShardContext, targets: Targets, faults: FaultAttribution, rates: TargetRates | None
    ) -> None:
        self._ctx = ctx
        self._targets = targets
        self._faults = faults
        self._rates = rates
        self._budget_ms = ctx.config.dispatch.retry_budget_ms
        self._index: TimerIndex | None = None
        self._names: set[str] = set()  # all targets with parked entries, and perhaps further ones
        self._first: dict[str, bytes | None] = {}

    def begin(self, index: TimerIndex) -> None:
        """Starts a turn. O(1), plus a seek for each target with parked entries if `index` is not the index of the last
        turn."""
        if index is not self._index:
            self._index, self._names = index, set(_parked_targets(index))
        self._first.clear()

    @property
    def any(self) -> bool:
        """True if `precedes` may return True for some target. O(1)."""
        return bool(self._names)

    def precedes(self, target: str, key: bytes) -> bool:
        """True if a parked entry of a target comes before the entry under `key`, which must therefore be parked too.

        REQUIRES: `begin` for this turn. Always False for a target with a rate: `TargetRates.admits` keeps its order.
        O(1), plus a seek for the first message of a target with parked entries.
        """
        if target not in self._names or self._index is None or (self._rates is not None and self._rates.limits(target)):
            return False
        if target not in self._first:
            keys = self._index.timer_log.scan_parked(target, 1, 1)[0]
            self._first[target] = keys[0][-ENTRY_KEY_SIZE_BYTES:] if keys else None
        first = self._first[target]
        return first is not None and first < key

    def park(self, index: TimerIndex, batch: Batch) -> None:
        """Parks the entries of `batch.park`: moves them under parked keys."""
        overlay = IndexOverlay(index)
        for key, entry in batch.park:
            _rekey(overlay, key, entry, parked=True)
        overlay.write()
        names = {entry.target for _, entry in batch.park}
        self._names |= names
        self._faults.parked(names)
        self._targets.expect(names)
        if self._rates is not None:
            for name in names:
                self._rates.parked(name)

    def maintain(self, index: TimerIndex, now_ms: int) -> bool:
        """Checks the targets of parked entries, and moves back the entries that may leave. Returns True if entries
        moved."""
        moved = False
        self._names = set(parked := _parked_targets(index))
        names = [name for name in parked if name not in self._ctx.held.current.targets]
        self._targets.look_up(names)
        self._faults.parked(names)
        for name in names:
            target = self._targets.get(name)
            if target is None:
                continue
            if not target.works or self._faults.get(name) is not None:
                moved |= self._end_spent(index, target, now_ms)
            elif self._rates is not None and self._rates.limits(name):
                self._rates.wait(name)  # `TargetRates` reads entries under their parked keys
            else:
                moved |= self._move_back(index, *index.timer_log.scan_parked(name, UNPARK_ENTRIES_MAX))
        return moved

    def _end_spent(self, index: TimerIndex, target: Target, now_ms: int) -> bool:
        """Moves back the entries whose retry budget is used up, if the target has failed for that long, so that they
        become dead letters. Returns True if entries moved."""
        steady, spent_ms = self._ctx.clock.steady_ms(), now_ms - self._budget_ms
        if target.works:
            may_end = self._faults.spent(target.name, spent_ms, now_ms) is not None
        else:
            may_end = steady - target.failing_since >= self._budget_ms
            if may_end and steady - target.looked_up_at > TARGET_FRESH_MS_MAX:  # the target may be usable again
                self._targets.refresh_soon((target.name,))
                may_end = False
        if not may_end:
            return False
        # Read only the spent entries: thousands of others may be parked.
        spent = index.timer_log.scan_parked(target.name, UNPARK_ENTRIES_MAX, before=entry_key(spent_ms + 1, 0))
        return self._move_back(index, *spent)

    def _move_back(self, index: TimerIndex, keys: list[bytes], values: list[bytes]) -> bool:
        overlay = IndexOverlay(index)
        for key, raw in zip(keys, values, strict=True):
            _rekey(overlay, key, decode_entry(raw), parked=False)
        if keys:
            overlay.write()
        return bool(keys)


def _rekey(overlay: IndexOverlay, key: bytes, entry: Entry, parked: bool) -> None:
    due_ms, offset = split_key(key)
    overlay.remove(key, entry.stored)
    if parked:
        overlay.park(offset, due_ms, entry.target, encode_entry(entry), entry.stored)
    else:
        overlay.drop_place(offset)
        overlay.put(offset, due_ms, entry)


def _parked_targets(index: TimerIndex) -> list[str]:
    """Returns the targets with parked entries; one seek each."""
    names: list[str] = []
    start = b""
    while keys := index.timer_log.scan_parked_keys(start, 1):
        names.append(split_parked_key(keys[0])[0])
        start = parked_prefix(names[-1])[:-1] + b"\1"
    return names
