"""What a commit costs as a log grows: 1,000 commits of 10 rows, the last 100 against the first 100.

    python -m benchmarks.commits [--commits 1000] [--url DIR]

Each is a whole ``Table.write``: sort, data file, summary, entry, durable on local disk. A peer that commits as often,
SQLite with ``synchronous=FULL``, inserts the same rows in the same run.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakebed

ROWS = 10


def batch(version: int) -> pa.Table:
    random = np.random.default_rng(version)
    keys = [f"user-{value:016x}" for value in random.integers(0, 2**62, ROWS)]
    return pa.table({"key": keys, "ts": pa.array(np.full(ROWS, version))})


def ours(folder: Path, commits: int) -> np.ndarray:
    schema = lakebed.Schema({"key": "string"}, {"ts": "int64"})
    table = lakebed.create(str(folder / "lake")).create_table("t", schema)
    table.write(batch(commits))
    return timed(commits, lambda version: table.write(batch(version)))


def sqlite(folder: Path, commits: int) -> np.ndarray:
    connection = sqlite3.connect(folder / "peer.db", isolation_level=None)
    connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t (key TEXT, ts INTEGER)")

    def insert(version: int) -> None:
        rows = batch(version).to_pylist()
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO t VALUES (:key, :ts)", rows)
        connection.execute("COMMIT")

    return timed(commits, insert)


def timed(commits: int, commit: Callable[[int], object]) -> np.ndarray:
    """Wall and CPU milliseconds of each commit, in two columns."""
    times = np.empty((commits, 2))
    for version in range(commits):
        begin = time.perf_counter(), time.process_time()
        commit(version)
        times[version] = time.perf_counter() - begin[0], time.process_time() - begin[1]
    return times * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=1_000)
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    arguments = parser.parse_args()
    print(f"{'':10}{'commits/s':>10}{'p50 ms':>9}{'p99 ms':>9}   last 100 / first 100: {'wall':>6}{'p50':>6}{'cpu':>6}")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name, run in (("lakebed", ours), ("sqlite", sqlite)):
            times = run(Path(folder), arguments.commits)
            wall, cpu = (times[-100:].sum(axis=0) / times[:100].sum(axis=0)).tolist()
            # One slow fsync of a shared disk is as long as ten commits: the median and the CPU time do not see it.
            growth = np.median(times[-100:, 0]) / np.median(times[:100, 0])
            middle, high = np.percentile(times[:, 0], [50, 99])
            rate = 1e3 * len(times) / times[:, 0].sum()
            print(f"{name:10}{rate:>10.0f}{middle:>9.2f}{high:>9.2f}{'':25}{wall:>6.2f}{growth:>6.2f}{cpu:>6.2f}")


if __name__ == "__main__":
    main()
