"""Tasks on an instance: the work is done in the worker, and once, however often a task is tried."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
from dags import ran, written


def rows_of(lake, name):
    return lake.table(name).count(exact=True).rows


def test_files_are_imported_changed_maintained_and_exported(lake, source, connect, tmp_path):
    """A query by Airflow's own operator returns rows; each task of Lakebed returns a few numbers."""
    connect(lake.url)
    done = ran(
        "round",
        f"""
here = {{"launcher": "this-thread"}}
load = LakebedImportOperator(task_id="load", table="sales", source="{source}", **here)
change = LakebedSQLOperator(
    task_id="change", sql=["INSERT INTO sales VALUES (100, $x)", "DELETE FROM sales WHERE amount = $x"],
    parameters={{"x": 7.0}},
)
more = LakebedSQLOperator(task_id="more", sql="INSERT INTO sales VALUES (?, ?)", parameters=[11, 2.0])
maintain = LakebedMaintainOperator(task_id="maintain", operation="compact", strategy="full", launcher="this-thread")
export = LakebedExportOperator(task_id="export", table="sales", url="{tmp_path}/out", where="id > 8", **here)
query = LakebedExportOperator(task_id="query", sql="SELECT count(*) AS n FROM sales", url="{tmp_path}/n", format="json")
ask = SQLExecuteQueryOperator(
    task_id="ask", conn_id="lakebed_default", sql="SELECT id FROM sales WHERE amount = ?", parameters=[2.0]
)
load >> change >> more >> maintain >> [export, query, ask]
""",
    )
    assert done.state == "success", done
    assert done.results["load"] == {"table": "sales", "version": 2, "rows": 10, "rejected": 0, "repeated": False}
    assert [one["rows"] for one in done.results["change"]] == [1, 1]
    assert done.results["maintain"] == {name: lake.table(name).snapshot().version for name in ("events", "sales")}
    assert lake.table("sales").partitions()["runs"].to_pylist() == [1]
    assert (done.results["export"]["rows"], done.results["export"]["files"]) == (2, 1)
    assert pq.read_table(tmp_path / "out")["id"].to_pylist() == [9, 11]
    assert json.loads(next((tmp_path / "n").glob("part-*")).read_bytes()) == {"n": 11}
    assert done.results["ask"] == [(11,)]


FAILS_AFTER = """
def fail_once(context, result=None):
    if context["ti"].try_number == 1:
        raise RuntimeError("the worker is lost after its commit")
"""


def test_a_task_that_is_tried_again_adds_nothing_twice(lake, source, connect, tmp_path):
    connect(lake.url)
    done = ran(
        "again",
        f"""{FAILS_AFTER}
once = {{"retries": 1, "post_execute": fail_once, "launcher": "this-thread"}}
LakebedImportOperator(task_id="load", table="events", source="{source}", **once)
LakebedSQLOperator(task_id="change", sql="INSERT INTO events VALUES (100, 7.0)", **once)
LakebedSQLOperator.partial(task_id="each", **once).expand(
    sql=["INSERT INTO events VALUES (101, 7.0)", "INSERT INTO events VALUES (102, 7.0)"]
)
LakebedExportOperator(task_id="export", table="sales", url="{tmp_path}/out", **once)
""",
    )
    assert (done.state, set(done.tries.values())) == ("success", {2}), done
    assert done.results["load"]["repeated"]
    assert done.results["change"][0]["repeated"]
    assert rows_of(lake, "events") == 13


KILLED = """
import datetime as dt, sys
sys.path.insert(0, sys.argv[1])
from dags import loaded
from pathlib import Path
at = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
print(loaded(Path(sys.argv[2])).test(logical_date=at, run_after=at).state)
"""


def test_a_worker_that_is_killed_leaves_nothing_twice(lake, source, connect, tmp_path):
    """It is killed by SIGKILL when its commit is done, and when files of its export are there; the run begins anew."""
    connect(lake.url)
    kill = f"os.kill(os.getpid(), {int(signal.SIGKILL)})"
    path = written(
        "killed",
        f"""
import os
from pathlib import Path
from lakebed.upkeep.export import publication
marks = Path("{tmp_path}")

def die_once(name):
    if not (marks / name).exists():
        (marks / name).touch()
        {kill}

creates = publication.create_until_clear

def dies(target, name, data):
    die_once("exported")
    return creates(target, name, data)

publication.create_until_clear = dies
load = LakebedImportOperator(
    task_id="load",
    table="events",
    source="{source}",
    launcher="this-thread",
    post_execute=lambda *_: die_once("loaded"),
)
load >> LakebedExportOperator(task_id="export", table="events", url="{tmp_path}/out", launcher="this-thread")
""",
    )
    codes = []
    for _ in range(3):
        command = [sys.executable, "-c", KILLED, str(Path(__file__).parent), str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        codes.append(done.returncode)
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0], done.stderr
    assert done.stdout.split()[-1] == "success"
    assert rows_of(lake, "events") == 10
    assert pq.read_table(tmp_path / "out").num_rows == 10


def test_what_cannot_be_done_fails_the_task_with_the_reason(lake, source, connect, capfd):
    connect(lake.url)
    connect(f"{lake.url}/nothing", "wrong_url")
    connect("", "no_url")
    connect(lake.url, "unknown_extra", extra=json.dumps({"region": "eu"}))
    done = ran(
        "refused",
        f"""
how = {{"launcher": "this-thread"}}
LakebedImportOperator(task_id="missing_table", table="sale", source="{source}", **how)
LakebedImportOperator(task_id="missing_files", table="sales", source="{source}/nothing-*.parquet", **how)
for conn_id in ("wrong_url", "no_url", "unknown_extra", "undefined"):
    LakebedMaintainOperator(task_id=conn_id, lakebed_conn_id=conn_id, **how)
LakebedSQLOperator(task_id="reads", sql="SELECT 1")
""",
    )
    assert (done.state, set(done.states.values())) == ("failed", {"failed"})
    said = capfd.readouterr().out
    for part in ("no table named 'sale'", "no_url' has no URL", "has the extra region", "nothing", "undefined"):
        assert part in said, part
    assert rows_of(lake, "sales") == 0
