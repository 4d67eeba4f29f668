"""Bounds of the commands, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# A control is carried out as soon as it is ingested: without a verdict after this time, no sidecar is running.
VERDICT_TIMEOUT_MS: Final = 30_000

# Dead letters that one command shows or puts back: more than a person looks through, and their summaries fit memory.
LETTERS_MAX_DEFAULT: Final = 1_000
LETTERS_MAX: Final = 100_000

# Dead letters that are put back between two waits for the broker.
REQUEUED_AT_ONCE_MAX: Final = 100
REQUEUED_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024

# The assumed maximum difference of the brokers' clocks when timestamps of two topics are compared.
CLOCKS_APART_MS_MAX: Final = 3_600_000

# A shard without a new status for this long counts as not served: three times the longest interval of a live shard.
STATUS_SILENT_MS_MAX: Final = 30_000

# A disk with less free space counts as full: a timer log allocates more at a time, and a status may not fit any more.
DISK_FULL_SIZE_BYTES: Final = 1 << 20

# How long a command waits until a shard takes its instruction; a shard in a takeover takes it later.
PICK_UP_S_MAX: Final = 5.0
