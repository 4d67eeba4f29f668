"""Limits the size of one transaction, so that it ends soon; transactions that are slow or cannot be committed lower the
limit.

An open transaction blocks every `read_committed` reader of the partitions that it writes to. So a full transaction that
took longer than HELD_BACK_MS_MAX makes the next transactions smaller, and a fast one makes them larger, up to the
configured size. If a common transaction is aborted and the shard must back off (`Finding.BACK_OFF`), the limit is
halved: over a slow link, a retry of the same size would fail for ever.

Thread rule: belongs to the shard's thread. Source of the idea: congestion control of TCP; here the increase is
multiplicative, too.
"""

from __future__ import annotations

from typing import Final

from postdate.sidecar.context.limits import LARGE_TRANSACTION_FATES
from postdate.sidecar.dispatch.limits import BATCH_SHARE_MIN, HELD_BACK_AIM_MS, HELD_BACK_MS_MAX, SLOW_BATCH_SHARE_MIN
from postdate.sidecar.ingest.limits import ENDING_ENTRIES_MAX

_GROWS = 1.25
FIRST_SHARE: Final = 0.2
"""The share of the configured size that the first transaction may have."""


class BatchLimit:
    """The limits of the next transaction of one shard.

    >>> limit = BatchLimit(10_000, 16_000_000)
    >>> limit.committed(full=True, took_ms=10.0)
    >>> limit.entries, limit.size_bytes
    (4000, 6400000)
    """

    def __init__(self, entries_max: int, size_bytes_max: int) -> None:
        """Both arguments are the configured maxima."""
        self._entries_max = entries_max
        self._size_bytes_max = size_bytes_max
        self._share = FIRST_SHARE

    @property
    def entries(self) -> int:
        """The most entries of the next transaction; at least 1."""
        return max(1, int(self._entries_max * self._share))

    @property
    def ending(self) -> int:
        """The most entries that may wait under key 0, all of which must leave in one transaction: the size of the next
        transaction. It is at least LARGE_TRANSACTION_FATES, so that ingest continues while the limit is low, and at
        most ENDING_ENTRIES_MAX."""
        return min(max(self.entries, LARGE_TRANSACTION_FATES), ENDING_ENTRIES_MAX)

    @property
    def size_bytes(self) -> int:
        """The most bytes of values in the next transaction; a larger entry is sent alone."""
        return max(1, int(self._size_bytes_max * self._share))

    def committed(self, full: bool, took_ms: float) -> None:
        """Adapts the limit to a transaction that was committed `took_ms` after its start. A transaction that was not
        full does not change the limit."""
        if not full:
            return
        if took_ms > HELD_BACK_MS_MAX:
            slower = max(self._share * max(0.5, HELD_BACK_AIM_MS / took_ms), SLOW_BATCH_SHARE_MIN)
            self._share = min(self._share, slower)
        elif took_ms < HELD_BACK_AIM_MS:
            self._share = min(1.0, self._share * (2.0 if took_ms < HELD_BACK_AIM_MS / 2 else _GROWS))

    def failed(self) -> None:
        """Halves the limit after the abort of a common transaction for which the shard must back off."""
        self._share = max(self._share / 2, BATCH_SHARE_MIN)
