"""The commands for operators: topics, shards, holds, pending messages, dead letters.

Imports what `cli` may import, and the modules of `cli` that all commands share.
Thread rule: the main thread.
"""
