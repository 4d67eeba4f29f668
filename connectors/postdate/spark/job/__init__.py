"""Shared by all jobs: options, offsets and settings of the cluster, reading, writing, progress, start and end.

May import the modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`,
`records`. Thread rule: one thread, the main one. The thread of the progress bar uses only Spark's status tracker.
"""
