"""The commands that run a Spark job: audit, bulk scheduling, repair, report.

Imports what `cli` may import, the modules of `cli` that all commands share, and, inside functions, `postdate.spark`.
Thread rule: the main thread.
"""
