"""Reads of a table that merges rows (``Latest``), beside reads of the same files as if every row were kept.

    python -m benchmarks.merging [--rows 20000000] [--base 5000000] [--upserts 100] [--gets 2000]

*Scans.* Ten runs that overlap in all their keys, each row of the first five superseded by one of the last five. Each
scan runs in a process of its own, in turns; the memory is the peak of the process. Rows are those read.

*Lookups.* ``get`` of existing keys, in a warm process, after a base and some upserts of 50,000 keys each, half of them
new, without a compaction. Both tables have the same files and take turns. A *hot* key is in every file.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from msgspec import structs

import lakebed
from benchmarks.results import record
from lakebed import Latest, Schema
from lakebed.model.merge_modes import KeepAll
from lakebed.read.snapshot.snapshot import Snapshot

RUNS = 10
TURNS = 3
UPSERT_ROWS = 50_000
SETTINGS = {"runs_max": 0}
"""Upserts are never refused, however many runs there are."""

SCHEMA = Schema({"k": "int64"}, {}, {"v": "int64", "text": "string"})
KINDS = ("plain", "merged")
HOT = 0


def rows_of(keys: np.ndarray, seed: int) -> pa.Table:
    """Return a row for each key."""
    values = np.random.default_rng(seed).integers(0, 2**40, len(keys))
    return pa.table({"k": keys, "v": values, "text": np.char.mod("text-%d", values % 1_000_000)})


def as_if_kept(table: lakebed.Table) -> Snapshot:
    """Return the table's files as a table that keeps all rows."""
    now = table.snapshot()
    return Snapshot(structs.replace(now.state, merge=KeepAll()), now.reader, now.storage)


def ms(call: Callable[[], object]) -> float:
    """Return the milliseconds of a call."""
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


# -- scans ----------------------------------------------------------------------------------------------------------


def make_runs(folder: str, rows: int) -> None:
    """Make ten runs that together have every key twice."""
    table = lakebed.create(folder).create_table("t", SCHEMA, merge=Latest(), settings=SETTINGS)
    every = np.arange(rows // RUNS)
    for run in range(RUNS):
        table.write(rows_of(every * (RUNS // 2) + run % (RUNS // 2), run))


def scan_once(folder: str, kind: str) -> None:
    """Print the seconds of a scan of all rows, the number of returned rows and the memory in MB; runs in its own
    process.
    """
    table = lakebed.open(folder).table("t")
    read: lakebed.Table | Snapshot = as_if_kept(table) if kind == "plain" else table
    # Imports, footers and page indexes are not part of the scan.
    for _ in read.scan(limit=40_000):
        pass
    begin, rows = time.perf_counter(), 0
    with read.scan() as batches:
        for batch in batches:
            rows += batch.num_rows
    seconds = time.perf_counter() - begin
    # The peak of the process since it executed its program; getrusage would include the process that started it.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(seconds, rows, int(peak.split()[1]) // 1024)


def measure_scans(rows: int) -> None:
    """Print the rows read per second of both kinds of scan, their ratio and their memory."""
    found: dict[str, list[tuple[float, int, int]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        make_runs(folder, rows)
        for _ in range(TURNS):
            for kind in KINDS:
                command = [sys.executable, "-m", "benchmarks.merging", "--scan", folder, kind]
                said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                found[kind].append((float(said[0]), int(said[1]), int(said[2])))
    assert {out for _, out, _ in found["plain"]} == {rows}
    assert {out for _, out, _ in found["merged"]} == {rows // 2}
    rates = {kind: rows / median(seconds for seconds, _, _ in several) for kind, several in found.items()}
    for kind, several in found.items():
        memory = max(megabytes for _, _, megabytes in several)
        print(f"scan {kind:<7}{rates[kind] / 1e6:8.2f} M rows/s in   {memory:5} MB")
    print(f"scan merged / plain: {rates['merged'] / rates['plain']:.2f} (at least 0.7)", flush=True)
    mine, theirs = ([rows / seconds for seconds, _, _ in found[kind]] for kind in ("merged", "plain"))
    record("scan of ten runs by Latest", "rows/s", mine, peer="all rows kept", theirs=theirs, aim=0.7)


# -- lookups --------------------------------------------------------------------------------------------------------


def measure_gets(base: int, upserts: int, gets: int) -> None:
    """Print the times of lookups of both kinds, and their ratio."""
    chance = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as folder:
        table = lakebed.create(folder).create_table("t", SCHEMA, merge=Latest(), settings=SETTINGS)
        table.write(rows_of(np.arange(base) * 2, 0))
        for upsert in range(upserts):
            # Even keys exist, odd ones are new.
            keys = np.append(
                chance.integers(1, base, UPSERT_ROWS // 2) * 2, chance.integers(0, base, UPSERT_ROWS // 2) * 2 + 1
            )
            table.write(rows_of(np.unique(np.append(keys, HOT)), upsert))
        kept, merged = as_if_kept(table), table.snapshot()
        chosen = [int(key) * 2 for key in np.random.default_rng(2).integers(1, base, gets)]
        for name, keys in (("any key", chosen), ("hot key", [HOT] * (gets // 10))):
            times = in_turns(kept, merged, keys)
            ratio = f"{times[1] / times[0]:.2f} (at most 1.2)"
            what = f"get of {name} by Latest, {upserts} upserts"
            record(what, "ms", times[1], peer="all rows kept", theirs=times[0], aim=1 / 1.2)
            print(f"get of {name}: plain {times[0]:.3f} ms, merged {times[1]:.3f} ms, ratio {ratio}", flush=True)


def in_turns(kept: Snapshot, merged: Snapshot, keys: Sequence[int]) -> tuple[float, float]:
    """Return the median milliseconds of a lookup of both kinds; the first turn only warms up."""
    found: tuple[list[float], list[float]] = ([], [])
    for turn in range(2):
        for key in keys:
            order = [(found[0], kept), (found[1], merged)]
            random.shuffle(order)  # the second finds the pages in the processor's cache
            for times, snapshot in order:
                took = ms(lambda snapshot=snapshot, key=key: snapshot.get(key))
                if turn:
                    times.append(took)
        assert merged.get(keys[0]).num_rows == 1
    return median(found[0]), median(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--base", type=int, default=5_000_000)
    parser.add_argument("--upserts", type=int, default=100)
    parser.add_argument("--gets", type=int, default=2_000)
    parser.add_argument("--scan", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.scan:
        scan_once(*arguments.scan)
        return
    if arguments.rows:
        measure_scans(arguments.rows)
    if arguments.gets:
        measure_gets(arguments.base, arguments.upserts, arguments.gets)


if __name__ == "__main__":
    main()
