"""The timer index of a shard: a timer log (RocksDB) and a wheel (memory-mapped rings of counts).

Pure local storage: no Kafka, no threads, no clock of its own. All of it is disposable: it can be rebuilt from Kafka.

    keys, entry        what lies in the timer log, as bytes
    changes            what one atomic write will do
    options, database  how RocksDB is opened, and the only way to read ranges of it safely
    write_delta        what a write adds and takes away, as columns
    blocks             what holds the low-water mark back
    timer_log          the RocksDB of a shard: entries by due time, and what finds them otherwise
    layout, ring       the bytes of a wheel file, and the arithmetic of one ring of slots
    rings              both rings and the counters: where an entry is counted
    wheel_file, host   the memory-mapped file: who may believe it, and what it needs of the machine
    forecast           what the wheel answers: next due, pending by horizon
    wheel_view         the same for other processes, read-only
    scan_cursor        where an ordered scan may begin
    wheel_maintenance  counting what was written, loading hours, rebuilding
    index              timer log and wheel as one thing: what the sidecar uses

Whoever wants to use it starts at `index.TimerIndex`.
"""
