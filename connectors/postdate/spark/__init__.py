"""Spark jobs over Postdate's topics: the only package that imports pyspark.

They share with the sidecar the header names and the dispatch-log format, and nothing of its dispatch path: what they
say about the sidecar is worth something only because they work it out anew. The jobs are `audit`, `incremental`
(an audit since the last one), `follow` (one after the other), `repair`, `report` and `bulk`; `jobs` starts them all,
and a `…_main.py` is each for `spark-submit`. Reconciliation is written as functions from DataFrame to DataFrame
(`request_rows`, `fate_rows`, `record_rows`, `claims`, `judge`, `repair_rows`, `report_rows`); `cluster`, `bounds`,
`sources`, `places` and the modules of output touch the world. Importing this package does not load pyspark.
"""
