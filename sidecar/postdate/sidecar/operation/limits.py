"""Bounds of status files and instructions, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# The intervals at which a shard writes its status, after a change and without one: short enough to watch a shard, long
# enough to cost nothing.
STATUS_INTERVAL_MS: Final = 2_000
STATUS_AGE_MS_MAX: Final = 10_000

# A resting shard whose lag is 0 queries its lag this often; a new request ends the rest anyway.
LAG_AGE_MS_MAX: Final = 30_000

# The pause after an unanswered query of the lag, which blocked the shard for LAG_TIMEOUT_S.
LAG_PAUSE_MS: Final = 600_000

# The time-out of a query of the lag. The shard's thread waits for the answer and delivers nothing meanwhile, so a hung
# leader must not cost more.
LAG_TIMEOUT_S: Final = 0.5

# A shard checks this often for an instruction: one system call.
INSTRUCTION_INTERVAL_MS: Final = 1_000

# The status and the instruction of a shard have a few hundred bytes each. A file above this limit is neither of them.
SHARD_FILE_SIZE_BYTES_MAX: Final = 64 * 1024
