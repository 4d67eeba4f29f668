"""The daemon and its packages:

`process` starts the daemon, and `group` gets its partitions. `shard` runs one partition: first `takeover`, then
`ingest` and `dispatch`. `transaction` runs each Kafka transaction, and `index` changes the timer index. `operation`
carries out the decisions of operators, and `http` serves queries and changes. `cluster` sends the other requests to
Kafka, and `dead_letters` reads and requeues dead letters. `config` contains the settings, and `context` the state that
all parts of a shard share. All packages share the modules `clock`, `counts`, `errors`, `failpoints`, `limits`, `logs`,
`privacy` and `states`.

Imports point one way (`SIDECAR_LAYERS` in tests/support/tidiness/code_rules.py); the shared modules import none of the
packages.
"""
