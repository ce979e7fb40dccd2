"""In-process ``Table.write``: rows per second on one core, and the peak memory for 20 million rows.

    python -m benchmarks.writes [--rows 2000000] [--long 20000000]

Each measurement is a process of its own, pinned to one core if the system allows it. The peer, DuckDB, sorts the same
rows and writes them to Parquet on one thread, in the same run. The streamed write includes the time of making the rows,
the others do not.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from benchmarks.results import record

BATCH_ROWS = 100_000


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Unsorted rows of about 80 bytes: near-unique text keys, times, small numbers, text."""
    random = np.random.default_rng(1)
    for begin in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - begin)
        keys = np.char.add("user-", np.char.mod("%016x", random.integers(0, 2**62, count)))
        values = np.char.mod("%032x", random.integers(0, 2**62, count))
        yield pa.RecordBatch.from_pydict(
            {
                "key": pa.array(keys),
                "ts": pa.array(random.integers(1_600_000_000_000, 1_700_000_000_000, count)),
                "count": pa.array(random.integers(0, 1000, count)),
                "value": pa.array(values),
            }
        )


def ours(folder: str, rows: int, streamed: bool) -> dict[str, float]:
    import lakebed

    schema = lakebed.Schema({"key": "string"}, {"ts": "int64"}, {"count": "int64", "value": "string"})
    table = lakebed.create(f"{folder}/lake").create_table("t", schema)
    first = next(batches(1_000))
    table.write(pa.Table.from_batches([first]))
    reader = pa.RecordBatchReader.from_batches(first.schema, batches(rows))
    data = reader if streamed else reader.read_all()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    table.write(data)
    return measured(rows, begin, begin_cpu)


def duckdb(folder: str, rows: int, streamed: bool) -> dict[str, float]:
    import duckdb as peer

    connection = peer.connect(config={"threads": 1})
    data = pa.Table.from_batches(batches(rows))
    begin, begin_cpu = time.perf_counter(), time.process_time()
    connection.register("data", data)
    connection.execute(f"COPY (SELECT * FROM data ORDER BY key, ts) TO '{folder}/out.parquet' (COMPRESSION zstd)")
    return measured(rows, begin, begin_cpu)


def measured(rows: int, begin: float, begin_cpu: float) -> dict[str, float]:
    return {
        "rows_s": rows / (time.perf_counter() - begin),
        "rows_cpu_s": rows / (time.process_time() - begin_cpu),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def in_child(name: str, rows: int, streamed: bool, pinned: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "benchmarks.writes",
            "--child",
            json.dumps([name, folder, rows, streamed, pinned]),
        ]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--long", type=int, default=20_000_000, help="rows of the write whose memory is measured")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, folder, rows, streamed, pinned = json.loads(arguments.child)
        if pinned and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(json.dumps({"ours": ours, "duckdb": duckdb}[name](folder, rows, streamed)))
        return
    print(f"{'':34}{'rows/s':>12}{'rows/cpu s':>12}{'peak RSS MiB':>14}")
    rates = {}
    for text, name, rows, streamed, pinned in (
        ("lakebed, in memory, one core", "ours", arguments.rows, False, True),
        ("duckdb, in memory, one core", "duckdb", arguments.rows, False, True),
        ("lakebed, streamed, all cores", "ours", arguments.long, True, False),
    ):
        found = in_child(name, rows, streamed, pinned)
        print(f"{text + f', {rows:,}':34}", end="")
        print(f"{found['rows_s']:>12,.0f}{found['rows_cpu_s']:>12,.0f}{found['rss_mib']:>14,.0f}")
        if streamed:
            record(f"memory of a write of {rows:,} rows", "MiB", found["rss_mib"])
        else:
            rates[name] = found["rows_cpu_s"]
    what = f"write of {arguments.rows:,} unsorted rows"
    record(what, "rows/core-s", rates["ours"], peer="DuckDB", theirs=rates["duckdb"])


if __name__ == "__main__":
    main()
