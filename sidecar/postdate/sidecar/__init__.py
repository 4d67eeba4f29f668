"""The daemon. Its packages, in the order in which a record passes through them:

`process` starts the daemon, `group` gets its partitions, `shard` runs one of them: `takeover`, then `ingest` and
`dispatch`; each commit is a `transaction`. `index` changes the timer index, `operation` carries out the decisions of
operators, `http` serves queries and changes, `cluster` sends the other requests to Kafka, `dead_letters` reads and
requeues dead letters, `config` has the settings, and `context` the state that all parts of a shard share. The modules
of this package are shared by all: errors, limits, clocks, counts, states, logs.

Imports point one way (`SIDECAR_LAYERS` in tests/support/tidiness/code_rules.py); the shared modules import none of the
packages.
"""
