"""The launcher in-process: no Spark at all, its errors, and its command line with real signals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lakebed
from lakebed import Pipeline, UsageError
from lakebed.clock import random_token
from lakebed.errors import Code
from tests.soaked import few
from tests.spark.cases import SCHEMA, assert_holds, rows, write_parquet
from tests.waiting import WAIT_S, until

STOPPING = "lakebed: stopping …; again to stop hard\n"

# A module that is None cannot be imported.
WITHOUT_SPARK = """
import sys
sys.modules.update(dict.fromkeys(["pyspark", "py4j", "pandas"]))
from lakebed.cli import main
sys.exit(main())
"""

# Each task says that it began, and goes on for minutes.
SLOW = """
import functools, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from lakebed.jobs.worker_pool import WorkerPool
began = "[open('began', 'a').write(str(__import__('os').getpid()) + ' '), __import__('time').sleep(600)]"
run, work = WorkerPool.run, functools.partial(eval, began)
WorkerPool.run = lambda self, tasks, _, *more, **limits: run(self, [{} for _ in tasks], work, *more, **limits)
from lakebed.cli import main
sys.exit(main())
"""


# The second batch of tasks waits for the signal.
ONE_BATCH = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from lakebed.jobs.worker_pool import WorkerPool
run, calls = WorkerPool.run, []
def first(self, values, work, made, stop, **how):
    calls.append(1)
    while len(calls) > 1 and not stop.asked:
        time.sleep(0.1)
    return run(self, values, work, made, stop, **how)
WorkerPool.run = first
from lakebed.cli import main
sys.exit(main())
"""


def started(instance: lakebed.Instance, folder: Path, program: str, *words: str) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"LAKEBED_INSTANCE": instance.url, "TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def is_gone(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_tables_are_maintained_and_exported_where_spark_is_not_installed(
    lake: lakebed.Instance, table: lakebed.Table, tmp_path: Path
) -> None:
    parts = [rows(seed, 500) for seed in range(4)]
    for part in parts[:2]:
        table.write(part)
    table.submit(write_parquet(tmp_path / "in", *parts[2:]))
    table.set(ingest_bytes_min=0, compaction_strategy="full")
    for words in (["maintain", "t"], ["export", "t", str(tmp_path / "out")]):
        process = started(lake, tmp_path / "home", WITHOUT_SPARK, *words, "--in-process")
        assert process.wait(WAIT_S) == 0, process.communicate()
        process.communicate()
    assert_holds(table, *parts)
    assert table.partitions().column("runs").to_pylist() == [1]
    assert (tmp_path / "out" / "_SUCCESS").exists()
    assert not list((tmp_path / "home").iterdir()), "no temporary file is left"


def test_what_needs_spark_says_so(pipeline: Pipeline, table: lakebed.Table, tmp_path: Path) -> None:
    paths = write_parquet(tmp_path / "in", rows(1, 10))
    for how in ({"format": "avro"}, {"format": "query"}, {"select": "SELECT * FROM source"}):
        with pytest.raises(
            UsageError, match="this source needs Spark, and the pipeline's tasks run in worker processes: leave out"
        ) as caught:
            pipeline.bulk_import(table, paths, **how)
        assert caught.value.code == Code.SPARK_REQUIRED
    for spark_only in (lambda: pipeline.read(table), lambda: pipeline.session):
        with pytest.raises(UsageError, match="needs Spark, and the pipeline's tasks run in worker processes") as caught:
            spark_only()
        assert caught.value.code == Code.SPARK_REQUIRED
    assert table.version == 1


@pytest.mark.parametrize(
    ("words", "advice"),
    few(
        [
            (("export", "out", "--master", "local[1]"), "or give --in-process, which needs no Spark"),
            (("import", "in.csv", "--master", "local[1]"), "or give --in-process, which needs no Spark"),
        ],
        1,
    ),
)
def test_a_command_without_spark_says_how_to_do_without(
    table: lakebed.Table, lake: lakebed.Instance, tmp_path: Path, words: tuple[str, str], advice: str
) -> None:
    table.write(rows(1, 10))
    (tmp_path / "in.csv").write_text("key\n")
    process = started(
        lake, tmp_path / "home", WITHOUT_SPARK, words[0], table.name, str(tmp_path / words[1]), *words[2:]
    )
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 2
    assert "this needs pyspark, which is not installed: pip install 'lakebed[spark]'; " + advice in said


