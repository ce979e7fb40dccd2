"""Bulk import on Spark, against Spark's own way to sorted Parquet files, and delta-rs': the same rows, as many files.

    python -m benchmarks.bulk_import [--cases 1,8,256,10000,delta,frame,csv,lineitem] [--files 10] [--rows 2000000]
                                     [--rounds 2] [--source FOLDER] [--scale 10]

Cases: a number is that of the partitions of a table that Parquet files go into; ``frame`` and ``csv`` are the same rows
from a DataFrame and from text; ``delta`` appends to a Delta table and z-orders it by the key; ``lineitem`` is that
table of TPC-H at ``--scale``, by order and line, whose import must stay under 4 GiB for all processes together.

The peer is ``repartitionByRange(n, key).sortWithinPartitions(key, ts).write.parquet``, zstd, of the same input. Each
side is a process of its own with a session of its own, warmed by an import (a write) of two small files; Spark gets its
defaults and a larger heap. Rounds take turns. Core-seconds are those of the whole process tree, JVM and workers
included: on a machine that does other things as well they say more than the clock. Peak memory is the sum of what is
resident, as /proc has it, four times a second.

delta-rs and the generator of TPC-H run in an environment made for them, with pip, if this one does not have them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import venv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

KEYS = {"rows": (["key"], ["ts"]), "lineitem": (["l_orderkey"], ["l_linenumber"])}
"""Row key and sort key of each kind of input."""

PEERS = ("deltalake", "tpchgen-cli", "numpy", "psutil", "pyarrow")

LINEITEM_SETTINGS = {"memory_limit_bytes": 256 * 1024 * 1024}
LINEITEM_HEAP = "1g"
LINEITEM_MIB_MAX = 4096


@dataclass(frozen=True, slots=True)
class Case:
    """A line of the table: what is read, how, into how many partitions, and how much faster than its peer it must
    be."""

    name: str
    peer: str
    kind: str
    form: str
    partitions: int
    at_least: float


def case_of(word: str) -> Case:
    match word:
        case "delta":
            return Case("Parquet, 8 partitions", "delta", "rows", "parquet", 8, 2.0)
        case "frame":
            return Case("a DataFrame", "spark", "rows", "frame", 1, 1.5)
        case "csv":
            return Case("CSV", "spark", "rows", "csv", 1, 1.2)
        case "lineitem":
            return Case("lineitem", "none", "lineitem", "parquet", 1, 0.0)
        case _:
            partitions = int(word)
            return Case(
                f"Parquet, {partitions:,} partitions",
                "spark",
                "rows",
                "parquet",
                partitions,
                2.5 if partitions <= 256 else 1.5,
            )


def make_rows(folder: Path, files: int, rows: int, *, sort: bool = False) -> None:
    """Rows of about 80 bytes: near-unique text keys, times, small numbers, text; unsorted unless ``sort``."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    for version in range(files):
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
        pq.write_table(table, folder / f"part-{version:04d}.parquet", compression="zstd")


def core_seconds() -> float:
    """Of this process and all below it, those that have ended included."""
    me = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in [me, *me.children(recursive=True)])


def ours(case: Case, source: Path, small: Path, folder: Path) -> dict[str, Any]:
    import lakebed
    from lakebed.spark import Pipeline
    from lakebed.spark.session import _DRIVER_SETTINGS

    row_key, sort_key = KEYS[case.kind]
    example = small.parent / "small" if case.form == "csv" else small
    schema = lakebed.Schema.from_arrow(pq.read_schema(next(example.rglob("*.parquet"))), row_key, sort_key)
    points = [f"user-{i * 2**62 // case.partitions:016x}" for i in range(1, case.partitions)]
    settings = LINEITEM_SETTINGS if case.kind == "lineitem" else {}
    if case.kind == "lineitem":
        _DRIVER_SETTINGS["spark.driver.memory"] = LINEITEM_HEAP
    instance = lakebed.create(folder / "lake")
    table = instance.create_table("rows", schema, split_points=points, settings=settings)
    with Pipeline(instance) as pipeline:

        def given(path: Path) -> Any:
            return pipeline.session.read.parquet(str(path)) if case.form == "frame" else path

        form = "csv" if case.form == "csv" else "parquet"
        pipeline.bulk_import(instance.create_table("small", schema), given(small), format=form)
        begin, begin_cores = time.perf_counter(), core_seconds()
        report = pipeline.bulk_import(table, given(source), format=form)
        return measured(begin, begin_cores) | {"rows": report.rows, "files": report.files, "bytes": report.size_bytes}


