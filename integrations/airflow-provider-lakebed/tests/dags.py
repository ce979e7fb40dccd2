"""Runs DAGs whose tasks a test writes as a program: the file of a DAG, ``dag.test``, and what came of it.

Imported where the environment of Airflow is set: by tests, and by processes that they start.
"""

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEAD = """
import datetime as dt
from airflow.sdk import DAG, task
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow_lakebed.operators import *

with DAG("{name}", schedule=None, default_args={{"retry_delay": dt.timedelta(0)}}) as dag:
"""


def written(name: str, program: str) -> Path:
    """Write the file of a DAG."""
    path = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]) / f"{name}.py"
    path.write_text(HEAD.format(name=name) + "".join(f"    {line}\n" for line in program.strip().splitlines()))
    return path


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.dag


@dataclass
class Ran:
    """A run of a DAG: its state, and by task id the states, the tries and the results."""

    state: str
    states: dict[str, str]
    tries: dict[str, int]
    results: dict[str, Any]


def ran(name: str, program: str, **more: Any) -> Ran:
    from airflow.models.xcom import XComModel
    from airflow.sdk.serde import deserialize
    from airflow.utils.session import create_session

    run = loaded(written(name, program)).test(**more)
    with create_session() as session:
        found = session.query(XComModel).filter_by(dag_id=name, run_id=run.run_id, key="return_value").all()
        results = {one.task_id: deserialize(one.value) for one in found}
    tasks = run.get_task_instances()
    return Ran(
        str(run.state), {t.task_id: str(t.state) for t in tasks}, {t.task_id: t.try_number for t in tasks}, results
    )
