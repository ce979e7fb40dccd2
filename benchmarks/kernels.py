"""The kernels alone, without storage, log or Spark: sort, merge, and the memory of merges.

    python -m benchmarks.kernels [--rows 2000000] [--files 10] [--inputs 10 40 200]

Each measurement is a process of its own. "One core" pins it to one if the system allows that. The peer is DuckDB's
``COPY (SELECT … ORDER BY key, ts) TO … (FORMAT parquet, COMPRESSION zstd)`` of the same rows or files in the same run;
ratios are of wall time. The merges by mode read runs of rows with a text key and two numbers, with half of the keys in
every run; their ratio is to the merge that keeps all rows, and rows are those read. "Custom" is the same aggregate as
"sum and max", by a function of an installed package and by a query. Memory: merges of that many files; above
``--files`` the same files are repeated, and only the first 40 million rows in key order are merged, because memory
depends on the inputs and not on the duration.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed.model.keys import EncodedRange
from lakebed.model.merge_modes import Aggregate, Custom, KeepAll, Latest, MergeMode
from lakebed.model.settings import Settings

SCHEMA = lakebed.Schema({"key": "string"}, {"ts": "int64"}, {"count": "int64", "value": "string"})
MEMORY_ROWS_MAX = 40_000_000
MERGED = lakebed.Schema({"key": "string"}, values={"count": "int64", "last_seen": "int64"})
MODES: dict[str, MergeMode] = {
    "keep all": KeepAll(),
    "latest": Latest(),
    "sum and max": Aggregate({"count": "sum", "last_seen": "max"}),
    "custom Python": Custom("benchmark_sums"),
    "custom query": Custom(
        sql='SELECT key, sum("count") AS "count", max(last_seen) AS last_seen FROM rows GROUP BY key'
    ),
}
ONE_KEY_ROWS = 10_000_000


def benchmark_sums(rows: pa.RecordBatch) -> pa.Table:
    """The merge function of "custom Python"."""
    groups = pa.table(rows).group_by("key", use_threads=False)
    found = groups.aggregate([("count", "sum"), ("last_seen", "max")]).rename_columns(rows.schema.names)
    return found.sort_by("key")


def declare_function(folder: Path) -> None:
    """Declare the merge function as an installed package does."""
    info = folder / "benchmark-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: benchmark\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[lakebed.merge_functions]\nbenchmark_sums=benchmarks.kernels:benchmark_sums\n"
    )
    sys.path.append(str(folder))


def layout(schema: lakebed.Schema = SCHEMA) -> Any:
    from lakebed.files.parquet.layout import Layout

    return Layout.of(schema, Settings())


def unsorted_rows(rows: int, seed: int) -> pa.Table:
    """Rows of about 80 bytes: near-unique text keys, times, small numbers, text."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "key": pa.array(np.char.add("user-", np.char.mod("%016x", random.integers(0, 2**62, rows)))),
            "ts": pa.array(random.integers(1_600_000_000_000, 1_700_000_000_000, rows)),
            "count": pa.array(random.integers(0, 1000, rows)),
            "value": pa.array(np.char.mod("%032x", random.integers(0, 2**62, rows))),
        }
    )


