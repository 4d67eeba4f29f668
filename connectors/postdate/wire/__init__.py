"""The formats of Postdate's records: headers, request parsing, dispatch-log records, delivered records, dead letters,
verdicts.

Pure functions over bytes, texts and ints: no input or output, no clock, no threads, no Kafka client. Everything may be
called from any thread. Only this package knows the formats; `docs/formats.md` documents them.
"""
