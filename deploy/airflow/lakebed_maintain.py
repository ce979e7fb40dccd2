"""A DAG for Airflow 3 that maintains all tables every ten minutes, where no service runs.

Put it into the folder of DAGs. The worker needs Lakebed installed, and LAKEBED_INSTANCE in its environment with the
credentials of the store. The exit code says how it ended: docs/cli.md.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    dag_id="lakebed_maintain",
    schedule=timedelta(minutes=10),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    # Two rounds at once do no harm; they only do some work twice.
    max_active_runs=1,
    tags=["lakebed"],
) as dag:
    BashOperator(
        task_id="maintain",
        bash_command="lakebed maintain --once --in-process",
        execution_timeout=timedelta(hours=6),
        # The next round tries again.
        retries=0,
    )