def rows_to_merge(rows: int, files: int) -> Iterator[pa.Table]:
    """Return the unordered rows of runs, with half of the keys in every run."""
    random = np.random.default_rng(0)
    shared = random.integers(0, 2**62, rows // 2)
    for _ in range(files):
        keys = np.concatenate([shared, random.integers(0, 2**62, rows - rows // 2)])
        yield pa.table(
            {
                "key": pa.array(np.char.add("user-", np.char.mod("%016x", keys))),
                "count": pa.array(random.integers(0, 1000, rows)),
                "last_seen": pa.array(random.integers(0, 2**40, rows)),
            }
        )


def measured(work: Callable[[], int]) -> dict[str, float]:
    """Run the work; return rows, seconds, core-seconds and the peak of resident memory."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    rows = work()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    text = Path("/proc/self/status").read_text() if Path("/proc/self/status").exists() else "VmHWM: 0"
    return {"rows": rows, "seconds": seconds, "cpu": cpu, "mib": int(text.split("VmHWM:")[1].split()[0]) / 1024}


def sort_ours(source: str, out: str, **_: Any) -> dict[str, float]:
    import datafusion  # noqa: F401 - its import is no part of a sort

    from lakebed.files.sorting.sort import sort_runs

    batches = pq.read_table(source).to_batches()
    limit = Settings().memory_limit_bytes
    return measured(lambda: sum(f.rows for f in sort_runs(batches, layout(), Path(out), memory_limit_bytes=limit)))


def sort_duckdb(source: str, out: str, threads: int, **_: Any) -> dict[str, float]:
    import duckdb

    rows = pq.read_table(source)
    connection = duckdb.connect(config={"threads": threads})
    connection.register("data", rows)
    statement = f"COPY (SELECT * FROM data ORDER BY key, ts) TO '{out}/peer.parquet' (FORMAT parquet, COMPRESSION zstd)"
    return measured(lambda: connection.execute(statement).fetchall()[0][0])


def merge_ours(source: str, out: str, copies: int = 1, share: float = 1.0, **_: Any) -> dict[str, float]:
    from lakebed.files.sorting.merge import merge_runs

    inputs = sorted(Path(source).iterdir()) * copies
    key_range = EncodedRange(b"", SCHEMA.codec.encode((f"user-{int(2**62 * share):016x}",))) if share < 1 else None
    limit = Settings().memory_limit_bytes

    def work() -> int:
        files = merge_runs(inputs, layout(), Path(out), key_range=key_range, memory_limit_bytes=limit)
        return sum(file.rows for file in files)

    return measured(work)


def merge_duckdb(source: str, out: str, threads: int, **_: Any) -> dict[str, float]:
    import duckdb

    connection = duckdb.connect(config={"threads": threads})
    return measured(
        lambda: connection.execute(
            f"COPY (SELECT * FROM read_parquet('{source}/*') ORDER BY key, ts) "
            f"TO '{out}/peer.parquet' (FORMAT parquet, COMPRESSION zstd)"
        ).fetchall()[0][0]
    )


def merge_by_mode(source: str, out: str, mode: str, **_: Any) -> dict[str, float]:
    from lakebed.files.sorting.merge import merge_runs

    inputs = sorted(Path(source).iterdir())
    rows, limit = 0, Settings().memory_limit_bytes

    def read(count: int) -> None:
        nonlocal rows
        rows += count

    def work() -> int:
        form, how = layout(MERGED), {"mode": MODES[mode], "complete": mode == "latest"}
        merge_runs(inputs, form, Path(out), key_range=None, memory_limit_bytes=limit, progress=read, **how)
        return rows

    return measured(work)


def sort_one_key(source: str, out: str, mode: str, **_: Any) -> dict[str, float]:
    """Write many rows with one key, which are merged into one."""
    from lakebed.files.sorting.sort import sort_runs

    batch = pa.record_batch(
        [pa.array(["key"] * 100_000), *[pa.array(np.ones(100_000, np.int64))] * 2], schema=MERGED.arrow
    )

    def work() -> int:
        batches = (batch for _ in range(ONE_KEY_ROWS // batch.num_rows))
        limit = Settings().memory_limit_bytes
        files = sort_runs(batches, layout(MERGED), Path(out), memory_limit_bytes=limit, mode=MODES[mode])
        assert sum(file.rows for file in files) == 1
        return ONE_KEY_ROWS

    return measured(work)


MEASUREMENTS = {f.__name__: f for f in (sort_ours, sort_duckdb, merge_ours, merge_duckdb, merge_by_mode, sort_one_key)}


def in_child(name: str, cores: int, **arguments: Any) -> dict[str, float]:
    """Run the measurement in a process on ``cores`` cores, writing to a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as out:
        text = json.dumps([name, cores, {**arguments, "out": out, "threads": cores}])
        command = [sys.executable, "-m", "benchmarks.kernels", "--child", text]
        found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result: dict[str, float] = json.loads(found)
    return result


def child(text: str) -> None:
    name, cores, arguments = json.loads(text)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    if cores == 1:
        from lakebed.engine.datafusion import claim_one_core

        claim_one_core()
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        declare_function(Path(folder))
        print(json.dumps(MEASUREMENTS[name](**arguments)))


def report(title: str, found: dict[str, float], peer: dict[str, float] | None = None) -> None:
    ratio = f"{peer['seconds'] / found['seconds']:>7.2f}" if peer else " " * 7
    print(
        f"{title:<38}{found['rows'] / found['seconds'] / 1e6:>10.2f}{found['rows'] / found['cpu'] / 1e6:>10.2f}"
        f"{found['mib']:>10,.0f}{ratio}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of a sort, and of each file of a merge")
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--inputs", type=int, nargs="*", default=[10, 40, 200], help="files of the merges for memory")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    from lakebed.files.sorting.sort import sort_runs

    all_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        source, runs = Path(folder) / "unsorted.parquet", Path(folder) / "runs"
        runs.mkdir()
        for seed in range(arguments.files):
            rows = unsorted_rows(arguments.rows, seed)
            if not seed:
                pq.write_table(rows, source, compression="zstd")
            sort_runs(rows.to_batches(), layout(), runs, memory_limit_bytes=1 << 30)
            del rows
        print(f"{'':<38}{'M rows/s':>10}{'per core':>10}{'RSS MiB':>10}{'ratio':>7}")
        for title, cores, kind, place in (
            (f"sort {arguments.rows:,} rows, one core", 1, "sort", source),
            (f"merge {arguments.files} files, one core", 1, "merge", runs),
            (f"merge {arguments.files} files, {all_cores} cores", all_cores, "merge", runs),
        ):
            ours = in_child(f"{kind}_ours", cores, source=str(place))
            peer = in_child(f"{kind}_duckdb", cores, source=str(place))
            report(title, ours, peer)
            report("  duckdb", peer)
        by_mode = Path(folder) / "by-mode"
        by_mode.mkdir()
        for rows in rows_to_merge(arguments.rows // 2, arguments.files):
            sort_runs(rows.to_batches(), layout(MERGED), by_mode, memory_limit_bytes=1 << 30)
        kept = None
        for mode in MODES:
            found = in_child("merge_by_mode", all_cores, source=str(by_mode), mode=mode)
            report(f"merge {arguments.files} runs, {mode}", found, kept)
            kept = kept or found
        for mode in list(MODES)[1:]:
            report(f"sort {ONE_KEY_ROWS:,} rows of one key, {mode}", in_child("sort_one_key", 1, source="", mode=mode))
        for count in arguments.inputs:
            copies = max(1, count // arguments.files)
            share = min(1.0, MEMORY_ROWS_MAX / (arguments.rows * arguments.files * copies))
            found = in_child("merge_ours", all_cores, source=str(runs), copies=copies, share=share)
            report(f"merge {copies * arguments.files} inputs, memory", found)


if __name__ == "__main__":
    main()
