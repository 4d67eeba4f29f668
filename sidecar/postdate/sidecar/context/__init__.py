"""The context that all parts of a shard share: clients, clocks, settings, holds, pacing, and the queues of queries and
of traced messages.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`.
Thread rule: stated by each class; most belong to the shard's thread.
"""
