"""What the setting ``compression`` costs and saves: bytes, and core-seconds of writes, scans, compactions and lookups.

    python -m benchmarks.compression [--kinds hex integer wide] [--rows 1000000] [--gets 1000] [--rounds 3]

Each side is a table, or a file of DuckDB, in a process of its own; they take turns. Rows are those of
:mod:`benchmarks.row_kinds`, of wide ones a fifth as many.

* ``write``: ``Table.write`` of half of the rows in no order, twice. DuckDB: ``COPY … ORDER BY`` of all of them.
* ``scan``: all columns of all rows, as Arrow batches, after a compaction. DuckDB: the same of its file.
* ``compact``: both runs into one, in this process.
* ``get``: keys in random order, each with its page not read before.

Core-seconds are of a million rows, of a lookup milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import lakebed
from benchmarks.results import record
from benchmarks.row_kinds import KINDS
from benchmarks.session_here import SessionHere
from benchmarks.turns import Found, in_turns, spread
from lakebed import Pipeline
from lakebed.jobs.executor import on_one_core
from lakebed.model.settings import Compression

if TYPE_CHECKING:
    from collections.abc import Callable

OF_DUCKDB = {Compression.ZSTD: "zstd", Compression.LZ4: "lz4_raw", Compression.NONE: "uncompressed"}
MEASURED = ("write", "compact", "scan", "get")


def core_s(work: Callable[[], object]) -> float:
    """Return the core-seconds of a call."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def drained(batches: pa.RecordBatchReader) -> int:
    with batches:
        return sum(batch.num_rows for batch in batches)


def ours(kind: str, codec: str, count: int, gets: int) -> Found:
    """Write, compact, scan and look up rows in a table of this codec."""
    on_one_core()
    rows, schema = KINDS[kind].rows(count, 1), KINDS[kind].schema
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-", ignore_cleanup_errors=True) as folder:
        lake = lakebed.create(folder)
        table = lake.create_table("t", schema, settings={"compression": codec})
        # Loads what a first write, compaction and read load.
        warm = lake.create_table("warm", schema)
        for _ in range(2):
            warm.write(rows.slice(0, 1000))
        pipeline = Pipeline(lake, SessionHere())
        pipeline.compact(warm, strategy="full")
        drained(warm.scan())
        found = {"write": core_s(lambda: [table.write(half) for half in (rows[: count // 2], rows[count // 2 :])])}
        found["compact"] = core_s(lambda: pipeline.compact(table, strategy="full"))
        chosen = np.random.default_rng(2).permutation(count)[:gets].tolist()
        keys = list(zip(*(rows[name].take(chosen).to_pylist() for name in schema.row_key_names), strict=True))
        warm.get(*keys[0])
        table.get(*keys[0])
        found["get"] = core_s(lambda: [table.get(*key) for key in keys[1:]]) / (gets - 1)
        found["scan"] = core_s(lambda: drained(table.scan()))
        return found | {"rows": count, "bytes": sum(table.files().column("size_bytes").to_pylist())}


def duckdb(kind: str, codec: str, count: int, _: int) -> Found:
    """Write and scan rows in a file of this codec."""
    import duckdb as peer

    rows, order = KINDS[kind].rows(count, 1), ", ".join(KINDS[kind].schema.sort_names)
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        out = Path(folder, "out.parquet")
        connection = peer.connect(config={"threads": 1})
        connection.register("data", rows)
        options = f"FORMAT parquet, COMPRESSION {OF_DUCKDB[Compression(codec)]}"
        copy = f"COPY (SELECT * FROM data ORDER BY {order}) TO '{out}' ({options})"
        found = {"write": core_s(lambda: connection.execute(copy))}
        scan = f"SELECT * FROM read_parquet('{out}')"
        found["scan"] = core_s(lambda: drained(connection.sql(scan).to_arrow_reader(65_536)))
        return found | {"rows": count, "bytes": out.stat().st_size}


SIDES = {"lakebed": ours, "duckdb": duckdb}


def in_child(*arguments: object) -> Found:
    """Measure a side in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.compression", "--child", json.dumps(arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found | {"seconds": 0.0, "core_seconds": 0.0}


def compare(kind: str, options: argparse.Namespace) -> None:
    """Measure all sides of a kind of rows by turns, and print a line for each."""
    count = options.rows // 5 if kind == "wide" else options.rows
    sides = {
        f"{name} {codec}": lambda _, name=name, codec=codec: in_child(name, kind, codec, count, options.gets)
        for name in SIDES
        for codec in Compression
    }
    every = in_turns(sides, options.rounds)
    for codec in Compression:
        for what in ("write", "scan"):
            ours, theirs = ([one[what] * 1e6 / count for one in every[f"{name} {codec}"]] for name in SIDES)
            record(f"{what} of {kind} rows, {codec}", "core-s/M rows", ours, peer="DuckDB", theirs=theirs)
    for name, found in every.items():
        cells = [f"{kind:<10}{name:<14}{found[0]['bytes'] / count:8.1f} bytes / row"]
        for what in MEASURED:
            if what in found[0]:
                unit, scale = (" ms", 1e3) if what == "get" else (" core-s", 1e6 / count)
                cells.append(what + spread([one[what] * scale for one in found], unit))
        print("  ".join(cells), flush=True)


def main() -> None:
    """Compare the codecs for each kind of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["hex", "integer", "wide"], metavar="KIND")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--gets", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, *arguments = json.loads(options.child)
        print(json.dumps(SIDES[name](*arguments)))
        return
    print(f"{options.rows:,} rows, {options.rounds} rounds; load {os.getloadavg()[0]:.1f}", flush=True)
    for kind in options.kinds:
        compare(kind, options)


if __name__ == "__main__":
    main()
