"""A service that works on Spark: one session, which is ended when idle, and started again when its JVM has died."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, signal, sys, time
import pyarrow as pa
import lakebed
from lakebed.model.operations import TableOperation
from lakebed.service import engines
from lakebed.service.plan import PERIODS, ServiceLimits
from lakebed.service.service import Service
from lakebed.service.status import SparkState

engines.IN_PROCESS_BYTES_MAX = -1
SCHEMA = lakebed.Schema({"key": "string"}, values={"value": "int64"})
instance = lakebed.create(sys.argv[1])
LIMITS = ServiceLimits(follow_s=0.1, periods=dict.fromkeys(PERIODS, 0.1))

def until(condition):
    deadline_s = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline_s, service.status()
        time.sleep(0.05)

def write(name):
    table = instance.create_table(name, SCHEMA)
    for _ in range(5):
        table.write(pa.table({"key": ["a", "b"], "value": [1, 2]}))
    return table

def jvm():
    from pyspark import SparkContext
    return SparkContext._gateway.proc

def merged(table):
    # Four of the five may have been merged before the last came.
    return len(table.state().files_of(1)) < 4

with Service(instance, launcher="local[2]", limits=LIMITS, idle_s=5.0, report=print) as service:
    first, second = write("first"), write("second")
    until(lambda: merged(first) and merged(second))
    began = jvm()
    # The JVM dies while the service holds its session.
    began.kill()
    third = write("third")
    until(lambda: merged(third))
    again = jvm()
    assert again.pid != began.pid
    until(lambda: service.status().spark is SparkState.NONE)
    assert again.wait(120) is not None
print("counted", [instance.table(name).count().rows for name in instance.tables()])
"""


def test_the_service_holds_one_session_while_there_is_work_and_starts_another_if_it_dies(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "lake")], capture_output=True, text=True, timeout=400, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "counted [10, 10, 10]" in ran.stdout
    assert ran.stderr.count("Starting Spark") == 2, ran.stderr
