"""Import and compaction on a cluster whose parts are killed, hang and are started again: all rows are there, once.

The store is an S3 server in this process. It holds back the answer to the one put at which something is to happen.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Pipeline
from tests.cluster.conftest import (
    APPLICATION,
    ROOT,
    SPARK_HOME,
    TIMEOUT_S,
    Cluster,
    Driver,
    Store,
    forms_of,
    reported,
    wait_for,
)
from tests.s3.conftest import S3Request
from tests.soaked import few

SCHEMA = lakebed.Schema({"k": "string"}, {}, {"n": "int64"})
SETTINGS = {"file_bytes": 16_384, "row_group_rows": 1000, "orphan_age_s": 0}
ROWS = 4_000


def rows(part: int) -> pa.Table:
    return pa.table(
        {"k": [f"key-{i * 7919 % ROWS:06}" for i in range(ROWS)], "n": [i * 4 + part for i in range(ROWS)]},
        schema=SCHEMA.arrow,
    )


def counted(found: pa.Table) -> Counter[tuple[str, int]]:
    return Counter(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True))


def assert_holds(table: lakebed.Table, *parts: int) -> None:
    found = table.scan().read_all()
    assert found["k"].to_pylist() == sorted(found["k"].to_pylist())
    assert counted(found) == sum((counted(rows(part)) for part in parts), Counter())


def files_sent(table: lakebed.Table) -> int:
    return sum(o.name.endswith(".parquet") for o in table.storage.list(f"tables/{table.id}/data"))


def assert_only_orphans_are_swept(pipeline: Pipeline, table: lakebed.Table) -> None:
    """And that there were some: what was sent twice."""
    known = len(table.state().files)
    assert files_sent(table) > known

    def swept() -> bool:
        # More than a twentieth of the objects are orphans here; and what is of this second by the store's clock stays.
        pipeline.gc("t", force=True)
        return files_sent(table) == known

    wait_for(swept)


@dataclass(slots=True)
class Gate:
    """Holds one put of a data file until it is opened: that of ``file`` in the ``job``, both counted from 0."""

    bucket: str
    job: int
    file: int
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)
    _held: list[str] = field(default_factory=list)
    _seen: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: S3Request) -> None:
        if (request.method, request.bucket) != ("PUT", self.bucket) or not request.key.endswith(".parquet"):
            return
        job = request.key.split("/")[-2]
        with self._lock:
            file = self._seen[job] = self._seen.get(job, -1) + 1
            if (list(self._seen).index(job), file) == (self.job, self.file):
                self._held.append(request.key)
        # A repeated request waits, too.
        if request.key in self._held:
            self.reached.set()
            self.opened.wait(TIMEOUT_S)


@pytest.fixture
def gate(store: Store) -> Iterator[type[Gate]]:
    """Sets the gate that a test makes, and opens it in the end."""
    made = []

    def make(job: int, file: int) -> Gate:
        store.server.spoil = Gate(store.url.split("/")[2], job, file)
        made.append(store.server.spoil)
        return store.server.spoil

    yield make
    store.server.spoil = None
    for each in made:
        each.opened.set()


@pytest.fixture
def pipeline(store: Store) -> Pipeline:
    """Of this process, for what needs no Spark."""
    return Pipeline(lakebed.create(store.url, storage_options=store.options))


@pytest.fixture
def table(pipeline: Pipeline) -> lakebed.Table:
    return pipeline.instance.create_table("t", SCHEMA, settings=SETTINGS)


@pytest.fixture
def driver(cluster: Cluster) -> Driver:
    return cluster.any_driver()


def test_an_executor_killed_in_the_middle_of_an_import_costs_no_row(  # noqa: PLR0917
    cluster: Cluster, driver: Driver, store: Store, table: lakebed.Table, gate: type[Gate], tmp_path: Path
) -> None:
    """What its map tasks had sent is lost with it, so they are computed again, and some reducers had theirs."""
    (tmp_path / "in").mkdir()
    for part in range(2):
        pq.write_table(rows(part), tmp_path / "in" / f"{part}.parquet")
    at = gate(job=0, file=0)
    driver.begin("bulk_import", store, table="t", source=str(tmp_path / "in"), job_id="monday")
    wait_for(at.reached.is_set, while_runs=driver.process)
    cluster.executor(0).send_signal(signal.SIGKILL)
    at.opened.set()
    assert f"rows={2 * ROWS}" in driver.end()["report"]
    assert any(event["Event"] == "SparkListenerExecutorRemoved" for event in cluster.events())
    assert_holds(table, 0, 1)


def test_a_task_that_hangs_is_started_again_elsewhere_and_counts_once(  # noqa: PLR0917
    cluster: Cluster, driver: Driver, store: Store, pipeline: Pipeline, table: lakebed.Table, gate: type[Gate]
) -> None:
    """The first attempt has sent a file already, and goes on when the second has committed."""
    for part in range(2):
        table.write(rows(part))
    at = gate(job=0, file=1)
    report = driver.do("compact", store, table="t", strategy="full")["report"]
    assert at.reached.is_set()
    assert "partitions=1" in report
    at.opened.set()
    starts = [event["Task Info"] for event in cluster.events() if event["Event"] == "SparkListenerTaskStart"]
    assert any(start["Speculative"] for start in starts)
    assert_holds(table, 0, 1)
    assert_only_orphans_are_swept(pipeline, table)


def test_credentials_reach_tasks_and_are_in_no_log_and_no_plan(
    cluster: Cluster, driver: Driver, store: Store, table: lakebed.Table
) -> None:
    for part in range(2):
        table.write(rows(part))
    assert "partitions=1" in driver.do("compact", store, table="t", strategy="full")["report"]
    # What fails says more than what goes well.
    table.write(rows(2))
    table.storage.delete([o.name for o in table.storage.list(f"tables/{table.id}/data")])
    failed = driver.do("compact", store, table="t", strategy="full")["error"]
    assert "tables/" in failed
    plan = driver.do("explain", store, table="t")["report"]
    assert "MapInArrow" in plan
    said = [plan.encode(), failed.encode(), *(path.read_bytes() for path in cluster.logs())]
    assert any(b"SparkListenerTaskEnd" in text for text in said)
    assert not [text for text in said if any(form in text for form in forms_of(store.options["aws_secret_access_key"]))]


def test_a_driver_that_is_killed_is_started_again_with_the_same_job_id(  # noqa: PLR0917
    cluster: Cluster,
    driver: Driver,
    store: Store,
    pipeline: Pipeline,
    table: lakebed.Table,
    gate: type[Gate],
    wheel: Path,
    bare: Path,
    tmp_path: Path,
) -> None:
    """The second is one of `spark-submit`, whose executors get Lakebed as a zip: a wheel is one."""
    (tmp_path / "in").mkdir()
    for part in range(2):
        pq.write_table(rows(part), tmp_path / "in" / f"{part}.parquet")
    at = gate(job=0, file=1)
    driver.begin("bulk_import", store, table="t", source=str(tmp_path / "in"), job_id="monday")
    wait_for(at.reached.is_set, while_runs=driver.process)
    driver.process.send_signal(signal.SIGKILL)
    driver.process.wait()
    at.opened.set()
    assert_holds(table)

    archive = tmp_path / "lakebed.zip"
    archive.write_bytes(wheel.read_bytes())
    # Neither the settings of the other tests nor a path says where Lakebed is.
    (tmp_path / "none.properties").touch()
    process = cluster.submit(
        "--py-files", str(archive), command=("import", "t", str(tmp_path / "in"), "--job-id", "monday"),
        report=tmp_path / "report.json", store=store, properties=tmp_path / "none.properties",
        PYTHONPATH="", PYSPARK_PYTHON=str(bare / "bin" / "python"),
    )  # fmt: skip
    assert process.wait(TIMEOUT_S) == 0
    report = reported(tmp_path / "report.json")["report"]
    assert (report["job"], report["rows"], report["repeated"]) == ("monday", 2 * ROWS, False)
    assert_holds(table, 0, 1)
    assert_only_orphans_are_swept(pipeline, table)


# -- the command line as the application of spark-submit ----------------------------------------------------------

CLUSTER_MODE = ("--deploy-mode", "cluster", "--class", "org.apache.spark.deploy.PythonRunner")
"""A standalone cluster takes no Python application in cluster mode; it takes the class that runs one."""


@pytest.mark.parametrize("python", few([False, True], 1), ids=["spark-submit", "python"])
def test_a_submitted_command_that_is_terminated_reports_it(  # noqa: PLR0917
    cluster: Cluster, store: Store, table: lakebed.Table, gate: type[Gate], tmp_path: Path, python: bool
) -> None:
    """Sent to the driver's Python it is an interrupt; spark-submit's own process takes Spark away from the command.

    Whether its tasks run on executors makes no difference to either, so they run beside the driver.
    """
    pq.write_table(rows(0), tmp_path / "in.parquet")
    at = gate(job=0, file=0)
    path = tmp_path / "report.json"
    words = ("import", "t", str(tmp_path / "in.parquet"))
    process = cluster.submit(command=words, report=path, store=store, master="local[1]")
    wait_for(at.reached.is_set, while_runs=process)
    assert reported(path) == {"exit_code": None}
    (driver_of(process) if python else process).send_signal(signal.SIGTERM)
    wait_for(lambda: reported(path)["exit_code"] is not None)
    code = process.wait(TIMEOUT_S)
    at.opened.set()
    if python:
        assert code == 130
        assert reported(path) == {"exit_code": 130, "interrupted": "nothing was committed"}
    else:
        assert code != 0
        assert reported(path)["exit_code"] not in (0, None)
        assert reported(path)["error"]["message"]
    assert_holds(table)


TWICE = """import runpy, sys
given = sys.argv[1:]
for source in ("missing", "present"):
    sys.argv[1:] = [word.replace("SOURCE", source) for word in given]
    try:
        runpy.run_path({application!r}, run_name="__main__")
    except SystemExit:
        pass
