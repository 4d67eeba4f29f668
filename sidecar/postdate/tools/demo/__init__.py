"""`postdate demo`: demonstrates Postdate on one machine in about a minute, with a kill of one sidecar.

`plan` chooses the messages, `traffic` sends and receives them as any client would, `ledger` counts the results
independently, `screen` shows these results and those of the audit, and `show` runs the steps. The package owns the
sidecars that it starts and their topics; the command that calls it owns the broker and the directory.

Imports what `tools` may import, and none of the other tools.
Thread rule: the main thread. Each reader of `traffic` has a thread, and passes its records through a queue.
"""
