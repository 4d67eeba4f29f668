"""The timer index of a shard: a timer log (RocksDB) and a wheel (memory-mapped rings of counts).

Pure local storage: it uses no Kafka client, no thread and no clock. All of it is disposable: Kafka can rebuild it.

    keys, entry        the bytes of keys and values in the timer log
    identity, checkpoint   whose log it is; R, D, seq and counters
    bulk_rows, policy_rows   bulk controls and named retry policies of the shard
    recent_outcomes, delivered_ids   how requests ended, kept for a while
    changes            the content of one atomic write
    options, database  opens RocksDB; the only safe way to read ranges of it
    write_delta        the entries that a write adds and removes, as columns
    blocks             the counts that determine the low-water mark
    scan_cursor        the start of an ordered scan
    timer_log          the RocksDB of a shard: entries by due time, with their secondary indexes
    layout, ring       the bytes of a wheel file, and the arithmetic of one ring of slots
    rings              both rings and the counters: where an entry is counted
    wheel_file, platform   the memory-mapped file, its validity checks, and the calls to the machine that it needs
    forecast           queries on the rings: next due time, pending entries by horizon
    even_spread        the emptiest ticks of windows
    wheel_view         read-only queries from other processes
    wheel_maintenance  applies writes to the wheel, loads hours, rebuilds
    index              timer log and wheel behind one interface: the sidecar uses only this

Start reading at `index.TimerIndex`.
"""