def spark(case: Case, source: Path, small: Path, folder: Path) -> dict[str, Any]:
    session = spark_session("6g")
    row_key, sort_key = KEYS[case.kind]

    def run(given: Path, out: Path, count: int) -> None:
        if case.form == "csv":
            schema = "key string, ts long, count long, value string"
            frame = session.read.option("header", "true").schema(schema).csv(str(given))
        else:
            frame = session.read.parquet(str(given))
        placed = frame.repartitionByRange(count, *row_key).sortWithinPartitions(*row_key, *sort_key)
        placed.write.option("compression", "zstd").parquet(str(out))

    run(small, folder / "small", 2)
    begin, begin_cores = time.perf_counter(), core_seconds()
    # As many files as the import made: the caller says.
    run(source, folder / "rows", int(os.environ["BENCH_FILES"]))
    result = measured(begin, begin_cores)
    written = list((folder / "rows").glob("*.parquet"))
    rows = sum(pq.ParquetFile(path).metadata.num_rows for path in written)
    session.stop()
    return result | {"rows": rows, "files": len(written), "bytes": sum(p.stat().st_size for p in written)}


def spark_session(heap: str) -> Any:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[*]").config("spark.driver.memory", heap)
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def delta(source: Path, folder: Path) -> dict[str, Any]:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable, write_deltalake

    begin, begin_cores = time.perf_counter(), core_seconds()
    given = ds.dataset(source)
    reader = pa.RecordBatchReader.from_batches(given.schema, given.to_batches())
    write_deltalake(str(folder / "delta"), reader, mode="append")
    DeltaTable(str(folder / "delta")).optimize.z_order(["key"])
    result = measured(begin, begin_cores)
    facts = pa.table(DeltaTable(str(folder / "delta")).get_add_actions(flatten=True))
    rows, size = sum(facts["num_records"].to_pylist()), sum(facts["size_bytes"].to_pylist())
    return result | {"rows": rows, "files": facts.num_rows, "bytes": size}


def measured(begin: float, begin_cores: float) -> dict[str, Any]:
    return {"seconds": time.perf_counter() - begin, "core_seconds": core_seconds() - begin_cores}


# -- the parent's side ------------------------------------------------------------------------------------------


@cache
def peers() -> Path:
    """The Python of an environment that has the peers, made now if need be."""
    folder = Path(tempfile.gettempdir()) / "lakebed-bench-peers"
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS], check=True)
        (folder / "made").touch()
    return python


def make_csv(source: Path, folder: Path) -> None:
    from pyarrow import csv

    folder.mkdir()
    for path in sorted(source.glob("*.parquet")):
        csv.write_csv(pq.read_table(path), folder / f"{path.stem}.csv")


def make_lineitem(folder: Path, scale: float) -> None:
    """Some files of the table, each of a part of its orders."""
    generator = peers().parent / "tpchgen-cli"
    parts = max(2, round(scale * 2))
    options = ["-s", str(scale), "--tables=lineitem", f"--parts={parts}", f"--output-dir={folder}"]
    subprocess.run([generator, "parquet", *options], check=True, stdout=subprocess.DEVNULL)


def resident_mib(root: psutil.Process) -> float:
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.Error:
            # It ended meanwhile.
            continue
    return total / 2**20


