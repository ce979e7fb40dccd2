"""A service that works on Spark: maintenance and submitted queries in one session, which is ended when idle, and which
is started again when its JVM has died; and a second service, which takes a query over when the first has died.

Each service is a process of its own, whose limit for work without Spark is lowered; the signs of life of a query come
more often than usual, so that a service that died is missed within seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SCRIPT = """
import random, sys, time
import pyarrow as pa
import lakebed
from lakebed.cli import main
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.service import engines, query_runs
from lakebed.model.operations import OPERATIONS
from lakebed.server.service.plan import ServiceLimits
from lakebed.server.service.query_runs import SubmittedQueries
from lakebed.server.service.query_work import QueryLimits
from lakebed.server.service.service import Service
from lakebed.server.service.status import SparkState
from lakebed.table.tracker import submitted_queries
from lakebed.table.tracker.submitted_queries import AskedScan, QueryObjects, UNDER_WAY

engines.IN_PROCESS_BYTES_MAX = -1
submitted_queries.LOST_S, query_runs.BEAT_S, query_runs.LOOK_S, query_runs.LOOK_EVERY_S = 6.0, 0.5, 0.5, 0.1
LIMITS = ServiceLimits(follow_s=0.1, periods=dict.fromkeys(OPERATIONS, 0.1))
LOCAL = Principal.everywhere("local", Permission.ADMIN)
COUNT = 40
# Seconds for each task, without large values, which a predicate may not make.
SLOW = " AND ".join(f"length(regexp_replace(v, '(a|b)+z{n}', 'd')) > 0" for n in range(150))
url, role = sys.argv[1:3]
lake = lakebed.create(url, exist_ok=True)
if role == "first":
    # A master that is none is named, and Spark can be started after it.
    lake.create_table("none", lakebed.Schema({"k": "int64"}))
    assert main(["--instance", url, "import", "none", sys.argv[3], "--master", "nonsense://x"]) == 2
    assert lake.table("none").state().version == 1
    schema = lakebed.Schema({"k": "int64"}, values={"v": "string"})
    # Several tasks, of which two run at once.
    made = lake.create_table("t", schema, split_points=list(range(4, COUNT, 4)), settings={"file_bytes": 4096})
    made.write(pa.table({"k": list(range(COUNT)), "v": [random.randbytes(30_000).hex() for _ in range(COUNT)]}))
table = lake.table("t")
# The second has no more to do than to take over a query, and ends Spark then.
service = Service(lake, launcher="local[2]", limits=LIMITS, idle_s=600 if role == "first" else 5)
queries = SubmittedQueries(lake, service.engines, QueryLimits(1, 600, 2**30, 600))
service.start()
queries.start()

def until(holds):
    deadline_s = time.monotonic() + 400
    while not (found := holds()):
        assert time.monotonic() < deadline_s, ([queries.state(one) for one in queries.queries()], service.status())
        time.sleep(0.05)
    return found

def submitted(where=None):
    scan = AskedScan(table="t", table_id=table.id, version=table.version, ranges=(("", None),), where=where)
    return queries.query(queries.submit(LOCAL, {}, scan=scan).id)

def ended(query):
    return until(lambda: (state := queries.state(query)).state not in UNDER_WAY and state)

def tasks():
    # Of queries: a compaction has one task.
    from pyspark import SparkContext
    context = SparkContext._active_spark_context
    if context is None:
        return 0
    infos = map(context.statusTracker().getStageInfo, context.statusTracker().getActiveStageIds())
    return sum(one.numActiveTasks for one in infos if one and one.numTasks > 1)

def check(query, attempt):
    state = ended(query)
    assert (state.state, state.rows, state.attempt) == ("completed", COUNT, attempt), state
    schema, batches = queries.rows(query)
    assert pa.Table.from_batches(batches, schema)["k"].to_pylist() == list(range(COUNT))
    return state

def jvm():
    from pyspark import SparkContext
    return SparkContext._gateway.proc

def write(name):
    table = lake.create_table(name, lakebed.Schema({"key": "string"}, values={"value": "int64"}))
    for _ in range(5):
        table.write(pa.table({"key": ["a", "b"], "value": [1, 2]}))
    return table

def merged(table):
    # Four of the five may have been merged before the last came.
    return len(table.state().files_of(1)) < 4

if role == "first":
    assert check(submitted(), 1).files > 1
    until(lambda: service.status().spark is SparkState.IDLE)

    query = submitted(SLOW)
    until(tasks)
    assert queries.cancel(query).state == "cancelled"
    until(lambda: not tasks())
    until(lambda: query.id not in queries._runs)
    assert ended(query).rows == 0
    queries.cancel(query)
    assert query.id not in [one.id for one in queries.queries()]
    # A worker that was killed in the midst of its task may still have sent a file, which is deleted when it is old.
    submitted_queries.LOST_S = 0.0
    objects = QueryObjects(lake.storage)
    until(lambda: objects.expire() >= 0 and not list(lake.storage.list(f"queries/{query.id}")))
    submitted_queries.LOST_S = 6.0
    first, second = write("first"), write("second")
    until(lambda: merged(first) and merged(second))
    print("cancelled", flush=True)

    query = submitted(SLOW)
    until(tasks)
    dead = jvm()
    dead.kill()
    third = write("third")
    check(query, 2)
    until(lambda: merged(third))
    assert jvm().pid != dead.pid
    print("the JVM died", flush=True)

    query = submitted(SLOW)
    until(tasks)
    print("running", query.id, flush=True)
    time.sleep(600)
else:
    (query,) = [one for one in queries.queries() if queries.state(one).ended_at is None]
    assert queries.state(query).state in UNDER_WAY
    until(lambda: service.status().spark is SparkState.RUNNING)
    began = jvm()
    check(query, 2)
    until(lambda: service.status().spark is SparkState.NONE)
    assert began.wait(120) is not None
    print("taken over", query.id, flush=True)
    assert [lake.table(name).count().rows for name in ("first", "second", "third")] == [10, 10, 10]
queries.close()
service.stop()
"""


def test_maintenance_and_queries_on_spark_outlive_a_jvm_and_a_service(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1]}), tmp_path / "rows.parquet")

    def started(role: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", SCRIPT, str(tmp_path / "lake"), role, str(tmp_path / "rows.parquet")]
        streams = {"stdout": subprocess.PIPE, "stderr": (tmp_path / f"{role}.log").open("w"), "text": True}
        return subprocess.Popen(words, **streams, start_new_session=True)  # type: ignore[call-overload,no-any-return]

    first = started("first")
    try:
        assert first.stdout is not None
        said: list[str] = []
        while not said or not said[-1].startswith("running"):
            said.append(first.stdout.readline().strip())
            assert said[-1], (tmp_path / "first.log").read_text()
        assert said[:2] == ["cancelled", "the JVM died"]
        log = (tmp_path / "first.log").read_text()
        assert "lakebed: Spark did not start at nonsense://x (" in log
        # Before that, one of Java.
        assert "Exception in thread" not in log.partition("did not start at nonsense://x")[2]
        assert log.count("Starting Spark") == 2, log
    finally:
        # With its JVM and the workers of that: a machine that fails takes all of them.
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    second = started("second")
    try:
        out, _ = second.communicate(timeout=600)
    finally:
        if second.poll() is None:
            os.killpg(second.pid, signal.SIGKILL)
    log = (tmp_path / "second.log").read_text()
    assert (second.returncode, out.split()) == (0, ["taken", "over", said[-1].split()[1]]), log
