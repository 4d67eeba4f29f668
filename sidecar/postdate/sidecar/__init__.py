"""The daemon, in the order in which a record meets it.

`process` starts it, `group` gets its partitions, `shard` runs one of them: `takeover`, then `ingest` and
`dispatch`, each commit a `transaction`. `index` changes the timer index, `operation` is what an operator decides,
`http` what others ask, `cluster` what is asked of Kafka besides, `config` the settings, `context` what all parts of
a shard share. The modules of this package itself are the vocabulary of all: errors, limits, clocks, counts, states,
logs.

Imports point one way (`SIDECAR_LAYERS` in tests/support/tidy.py); the vocabulary imports none of the packages.
"""
