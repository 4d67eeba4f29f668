"""The HTTP port of a process: metrics, probes, pending messages, controls and holds.

Imports the flat modules of `postdate.sidecar`, and all packages but `process`. Thread rule: one thread serves, and
queries a shard through its inbox.
"""
