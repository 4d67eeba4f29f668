"""The formats of Postdate's records. Only this package knows them; `docs/formats.md` documents them.

It imports nothing else of Postdate. Modules and packages in import order; each may import those listed before it:

    limits, reasons, errors   bounds; why a request is refused; records that cannot be decoded
    versions                  whether a record that cannot be decoded is of a newer Postdate
    headers, topics, origins  names of headers and topics; the identity of a request
    values/                   durations, instants, texts, and hashes that every reader computes
    schedules/                cron expressions, zones, occurrences
    dialects/                 translates headers of other schedulers
    dispatch_log              records of the dispatch log: the fates of requests
    requests/                 parses the headers of a record into a request, or a refusal
    delivered, verdicts       delivered records and dead letters; answers to requests
    stored                    records of the store topic

Pure functions over bytes, texts and ints: no input or output, no clock, no Kafka client. Thread rule: everything may be
called from any thread.
"""
