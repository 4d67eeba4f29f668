"""The timer log of a shard: the RocksDB that decides which entries are due.

    database        opens RocksDB; the only safe way to read ranges of it
    identity        the shard to which the log belongs
    checkpoint      the progress of the shard and its counters; its bulk controls and named retry policies
    changes         the content of one atomic write
    write_delta     the entries that a write adds and removes, as columns
    pending_counts  the counts that determine the low-water mark
    ended           how requests ended, kept for a while
    timer_log       reads and writes of all column families
    scan_cursor     the start of a scan of due entries, behind the tombstones of ended ones

Imports the flat modules of `wheel` below it: limits, errors, keys, entry, options. Thread rule: the owner of the index;
checkpoint and identity are immutable.
"""
