"""What a running process tells and takes over HTTP: metrics, probes, what is pending, controls and holds.

Imports the flat modules of `postdate.sidecar`, and all packages but `process`. Thread rule: one thread serves; what it
needs of a shard it asks through the shard's inbox.
"""
