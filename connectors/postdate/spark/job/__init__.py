"""Shared by all jobs: options, offsets and settings of the cluster, reading, writing, progress, start and end.

Imports the flat modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`,
`records`.
Thread rule: one thread, the main one; the progress bar's thread only reads Spark's status.
"""
