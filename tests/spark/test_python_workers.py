"""The Python workers of a local session are forked from a daemon that has imported what tasks need."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakebed.system import survives_forks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

forked = pytest.mark.skipif(not survives_forks(), reason="workers are spawned")
spawned = pytest.mark.skipif(survives_forks(), reason="workers are forked")


@forked
def test_workers_are_forked_with_the_libraries_of_tasks_from_a_process_of_one_thread(spark: SparkSession) -> None:
    """And one of jemalloc, which stops it for a fork. Workers look for garbage only among what they made themselves."""

    # Pickled by value, because it is no function of a module: the worker imports nothing for it.
    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import os
        import sys
        from pathlib import Path

        import pyarrow as pa

        kept = gc.get_freeze_count() > 50_000
        loaded = [name for name in ("lakebed.jobs.tasks", "datafusion") if name in sys.modules]
        threads = [(path / "comm").read_text().strip() for path in Path(f"/proc/{os.getppid()}/task").iterdir()]
        others = len(threads) - threads.count("jemalloc_bg_thd")
        for _ in batches:
            columns = [loaded, [others] * len(loaded), [kept] * len(loaded)]
            yield pa.record_batch(columns, names=["module", "threads", "kept"])

    found = spark.range(1).mapInArrow(seen, "module string, threads bigint, kept boolean").collect()
    assert [tuple(row) for row in found] == [("lakebed.jobs.tasks", 1, True), ("datafusion", 1, True)]


@spawned
def test_each_task_starts_a_python_where_libraries_do_not_survive_a_fork(spark: SparkSession) -> None:
    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys

        import pyarrow as pa

        for _ in batches:
            columns = [[os.getpid()], ["pyspark.daemon" in sys.modules]]
            yield pa.record_batch(columns, names=["process", "daemon"])

    found = spark.range(2, numPartitions=2).mapInArrow(seen, "process bigint, daemon boolean").collect()
    assert len({row.process for row in found}) == 2
    assert not any(row.daemon for row in found)


@pytest.mark.parametrize(
    ("imported", "not_needed"),
    [
        ("pyspark_lakebed", "pyarrow lakebed.spark.datasource.options"),
        ("lakebed.spark.datasource.batch_read", "lakebed.jobs.pipeline lakebed.jobs.tasks datafusion pandas"),
    ],
    ids=["to look up the format", "to plan a read"],
)
def test_processes_that_plan_for_spark_import_what_they_need(imported: str, not_needed: str) -> None:
    """Each of these steps is a process of its own for every session."""
    program = f"import sys, {imported}; print([name for name in sys.argv[1:] if name in sys.modules])"
    words = [sys.executable, "-c", program, *not_needed.split()]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@forked
def test_the_allocator_of_the_engine_is_set_before_the_engine_is_imported() -> None:
    """It reads the variable once, so a worker that sets it for itself is too late."""
    program = """
import os, sys
from pyspark import daemon

class Watch:
    def find_spec(self, name, path, target=None):
        if name == "datafusion":
            print(os.environ.get("MIMALLOC_PURGE_DELAY"))

sys.meta_path.insert(0, Watch())
daemon.manager = lambda: None
from lakebed.spark import worker_daemon
worker_daemon.main()
"""
    variables = {name: value for name, value in os.environ.items() if name != "MIMALLOC_PURGE_DELAY"}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=variables)
    assert ran.stdout == "1000\n"
