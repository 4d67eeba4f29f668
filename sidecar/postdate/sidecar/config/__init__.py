"""Settings: their schema, the files, variables and options they come from, and their checks.

May import the flat modules of `postdate.sidecar`.
Thread rule: functions and immutable values, for any thread.
"""
