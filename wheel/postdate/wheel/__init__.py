"""The timer index of a shard: a timer log (RocksDB) and a wheel (memory-mapped rings of counts).

Pure local storage: no Kafka, no threads, no clock of its own. All of it is disposable: it can be rebuilt from Kafka.

    keys, entry        what lies in the timer log, as bytes
    changes            what one atomic write will do
    options, database  how RocksDB is opened, and the only way to read ranges of it safely
    timer_log          the RocksDB of a shard, blocks and first dues included
    layout, ring       the slots of the wheel and the arithmetic on them
    wheel_file         the memory-mapped file: header, belief, belated marks of cleanliness
    hand               what the wheel answers: next due, pending by horizon
    wheel_view         the same for other processes, read-only
    index              timer log and wheel as one thing: what the sidecar uses

Whoever wants to use it starts at `index.TimerIndex`.
"""
