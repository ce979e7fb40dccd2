"""Bulk import on Spark, against Spark's own way to sorted Parquet files: the same rows, into as many files.

    python -m benchmarks.bulk_import [--files 10] [--rows 2000000] [--rounds 2] [--source FOLDER]

The peer is ``repartitionByRange(n, key).sortWithinPartitions(key, ts).write.parquet``, zstd. Each side is a process of
its own with a session of its own, warmed by an import (a write) of one small file; Spark gets its defaults and a larger
heap. Rounds take turns. Core-seconds are those of the whole process tree, JVM and workers included: on a machine that
does other things as well they say more than the clock.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq


def make_rows(folder: Path, files: int, rows: int, *, sort: bool = False) -> None:
    """Rows of about 80 bytes: near-unique text keys, times, small numbers, text; unsorted unless ``sort``."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    for number in range(files):
        table = pa.table(
            {
                "key": pa.array(np.char.add("user-", np.char.mod("%016x", random.integers(0, 2**62, rows)))),
                "ts": pa.array(random.integers(1_600_000_000_000, 1_700_000_000_000, rows)),
                "count": pa.array(random.integers(0, 1000, rows)),
                "value": pa.array(np.char.mod("%032x", random.integers(0, 2**62, rows))),
            }
        )
        if sort:
            table = table.sort_by([("key", "ascending"), ("ts", "ascending")])
        pq.write_table(table, folder / f"part-{number:04d}.parquet", compression="zstd")


def core_seconds() -> float:
    """Of this process and all below it, those that have ended included."""
    me = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in [me, *me.children(recursive=True)])


def ours(source: Path, small: Path, folder: Path) -> dict[str, Any]:
    import lakebed
    from lakebed.spark import Pipeline

    schema = lakebed.Schema({"key": "string"}, {"ts": "int64"}, {"count": "int64", "value": "string"})
    instance = lakebed.create(folder / "lake")
    table = instance.create_table("rows", schema)
    with Pipeline(instance) as pipeline:
        pipeline.bulk_import(instance.create_table("small", schema), small)
        begin, begin_cores = time.perf_counter(), core_seconds()
        report = pipeline.bulk_import(table, source)
        return measured(begin, begin_cores) | {"rows": report.rows, "files": report.files, "bytes": report.size_bytes}


def spark(source: Path, small: Path, folder: Path, files: int) -> dict[str, Any]:
    import os

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").config("spark.driver.memory", "6g")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")

    def run(given: Path, out: Path, count: int) -> None:
        frame = session.read.parquet(str(given)).repartitionByRange(count, "key").sortWithinPartitions("key", "ts")
        frame.write.option("compression", "zstd").parquet(str(out))

    run(small, folder / "small", 1)
    begin, begin_cores = time.perf_counter(), core_seconds()
    run(source, folder / "rows", files)
    result = measured(begin, begin_cores)
    written = list((folder / "rows").glob("*.parquet"))
    rows = sum(pq.ParquetFile(path).metadata.num_rows for path in written)
    session.stop()
    return result | {"rows": rows, "files": len(written), "bytes": sum(p.stat().st_size for p in written)}


def measured(begin: float, begin_cores: float) -> dict[str, Any]:
    return {"seconds": time.perf_counter() - begin, "core_seconds": core_seconds() - begin_cores}


def child(*arguments: object) -> dict[str, Any]:
    """Run one side in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        command = [sys.executable, "-m", "benchmarks.bulk_import", "--child", folder, *map(str, arguments)]
        ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        result: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
        return result


def report(name: str, found: list[dict[str, Any]]) -> tuple[float, float]:
    """Print a line; returns median seconds and core-seconds."""
    seconds, cores = median(f["seconds"] for f in found), median(f["core_seconds"] for f in found)
    rows = found[0]["rows"]
    print(
        f"{name:<34} {seconds:8.1f} s {rows / seconds / 1e6:6.2f} M rows/s {cores:8.1f} core-s "
        f"{rows / cores / 1e6:6.2f} M rows/s a core   {found[0]['files']} files, {found[0]['bytes'] / 1e6:.0f} MB"
    )
    return seconds, cores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--rows", type=int, default=2_000_000, help="in each file")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--source", type=Path, help="a folder of such files, instead of making them")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        folder, side, source, small, files = args.child
        places = Path(source), Path(small), Path(folder)
        print(json.dumps(ours(*places) if side == "lakebed" else spark(*places, int(files))))
        return
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as scratch:
        source = args.source or Path(scratch) / "rows"
        if args.source is None:
            make_rows(source, args.files, args.rows)
        small = Path(scratch) / "small"
        make_rows(small, 1, 50_000)
        mine: list[dict[str, Any]] = []
        peer: list[dict[str, Any]] = []
        for _ in range(args.rounds):
            mine.append(child("lakebed", source, small, 0))
            peer.append(child("spark", source, small, mine[0]["files"]))
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"bulk import of {mine[0]['rows']:,} rows, {args.rounds} rounds, medians")
    my_seconds, my_cores = report("lakebed", mine)
    seconds, cores = report("spark range repartition and sort", peer)
    print(f"ratio: {seconds / my_seconds:.2f} times the rows/s (at least 2.2), {cores / my_cores:.2f} times a core")


if __name__ == "__main__":
    main()
