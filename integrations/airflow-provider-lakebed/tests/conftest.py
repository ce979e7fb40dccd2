"""A real Airflow with its database in a temporary folder, an instance, and a service of it in its own process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# Airflow reads its environment when it is imported, so this stands before any test module.
HOME = Path(tempfile.mkdtemp(prefix="airflow-"))
DAGS = HOME / "dags"
os.environ |= {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
}

import lakebed  # noqa: E402


def pytest_sessionfinish():
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def database():
    """The metadata database of Airflow."""
    DAGS.mkdir()
    subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)


@pytest.fixture
def lake(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    schema = lakebed.Schema(row_key={"id": "int64"}, values={"amount": "double"})
    lake.create_table("sales", schema, merge=lakebed.Latest())
    lake.create_table("events", schema)
    return lake


@pytest.fixture
def source(tmp_path):
    """The URL of Parquet files with ids 0 to 9."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(2):
        rows = {"id": list(range(5 * n, 5 * n + 5)), "amount": [float(n)] * 5}
        pq.write_table(pa.table(rows), folder / f"{n}.parquet")
    return str(folder)


@pytest.fixture
def connect(monkeypatch):
    """Sets a connection of Airflow, by default ``lakebed_default``."""

    def set_connection(url: str, conn_id: str = "lakebed_default", **more: Any) -> None:
        document = {"conn_type": "lakebed", "host": url, **more}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(document))

    return set_connection


@pytest.fixture
def serve(tmp_path, lake):
    """Starts a service of the instance, which may read and write below the test's folder; returns it with its URL."""
    running = []

    def start(*options: str) -> Service:
        command = [sys.executable, "-m", "lakebed", "-i", lake.url, "serve", "--port", "0", "--in-process"]
        command += ["--allow-sources", tmp_path.as_uri(), *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        running.append(process)
        said = ""
        for line in process.stderr:
            said += line
            if found := re.search(r"at (https?://\S+)", line):
                return Service(found[1], process)
        raise AssertionError(f"the service ended: {said}")

    yield start
    for process in running:
        process.kill()
        process.communicate(timeout=60)


@dataclass
class Service:
    url: str
    process: subprocess.Popen[str]
