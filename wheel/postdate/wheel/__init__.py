"""The timer index of a shard: a timer log (RocksDB) and a wheel (memory-mapped rings of counts).

Owns the files of a shard's directory. All of them are disposable: Kafka can rebuild them. It imports nothing else of
Postdate, and uses no Kafka client and no clock. Modules and packages in import order; each may import those listed
before it:

    limits, errors  bounds; the errors, each with the caller's reaction
    keys, entry     the bytes of keys and values in the timer log
    options         the layout of an index, and the options of RocksDB
    timer_log/      the RocksDB of a shard: entries by due time, with their secondary indexes. Authoritative
    timing_wheel/   a histogram of due times in a memory-mapped file. A hint
    index           timer log and wheel behind one interface: the owner of a shard opens, reads and writes through it

Start reading at `index.TimerIndex`.

Thread rule: no thread starts here. One thread owns an index and everything in it; other threads and processes read
through `timing_wheel.wheel_view`.
"""
