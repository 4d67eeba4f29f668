"""Plain programs on the client library, with which the benchmark compares Postdate.

    raw_copy      copies records in transactions
    raw_steady    produces at a steady rate in transactions

They import nothing of Postdate. Each runs as a process: `python -m postdate.tools.bench.baselines.raw_copy`.
Thread rule: one thread, except the producers of `raw_steady`.
"""
