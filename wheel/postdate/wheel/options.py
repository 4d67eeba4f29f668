"""The options of a timer index, and the options of its RocksDB, which serves as a queue: most entries are written once
and deleted in order."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    WriteBufferManager,
)

from postdate.wheel import limits

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Resources:
    """Memory that the shards of one process share: block cache and memtables."""

    cache: Cache
    buffers: WriteBufferManager

    @staticmethod
    def create(
        cache_size_bytes: int = limits.CACHE_SIZE_BYTES, buffers_size_bytes: int = limits.MEMTABLES_SIZE_BYTES_MAX
    ) -> Resources:
        """Returns resources of the given sizes. `buffers_size_bytes` bounds the memtables of all shards, without those
        that are being flushed. Writes above this bound do not wait."""
        return Resources(Cache(cache_size_bytes), WriteBufferManager(buffers_size_bytes, False))

    @property
    def is_crowded(self) -> bool:
        """True if the memtables take more than half of their bound: idle shards should then flush theirs."""
        return self.buffers.get_usage() > self.buffers.get_buffer_size() // 2


@functools.cache
def shared_resources() -> Resources:
    """Returns the resources of this process, for callers that pass none."""
    return Resources.create()


def write_buffer_size_bytes() -> int:
    """Returns a random size, so that shards with equal load rarely flush their memtables at the same time."""
    most = limits.WRITE_BUFFER_SIZE_BYTES
    return random.randint(int(limits.WRITE_BUFFER_PART_MIN * most), most)  # noqa: S311  # not a secret


@dataclass(frozen=True)
class IndexOptions:
    """The layout and the resources of a timer index. The wheel file is rebuilt if `tick_ms`, `fine_slots`, `hour_slots`
    or `hour_ms` changes.

    `tick_ms` * `fine_slots` is the span of the fine ring. It must be at least two hours (of `hour_ms`), so that the
    present hour and the next one fit; `fine_slots` 0 means two hours. `tick_ms` must divide `hour_ms`, since otherwise
    both rings would count a tick that lies in two hours. `hour_ms` is an hour except in tests. `hour_slots` * `hour_ms`
    is the horizon; entries due later are only counted. `ended_window_ms` is the time for which the ends of ids are
    remembered; it may change at a restart.
    """

    tick_ms: int = 100
    fine_slots: int = 0
    hour_slots: int = 9_600
    hour_ms: int = HOUR_MS
    write_buffer_size_bytes: int = field(default_factory=write_buffer_size_bytes, compare=False)
    ended_window_ms: int = HOUR_MS
    resources: Resources = field(default_factory=shared_resources, compare=False)

    def __post_init__(self) -> None:
        if self.fine_slots == 0 and self.tick_ms > 0:
            object.__setattr__(self, "fine_slots", -(-2 * self.hour_ms // self.tick_ms))
        for name in ("tick_ms", "fine_slots", "hour_slots", "hour_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.fine_slots * self.tick_ms < 2 * self.hour_ms:
            raise ValueError("the fine ring must span at least two hours: raise fine_slots or tick_ms")
        if self.hour_ms % self.tick_ms:
            raise ValueError("tick_ms must divide an hour, so that no tick lies in two")
        if max(self.fine_slots, self.hour_slots) > limits.RING_SLOTS_MAX:
            raise ValueError(f"a ring has at most {limits.RING_SLOTS_MAX} slots")


def database_options(options: IndexOptions) -> Options:
    """Returns the options of the whole database."""
    rocks = Options(raw_mode=True)
    rocks.create_if_missing(True)
    rocks.create_missing_column_families(True)
    rocks.set_max_total_wal_size(limits.WAL_SIZE_BYTES_MAX)
    rocks.set_max_open_files(limits.OPEN_FILES_MAX)
    # One flush writes all column families, so no family is ahead of another if the write-ahead log is cut.
    rocks.set_atomic_flush(True)
    rocks.set_keep_log_file_num(2)
    rocks.set_max_log_file_size(1024 * 1024)
    rocks.set_stats_dump_period_sec(0)
    rocks.set_stats_persist_period_sec(0)
    rocks.set_write_buffer_size(options.write_buffer_size_bytes)
    rocks.set_write_buffer_manager(options.resources.buffers)
    return rocks


def family_options(options: IndexOptions, bodies: bool) -> Options:
    """Returns the options of one column family. `bodies`: the family holds messages."""
    rocks = Options(raw_mode=True)
    table = BlockBasedOptions()
    table.set_block_cache(options.resources.cache)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_bloom_filter(10, False)
    rocks.set_block_based_table_factory(table)
    rocks.set_write_buffer_size(options.write_buffer_size_bytes)
    rocks.set_arena_block_size(limits.ARENA_BLOCK_SIZE_BYTES)
    rocks.set_compression_type(DBCompressionType.lz4())
    # Ended entries leave tombstones at the front of the queue. Files full of tombstones are compacted, so scans stay
    # fast.
    rocks.add_compact_on_deletion_collector_factory(1024, 512, 0.5)
    if bodies:
        rocks.set_enable_blob_files(True)
        rocks.set_min_blob_size(limits.INLINE_VALUE_SIZE_BYTES_MAX)
        rocks.set_blob_compression_type(DBCompressionType.lz4())
        rocks.set_enable_blob_gc(True)
        rocks.set_blob_gc_age_cutoff(1.0)
    return rocks
