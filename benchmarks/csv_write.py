"""``Table.write`` of a CSV file whose types are detected, beside DuckDB's sorted Parquet of the same file.

    python -m benchmarks.csv_write [--rows 5000000] [--turns 3]

Each measurement is a process of its own, and the systems take turns. Seconds and core-seconds are those of the write
alone, including detection: imports, and the creation of Lakebed's table, come before. Lakebed additionally writes Bloom
filters, checksums and small pages with an index, and syncs its commit. DuckDB may use 80% of the memory; Lakebed spills
above its setting ``memory_limit_bytes``: the default, and 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from benchmarks.results import record

KEY = "id"
BATCH_ROWS = 500_000
SETTINGS = {"lakebed": {}, "lakebed, 2 GiB": {"memory_limit_bytes": 2 << 30}}


def make(path: Path, rows: int) -> None:
    """Write unsorted rows of about 75 bytes: an integer key, text, a time, numbers, a date and a boolean."""
    random = np.random.default_rng(7)
    keys = random.permutation(rows)
    writer = None
    for begin in range(0, rows, BATCH_ROWS):
        part = keys[begin : begin + BATCH_ROWS]
        count = len(part)
        times = 1_700_000_000_000_000 + random.integers(0, 10**13, count)
        batch = pa.record_batch(
            {
                KEY: pa.array(part),
                "name": pa.array([f"user{value:07d}" for value in random.integers(0, rows, count)]),
                "at": pa.array(times).cast(pa.timestamp("us")),
                "amount": pa.array(np.round(random.random(count) * 1_000, 2)),
                "count": pa.array(random.integers(0, 1_000, count)),
                "day": pa.array(random.integers(18_000, 20_000, count).astype(np.int32)).cast(pa.date32()),
                "ok": pa.array(random.random(count) > 0.5),
            }
        )
        writer = writer or pa.csv.CSVWriter(path, batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def ours(source: Path, folder: str, settings: dict[str, int]) -> dict[str, float]:
    import lakebed
    from lakebed.files.formats.input_file import input_file
    from lakebed.write.input_files import infer

    schema = lakebed.Schema.from_arrow(infer(input_file(str(source))).columns, [KEY])
    table = lakebed.create(f"{folder}/lake").create_table("t", schema, settings=settings)
    return measured(lambda: table.write(source))


def duckdb(source: Path, folder: str, settings: dict[str, int]) -> dict[str, float]:
    import duckdb as peer

    connection = peer.connect(config=settings)
    statement = f"COPY (SELECT * FROM '{source}' ORDER BY {KEY}) TO '{folder}/out.parquet' (FORMAT parquet)"
    return measured(lambda: connection.execute(statement))


def measured(run: Callable[[], object]) -> dict[str, float]:
    begin, begin_cpu = time.perf_counter(), time.process_time()
    run()
    return {"seconds": time.perf_counter() - begin, "core_seconds": time.process_time() - begin_cpu}


def in_child(name: str, source: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        given = json.dumps([name, str(source), folder])
        command = [sys.executable, "-m", "benchmarks.csv_write", "--child", given]
        found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, source, folder = json.loads(arguments.child)
        run = duckdb if name == "duckdb" else ours
        print(json.dumps(run(Path(source), folder, SETTINGS.get(name, {}))))
        return
    names = ["duckdb", *SETTINGS]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.csv"
        make(source, arguments.rows)
        print(
            f"{arguments.rows:,} rows, {source.stat().st_size / 1e6:,.0f} MB of CSV, {arguments.turns} turns, medians\n"
        )
        for _ in range(arguments.turns):
            for name in names:
                found[name].append(in_child(name, source))
    medians = {n: {k: statistics.median(r[k] for r in runs) for k in runs[0]} for n, runs in found.items()}
    print(f"{'':20}{'seconds':>10}{'core-s':>10}{'as fast':>10}{'as fast, core-s':>17}")
    theirs = [run["core_seconds"] for run in found["duckdb"]]
    for name in SETTINGS:
        mine = [run["core_seconds"] for run in found[name]]
        record(f"write of {arguments.rows:,} rows of CSV, {name}", "CPU s", mine, peer="DuckDB", theirs=theirs)
    for name, figures in medians.items():
        speeds = [medians["duckdb"][kind] / figures[kind] for kind in ("seconds", "core_seconds")]
        print(
            f"{name:20}{figures['seconds']:>10.1f}{figures['core_seconds']:>10.1f}{speeds[0]:>10.2f}{speeds[1]:>17.2f}"
        )


if __name__ == "__main__":
    main()
