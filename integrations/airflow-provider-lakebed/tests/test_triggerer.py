"""A deferred task in the components of Airflow, each a process: the triggerer that has its trigger is killed."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from urllib.request import urlopen

import pytest

DAG = """
import datetime as dt
from airflow.sdk import DAG
from airflow_lakebed.operators import LakebedImportOperator

with DAG("deferred", schedule="@once", start_date=dt.datetime(2026, 1, 1), is_paused_upon_creation=False):
    LakebedImportOperator(task_id="load", table="events", source="{source}", deferrable=True, poll_s=0.5)
"""
WAIT_S = 600


class Components:
    """The processes of one Airflow with a database in SQLite. What they say is in files beside it."""

    def __init__(self, home, url):
        self.home, self.running = home, {}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        server = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__API__BASE_URL": server,
            "AIRFLOW__API_AUTH__JWT_SECRET": 64 * "s",
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{server}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
            # A slow machine takes longer for a request than the five seconds that a task waits.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "120",
            "AIRFLOW_CONN_LAKEBED_DEFAULT": json.dumps({"conn_type": "lakebed", "host": url}),
        }

    def run(self, *words):
        subprocess.run([sys.executable, "-m", "airflow", *words], env=self.environment, check=True, capture_output=True)

    def start(self, name, *words):
        with (self.home / f"{name}.txt").open("ab") as said:
            command = [sys.executable, "-m", "airflow", name, *words]
            # A group of its own: components have processes of their own.
            self.running[name] = subprocess.Popen(
                command, env=self.environment, stdout=said, stderr=said, start_new_session=True
            )

    def serve_api(self):
        """Start the server that tasks ask, and wait until it answers."""
        self.start("api-server", "--port", str(self.port))
        end = time.monotonic() + WAIT_S
        while True:
            with suppress(OSError), urlopen(f"http://127.0.0.1:{self.port}/api/v2/version", timeout=60):
                return
            assert time.monotonic() < end, self.said()
            time.sleep(0.5)

    def kill(self, name):
        process = self.running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def query(self, statement):
        with closing(sqlite3.connect(f"file:{self.home / 'airflow.db'}?mode=ro", uri=True, timeout=60)) as database:
            return database.execute(statement).fetchall()

    def until(self, statement, wanted):
        end = time.monotonic() + WAIT_S
        while (found := self.query(statement)) != wanted:
            for name, process in self.running.items():
                assert process.poll() is None, f"{name} ended: {(self.home / f'{name}.txt').read_text()[-3000:]}"
            assert time.monotonic() < end, f"{found}, not {wanted}, within {WAIT_S} s; {self.said()}"
            time.sleep(0.5)

    def said(self):
        return {path.name: path.read_text()[-2000:] for path in self.home.glob("*.txt")}


@pytest.fixture
def components(tmp_path, lake, serve):
    made = Components(tmp_path / "airflow", serve().url)
    (made.home / "dags").mkdir(parents=True)
    yield made
    for name in list(made.running):
        made.kill(name)


def test_another_triggerer_goes_on_when_the_one_of_a_trigger_is_killed(components, lake, source):
    # The service does not ingest the files yet.
    lake.table("events").set(ingest_age_s=86_400, ingest_bytes_min=2**40)
    (components.home / "dags" / "deferred.py").write_text(DAG.format(source=source))
    components.run("db", "migrate")
    components.serve_api()
    for name in ("scheduler", "dag-processor", "triggerer"):
        components.start(name)
    state = "SELECT state FROM task_instance"
    components.until(state, [("deferred",)])
    components.until("SELECT count(*) FROM trigger WHERE triggerer_id IS NOT NULL", [(1,)])
    components.kill("triggerer")
    lake.table("events").set(ingest_age_s=0, ingest_bytes_min=0)
    components.start("triggerer")
    components.until(state, [("success",)])
    assert components.query("SELECT try_number FROM task_instance") == [(1,)]
    assert lake.table("events").scan().read_all().num_rows == 10
