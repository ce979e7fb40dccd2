"""Submitted queries that are large enough for Spark: cancelled, with a JVM that dies, taken over by a second service.

Each service is a process of its own, whose limit for work without Spark is lowered; the signs of life of a query come
more often than usual, so that a service that died is missed within seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import random, sys, time
import pyarrow as pa
import lakebed
from lakebed.security.principal import Permission, Principal
from lakebed.service import engines, query_runs
from lakebed.service.query_runs import SubmittedQueries
from lakebed.service.query_work import QueryLimits
from lakebed.service.status import SparkState
from lakebed.tracker import submitted_queries
from lakebed.tracker.submitted_queries import AskedScan, UNDER_WAY

engines.IN_PROCESS_BYTES_MAX = -1
submitted_queries.LOST_S, query_runs.BEAT_S, query_runs.LOOK_S, query_runs.LOOK_EVERY_S = 6.0, 0.5, 0.5, 0.1
LOCAL = Principal.everywhere("local", Permission.ADMIN)
COUNT = 40
SLOW = "length(regexp_replace(repeat(v, 40000), '(a|b)+z', 'd')) > 0"
url, role = sys.argv[1:]
lake = lakebed.create(url, exist_ok=True)
if role == "first":
    schema = lakebed.Schema({"k": "int64"}, values={"v": "string"})
    # Several tasks, of which two run at once.
    made = lake.create_table("t", schema, split_points=list(range(4, COUNT, 4)), settings={"file_bytes": 4096})
    made.write(pa.table({"k": list(range(COUNT)), "v": [random.randbytes(300).hex() for _ in range(COUNT)]}))
table = lake.table("t")
spark = engines.Engines(lake, "local[2]")
queries = SubmittedQueries(lake, spark, QueryLimits(1, 600, 2**30, 600))
queries.start()

def until(holds):
    deadline_s = time.monotonic() + 150
    while not (found := holds()):
        assert time.monotonic() < deadline_s, [queries.state(one) for one in queries.queries()]
        time.sleep(0.05)
    return found

def submitted(where=None):
    scan = AskedScan(table="t", table_id=table.id, version=table.version, ranges=(("", None),), where=where)
    return queries.query(queries.submit(LOCAL, {}, scan=scan).id)

def ended(query):
    return until(lambda: (state := queries.state(query)).state not in UNDER_WAY and state)

def tasks():
    from pyspark import SparkContext
    context = SparkContext._active_spark_context
    if context is None:
        return 0
    infos = map(context.statusTracker().getStageInfo, context.statusTracker().getActiveStageIds())
    return sum(one.numActiveTasks for one in infos if one)

def check(query, attempt):
    state = ended(query)
    assert (state.state, state.rows, state.attempt) == ("completed", COUNT, attempt), state
    schema, batches = queries.rows(query)
    assert pa.Table.from_batches(batches, schema)["k"].to_pylist() == list(range(COUNT))
    return state

if role == "first":
    assert check(submitted(), 1).files > 1
    assert spark.spark is SparkState.IDLE

    query = submitted(SLOW)
    until(tasks)
    assert queries.cancel(query).state == "cancelled"
    until(lambda: not tasks())
    until(lambda: query.id not in queries._runs)
    assert ended(query).rows == 0
    queries.cancel(query)
    assert not list(lake.storage.list(f"queries/{query.id}"))
    print("cancelled", flush=True)

    query = submitted(SLOW)
    until(tasks)
    from pyspark import SparkContext
    dead = SparkContext._gateway.proc
    dead.kill()
    check(query, 2)
    assert SparkContext._gateway.proc.pid != dead.pid
    print("the JVM died", flush=True)

    query = submitted(SLOW)
    until(tasks)
    print("running", query.id, flush=True)
    time.sleep(600)
else:
    (query,) = [one for one in queries.queries() if queries.state(one).ended_at is None]
    assert queries.state(query).state in UNDER_WAY
    check(query, 2)
    assert spark.spark is SparkState.IDLE
    print("taken over", query.id, flush=True)
queries.close()
spark.close()
"""


def test_queries_on_spark_are_cancelled_and_outlive_a_jvm_and_a_service(tmp_path: Path) -> None:
    def started(role: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", SCRIPT, str(tmp_path / "lake"), role]
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
        assert "Exception in thread" not in (tmp_path / "first.log").read_text()
    finally:
        # With its JVM and the workers of that: a machine that fails takes all of them.
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    second = started("second")
    try:
        out, _ = second.communicate(timeout=300)
    finally:
        if second.poll() is None:
            os.killpg(second.pid, signal.SIGKILL)
    assert (second.returncode, out.split()) == (0, ["taken", "over", said[-1].split()[1]]), (
        tmp_path / "second.log"
    ).read_text()
