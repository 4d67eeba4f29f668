"""The wheel of a shard: the number and bytes of the entries that are due in each tick and in each hour, in a
memory-mapped file. It is a hint about when to scan the timer log. The timer log decides which entries are due.

    layout               the bytes of a wheel file
    ring, rings          one ring of slots; both rings and the counters
    platform             the services of the operating system that the file needs
    wheel_file           the memory-mapped file and its validity checks
    wheel_maintenance    applies writes of the timer log to the wheel, loads hours, rebuilds
    forecast             queries on the rings: next due time, pending entries by horizon
    wheel_view           read-only queries from other processes
    even_spread          chooses the ticks with the fewest entries in windows

Imports `timer_log` and the flat modules of `wheel` listed before it. Thread rule: the thread that owns the index uses
it, except for `wheel_view`.
"""