def child(side: str, word: str, source: Path, small: Path, files: int) -> dict[str, Any]:
    """Run one side in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        python = peers() if side == "delta" else sys.executable
        command = [str(python), "-m", "benchmarks.bulk_import", "--child", side, word, source, small, folder]
        environment = os.environ | {"BENCH_FILES": str(files)}
        process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        peak = 0.0
        told: list[str] = []
        reader = threading.Thread(target=lambda: told.extend(process.communicate()))
        reader.start()
        watched = psutil.Process(process.pid)
        while reader.is_alive():
            try:
                peak = max(peak, resident_mib(watched))
            except psutil.NoSuchProcess:
                break
            reader.join(0.25)
        reader.join()
        if process.returncode:
            raise SystemExit(f"{side} failed at {word}:\n{told[1][-3000:]}")
        result: dict[str, Any] = json.loads(told[0].splitlines()[-1])
        return result | {"peak_mib": peak}


def report(name: str, found: list[dict[str, Any]]) -> tuple[float, float]:
    """Print a line; returns median seconds and core-seconds."""
    seconds, cores = median(f["seconds"] for f in found), median(f["core_seconds"] for f in found)
    rows = found[0]["rows"]
    print(
        f"  {name:<10} {seconds:7.1f} s {rows / seconds / 1e6:6.2f} M rows/s {cores:8.1f} core-s "
        f"{rows / cores / 1e6:6.2f} M rows/s a core  {max(f['peak_mib'] for f in found):6.0f} MiB  "
        f"{found[0]['files']} files, {found[0]['bytes'] / 1e6:.0f} MB",
        flush=True,
    )
    return seconds, cores


def compare(word: str, source: Path, small: Path, rounds: int) -> bool:
    """Run and print one case; says whether it is as fast, and as small, as it must be."""
    case = case_of(word)
    mine: list[dict[str, Any]] = []
    peer: list[dict[str, Any]] = []
    for _ in range(rounds):
        mine.append(child("lakebed", word, source, small, 0))
        if case.peer != "none":
            peer.append(child(case.peer, word, source, small, mine[0]["files"]))
    print(f"{case.name}: {mine[0]['rows']:,} rows, medians of {rounds}", flush=True)
    my_seconds, my_cores = report("lakebed", mine)
    if case.peer == "none":
        peak = max(f["peak_mib"] for f in mine)
        print(f"  heap {LINEITEM_HEAP}, {LINEITEM_SETTINGS}; at most {LINEITEM_MIB_MAX} MiB", flush=True)
        return bool(peak <= LINEITEM_MIB_MAX)
    seconds, cores = report(case.peer, peer)
    if mine[0]["rows"] != peer[0]["rows"]:
        raise SystemExit("the peer did not write the same rows")
    ratio = seconds / my_seconds
    print(f"  {ratio:.2f} times the rows/s (at least {case.at_least}), {cores / my_cores:.2f} times a core", flush=True)
    return ratio >= case.at_least


def run_child(side: str, word: str, places: list[Path]) -> dict[str, Any]:
    source, small, folder = places
    if side == "lakebed":
        return ours(case_of(word), source, small, folder)
    return spark(case_of(word), source, small, folder) if side == "spark" else delta(source, folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="1,8,256,10000,delta,frame,csv,lineitem")
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--rows", type=int, default=2_000_000, help="in each file")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--scale", type=float, default=10, help="of TPC-H: 6 million rows of lineitem each")
    parser.add_argument("--source", type=Path, help="a folder of such files, instead of making them")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        side, word, *places = args.child
        print(json.dumps(run_child(side, word, [Path(place) for place in places])))
        return 0
    slow = []
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as scratch:
        root = Path(scratch)
        source = args.source or root / "rows"
        words = args.cases.split(",")
        if args.source is None and words != ["lineitem"]:
            make_rows(source, args.files, args.rows)
        small = root / "small"
        make_rows(small, 2, 50_000)
        for word in words:
            given, warm = source, small
            if word == "csv":
                given, warm = root / "csv", root / "csv-small"
                make_csv(source, given)
                make_csv(small, warm)
            elif word == "lineitem":
                given, warm = root / "lineitem", root / "lineitem-small"
                make_lineitem(given, args.scale)
                make_lineitem(warm, 0.01)
            slow += [] if compare(word, given, warm, args.rounds) else [word]
    if slow:
        print(f"below what they must reach: {', '.join(slow)}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
