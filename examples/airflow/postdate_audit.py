"""The audit every night, as an Airflow DAG: retried if it could not judge, never if it found a violation.

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
COULD_NOT_JUDGE = 1


@dag(schedule="15 3 * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1)
def postdate_audit() -> None:
    @task(retries=3, retry_delay=timedelta(minutes=10))
    def audit() -> str:
        command = ["postdate", "audit", "--bootstrap-server", BROKER, "--state", STATE, "--output", "json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
        if done.returncode == COULD_NOT_JUDGE:
            raise AirflowException("the audit could not judge: its log says why")
        if done.returncode != 0:
            raise AirflowFailException(f"exit code {done.returncode}: {done.stdout}")
        return done.stdout

    audit()


postdate_audit()
