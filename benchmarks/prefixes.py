"""Prefixes by skip scan, a removal of half of them and its restore, in a table with many rows per prefix.

    python -m benchmarks.prefixes [--rows 20000000] [--prefixes 100 1000 10000]

The table has one partition and one run; its key is a text with ``--prefixes`` distinct values, and a number.
``prefixes`` runs cold (a new process, whose imports are timed separately) and warm, in turns with a scan of the first
key field by the same reader, and its distinct values by Arrow. The removal deletes every row of the upper half of the
prefixes; the restore brings them back.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakebed

BATCH_ROWS = 1_000_000
TURNS = 5

SCHEMA = lakebed.Schema({"site": "string", "n": "int64"}, {}, {"value": "int64"})


def batches(rows: int, prefixes: int) -> Iterator[pa.RecordBatch]:
    """Return rows in key order, equally many of each prefix."""
    random = np.random.default_rng(1)
    for begin in range(0, rows, BATCH_ROWS):
        numbers = np.arange(begin, min(begin + BATCH_ROWS, rows))
        sites = np.char.mod("site-%08d", numbers * prefixes // rows)
        values = random.integers(0, 2**40, len(numbers))
        yield pa.record_batch({"site": pa.array(sites), "n": numbers, "value": values})


def table_of(folder: str, rows: int, prefixes: int) -> lakebed.Table:
    """Return a table with these rows, in one write."""
    table = lakebed.create(f"{folder}/lake").create_table("t", SCHEMA)
    table.write(pa.RecordBatchReader.from_batches(SCHEMA.arrow, batches(rows, prefixes)))
    return table


def seconds(call: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def scanned(table: lakebed.Table) -> int:
    """Return the number of distinct values of the first key field, by a scan of it."""
    return len(pc.unique(table.scan(columns=["site"]).read_all().column("site")))


COLD = """
import sys, time
import lakebed, lakebed.read.rows.prefix_scan, pyarrow.compute
begin = time.perf_counter()
lakebed.open(sys.argv[1]).table("t").prefixes(1)
print(time.perf_counter() - begin)
"""


def measure(rows: int, prefixes: int) -> None:
    """Print a line for a table with this many prefixes."""
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        table = table_of(folder, rows, prefixes)
        assert table.prefixes(1).num_rows == scanned(table) == prefixes
        command = [sys.executable, "-c", COLD, f"{folder}/lake"]
        cold = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        skipping, scanning = [], []
        for _ in range(TURNS):
            skipping.append(seconds(lambda: table.prefixes(1)))
            scanning.append(seconds(lambda: scanned(table)))
        skip, scan = median(skipping), median(scanning)
        half = [f"site-{number:08d}" for number in range(prefixes // 2, prefixes)]
        before = table.version
        removal = seconds(lambda: table.remove(lakebed.KeyRange(half[0])))
        assert table.prefixes(1).num_rows == prefixes - len(half)
        restore = seconds(lambda: table.restore(version=before))
        assert table.count().rows == rows
        print(
            f"{prefixes:>8,} prefixes  skip scan {skip * 1e3:8.1f} ms (cold {cold * 1e3:8.1f} ms), "
            f"{skip / prefixes * 1e6:7.1f} us a prefix;  scan and distinct {scan * 1e3:8.1f} ms, "
            f"{scan / skip:6.1f} times as long;  removal of half {removal * 1e3:6.1f} ms, "
            f"its restore {restore * 1e3:6.1f} ms",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--prefixes", type=int, nargs="+", default=[100, 1_000, 10_000])
    arguments = parser.parse_args()
    print(f"{arguments.rows:,} rows")
    for prefixes in arguments.prefixes:
        measure(arguments.rows, prefixes)


if __name__ == "__main__":
    main()
