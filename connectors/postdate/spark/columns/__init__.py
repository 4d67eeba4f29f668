"""Column expressions: building blocks, digests, Kafka's hash of keys, times, grouping by origin.

May import the flat modules `errors` and `limits` of `postdate.spark`.
Thread rule: none; pure functions from columns to columns, which run no job.
"""
