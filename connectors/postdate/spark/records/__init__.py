"""Records of Kafka as rows: requests, deliveries and dead letters, dispatch logs, verdict records.

Imports the flat modules `errors` and `limits` of `postdate.spark`, and the packages `columns`, `output`, `session`.
Thread rule: none; pure functions from DataFrame to DataFrame, which run no job.
"""
