"""The context of every part of a shard: clients, clocks, settings, holds, and the queue of queries from other threads.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`.
Thread rule: stated by each class; most belong to the shard's thread.
"""