"""
"""The application twice in one driver, with other words: a second driver would start JVMs for half a minute."""


def test_drivers_in_cluster_mode_report_to_their_callers(
    cluster: Cluster, store: Store, table: lakebed.Table, tmp_path: Path
) -> None:
    """They run on a worker: their stdout is a file there, and spark-submit ends with 0 whatever came of it."""
    pq.write_table(rows(0), tmp_path / "present.parquet")
    (tmp_path / "twice.py").write_text(TWICE.format(application=str(APPLICATION)))
    settings = {"spark.standalone.submit.waitAppCompletion": "true", "spark.pyspark.python": sys.executable}
    jar = next((SPARK_HOME / "jars").glob("spark-core_*.jar"))
    process = cluster.submit(
        *CLUSTER_MODE, *("--driver-memory", "512m"),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        # A jar, which is not used, then what the class takes: the program, and what its path is to hold.
        application=(str(jar), str(tmp_path / "twice.py"), str(ROOT / "src")),
        command=("import", "t", str(tmp_path / "SOURCE.parquet"), *options_of(store)),
        report=tmp_path / "SOURCE.json", store=store,
    )  # fmt: skip
    assert process.wait(TIMEOUT_S) == 0
    failed = reported(tmp_path / "missing.json")
    assert (failed["exit_code"], failed["error"]["kind"]) == (4, "not_found")
    assert reported(tmp_path / "present.json")["report"]["rows"] == ROWS
    assert_holds(table, 0)


def driver_of(submitting: subprocess.Popen[str]) -> psutil.Process:
    """The Python that runs the application."""
    for child in psutil.Process(submitting.pid).children():
        with contextlib.suppress(psutil.Error):
            if str(APPLICATION) in child.cmdline():
                return child
    raise AssertionError("no driver")


def options_of(store: Store) -> list[str]:
    """A driver on a worker does not see this process's environment."""
    return [word for name, value in store.server.storage_options.items() for word in ("--option", f"{name}={value}")]
