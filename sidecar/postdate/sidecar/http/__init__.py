"""The HTTP port of a process: metrics, probes, pending messages, controls and holds.

Imports the flat modules of `postdate.sidecar`, and all packages but `process`. Thread rule: one thread serves; what it
needs of a shard it asks through the shard's inbox.
"""
