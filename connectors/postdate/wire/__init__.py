"""The formats of Postdate's records, which `docs/formats.md` documents.

It imports nothing else of Postdate. Modules and packages in import order; each may import those listed before it:

    limits, reasons, errors   bounds; reasons for dead letters; errors of records that break a rule or do not decode
    versions                  finds out whether a newer Postdate wrote a record that does not decode
    headers, topics, origins  names of headers and topics; the identity of a request
    values/                   durations, instants, texts, and hashes that every reader computes
    schedules/                cron expressions, zones, occurrences
    dialects/                 translates headers of other schedulers
    dispatch_log              records of the dispatch log: the fates of requests
    requests/                 parses the headers of a record into a request, or a refusal
    delivered, verdicts       delivered records and dead letters; answers to requests
    stored                    records of the store topic

Pure functions over bytes, texts and ints: no clock, no Kafka client, no input or output except for reading the files of
the package `tzdata`. Thread rule: everything may be called from any thread.
"""
