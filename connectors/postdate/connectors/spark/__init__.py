"""Spark jobs over Postdate's topics: the only package that imports pyspark.

They share with the sidecar the header names and the dispatch-log format, and nothing of its dispatch path: what they
say about the sidecar is worth something only because they work it out anew. `audit.run_audit` is the way in;
`audit_main.py` is the same for `spark-submit`. Reconciliation is written as functions from DataFrame to DataFrame
(`request_rows`, `fate_rows`, `record_rows`, `claims`, `judge`); `cluster`, `bounds`, `sources` and `output` touch the
world. Importing this package does not load pyspark.
"""
