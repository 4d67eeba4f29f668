"""`postdate demo`: the whole of Postdate on one machine in about a minute, one sidecar killed on the way.

`plan` decides what is sent, `traffic` sends and receives it as any client would, `ledger` counts by itself what came
of it, `children` are the processes, `screen` shows it, `audit` asks Spark, `show` is the order of events.
"""
