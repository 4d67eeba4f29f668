"""One Kafka transaction of a shard from its start to its end, and the records that it writes.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`, `operation`. Thread
rule: the shard's thread.
"""
