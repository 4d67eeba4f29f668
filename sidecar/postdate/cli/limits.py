"""Bounds of the commands, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# How long a command waits for a verdict. A control is executed as soon as it is ingested, so if there is no verdict
# after this time, probably no sidecar serves the shard.
VERDICT_TIMEOUT_MS: Final = 30_000

# Dead letters that one command lists or requeues. The default is more than a person reads; the maximum fits into
# memory.
DEAD_LETTERS_MAX_DEFAULT: Final = 1_000
DEAD_LETTERS_MAX: Final = 100_000

# A shard without a new status for this long counts as not served: three times the longest interval of a live shard.
STATUS_SILENT_MS_MAX: Final = 30_000

# A disk with less free space counts as full: a timer log allocates more at a time, and a status file may not fit.
DISK_FULL_SIZE_BYTES: Final = 1 << 20

# How long a command waits for a shard to read an instruction; a shard in a takeover reads it later.
PICK_UP_S_MAX: Final = 5.0

# How often `dev` and `demo` check whether their broker still runs.
DEV_POLL_S: Final = 0.2

# Nominal times that a preview of a schedule shows, and the latest occurrences that `schedule show` prints.
PREVIEW_MAX: Final = 10

# Up to this many requests, and this many records of dispatch logs, a Spark job is faster without Java's C2 compiler.
BRIEF_RECORDS_MAX: Final = 50_000

# How long a command waits for the end offsets of the request topics and dispatch logs before it starts a Spark job
# without them.
BRIEF_TIMEOUT_S: Final = 5.0

# How many offsets at the end of the dispatch log `send --retry NAME` searches for the named policies, and for how long.
# Only markers and aborted records follow the last committed record. If the command finds no committed record, it does
# not check the name.
LOG_TAIL_OFFSETS: Final = 100
LOG_TAIL_TIMEOUT_S: Final = 5.0
