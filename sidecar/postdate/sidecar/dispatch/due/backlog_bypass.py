"""Runs the second cursor of a backlog, which takes due messages for targets that have no earlier message waiting.

If half a million messages are due in the same millisecond, the first cursor needs seconds for them, and all later
messages would wait. So if far more messages are due than one transaction takes, and a few targets have a large share of
them, a second cursor moves ahead of the first and takes the messages of all other targets. If another target then gets
a large share of the messages of the second cursor, that target also waits for the first cursor. The messages of one
target still leave in order of due time, then of request offset: while one of them waits below the second cursor, the
cursor takes no later message of that target.

Invariants while the second cursor is active: each present message below `_position` has a target in `_waiting`; the
second cursor has taken no message below the first cursor. A message that is put below `_position` lowers `_position`.
If the state becomes uncertain (a transaction that did not commit, another index, too many targets), the bypass ends;
the next full transaction may start another one.

Thread rule: belongs to the shard's thread.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from postdate.sidecar.dispatch.limits import (
    BACKLOG_TRANSACTIONS,
    BYPASS_ENTRIES_MAX,
    BYPASS_SIZE_BYTES_MAX,
    BYPASS_TARGETS_MAX,
    HEAVY_SHARE,
    HEAVY_TAKEN_MIN,
)
from postdate.wheel.entry import Kind, decode_head, head_bytes
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import entry_key
from postdate.wheel.timer_log.database import RangeIterator

#: The most distinct beginnings of skipped rows that are remembered: rows of one target and due time begin alike.
_LIKE_MAX = 8


@dataclass(slots=True)
class BypassedMessages:
    """The messages that the second cursor takes for one transaction: keys and values, ascending. `until`: the key
    before which the first cursor stops in this transaction. `keys_after_gaps`: the keys that directly follow a skipped
    entry."""

    until: bytes
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    keys_after_gaps: set[bytes] = field(default_factory=set)

    @property
    def size_bytes(self) -> int:
        """Bytes of the values."""
        return sum(map(len, self.values))


class BacklogBypass:
    """The second cursor of one shard."""

    def __init__(self) -> None:
        self._position = b""
        self._waiting: set[str] = set()
        self._index: TimerIndex | None = None
        self._undecided = False
        self._taken: Counter[str] = Counter()
        self._is_full = False
        self._is_new = False
        self.searching = False
        """True in the first step of a second cursor, and in each step that ends at its limit of visited entries or
        bytes: the transaction of that step should be short."""

    @property
    def active(self) -> bool:
        """True if there is a second cursor."""
        return self._index is not None

    def cleared_up_to(self, target: str) -> bytes:
        """Returns a key below which no unparked message of a target is left, except those of the last `next_messages`;
        empty if no such key is known."""
        return self._position if self.active and target not in self._waiting else b""

    def end(self) -> None:
        """Ends the second cursor."""
        self._index, self._position, self._undecided, self.searching, self._is_new = None, b"", False, False, False
        self._waiting.clear()

    def next_messages(
        self, index: TimerIndex, before_ms: int, entries_max: int, size_bytes_max: int
    ) -> BypassedMessages | None:
        """Returns the messages that the second cursor takes for the next transaction; None if there is no second
        cursor, or if it ends now.

        The caller reports a commit by `committed`; without this report the bypass ends. O(visited entries), about 0.6
        us each, at most BYPASS_ENTRIES_MAX.
        """
        if self._undecided or index is not self._index or len(self._waiting) > BYPASS_TARGETS_MAX:
            self.end()
        if not self.active:
            return None
        put = index.lowest_put()
        if put is not None and put < self._position:
            self._position = put
        messages, end = BypassedMessages(b""), entry_key(before_ms, 0)
        self._undecided, self.searching, self._is_full, self._is_new = True, self._is_new, False, False
        self._taken.clear()
        rows = index.timer_log.walk(self._position, end)
        self._pick(rows, messages, entries_max, size_bytes_max)
        self._position = rows.key() or max(self._position, end)
        rows.finish()
        messages.until = messages.keys[0] if messages.keys else self._position
        return messages

    def _pick(self, rows: RangeIterator, messages: BypassedMessages, entries_max: int, size_bytes_max: int) -> None:
        """Visits the rows, and adds those whose targets do not wait to `messages`. Afterwards `rows` is at the first
        row that was not visited.

        Most rows belong to the few targets of the backlog, and many of these rows have the same due time. Skipping a
        row with the same first bytes as one of the last skipped rows costs half as much.
        """
        key, value, step = rows.key, rows.value, rows.next
        left, left_bytes = BYPASS_ENTRIES_MAX, BYPASS_SIZE_BYTES_MAX
        skipped_heads: tuple[bytes, ...] = ()  # no row begins with an element of an empty tuple
        has_skipped, due_ms = True, -1
        while (raw := value()) is not None:
            if left <= 0 or left_bytes <= 0:
                self.searching = True
                return
            left -= 1
            left_bytes -= len(raw)
            if raw.startswith(skipped_heads):
                has_skipped = True
                step()
                continue
            head = decode_head(raw)
            if head.kind != Kind.DELIVER or head.target in self._waiting:
                self._waiting.add(head.target)
                has_skipped = True
                if head.due == due_ms:  # several rows have this time, so remembering the first bytes pays
                    skipped_heads = (*skipped_heads[1 - _LIKE_MAX :], head_bytes(raw, head))
                due_ms = head.due
                step()
                continue
            if len(messages.keys) >= entries_max or size_bytes_max <= 0:
                self._is_full = True
                return
            messages.keys.append(key())
            messages.values.append(raw)
            size_bytes_max -= len(raw)
            self._taken[head.target] += 1
            if has_skipped:
                messages.keys_after_gaps.add(messages.keys[-1])
                has_skipped = False
            step()

    def begin(self, index: TimerIndex, keys: list[bytes], values: list[bytes], ended: set[bytes], full: int) -> None:
        """Starts the second cursor after a transaction of the first, if some targets had a large share of its messages.

        `ended`: the keys whose entries have ended; the targets of all other keys wait. `full`: the number of keys of a
        full transaction, which may be more than the limit of this transaction.
        """
        self.end()
        heavy = _heavy(Counter(decode_head(raw).target for raw in values), full)
        if heavy:
            self._is_new = True
            self._index, self._position = index, keys[-1] + b"\0"
            self._waiting |= heavy
            self._keep_waiting(keys, values, ended)
            index.lowest_put()

    def committed(self, keys: list[bytes], values: list[bytes], ended: set[bytes]) -> None:
        """Notes the commit of the transaction with the last `next_messages`. `keys`, `values`: its entries from both
        cursors. `ended`: as in `begin`."""
        self._undecided = False
        if self._is_full and self._taken.total() >= HEAVY_TAKEN_MIN:
            self._waiting |= _heavy(self._taken, self._taken.total())
        self._keep_waiting(keys, values, ended)

    def _keep_waiting(self, keys: list[bytes], values: list[bytes], ended: set[bytes]) -> None:
        self._waiting.update(decode_head(raw).target for key, raw in zip(keys, values, strict=True) if key not in ended)

    @staticmethod
    def wanted(index: TimerIndex, before_ms: int, entries: int) -> bool:
        """True if the wheel counts far more due entries than a transaction with this number of entries takes."""
        return index.due_load(before_ms).entries > BACKLOG_TRANSACTIONS * entries


def _heavy(counts: Counter[str], total: int) -> set[str]:
    """Returns the targets with a large share of `total` messages; there are at most 1 / HEAVY_SHARE of them."""
    count_min = total * HEAVY_SHARE
    return {target for target, count in counts.items() if count >= count_min}
