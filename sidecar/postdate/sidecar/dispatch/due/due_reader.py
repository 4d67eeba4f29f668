"""Reads the entries of a shard's next transaction, a common one or a trial, from its timer index.

A common transaction contains the entries that are due first and, in a backlog, messages for targets that are not part
of the backlog. It also contains parked messages that the rate of their target now admits, and parked entries that are
condemned. A trial contains parked messages of one isolated target. A trial of Postdate's own topics contains entries
under key 0 and, if it contains all of them, messages that write to these topics. While these topics are isolated,
common transactions contain only messages that do not write to them.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

from postdate.sidecar.context.shard_context import ShardContext
from postdate.sidecar.dispatch.due.backlog_bypass import BacklogBypass
from postdate.sidecar.dispatch.due.batch_limit import BatchLimit
from postdate.sidecar.dispatch.due.control_pieces import acted_on, first_piece
from postdate.sidecar.dispatch.due.own_topics_filter import MessageKey, OwnTopicsFilter, due_order_of, note_first
from postdate.sidecar.dispatch.limits import (
    RATE_RETRY_MS,
    SURPLUS_BYTES_MAX,
    SURPLUS_FATES_MAX,
    TRIAL_LOOKED_AHEAD_MAX,
)
from postdate.sidecar.dispatch.targets.fault_attribution import FaultAttribution
from postdate.sidecar.dispatch.targets.isolated_targets import OWN, Isolated
from postdate.sidecar.dispatch.targets.target_rates import TargetRates
from postdate.sidecar.dispatch.targets.targets import Targets
from postdate.sidecar.ingest.limits import ENDING_SIZE_BYTES_MAX
from postdate.wheel.entry import Kind, decode_entry, decode_head
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import ENTRY_KEY_SIZE_BYTES, LAST_KEY, split_key

#: The most entries of a scan are divided by this while messages for other targets wait for the second cursor.
_SHORT = 4

#: Entries under key 0, and no others, are due before this time.
_BEFORE_MESSAGES_MS = 1


@dataclass(slots=True)
class Due:
    """The input of one transaction: keys and values, ascending. `keys_after_gaps`: keys that follow an unread key.
    `read_to`: all entries due up to this key were read. `full`: the scan of the first cursor reached its limit.
    `short`: that limit was reduced, also because of `is_attributing`. `has_more`: more entries may be due. `ordered`:
    no entry under key 0 waits, `is_attributing` is False, and Postdate's own topics are not isolated. `parked`:
    keys and values of parked entries. `trial`: the isolated target of a trial. `own_filter`: selects the messages that
    may leave; None: all may. `now_ms`: the last millisecond that has passed by the broker's clock. `behind_ms`: only
    entries due at least this long before `now_ms` may leave, because of the cancel gate, a hold or a bulk control.
    `surplus_max`, `surplus_bytes_max`: limits of the missed occurrences that may leave together with the next
    occurrences of their schedules. `ends_bulk`: no entry for the bulk control in force is left after this
    transaction."""

    keys: list[bytes]
    values: list[bytes]
    keys_after_gaps: Collection[bytes] = ()
    read_to: bytes = b""
    full: bool = False
    has_more: bool = False
    short: bool = False
    ordered: bool = False
    parked: list[tuple[bytes, bytes]] = field(default_factory=list)
    now_ms: int = 0
    behind_ms: int = 0
    surplus_max: int = SURPLUS_FATES_MAX
    surplus_bytes_max: int = SURPLUS_BYTES_MAX
    trial: Isolated | None = None
    own_filter: OwnTopicsFilter | None = None
    ends_bulk: bool = False

    def due_ms(self) -> dict[int, int]:
        """Returns the due times of all entries, by request offset. O(entries)."""
        return {offset: due_ms for due_ms, offset in map(split_key, [*self.keys, *(key for key, _ in self.parked)])}

    def leave_out(self, keys: Collection[bytes]) -> None:
        """Removes entries that have been parked. O(entries). REQUIRES: `keys_after_gaps` is empty."""
        rows = [row for row in zip(self.keys, self.values, strict=True) if row[0] not in keys]
        self.keys, self.values = [key for key, _ in rows], [value for _, value in rows]


class DueReader:
    """Reads the due entries of one shard, and keeps the position of the second cursor between transactions."""

    def __init__(
        self,
        ctx: ShardContext,
        targets: Targets,
        faults: FaultAttribution,
        limit: BatchLimit,
        rates: TargetRates | None,
    ) -> None:
        self._ctx = ctx
        self._targets = targets
        self._faults = faults
        self._limit = limit
        self._rates = rates
        self._bypass = BacklogBypass()
        self._is_behind = False  # more entries were due than the last transaction took

    def read(self, index: TimerIndex, steady_ms: float, before_ms: int) -> Due:
        """Returns the input of the next transaction; empty if nothing may leave now."""
        for isolated in self._faults.ready_trials(steady_ms):
            due = (
                self._own(index, isolated, before_ms)
                if isolated.name == OWN
                else self._trial(index, isolated, steady_ms, before_ms)
            )
            if due is not None:
                due.trial, due.surplus_max = isolated, 0
                own = self._faults.get(OWN)
                if own is not None and own is not isolated:
                    due.own_filter = OwnTopicsFilter(own.topics)
                return due
        due = self._common(index, before_ms)
        # A transaction that must be small carries no missed occurrences.
        due.surplus_max = 0 if due.short else min(SURPLUS_FATES_MAX, self._limit.entries)
        due.surplus_bytes_max = min(SURPLUS_BYTES_MAX, self._limit.size_bytes)
        if (own := self._faults.get(OWN)) is not None:
            self._leave_own(index, due, own, before_ms)
        return due

    def ended(self, index: TimerIndex, due: Due, gone: set[bytes], before_ms: int) -> None:
        """Decides after a transaction whether the second cursor starts, continues or ends. `gone`: the result of
        `Batch.gone`."""
        if due.trial is not None:
            return
        self._is_behind = due.has_more
        if not due.ordered:
            return
        if not due.has_more:
            self._bypass.end()
        elif self._bypass.active:
            self._bypass.committed(due.keys, due.values, gone)
        else:
            full = len(due.keys) * (_SHORT if due.short else 1)
            if BacklogBypass.wanted(index, before_ms, full):
                self._bypass.begin(index, due.keys, due.values, gone, full)

    # ---- a common transaction --------------------------------------------------------------------------------------

    def _common(self, index: TimerIndex, before_ms: int) -> Due:
        limit, size_max = self._limits(index)
        if self._rates is None or not self._rates.is_ready:
            due = self._scan(index, before_ms, limit, size_max)
        else:
            parked_max = max(limit - index.ending_count, 1) // 2 or int(not index.ending_count)
            due = self._scan(index, before_ms, max(limit - parked_max, 1), max(size_max // 2, 1))
            due.parked = self._rates.next_messages(
                index, before_ms, parked_max, max(size_max // 2, 1), partial(self._release_up_to, due)
            )
        if self._faults.condemned:
            rows = dict(
                [*due.parked, *self._condemned(index, before_ms)]
            )  # both lists contain a row whose target is no longer isolated
            due.parked = sorted(rows.items(), key=lambda row: row[0][-ENTRY_KEY_SIZE_BYTES:])
        return due

    def _scan(self, index: TimerIndex, before_ms: int, limit: int, size_max: int) -> Due:
        """Reads the entries of both cursors."""
        ordered = not (index.ending_count or self._faults.is_attributing or self._faults.get(OWN) is not None)
        if ordered:
            bypassed = self._bypass.next_messages(index, before_ms, max(1, limit // 2), max(1, size_max // 2))
            if bypassed is not None:
                limit = max(1, limit // _SHORT if self._bypass.searching else limit - len(bypassed.keys))
                size_max = max(1, size_max - bypassed.size_bytes)
                due = Due(*index.scan_due(before_ms, limit, size_max, until=bypassed.until), ordered=True)
                due.short = self._bypass.searching
                due.full = len(due.keys) >= limit or sum(map(len, due.values)) >= size_max
                due.read_to = due.keys[-1] if due.full else bypassed.until
                due.has_more = due.full or self._bypass.searching or bool(bypassed.keys)
                due.keys += bypassed.keys
                due.values += bypassed.values
                due.keys_after_gaps = bypassed.keys_after_gaps
                return due
        # The messages behind a new backlog wait for this transaction and for the second cursor, so it should be short.
        short = ordered and not self._is_behind and BacklogBypass.wanted(index, before_ms, limit)
        limit = max(1, limit // _SHORT) if short else limit
        due = Due(*index.scan_due(before_ms, limit, size_max), ordered=ordered)
        due.short = short or self._faults.is_attributing
        due.full = due.has_more = len(due.keys) >= limit or sum(map(len, due.values)) >= size_max
        due.read_to = due.keys[-1] if due.full else LAST_KEY
        return due

    def _release_up_to(self, due: Due, target: str) -> bytes | None:
        """Returns the highest key up to which parked messages of a target may leave; None if the target is held, fails
        or is isolated. Below that key, all unread messages of the target are parked, so no message is overtaken."""
        known = self._targets.get(target)
        if target in self._ctx.held.current.targets or not (known is None or known.works):
            return None
        if self._faults.get(target) is not None:
            return None
        return max(due.read_to, self._bypass.cleared_up_to(target) if due.ordered else b"")

    def _limits(self, index: TimerIndex) -> tuple[int, int]:
        """Returns the most entries and bytes of the next scan. The scan must contain all entries under key 0 (rule
        1)."""
        limit, size_max = self._faults.entries_max(self._limit.entries), self._limit.size_bytes
        if index.ending_count:
            most = max(index.ending_count, limit // 2)
            is_own_isolated = self._faults.get(OWN) is not None
            return most + (limit if is_own_isolated else 0), max(size_max, 4 * ENDING_SIZE_BYTES_MAX)
        return limit, size_max

    def _leave_own(self, index: TimerIndex, due: Due, own: Isolated, before_ms: int) -> None:
        """Restricts the input to messages that write to no isolated topic of Postdate, and on which no entry under key
        0 acts. If a due message must still be stored, later messages of its target and key also wait."""
        count = min(index.ending_count, len(due.keys))
        rows = [(key, decode_entry(raw)) for key, raw in zip(due.keys[:count], due.values[:count], strict=True)]
        due.keys, due.values = due.keys[count:], due.values[count:]
        behind: dict[MessageKey, bytes] = {}
        for key, entry in rows:
            if entry.kind == Kind.STORE and entry.due < before_ms:
                note_first(behind, (entry.target, entry.key), due_order_of(key, entry))
        due.own_filter = OwnTopicsFilter(own.topics, acted_on={entry.acts_on for _, entry in rows}, behind=behind)
        if count:
            self._faults.parked((OWN,))

    def _condemned(self, index: TimerIndex, before_ms: int) -> list[tuple[bytes, bytes]]:
        """Returns the parked entries that are condemned and due. An entry that is no longer parked is no longer
        condemned."""
        rows: list[tuple[bytes, bytes]] = []
        for offset in list(self._faults.condemned):
            row = _parked(index, offset)
            if row is None:
                del self._faults.condemned[offset]
            elif split_key(row[0])[0] < before_ms:
                rows.append(row)
        return rows

    # ---- trials ----------------------------------------------------------------------------------------------------

    def _trial(self, index: TimerIndex, isolated: Isolated, steady_ms: float, before_ms: int) -> Due | None:
        """Returns parked messages of an isolated target, at most as many as its maximum; None if none may leave now."""
        name = isolated.name
        target = self._targets.get(name)
        if target is None or not target.works or name in self._ctx.held.current.targets:
            isolated.waits = False  # until `Parking.maintain` finds parked entries of this target and no hold
            isolated.failing_since = 0.0  # a time without trials does not count towards the retry budget
            return None
        messages_max = isolated.messages_max
        if self._rates is not None:
            messages_max = min(messages_max, self._rates.available(name))
        stays = self._acted_on(index)
        excluded = {*isolated.refused, *stays, *self._faults.condemned}
        rows_max = messages_max + len(excluded)
        rows = [
            (key, raw)
            for key, raw in zip(*index.timer_log.scan_parked(name, rows_max, self._limit.size_bytes), strict=True)
            if split_key(key)[1] not in excluded and split_key(key)[0] < before_ms
        ][:messages_max]
        is_cut = False
        if rows and (first := self._first_unparked(index, name, before_ms, rows[-1][0][-ENTRY_KEY_SIZE_BYTES:])):
            kept = [row for row in rows if row[0][-ENTRY_KEY_SIZE_BYTES:] < first]
            rows, is_cut = kept, not kept
        alone = self._refused(index, isolated, steady_ms, before_ms, stays) if messages_max else None
        if alone is not None and (isolated.alone_next or not rows):
            isolated.alone_next = False
            return Due([], [], parked=[alone])
        isolated.alone_next = True
        if rows:
            return Due([], [], parked=rows)
        if isolated.refused or stays or not messages_max or is_cut:
            isolated.retry_at = steady_ms + RATE_RETRY_MS
        else:
            self._faults.nothing_waits(isolated)
        return None

    def _first_unparked(self, index: TimerIndex, name: str, before_ms: int, until: bytes) -> bytes | None:
        """Returns the place below `until` of the first unparked due message of a target, which later parked messages
        must not overtake. A message that waits under key 0 to be stored counts as well. Returns None if there is no
        such message among the first TRIAL_LOOKED_AHEAD_MAX due ones: a backlog of other targets must not stop the
        trials. Also returns None while Postdate's own topics are isolated.
        """
        if self._faults.get(OWN) is not None:
            return None
        controls = index.ending_count
        keys, values = index.scan_due(before_ms, controls + TRIAL_LOOKED_AHEAD_MAX, until=until)
        due = zip(keys[controls:], values[controls:], strict=True)
        places = [key for key, raw in due if decode_head(raw).target == name]
        for key, raw in zip(keys[:controls], values[:controls], strict=True):
            head = decode_head(raw)
            if head.kind == Kind.STORE and head.target == name:
                places.append(due_order_of(key, head))
        first = min(places, default=until)
        return first if first < until else None

    def _refused(
        self, index: TimerIndex, isolated: Isolated, steady_ms: float, before_ms: int, stays: Collection[int]
    ) -> tuple[bytes, bytes] | None:
        """Returns a refused entry whose next attempt, alone in a transaction, is due; None if there is none. Of the
        entries before it, forgets those whose attempt is due, if they have ended, or are neither parked nor due."""
        for offset, refused in list(isolated.refused.items()):
            if refused.next_at > steady_ms or offset in stays:
                continue
            key, row = index.timer_log.find(offset), _parked(index, offset)
            if key is None or (row is None and split_key(key)[0] >= before_ms):
                del isolated.refused[offset]
            elif row is not None and split_key(key)[0] < before_ms:
                return row
        return None

    def _acted_on(self, index: TimerIndex) -> Collection[int]:
        """Returns the requests on which entries under key 0 act; they must not end before those entries (rule 4)."""
        if not index.ending_count:
            return ()
        rows = index.scan_due(_BEFORE_MESSAGES_MS, index.ending_count, 4 * ENDING_SIZE_BYTES_MAX)
        return set(acted_on(*rows)[1])

    def _own(self, index: TimerIndex, isolated: Isolated, before_ms: int) -> Due | None:
        """Returns the first piece of the entries under key 0. If the piece contains all of them, due messages that
        write to an isolated topic of Postdate follow. Returns None if nothing is due."""
        keys, values = index.scan_due(_BEFORE_MESSAGES_MS, index.ending_count, 4 * ENDING_SIZE_BYTES_MAX)
        piece = first_piece(*acted_on(keys, values), isolated.messages_max)
        if len(piece) < len(keys):
            after_gaps = {keys[at] for previous, at in zip([-1, *piece], piece, strict=False) if at != previous + 1}
            return Due([keys[at] for at in piece], [values[at] for at in piece], after_gaps, has_more=True)
        due = self._common(index, before_ms)
        if not due.keys and not due.parked:
            self._faults.nothing_waits(isolated)
            return None
        due.own_filter = OwnTopicsFilter(isolated.topics, own_left=max(isolated.messages_max - len(piece), 0))
        return due


def _parked(index: TimerIndex, offset: int) -> tuple[bytes, bytes] | None:
    """Returns key and value of the entry of a request if it is parked; otherwise None."""
    key = index.timer_log.find(offset)
    raw = index.timer_log.parked(key) if key is not None and len(key) > ENTRY_KEY_SIZE_BYTES else None
    return None if key is None or raw is None else (key, raw)
