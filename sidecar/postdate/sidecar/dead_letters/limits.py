"""Bounds of reading and requeueing dead letters, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# The most records that a search for dead letters reads at a time, and the longest time that it waits for them.
DEAD_LETTERS_READ_MAX: Final = 2_000
DEAD_LETTERS_READ_TIMEOUT_S: Final = 1.0

# The most dead letters that are requeued between two flushes, and the bytes of values after which a flush follows.
REQUEUED_AT_ONCE_MAX: Final = 100
REQUEUED_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024

# The assumed maximum difference of the brokers' clocks when timestamps of two topics are compared.
CLOCKS_APART_MS_MAX: Final = 3_600_000
