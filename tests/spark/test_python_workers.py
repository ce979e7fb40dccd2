"""The Python workers of a local session are forked from a daemon that has imported what tasks need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers import for themselves")


@linux
def test_workers_are_forked_with_the_libraries_of_tasks_from_a_process_of_one_thread(spark: SparkSession) -> None:
    """And one of jemalloc, which stops it for a fork."""

    # Pickled by value, because it is no function of a module: the worker imports nothing for it.
    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys
        from pathlib import Path

        import pyarrow as pa

        loaded = [name for name in ("lakebed.spark.executors", "datafusion") if name in sys.modules]
        threads = [(path / "comm").read_text().strip() for path in Path(f"/proc/{os.getppid()}/task").iterdir()]
        others = len(threads) - threads.count("jemalloc_bg_thd")
        for _ in batches:
            yield pa.record_batch([loaded, [others] * len(loaded)], names=["module", "threads"])

    found = spark.range(1).mapInArrow(seen, "module string, threads bigint").collect()
    assert [tuple(row) for row in found] == [("lakebed.spark.executors", 1), ("datafusion", 1)]


def test_what_plans_a_read_imports_no_pipeline_and_no_engine() -> None:
    """Spark plans a query of the data source in up to three processes of their own, each of which imports it."""
    program = "import sys, pyspark_lakebed; print([n for n in sys.argv[1:] if n in sys.modules])"
    words = ["lakebed.spark.pipeline", "lakebed.spark.executors", "datafusion", "pandas"]
    ran = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
