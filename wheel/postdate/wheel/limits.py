"""Bounds of the timer index, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# The fewest keys that one range tombstone deletes; fewer keys get point tombstones. Measured: range tombstones of small
# batches accumulate, and the time of a scan rises from 74 to 666 us. Point tombstones do not accumulate (21 us).
SPAN_KEYS_MIN: Final = 256

# The most range tombstones in the memtables. Every scan visits each of them; a flush turns them into one sorted block.
RANGE_TOMBSTONES_MAX: Final = 1_000

# Offsets that one row of `blocks` covers: finding the low-water mark takes one seek, and a batch of 10,000 requests
# changes few rows.
RANGE_OFFSETS: Final = 4_096

# Requests that one call may look up to raise the low-water mark: at 5 us each, deliveries wait for some milliseconds.
LOW_WATER_STEPS_MAX: Final = 1_000

# Rows of `blocks` held in memory, about 150 B each. Ten million entries in dense ranges have 2,441 rows.
RANGES_CACHED_MAX: Final = 65_536

# Keys that one step of a load or rebuild reads: at 0.5 to 1 us each, deliveries wait for at most 20 ms.
LOAD_KEYS_MAX: Final = 20_000

# Tombstones that the seek of `confirm` may step over before it gives up. `confirm` runs once a second and takes less
# than a millisecond.
CONFIRM_SKIPS_MAX: Final = 10_000

# Bytes of values that one scan returns if the caller passes no bound: enough for one transaction.
SCAN_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024

# Values above this go to blob files: compaction then does not rewrite them at every level.
INLINE_VALUE_SIZE_BYTES_MAX: Final = 16 * 1024

# The largest memtable of a column family. A second one exists while the first is flushed.
WRITE_BUFFER_SIZE_BYTES: Final = 16 * 1024 * 1024

# Each index chooses a random size for its memtables, from this fraction of the maximum up to the maximum. With equal
# sizes, shards with equal load would all flush in the same second, and the flushes and compactions of four shards take
# half a second of a core. Measured in two runs at 12,000 requests/s, with two busy cores: the p99 of the lateness is
# 232 and 316 ms instead of 633 and 534 ms.
WRITE_BUFFER_PART_MIN: Final = 0.5

# Memory of the memtables of all shards of a process, without those that are being flushed. Above this bound, each write
# creates a file. The bound is enough for 16 full memtables: two for each of eight busy shards, or 4 MiB for each of 64
# shards.
MEMTABLES_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024

# The unit in which a memtable allocates memory. With RocksDB's default, the first entry of each column family takes
# 1 MiB.
ARENA_BLOCK_SIZE_BYTES: Final = 128 * 1024

# The block cache that the shards of a process share, unless their caller passes other resources.
CACHE_SIZE_BYTES: Final = 64 * 1024 * 1024

# If the write-ahead log is larger, RocksDB flushes the memtables, so the log can be cut. This bounds the time of a
# restart.
WAL_SIZE_BYTES_MAX: Final = 128 * 1024 * 1024

# File descriptors of one RocksDB: 64 shards stay below the usual limit of 16,384.
OPEN_FILES_MAX: Final = 128

# `reclaim` compacts if ended entries take at least this many bytes. Measured: 660 MB take 1 s, so the minimum takes a
# tenth of a second.
RECLAIM_SIZE_BYTES_MIN: Final = 64 * 1024 * 1024

# The most ticks among which an even spread chooses: half an hour of ticks of 100 ms. The choice then takes 20 us.
SPREAD_TICKS_MAX: Final = 18_000

# Attempts of a reader to copy a wheel between two updates; an update takes well under a millisecond.
TORN_READS_MAX: Final = 100

# The most slots of a ring, 32 bytes each: 128 MiB. A larger number is an error in the configuration.
RING_SLOTS_MAX: Final = 4 * 1024 * 1024

# Offsets by which the low-water mark advances before rows of `firsts` are deleted: one range tombstone deletes 2 MiB.
FIRSTS_TRIM_OFFSETS: Final = 262_144

# The longest gap between requests that a row of `firsts` fills, with 8 B for each offset. After a longer gap, a new
# row begins, which is smaller and quicker.
FIRSTS_GAP_OFFSETS_MAX: Final = 64

# The most outcomes of ids that one process adds in one window, at 50 to 100 bytes each. Two windows are kept, so they
# take up to 200 MB of disk for each shard. A control on an id that is not remembered gets `not-found`.
OUTCOMES_PER_WINDOW_MAX: Final = 1_000_000

# Ids of delivered messages that one process adds for one hour, 30 bytes each: 0.8 GB of disk for a shard with a window
# of a day.
DELIVERED_IDS_PER_HOUR_MAX: Final = 1_000_000

# Hours for which delivered ids are kept: enough for a window of a day and requests that were read six days late. A
# look-up costs a seek of 4 us for each hour.
DELIVERED_HOURS_MAX: Final = 168
