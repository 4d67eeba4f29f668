"""The HTTP port of a process: metrics, probes, pending messages, controls and holds.

Imports the flat modules of `postdate.sidecar`, and all packages but `process`. Its modules and packages in import
order; each may import those listed before it: `limits`, `action_log`, `process_state`, `port`, `access`, `metrics`,
`queries`, `api`, `server`.
Thread rule: each port has one thread with an event loop. Handlers that may wait run on a pool of threads. They query a
shard through its `IndexQueries`.
"""
