"""Limits the messages per second that this shard sends to a target, and schedules the messages that wait for their
turn.

Each target with a rate has a token bucket, filled by the steady clock. If the bucket is empty, or earlier messages of
the target wait, a due message is parked, like a message for a failing target, so that it delays no other message. When
the bucket has filled for a slice of time, `next_messages` reads the next parked messages, in order of due time,
directly into a transaction.

Cost, even with a million waiting messages: each is read, moved, and read once more when it leaves. They are not kept in
memory. A turn in which no message may leave checks the head of a heap. A turn in which some messages may leave reads
these, and one more of each of their targets. The scan starts at the first waiting message, so it skips no tombstones.
After a restart, one seek finds the waiting messages of a target.

Invariants: a message of a limited target leaves only if all earlier parked messages of that target have left, or leave
in the same transaction; so messages leave in order of due time, then of request offset. Over any t seconds a shard
commits transactions with at most `rate * (t + RATE_SAVED_S) + 1` messages for a target. This holds across takeovers,
since a new owner starts with empty buckets. A commit spends tokens, and so does a commit with an unknown outcome.
Messages in trials also wait for tokens and spend them.

Thread rule: belongs to the shard's thread. Source of the idea: the token bucket of traffic shaping.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from postdate.sidecar.config.limits import RATE_MAX
from postdate.sidecar.config.rate_rules import RateRules
from postdate.sidecar.dispatch.limits import RATE_RETRY_MS, RATE_SAVED_S, RATE_SLICE_S, TARGETS_KNOWN_MAX
from postdate.wheel.index import TimerIndex
from postdate.wheel.keys import DUE_MS_MAX, ENTRY_KEY_SIZE_BYTES, FIRST_KEY, LAST_KEY, entry_key

_NOWHERE: Final = b""
# Tokens are sums of fractions: a value that is less than one by at most this counts as one.
_NEARLY: Final = 1e-6


@dataclass(slots=True)
class _Bucket:
    """The state of one target. `waits`: True if some of its messages may be parked. None of them is parked below the
    key `first`, and those up to `taken_to` may leave in the present transaction. `known`: True if `waits` is valid.
    `queued`: True if the target is in the heap of turns."""

    per_second: float
    tokens: float
    filled_at: float
    known: bool = False
    waits: bool = False
    first: bytes = FIRST_KEY
    taken_to: bytes = _NOWHERE
    queued: bool = False

    def fill(self, steady_ms: float) -> None:
        """Adds the tokens earned since the last call. O(1)."""
        filled = self.tokens + (steady_ms - self.filled_at) * self.per_second / 1000
        self.tokens, self.filled_at = min(filled, self.per_second * RATE_SAVED_S + 1), steady_ms

    def ready_at(self) -> float:
        """Returns the steady time in ms at which the bucket contains the tokens for a slice, at least those for one
        message."""
        missing = max(1.0, self.per_second * RATE_SLICE_S) - self.tokens
        return self.filled_at + missing * 1000 / self.per_second


class TargetRates:
    """The buckets of one shard."""

    def __init__(self, rules: RateRules, steady_ms: float) -> None:
        """Starts with empty buckets at `steady_ms`."""
        self._rules = rules
        self._empty_at = steady_ms
        self._steady_ms = steady_ms
        self._buckets: dict[str, _Bucket | None] = {}
        self._turns: list[tuple[float, str]] = []  # a heap: the next turn of each target with parked messages
        self._taking: list[str] = []
        self._index: TimerIndex | None = None

    def next_messages(
        self,
        index: TimerIndex,
        before_ms: int,
        entries_max: int,
        size_bytes_max: int,
        up_to: Callable[[str], bytes | None],
    ) -> list[tuple[bytes, bytes]]:
        """Returns the waiting messages that may leave now: parked keys and values, by due time. A returned message
        stays parked if the transaction does not end it.

        `before_ms`: only messages due before this time may leave. `up_to`: returns the key up to which messages of a
        target may leave, since all its unparked messages below that key are in the transaction; None for a target that
        is held, fails or is isolated. REQUIRES: `begin` for this turn. O(taken), plus a seek for each target whose turn
        it is.
        """
        taken: list[tuple[bytes, bytes]] = []
        while entries_max > 0 and size_bytes_max > 0 and self.is_ready:
            target = heappop(self._turns)[1]
            bucket = self._buckets[target]
            assert bucket is not None, "only a target with a rate has turns"
            bucket.queued = False
            last = up_to(target)
            if last is None:
                continue  # the target waits until `Parking.maintain` calls `wait`
            last = min(last, entry_key(max(before_ms - 1, 0), DUE_MS_MAX))
            rows = self._next_of(index, target, bucket, last, entries_max, size_bytes_max)
            entries_max -= len(rows)
            size_bytes_max -= sum(len(raw) for _, raw in rows)
            taken += rows
        return sorted(taken, key=_place)

    def begin(self, index: TimerIndex, steady_ms: float) -> None:
        """Starts a turn. By now, the messages that the last turn returned have left, or have stayed parked. One seek
        for each of their targets."""
        self._steady_ms = steady_ms
        if index is not self._index:
            self._index = index
            self._turns.clear()
            self._buckets = {
                name: bucket and _Bucket(bucket.per_second, bucket.tokens, bucket.filled_at)
                for name, bucket in self._buckets.items()
            }
        for target in self._taking:
            bucket = self._buckets.get(target)
            if bucket is not None:
                bucket.taken_to = _NOWHERE
                self._note_parked(index, target, bucket)
        self._taking.clear()

    @property
    def is_ready(self) -> bool:
        """True if it is the turn of some target with waiting messages. REQUIRES: `begin` for this turn. O(1)."""
        return bool(self._turns) and self._turns[0][0] <= self._steady_ms

    def admits(self, target: str, key: bytes, sent: Mapping[str, int]) -> bool:
        """True if a due message may join this transaction, which so far contains `sent` messages for each target with a
        rate.

        REQUIRES: `begin` for this turn, and ascending keys for each target. O(1), plus a seek at the first message of a
        target.
        """
        bucket = self._bucket(target)
        if bucket is None:
            return True
        if not bucket.known:
            assert self._index is not None, "a turn has begun"
            self._note_parked(self._index, target, bucket)
        if bucket.waits and key[-ENTRY_KEY_SIZE_BYTES:] > bucket.taken_to:
            return False
        bucket.fill(self._steady_ms)
        return sent.get(target, 0) + 1 <= bucket.tokens + _NEARLY

    def limits(self, target: str) -> bool:
        """True if a target has a rate."""
        return self._bucket(target) is not None

    def available(self, target: str) -> int:
        """Returns how many messages of a target may leave now, parked or not. REQUIRES: `begin` for this turn. O(1)."""
        bucket = self._bucket(target)
        if bucket is None:
            return RATE_MAX
        bucket.fill(self._steady_ms)
        return max(int(bucket.tokens + _NEARLY), 0)

    def spend(self, sent: Mapping[str, int]) -> None:
        """Spends tokens for a transaction that was or may have been committed. `sent`: its number of messages for each
        target with a rate."""
        for target, count in sent.items():
            bucket = self._bucket(target)
            if bucket is not None:
                bucket.fill(self._steady_ms)
                bucket.tokens -= count

    def parked(self, target: str, key: bytes = FIRST_KEY) -> None:
        """Notes that a message of a target was parked, for any reason. Its due time and offset are at or above those of
        `key`."""
        bucket = self._bucket(target)
        if bucket is not None:
            bucket.first = min(bucket.first, key) if bucket.waits else key
            self.wait(target)

    def wait(self, target: str) -> None:
        """Notes that messages of a target are parked, and queues the target for a turn."""
        bucket = self._bucket(target)
        if bucket is not None:
            bucket.waits = bucket.known = True
            if not bucket.queued and target not in self._taking:
                self._queue(target, bucket, bucket.ready_at())

    def next_at(self) -> float | None:
        """Returns the steady time in ms of the next turn of a target with waiting messages; None if there is none.
        O(1)."""
        if self._taking:
            return self._steady_ms
        return self._turns[0][0] if self._turns else None

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _next_of(
        self, index: TimerIndex, target: str, bucket: _Bucket, last: bytes, entries_max: int, size_bytes_max: int
    ) -> list[tuple[bytes, bytes]]:
        """Returns the parked messages of one target that may leave now."""
        bucket.fill(self._steady_ms)
        count = min(int(bucket.tokens + _NEARLY), entries_max)
        if count < 1:
            self._queue(target, bucket, bucket.ready_at())
            return []
        keys, values = index.timer_log.scan_parked(target, count + 1, size_bytes_max, bucket.first)
        if not keys:
            bucket.waits = False
            return []
        rows = [row for row in zip(keys[:count], values, strict=False) if _place(row) <= last]
        if not rows:
            self._queue(target, bucket, self._steady_ms + RATE_RETRY_MS)
            return []
        is_all = len(rows) == len(keys) and sum(map(len, values)) < size_bytes_max
        bucket.taken_to = LAST_KEY if is_all else rows[-1][0][-ENTRY_KEY_SIZE_BYTES:]
        self._taking.append(target)
        return rows

    def _note_parked(self, index: TimerIndex, target: str, bucket: _Bucket) -> None:
        """Notes whether messages of a target are parked. One seek."""
        keys = index.timer_log.scan_parked(target, 1, 1, bucket.first)[0]
        bucket.known, bucket.waits = True, bool(keys)
        if keys:
            bucket.first = keys[0][-ENTRY_KEY_SIZE_BYTES:]
            if not bucket.queued:
                self._queue(target, bucket, bucket.ready_at())

    def _queue(self, target: str, bucket: _Bucket, at_ms: float) -> None:
        bucket.queued = True
        heappush(self._turns, (at_ms, target))

    def _bucket(self, target: str) -> _Bucket | None:
        if target in self._buckets:
            return self._buckets[target]
        if len(self._buckets) >= TARGETS_KNOWN_MAX:  # keeps targets with waiting messages: they exist
            self._buckets = {
                name: bucket for name, bucket in self._buckets.items() if bucket is not None and bucket.waits
            }
            self._empty_at = self._steady_ms
        per_second = self._rules.per_second(target)
        bucket = None if per_second is None else _Bucket(per_second, 0.0, self._empty_at)
        self._buckets[target] = bucket
        return bucket


def _place(row: tuple[bytes, bytes]) -> bytes:
    return row[0][-ENTRY_KEY_SIZE_BYTES:]
