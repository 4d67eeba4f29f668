"""Bounds of takeovers, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# A takeover that reads nothing new for this long is retried after a pause. The cause, a missing leader or a foreign
# open transaction (the broker allows 15 min, clients use 1 min), may last much longer.
RECOVERY_STALL_MS_MAX: Final = 20_000

# Records of one read of a log; its bytes are bounded by the client's prefetch queue.
READ_RECORDS_MAX: Final = 1_000

# Timeout of one such read; doubles without progress. A client returns no event when it passes only markers, so a single
# long timeout would be used up at the end of every log.
LOG_READ_S_MIN: Final = 0.01
LOG_READ_S_MAX: Final = 0.2

# If another process holds a data directory for longer, the shard uses a directory beside it.
LOCK_WAIT_MS_MAX: Final = 30_000
LOCK_POLL_MS: Final = 100

# The time-out of init_transactions. The broker answers once the older transaction has ended, after 10 s at most.
FENCE_TIMEOUT_S: Final = 15.0

# A halt that depends on a broker's answer is confirmed for longer than a deposed broker takes to learn of its successor
# (its session time-out, 9 s by default, plus a margin), and by more than two findings, since the machine may have been
# suspended between two of them.
HALT_CONFIRM_MS: Final = 20_000
HALT_FINDINGS_MIN: Final = 3

# Records and fates applied from the dispatch log in one local write. Measured: a fate takes some 350 bytes while it is
# applied, so a piece stays below 4 MiB, and eight concurrent takeovers below 32 MiB. One record may hold as many fates.
RECOVERY_RECORDS_MAX: Final = 200
RECOVERY_FATES_MAX: Final = 10_000

# After this many bytes of the dispatch log are applied, the timer log writes out its memtables. A mark takes twice the
# memory of its fate. Without this limit, each of eight concurrent takeovers fills two memtables of 16 MiB.
RECOVERY_MEMTABLES_BYTES_MAX: Final = 4 * 1024 * 1024

# The search for the last committed dispatch-log record goes backwards, in windows that grow fourfold from this many
# offsets.
TAIL_OFFSETS: Final = 64

# The number of directories that are kept for the operator after they were moved aside, per shard and reason; the oldest
# beyond it are removed.
ASIDE_DIRECTORIES_MAX: Final = 3

# While another process holds its directory, a shard uses a directory beside it. Of those that are no longer used, this
# many are kept. The newest may save a rebuild; older ones are useless.
BESIDE_DIRECTORIES_MAX: Final = 1

# The client's message size limit: above any topic's limit, so that the topic decides. The client's default of 1 MB is
# below the limit of the dead letters, and a record that the client refuses could not be written at all.
PRODUCER_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024

# A process that fenced a shard writes its owner record within this time, if it has the shard's disk. After that, the
# fence is attributed to a foreign client, and the shard takes its transactional id back.
OWNER_RECORD_TIMEOUT_MS: Final = 10_000

# Records of the store topic applied in one local write: some megabytes.
STORE_RECORDS_MAX: Final = 1_000
