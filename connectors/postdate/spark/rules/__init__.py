"""The verdicts, and the rules that decide them.

Imports the flat modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`,
`records`, `job`; not `bulk`, whose requests an audit judges like all others.
Thread rule: none; functions from rows and columns to rows and columns. Only `ordering` runs jobs.
"""
