"""What every part of a shard is given: clients, clocks, settings, holds, and the queue of queries from other threads.

Imports the flat modules of `postdate.sidecar`, and the packages `config`, `index`.
Thread rule: as each class says; most belong to the shard's thread.
"""
