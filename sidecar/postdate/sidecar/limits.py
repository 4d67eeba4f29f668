"""Bounds of the sidecar, each with its unit in its name and the reason for its value; `postdate config show` has them.

A bound is not an option: changing one changes what was measured or promised. Options are in `config`.
"""

from __future__ import annotations

from typing import Final

# Measured: 20,000 fates are 780 KB, and a broker's usual limit is 1 MB a record; half leaves room for long offsets.
FATES_PER_TRANSACTION_MAX: Final = 10_000
DISPATCH_RECORD_SIZE_BYTES_MAX: Final = 512 * 1024

# Entries under key 0 must all fit one transaction together with what they act on, so ingest stops at either of these.
CONTROL_ENTRIES_MAX: Final = 5_000
CONTROL_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024

# A shard's inbox: two polled batches, so that ingest never waits for the poll thread and memory stays flat.
INBOX_RECORDS_MAX: Final = 20_000
INBOX_SIZE_BYTES_MAX: Final = 32 * 1024 * 1024

# One commit adds its partitions to the transaction first; more than this in one makes the coordinator's answer slow.
TARGET_PARTITIONS_PER_TRANSACTION_MAX: Final = 1_000

# Each takeover reads the dispatch log and may rebuild an index; more at once only compete for the same disk and core.
TAKEOVERS_AT_ONCE_MAX: Final = 8

# A foreign open transaction ends by its time-out (the broker allows 15 min, clients use 1 min): beyond this, say so.
RECOVERY_STALL_MS_MAX: Final = 180_000

# All running commits together, when partitions are revoked: well inside the session time-out of 15 s.
REVOKE_WAIT_MS_MAX: Final = 5_000

# Draining the producer between two transactions: slower than this, an old request may still be under way (recycle).
SETTLE_MS_MAX: Final = 1_000

# A data directory that another process holds for longer belongs to it: a fresh one is taken beside it.
LOCK_WAIT_MS_MAX: Final = 30_000

# The estimate of the broker's clock drifts with the local oscillator, a few ppm: some milliseconds in an hour.
CLOCK_SAMPLE_AGE_MS_MAX: Final = 3_600_000

# An idle shard writes at least this often, so that the dispatch log never runs empty by retention.
BEAT_INTERVAL_MS_MAX: Final = 21_600_000

# Live topic settings can be changed by anybody at any time; ten minutes is short against any sane retention.
TOPIC_CHECK_INTERVAL_MS: Final = 600_000

# A request must never outlive its fate: the dispatch log keeps this much longer than a request's segment may live.
DISPATCH_LOG_RETENTION_MARGIN_MS: Final = 3_600_000

# Ten years: beyond it the hour ring of the wheel would pass 3 MiB a shard, and nobody means it.
HORIZON_MS_MAX: Final = 3_660 * 86_400_000

# RocketMQ has 18 levels; a longer table is a mistake in the file rather than a wish.
LEVELS_MAX: Final = 64

# Each worker is a process of some 100 MB with connections of its own.
WORKERS_MAX: Final = 64

# More partitions than a cluster's brokers should carry; a topic that asks for more has a digit too many.
PARTITIONS_MAX: Final = 10_000

# Every request topic of a process is in every rebalance and in every metadata request.
REQUEST_TOPICS_MAX: Final = 256

# A dead letter is larger than its request: reason, detail and origin fit 64 KiB with the longest names Kafka allows.
OWN_TOPIC_MESSAGE_MARGIN_BYTES: Final = 64 * 1024

# A configuration or properties file beyond this is some other file.
CONFIG_FILE_SIZE_BYTES_MAX: Final = 1024 * 1024

# How long a command waits for a broker before it says that it cannot be reached.
COMMAND_TIMEOUT_S: Final = 15.0
