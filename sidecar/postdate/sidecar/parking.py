"""Entries that wait apart because of their target: it fails, a person holds it, or it is sent to at a limited rate.

They lie under parked keys, by target and then as they would leave, so that they hold nobody up. Moving them there and
back is a local change only: nothing is said in the dispatch log, and an owner that starts from the topics finds them
due and parks them again.

Thread rule: the shard's thread.
"""

from __future__ import annotations

from postdate.sidecar.batch_content import Batch
from postdate.sidecar.draft import Draft
from postdate.sidecar.limits import TARGET_PROBE_MS_MIN, UNPARK_ENTRIES_MAX
from postdate.sidecar.shard_context import ShardContext
from postdate.sidecar.target_rates import TargetRates
from postdate.sidecar.targets import Target, Targets
from postdate.wheel.entry import Entry, decode_entry, encode_entry
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import ENTRY_KEY_SIZE_BYTES, parked_key, parked_prefix, split_key, split_parked_key


class Parking:
    """What one shard has parked."""

    def __init__(self, ctx: ShardContext, targets: Targets, rates: TargetRates | None) -> None:
        self._ctx = ctx
        self._targets = targets
        self._rates = rates
        self._budget_ms = ctx.config.dispatch.retry_budget_ms

    def park(self, index: TimerIndex, batch: Batch) -> None:
        """Move entries of held and failing targets aside."""
        draft = Draft(index)
        for key, entry in batch.park:
            _rekey(draft, key, entry, parked=True)
        index.write(draft.changes)
        if self._rates is not None:
            for target in {entry.target for _, entry in batch.park}:
                self._rates.parked(target)

    def bring_back(self, index: TimerIndex, offset: int) -> None:
        """Move the entry of a request back if it is parked: it is to be tried alone."""
        key = index.find(offset)
        raw = index.parked(key) if key is not None and len(key) > ENTRY_KEY_SIZE_BYTES else None
        if key is not None and raw is not None:
            draft = Draft(index)
            _rekey(draft, key, decode_entry(raw), parked=False)
            index.write(draft.changes)

    def tend(self, index: TimerIndex, now_ms: int) -> bool:
        """Look at the targets of what is parked, and move back what may go on; True if entries moved."""
        moved = False
        for name in _parked_targets(index):
            if name in self._ctx.held.now.targets:
                continue
            target = self._targets.get(name)
            if target is None:
                self._targets.learn([name])
                target = self._targets.get(name)
            assert target is not None, "learn knows every name it was asked for"
            if target.works and self._rates is not None and self._rates.limits(name):
                self._rates.wait(name)  # it takes them from where they lie
            else:
                moved |= self._unpark(index, target, now_ms)
        return moved

    def _unpark(self, index: TimerIndex, target: Target, now_ms: int) -> bool:
        """Move entries back: all of a target that works, else those whose retry budget is used up."""
        steady = self._ctx.clock.steady_ms()
        keys, values = index.scan_parked(target.name, UNPARK_ENTRIES_MAX)
        draft, moved = Draft(index), 0
        last_look = steady - target.looked_at > TARGET_PROBE_MS_MIN
        for key, raw in zip(keys, values, strict=True):
            spent = steady - target.failing_since >= self._budget_ms and (split_key(key)[0] + self._budget_ms <= now_ms)
            if spent and last_look and not target.works:  # nobody ends for a target that came back a moment ago
                last_look = False
                self._targets.look_again(target.name)
            if not target.works and not spent:
                break
            _rekey(draft, key, decode_entry(raw), parked=False)
            moved += 1
        if moved:
            index.write(draft.changes)
        return moved > 0


def _rekey(draft: Draft, key: bytes, entry: Entry, parked: bool) -> None:
    due_ms, offset = split_key(key)
    draft.remove(key, entry.stored)
    if parked:
        new_key = parked_key(entry.target, due_ms, offset)
        draft.changes.insert_parked(new_key, encode_entry(entry), stored=entry.stored)
        draft.changes.places[offset] = new_key
    else:
        draft.changes.places[offset] = None
        draft.put(offset, due_ms, entry)


def _parked_targets(index: TimerIndex) -> list[str]:
    """The targets that have parked entries, by one seek each."""
    names: list[str] = []
    start = b""
    while keys := index.scan_parked_keys(start, 1):
        names.append(split_parked_key(keys[0])[0])
        start = parked_prefix(names[-1])[:-1] + b"\1"
    return names
