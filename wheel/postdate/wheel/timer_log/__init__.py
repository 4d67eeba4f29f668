"""The timer log of a shard: the RocksDB that decides which entries are due.

    database        opens RocksDB; the only safe way to read ranges of it
    identity        the shard to which the log belongs
    checkpoint      rows for the progress and the counters of the shard, its bulk controls and named retry policies
    changes         the content of one atomic write
    write_delta     the entries that a write adds and removes, as columns
    pending_counts  the counts that determine the low-water mark
    ended           the outcomes of ended requests, kept for a limited time
    timer_log       reads and writes of all column families
    scan_cursor     the key at which a scan of due entries starts, after the tombstones of ended entries

Imports only these flat modules of `wheel`: limits, errors, keys, entry, options. Thread rule: the thread that owns the
index uses it; checkpoint and identity are immutable.
"""
