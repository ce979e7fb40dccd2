"""Statements with limits: each is answered or stopped, and leaves nothing of its process."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import Error, NotFoundError, Schema, UsageError, aio
from lakebed.cli import main
from lakebed.clock import random_token
from lakebed.read.sql import limited
from tests.soaked import few
from tests.waiting import WAIT_S, until

MIB = 1024 * 1024
ROWS = 20_000
SCHEMA = Schema({"k": "int64"}, values={"v": "string", "n": "int32"})
FOR_EVER = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.value * b.value = -1"
MUCH = "SELECT repeat(a.v, 20) AS v FROM t a, t b"


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    lake = lakebed.create(str(tmp_path_factory.mktemp("limits")))
    rows = {"k": list(range(ROWS)), "v": [f"{'x' * 100}{i}" for i in range(ROWS)], "n": [None, 7] * (ROWS // 2)}
    lake.create_table("t", SCHEMA).write(pa.table(rows, schema=SCHEMA.arrow))
    return lake


@pytest.fixture(autouse=True)
def nothing_left():
    before, threads = descriptors(), set(threading.enumerate())
    yield
    gc.collect()
    assert workers() == []
    assert not [one for one in threading.enumerate() if one not in threads and one.name == "lakebed-statement"]
    assert descriptors() <= before


def descriptors():
    return sum("pipe:" in str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink())


def workers(of=None):
    """Return the processes that run a statement for this one, including dead ones."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            words = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == (of or os.getpid()) and (b"lakebed.table.sql_worker" in words or fields[0] == "Z"):
            found.append(int(stat.parent.name))
    return found


def test_one_value_of_gigabytes_is_stopped(lake):
    with pytest.raises(UsageError, match=r"memory_limit_bytes = 268,435,456 .* raise it .* filter or LIMIT") as raised:
        lake.sql("SELECT repeat('x', 2000000000) AS v", memory_limit_bytes=256 * MIB).read_all()
    assert raised.value.memory_limit_bytes == 256 * MIB
    assert raised.value.reached_bytes < 1024 * MIB


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT repeat('x', 400000000) AS v FROM t",
        "SELECT max(v) AS v FROM (SELECT repeat(v, 1000) AS v, k FROM t) GROUP BY k ORDER BY v",
    ],
)
def test_what_sorts_and_groups_beyond_the_limit_is_stopped(lake, statement):
    with pytest.raises(UsageError, match="memory_limit_bytes = 134,217,728"):
        lake.sql(statement, memory_limit_bytes=128 * MIB).read_all()


def test_a_statement_that_takes_for_ever_is_stopped(lake):
    with pytest.raises(UsageError, match=r"timeout_s = 0\.5; raise timeout_s"):
        lake.sql(FOR_EVER, timeout_s=0.5).read_all()


@pytest.mark.parametrize(
    "statement",
    few(
        [
            "SELECT * FROM t WHERE k < 5 OR k > 19000 ORDER BY k",
            "SELECT n, count(*) AS c, arrow_cast('a', 'Dictionary(Int32, Utf8)') AS d FROM t GROUP BY n ORDER BY n",
            "SELECT FROM t WHERE k < 5",
        ],
        2,
    ),
)
def test_a_statement_within_its_limits_has_the_same_rows(lake, statement):
    with lake.sql(statement) as plain, lake.sql(statement, memory_limit_bytes=1024 * MIB, timeout_s=600) as reader:
        assert isinstance(reader, pa.RecordBatchReader)
        assert reader.schema == plain.schema
        batches = list(reader)
        assert all(batch.num_rows for batch in batches)
        assert pa.Table.from_batches(batches, reader.schema).equals(plain.read_all())


def test_a_slow_reader_holds_the_worker_back(lake):
    with lake.sql(MUCH, memory_limit_bytes=512 * MIB) as reader:
        for _ in range(3):
            reader.read_next_batch()
        (worker,) = workers()
        time.sleep(1)
        assert workers() == [worker], "it went on to the end, or was stopped"
        assert limited.held_bytes(worker) < 700 * MIB


@pytest.mark.parametrize("end", few(["close", "with", "drop", "drop its stream"], 3))
def test_a_reader_that_is_let_go_ends_the_worker(lake, end):
    reader = lake.sql(MUCH, timeout_s=600)
    reader.read_next_batch()
    (worker,) = workers()
    if end == "close":
        reader.close()
        reader.close()
        with pytest.raises(UsageError, match="is closed"):
            reader.read_next_batch()
    elif end == "with":
        with reader:
            pass
    elif end == "drop its stream":
        stream = pa.RecordBatchReader.from_stream(reader)
        del reader
        assert stream.read_next_batch().num_rows
        del stream
    else:
        del reader
    assert not Path(f"/proc/{worker}").exists()


