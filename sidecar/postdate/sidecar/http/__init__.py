"""The HTTP port of a process: metrics, probes, pending messages, controls and holds.

Imports the flat modules of `postdate.sidecar`, and all packages but `process`. Of its own modules and packages, lowest
first (`limits`, `action_log`, `process`, `port`, `access`, `metrics`, `queries`, `api`, `server`), each may import
those before it.
Thread rule: one thread serves, and queries a shard through its inbox.
"""
