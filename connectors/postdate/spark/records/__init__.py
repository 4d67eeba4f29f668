"""Kafka records as rows: requests, deliveries and dead letters, dispatch logs, verdict records.

May import the flat modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`.
Thread rule: none; pure functions from DataFrame to DataFrame. Only `policies.recorded_policies` runs a job.
"""
