"""What an operator sees and decides: halts, instructions, accepted losses, status files.

Imports the flat modules of `postdate.sidecar`, and the packages `config`, `index`, `context`.
Thread rule: as each class says; decisions are carried out by the shard's thread.
"""
