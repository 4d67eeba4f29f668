"""Bounds of the timer index, each with its unit in its name and the reason for its value."""

from __future__ import annotations

from typing import Final

# Measured: range tombstones of small batches accumulate (a scan rises from 74 to 666 us), point tombstones do not (21
# us).
SPAN_KEYS_MIN: Final = 256

# Every scan visits each range tombstone in the memtable; a flush turns them into one sorted block.
RANGE_TOMBSTONES_MAX: Final = 1_000

# Offsets of a row of `blocks`: the low-water mark costs one seek, and a batch of 10,000 requests touches few rows.
RANGE_OFFSETS: Final = 4_096

# Requests that one call may look up to raise the low-water mark: at 5 us each, deliveries wait for some milliseconds.
LOW_WATER_STEPS_MAX: Final = 1_000

# Rows of `blocks` held in memory (about 150 B each): ten million entries in dense ranges are 2,441 rows.
RANGES_CACHED_MAX: Final = 65_536

# Keys that a load or a rebuild takes at once: at 0.5 to 1 us each, deliveries wait for 20 ms at most.
LOAD_KEYS_MAX: Final = 20_000

# Tombstones a confirming seek may step over before it gives up: once a second it must stay under a millisecond.
CONFIRM_SKIPS_MAX: Final = 10_000

# Bytes of bodies that one scan returns unless the caller passes a bound: a transaction's worth.
SCAN_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024

# Values above this go to blob files: compaction then does not rewrite them at every level.
INLINE_VALUE_SIZE_BYTES_MAX: Final = 16 * 1024

# The maximum of the memory of a shard's memtables; two of them exist while one is flushed.
WRITE_BUFFER_SIZE_BYTES: Final = 16 * 1024 * 1024

# The flushes of four shards and their compactions take half a second of a core, and shards with equal load would all
# flush in the same second. So each index chooses its write buffer between this part of the maximum and all of it.
# Measured at 12,000 requests/s, two busy cores: p99 of the lateness 232 and 316 ms instead of 633 and 534.
WRITE_BUFFER_PART_MIN: Final = 0.5

# Memory of the memtables of all shards of a process, without those that are being flushed. Beyond it each write makes a
# file. It is the memory of eight busy shards (two write buffers each), or 4 MiB for each of 64.
MEMTABLES_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024

# The unit in which a memtable allocates memory. RocksDB's default is 1 MiB, for the first entry of each column family.
ARENA_BLOCK_SIZE_BYTES: Final = 128 * 1024

# Block cache shared by the shards of a process unless they are given one each.
CACHE_SIZE_BYTES: Final = 64 * 1024 * 1024

# If its write-ahead log is larger, RocksDB flushes the column family with the oldest part, which bounds restart time.
WAL_SIZE_BYTES_MAX: Final = 128 * 1024 * 1024

# File descriptors of one RocksDB: 64 shards stay below the usual limit of 16,384.
OPEN_FILES_MAX: Final = 128

# Bytes of ended entries from which `reclaim` compacts. Measured: 1 s for 660 MB, so a tenth of a second.
RECLAIM_SIZE_BYTES_MIN: Final = 64 * 1024 * 1024

# Ticks among which an even spread chooses: half an hour of ticks of 100 ms, at 20 us a message.
SPREAD_TICKS_MAX: Final = 18_000

# Attempts of a reader to copy a wheel between two updates; an update takes well under a millisecond.
TORN_READS_MAX: Final = 100

# Slots of a ring: 32 bytes each, so 128 MiB; more is a mistake in the configuration.
RING_SLOTS_MAX: Final = 4 * 1024 * 1024

# Offsets by which the low-water mark must advance before rows of `firsts` are deleted: one range tombstone for 2 MiB.
FIRSTS_TRIM_OFFSETS: Final = 262_144

# Offsets without a request that a row of `firsts` fills, 8 B each: beyond it a separate row is smaller and quicker.
FIRSTS_GAP_OFFSETS_MAX: Final = 64

# Ends of ids kept in one window: 50 to 100 bytes each, so up to 100 MB of disk a shard; later ones are `not-found`.
OUTCOMES_PER_WINDOW_MAX: Final = 1_000_000

# Ids of delivered messages that one process adds for one hour, 30 bytes each: 0.8 GB of disk a shard for a day.
DELIVERED_IDS_PER_HOUR_MAX: Final = 1_000_000

# Hours of them: enough for a window of a day and requests that have waited for six days. Each costs a seek of 4 us.
DELIVERED_HOURS_MAX: Final = 168
