"""Bounds of the timer index, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# The fewest keys that one range tombstone deletes; fewer keys get point tombstones. Measured: range tombstones of small
# batches accumulate (a scan rises from 74 to 666 us), point tombstones do not (21 us).
SPAN_KEYS_MIN: Final = 256

# The most range tombstones in the memtables. Every scan visits each of them; a flush turns them into one sorted block.
RANGE_TOMBSTONES_MAX: Final = 1_000

# Offsets that one row of `blocks` covers: the low-water mark costs one seek, and a batch of 10,000 requests changes few
# rows.
RANGE_OFFSETS: Final = 4_096

# Requests that one call may look up to raise the low-water mark: at 5 us each, deliveries wait for some milliseconds.
LOW_WATER_STEPS_MAX: Final = 1_000

# Rows of `blocks` held in memory, about 150 B each. Ten million entries in dense ranges have 2,441 rows.
RANGES_CACHED_MAX: Final = 65_536

# Keys that one step of a load or rebuild takes: at 0.5 to 1 us each, deliveries wait for at most 20 ms.
LOAD_KEYS_MAX: Final = 20_000

# Tombstones that the seek of `confirm` may step over before it gives up. `confirm` runs once a second and takes less
# than a millisecond.
CONFIRM_SKIPS_MAX: Final = 10_000

# Bytes of values that one scan returns if the caller passes no bound: enough for one transaction.
SCAN_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024

# Values above this go to blob files: compaction then does not rewrite them at every level.
INLINE_VALUE_SIZE_BYTES_MAX: Final = 16 * 1024

# The largest write buffer of a shard's memtables. Two of them exist while one is flushed.
WRITE_BUFFER_SIZE_BYTES: Final = 16 * 1024 * 1024

# Each index chooses a random size of its write buffer between this part of the maximum and the maximum. With equal
# sizes, shards with equal load would all flush in the same second, and the flushes and compactions of four shards take
# half a second of a core. Measured at 12,000 requests/s, two busy cores: p99 of the lateness 232 and 316 ms instead of
# 633 and 534.
WRITE_BUFFER_PART_MIN: Final = 0.5

# Memory of the memtables of all shards of a process, without those that are being flushed. Above this bound, each write
# creates a file. The bound is enough for eight busy shards (two write buffers each), or 4 MiB for each of 64 shards.
MEMTABLES_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024

# The unit in which a memtable allocates memory. With RocksDB's default, the first entry of each column family takes
# 1 MiB.
ARENA_BLOCK_SIZE_BYTES: Final = 128 * 1024

# The block cache that the shards of a process share, unless their caller passes other resources.
CACHE_SIZE_BYTES: Final = 64 * 1024 * 1024

# If the write-ahead log is larger, RocksDB flushes the column family with the oldest data. This bounds restart time.
WAL_SIZE_BYTES_MAX: Final = 128 * 1024 * 1024

# File descriptors of one RocksDB: 64 shards stay below the usual limit of 16,384.
OPEN_FILES_MAX: Final = 128

# `reclaim` compacts once there are this many bytes of ended entries. Measured: 660 MB take 1 s, so these take a tenth
# of a second.
RECLAIM_SIZE_BYTES_MIN: Final = 64 * 1024 * 1024

# The most ticks among which an even spread chooses: half an hour of ticks of 100 ms. The choice then takes 20 us.
SPREAD_TICKS_MAX: Final = 18_000

# Attempts of a reader to copy a wheel between two updates; an update takes well under a millisecond.
TORN_READS_MAX: Final = 100

# Slots of a ring: 32 bytes each, so 128 MiB. More is an error in the configuration.
RING_SLOTS_MAX: Final = 4 * 1024 * 1024

# Offsets by which the low-water mark advances before rows of `firsts` are deleted: one range tombstone for 2 MiB.
FIRSTS_TRIM_OFFSETS: Final = 262_144

# The longest gap between requests that a row of `firsts` fills, 8 B for each offset. For a longer gap, a new row is
# smaller and quicker.
FIRSTS_GAP_OFFSETS_MAX: Final = 64

# The most ended ids that are remembered in one window, at 50 to 100 bytes each: up to 100 MB of disk a shard. A control
# on an id that is not remembered gets `not-found`.
OUTCOMES_PER_WINDOW_MAX: Final = 1_000_000

# Ids of delivered messages that one process adds for one hour, 30 bytes each: 0.8 GB of disk for a shard and a day.
DELIVERED_IDS_PER_HOUR_MAX: Final = 1_000_000

# Hours of delivered ids: enough for a window of a day and requests that have waited for six days. Each hour costs a
# seek of 4 us.
DELIVERED_HOURS_MAX: Final = 168
