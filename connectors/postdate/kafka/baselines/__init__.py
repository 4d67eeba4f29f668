"""Programs on the client library without Postdate, with which the benchmark compares it.

    raw_copy      copies records in transactions
    raw_steady    produces at a steady rate in transactions

They import nothing of Postdate. Each runs as a process: `python -m postdate.kafka.baselines.raw_copy`. Thread rule: one
thread, except the producers of `raw_steady`.
"""