def test_an_error_keeps_its_class_and_its_message(lake):
    for statement, kind in [
        ("SELECT * FROM planes", NotFoundError),
        ("DROP TABLE t", UsageError),
        ("SELECT CAST(v AS int) FROM t WHERE k = 3", UsageError),
    ]:
        with pytest.raises(kind) as plain:
            lake.sql(statement).read_all()
        with pytest.raises(kind) as raised:
            lake.sql(statement, timeout_s=600).read_all()
        assert (type(raised.value), raised.value.message) == (type(plain.value), plain.value.message)
        assert raised.value.facts == plain.value.facts


def test_a_worker_that_dies_by_itself_is_reported(lake):
    reader = lake.sql(MUCH, timeout_s=600)
    os.kill(workers()[0], signal.SIGSEGV)
    with pytest.raises(Error, match="died with SIGSEGV"):
        reader.read_all()
    with pytest.raises(UsageError, match="is closed"):
        reader.read_next_batch()


def test_a_worker_loads_no_pandas(lake):
    with lake.sql(MUCH, timeout_s=600):
        (worker,) = workers()
        loaded = Path(f"/proc/{worker}/maps").read_text()
    assert "/datafusion/" in loaded
    assert "/pandas/" not in loaded


def test_what_is_asked_with_its_options_is_seen_in_no_list_of_processes(lake):
    with lake.sql(MUCH, timeout_s=600):
        (worker,) = workers()
        seen = b"".join(Path(f"/proc/{worker}/{name}").read_bytes() for name in ("cmdline", "environ"))
    assert b"repeat" not in seen
    place = {"url": lake.url, "storage_options": {"endpoint_url": "http://nowhere"}, "log_url": None}
    with pytest.raises(UsageError, match="'endpoint_url' is not supported on local disk"):
        limited.run_limited(limited.StatementWorker(place), "SELECT 1", limited.Limits(None, 600))


CHILD = """
import sys, lakebed
reader = lakebed.open(sys.argv[1]).sql(sys.argv[2], timeout_s=600)
print("begun", flush=True)
if sys.argv[3] == "exit":
    reader.read_next_batch()
    raise SystemExit
reader.read_all()
"""


@pytest.mark.parametrize(
    ("number", "statement"),
    few([(signal.SIGINT, FOR_EVER), (signal.SIGKILL, FOR_EVER), (signal.SIGINT, MUCH), (None, MUCH)], 2),
)
def test_a_caller_that_is_interrupted_or_gone_leaves_no_worker(lake, number, statement):
    words = [sys.executable, "-c", CHILD, lake.url, statement, "exit" if number is None else "stay"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "begun\n"
            found = workers(child.pid)
            if number is not None:
                assert len(found) == 1
                child.send_signal(number)
            said = child.communicate(timeout=WAIT_S)[1]
        finally:
            child.kill()
    assert child.returncode == (0 if number is None else -number)
    assert ("KeyboardInterrupt" in said) == (number == signal.SIGINT)
    until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in found))


def test_limits_that_are_none_are_refused(lake):
    for bad in (-1, True, 1.5, float("nan"), "1GB", 2**63):
        with pytest.raises(UsageError, match="memory_limit_bytes = "):
            lake.sql("SELECT 1", memory_limit_bytes=bad)
    for bad in (-1, True, float("nan"), "1"):
        with pytest.raises(UsageError, match="timeout_s = "):
            lake.sql("SELECT 1", timeout_s=bad)


def test_a_limit_of_nothing_stops_everything(lake):
    with pytest.raises(UsageError, match="memory_limit_bytes = 0"):
        lake.sql("SELECT * FROM t ORDER BY v", memory_limit_bytes=0).read_all()


def test_an_instance_in_memory_can_have_no_limits():
    with pytest.raises(UsageError, match="in the memory of this process"):
        lakebed.create(f"memory://{random_token()}").sql("SELECT 1", timeout_s=1)


def test_the_command_line_and_event_loops_pass_limits_on(lake):
    def lakebed_sql(*words):
        command = [sys.executable, "-m", "lakebed.cli", "sql", "--instance", lake.url, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        return done.returncode, done.stdout + done.stderr

    assert lakebed_sql("--format", "csv", "--memory-limit", "512MiB", "--timeout", "60", "SELECT 1 AS a") == (
        0,
        "a\n1\n",
    )
    code, said = lakebed_sql("--memory-limit", "64MiB", "SELECT length(repeat('x', 2000000000)) AS a")
    assert code == 2
    assert "memory_limit_bytes = 67,108,864" in said
    for words in (["--memory-limit", "1GB"], ["--timeout", "soon"], ["--timeout", "nan"], ["--memory-limit", "-1"]):
        assert main(["sql", "--instance", lake.url, *words, "SELECT 1"]) == 2
    assert asyncio.run(aio.sql(lake, "SELECT 1 AS a", timeout_s=60)).to_pylist() == [{"a": 1}]
    with pytest.raises(UsageError, match="timeout_s"):
        asyncio.run(aio.sql(lake, FOR_EVER, timeout_s=0.2))
