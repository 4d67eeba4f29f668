"""One Kafka transaction of a shard from its begin to its one end, and the records that go into it.

Imports the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`.
Thread rule: the shard's thread.
"""
