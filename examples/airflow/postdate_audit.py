"""Audits every night, as an Airflow DAG. The task is retried if the audit gave no verdict, but not after a violation.

The worker needs `pip install 'postdate[spark]'` and Java 17. A violation fails the task at once and stays open, so the
task fails every night until a person runs `postdate audit acknowledge RUN --state …`.
"""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta

from airflow.decorators import dag, task
from airflow.exceptions import AirflowException, AirflowFailException

BROKER = "broker:9092"
STATE = "s3a://bucket/postdate-audit"
# For Spark 4.0.0: its Kafka connector, Delta Lake for the state, and Hadoop's file system for s3a:// paths.
PACKAGES = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    "io.delta:delta-spark_2.13:4.0.0",
    "org.apache.hadoop:hadoop-aws:3.4.1",
)
COULD_NOT_JUDGE = 1


@dag(schedule="15 3 * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def postdate_audit() -> None:
    @task(retries=3, retry_delay=timedelta(minutes=10))
    def audit() -> str:
        command = ["postdate", "audit", "--bootstrap-server", BROKER, "--state", STATE, "--output", "json"]
        command += ["--spark-conf", f"spark.jars.packages={','.join(PACKAGES)}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
        if done.returncode == COULD_NOT_JUDGE:
            raise AirflowException("the audit gave no verdict: its log has the reason")
        if done.returncode != 0:
            raise AirflowFailException(f"exit code {done.returncode}: {done.stdout}")
        return done.stdout

    audit()


postdate_audit()
