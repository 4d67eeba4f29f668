"""The load and lateness report: upcoming messages, past deliveries.

May import the modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`,
`records`, `job`. Thread rule: one thread; one job at a time in a process.
"""
