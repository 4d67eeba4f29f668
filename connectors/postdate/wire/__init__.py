"""What crosses Kafka: header names, request parsing, dispatch-log records, delivered records, dead letters, verdicts.

Pure functions over bytes, texts and ints: no input or output, no clock, no threads, no Kafka client. Everything may be
called from any thread. Only this package knows how a record of Postdate looks; `docs/formats.md` says it in prose.
"""
