"""How much one transaction may carry: as much as still ends soon, and less once one could not end at all.

An open transaction holds back everybody who reads committed records of a partition that it writes to, its own messages
and those of others. So a full transaction that took longer than `HELD_BACK_MS_MAX` makes the next ones smaller, and
one that was quick makes them larger, up to what the configuration allows. A transaction that was given up because the
brokers did not take its records in time is halved for as long as that goes on: what is tried again unchanged would fail
again for ever where a link is slow.

Thread rule: belongs to the shard's thread. Source: the additive and multiplicative steps of congestion control.
"""

from __future__ import annotations

from typing import Final

from postdate.sidecar.limits import (
    BATCH_SHARE_MIN,
    CONTROL_ENTRIES_MAX,
    HELD_BACK_AIM_MS,
    HELD_BACK_MS_MAX,
    LARGE_TRANSACTION_FATES,
    SLOW_BATCH_SHARE_MIN,
)

_GROWS = 1.25
FIRST_SHARE: Final = 0.2
"""What the first transaction may carry, of what the configuration allows."""


class BatchLimit:
    """The limits of the next transaction of one shard.

    >>> limit = BatchLimit(10_000, 16_000_000)
    >>> limit.committed(full=True, took_ms=10.0)
    >>> limit.entries, limit.size_bytes
    (4000, 6400000)
    """

    def __init__(self, entries_max: int, size_bytes_max: int) -> None:
        """What the configuration allows at most."""
        self._entries_max = entries_max
        self._size_bytes_max = size_bytes_max
        self._share = FIRST_SHARE

    @property
    def entries(self) -> int:
        """Entries of the next transaction at most; at least 1."""
        return max(1, int(self._entries_max * self._share))

    @property
    def controls(self) -> int:
        """Of those that must all leave together so many may gather: as many as a transaction should have, but no fewer
        than make a large one: while none can be finished, intake goes on."""
        return min(max(self.entries, LARGE_TRANSACTION_FATES), CONTROL_ENTRIES_MAX)

    @property
    def size_bytes(self) -> int:
        """Bytes of their values at most; an entry that is larger goes alone."""
        return max(1, int(self._size_bytes_max * self._share))

    def committed(self, full: bool, took_ms: float) -> None:
        """A transaction was committed `took_ms` after its begin. One that was not full says nothing about its size."""
        if not full:
            return
        if took_ms > HELD_BACK_MS_MAX:
            slower = max(self._share * max(0.5, HELD_BACK_AIM_MS / took_ms), SLOW_BATCH_SHARE_MIN)
            self._share = min(self._share, slower)
        elif took_ms < HELD_BACK_AIM_MS:
            self._share = min(1.0, self._share * (2.0 if took_ms < HELD_BACK_AIM_MS / 2 else _GROWS))

    def failed(self) -> None:
        """A transaction was aborted, and no record of it was refused."""
        self._share = max(self._share / 2, BATCH_SHARE_MIN)
