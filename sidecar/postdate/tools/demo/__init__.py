"""`postdate demo`: demonstrates Postdate on one machine in about a minute, with a kill of one sidecar.

`plan` chooses the messages, `traffic` sends and receives them as any client would, `ledger` counts the results
independently, `screen` shows them and those of the audit, and `show` runs the steps.
"""