def test_a_command_without_spark_runs_in_worker_processes_and_says_so(
    table: lakebed.Table, lake: lakebed.Instance, tmp_path: Path
) -> None:
    table.write(rows(1, 10))
    process = started(lake, tmp_path / "home", WITHOUT_SPARK, "export", table.name, str(tmp_path / "out"))
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, said
    assert "PySpark is not installed: tasks run in worker processes of this machine" in said
    assert (tmp_path / "out" / "_SUCCESS").exists()


def test_tasks_in_this_thread_see_an_instance_in_memory() -> None:
    instance = lakebed.create(f"memory://{random_token()}")
    table = instance.create_table("t", lakebed.Schema({"k": "string"}), settings={"compaction_strategy": "full"})
    for key in "ab":
        table.write({"k": [key]})
    with Pipeline(instance, launcher="this-thread") as pipeline:
        assert repr(pipeline) == f"Pipeline({instance.url!r}, on this thread)"
        assert pipeline.compact("t").jobs == 1
    assert table.get("b").num_rows == 1


def test_an_instance_in_memory_is_refused() -> None:
    with pytest.raises(UsageError, match="is in the memory of this process, and tasks"):
        Pipeline(lakebed.create(f"memory://{random_token()}"), launcher="in-process")


def test_a_compaction_whose_worker_is_killed_fails_by_name_and_changes_nothing(
    lake: lakebed.Instance, table: lakebed.Table, tmp_path: Path
) -> None:
    for seed in range(2):
        table.write(rows(seed, 100))
    before = table.files()
    process = started(lake, tmp_path / "home", SLOW, "compact", "t", "--strategy", "full", "--in-process")
    began = tmp_path / "home" / "began"
    until(lambda: began.exists() and bool(began.read_text()))
    os.kill(int(began.read_text()), signal.SIGKILL)
    said = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == 3
    assert "the worker process of a task was killed (SIGKILL)" in said
    assert table.files() == before
    assert not table.state().jobs


@pytest.mark.parametrize("how", few([signal.SIGINT, signal.SIGTERM], 1))
def test_an_interrupt_ends_the_workers_closes_the_jobs_and_says_what_was_committed(
    lake: lakebed.Instance, table: lakebed.Table, tmp_path: Path, how: signal.Signals
) -> None:
    for seed in range(2):
        table.write(rows(seed, 100))
    process = started(lake, tmp_path / "home", SLOW, "compact", "t", "--strategy", "full", "--in-process")
    began = tmp_path / "home" / "began"
    until(lambda: began.exists() and bool(began.read_text()))
    process.send_signal(how)
    said = process.communicate(timeout=WAIT_S)[1]
    assert (process.returncode, said.count(STOPPING)) == (130, 1)
    assert said.splitlines()[-1].startswith("lakebed: interrupted: ")
    assert "Traceback" not in said
    assert is_gone(began.read_text().strip())
    assert not table.state().jobs
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["began"]


def test_a_compaction_between_its_batches_says_how_many_jobs_it_committed(
    lake: lakebed.Instance, tmp_path: Path
) -> None:
    parts = [rows(seed, 400) for seed in range(2)]
    keys = sorted(set(zip(*(parts[0].column(name).to_pylist() for name in ("k", "part")), strict=True)))
    table = lake.create_table("many", SCHEMA, split_points=keys[5::5])
    for part in parts:
        table.write(part)

    def merged() -> int:
        return table.history()["type"].to_pylist().count("replace")

    process = started(lake, tmp_path / "home", ONE_BATCH, "compact", "many", "--strategy", "full", "--in-process")
    until(lambda: merged() > 0)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == 130, said
    message = re.fullmatch(
        r"lakebed: interrupted: committed, up to version \d+: (\d+) of (\d+) compaction jobs; nothing else was changed",
        said.splitlines()[-1],
    )
    assert message is not None, said
    assert 0 < int(message[1]) == merged() < int(message[2])
    assert not table.state().jobs
    assert_holds(table, *parts)
