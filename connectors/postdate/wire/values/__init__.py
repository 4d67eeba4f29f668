"""Values in headers and records, read and written: times, lengths, numbers, digests, draws.

    texts         numbers, times and quotes as bounded text
    durations     durations as texts
    instants      points in time as texts
    windows       the chosen time of a request with a window
    id_digests    digests of ids, for the dispatch log
    murmur2       the partitioner of Kafka's Java client

Imports only `limits` of the flat modules of `wire`. Pure functions. Thread rule: everything may be called from any
thread.
"""
