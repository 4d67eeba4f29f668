"""The interface to operators: halts, instructions, accepted losses, status files.

May import the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`.
Thread rule: stated by each class; decisions are carried out by the shard's thread.
"""
