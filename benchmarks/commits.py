"""The cost of a commit as a log grows: 1,000 commits of 10 rows, the last 100 against the first 100; and the cost if
several processes write to one table.

    python -m benchmarks.commits [--commits 1000] [--processes 4] [--rounds 3] [--folder DIR]

Each commit is a whole ``Table.write``: sort, data file, summary, entry, durable on local disk. The peer, SQLite with
``synchronous=FULL``, inserts the same rows in as many commits in the same run.

For several processes, in rounds in turns with SQLite: *cpu* is the CPU time of all of them per commit; *lost* the
number of refused creates of an entry for each successful one; *waits* the milliseconds per commit that a process slept,
for its turn or after a lost race. Every acknowledged row must be in the table exactly once. The load of the machine is
measured before each round.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lakebed
from benchmarks.results import record
from lakebed import clock
from lakebed.storage import LocalStorage, PutOutcome

ROWS = 10
SCHEMA = lakebed.Schema({"key": "string"}, {"ts": "int64"})
SPAWN = multiprocessing.get_context("spawn")
"""Spawned, not forked: a forked process would inherit locks of libraries without their threads."""


def batch(version: int) -> pa.Table:
    random = np.random.default_rng(version)
    keys = [f"user-{value:016x}" for value in random.integers(0, 2**62, ROWS)]
    return pa.table({"key": keys, "ts": pa.array(np.full(ROWS, version))})


def ours(folder: Path, commits: int) -> np.ndarray:
    table = lakebed.create(str(folder / "lake")).create_table("t", SCHEMA)
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
    """Return wall and CPU milliseconds of each commit, in two columns."""
    times = np.empty((commits, 2))
    for version in range(commits):
        begin = time.perf_counter(), time.process_time()
        commit(version)
        times[version] = time.perf_counter() - begin[0], time.process_time() - begin[1]
    return times * 1e3


# -- several processes ------------------------------------------------------------------------------------------


def several(name: str, processes: int, commits: int, folder: Path) -> np.ndarray:
    """Commit from each process; return for each its seconds, CPU seconds, lost races, seconds slept, and the median and
    the 99th percentile of its commits.
    """
    if name == "lakebed":
        lakebed.create(str(folder / "lake")).create_table("t", SCHEMA)
    else:
        sqlite(folder, 0)
    ready, done = SPAWN.Barrier(processes), SPAWN.SimpleQueue()
    workers = [SPAWN.Process(target=worker, args=((name, n, commits), folder, ready, done)) for n in range(processes)]
    for process in workers:
        process.start()
    found = np.array([done.get() for _ in workers])
    for process in workers:
        process.join()
    if name == "lakebed":
        rows = lakebed.open(str(folder / "lake")).table("t").count().rows
        assert rows == ROWS * processes * (commits + 1), f"{rows} rows are there"
    return found


def worker(task: tuple[str, int, int], folder: Path, ready: Any, done: Any) -> None:
    """Run one process: wait for the others, commit, report. The task has the system, the number of the process, and the
    number of commits.
    """
    name, number, commits = task
    slept, lost = [0.0], [0]
    if name == "lakebed":
        sleep, create = clock.sleep, LocalStorage.create

        def sleeping(seconds: float) -> None:
            begin = time.perf_counter()
            sleep(seconds)
            slept[0] += time.perf_counter() - begin

        def creating(self: LocalStorage, key: str, data: bytes) -> PutOutcome:
            outcome = create(self, key, data)
            lost[0] += outcome is PutOutcome.EXISTS
            return outcome

        clock.sleep, LocalStorage.create = sleeping, creating  # type: ignore[method-assign]
        table = lakebed.open(str(folder / "lake")).table("t")

        def commit(version: int) -> object:
            return table.write(batch(number * 1_000_000 + version))
    else:
        connection = sqlite3.connect(folder / "peer.db", isolation_level=None, timeout=60)
        connection.execute("PRAGMA synchronous=FULL")

        def commit(version: int) -> object:
            rows = batch(number * 1_000_000 + version).to_pylist()
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO t VALUES (:key, :ts)", rows)
            return connection.execute("COMMIT")

    commit(commits)
    ready.wait()
    slept[0], lost[0] = 0.0, 0
    begin = time.perf_counter(), time.process_time()
    times = timed(commits, commit)
    taken = time.perf_counter() - begin[0], time.process_time() - begin[1]
    done.put((*taken, lost[0], slept[0], *np.percentile(times[:, 0], [50, 99])))


def show_several(processes: int, commits: int, rounds: int, folder: Path | None) -> None:
    heads = f"{'commits/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'cpu ms':>9}{'lost':>7}{'waits ms':>10}{'load':>7}"
    print(f"\n{processes} processes{heads}")
    for _ in range(rounds):
        for name in ("lakebed", "sqlite"):
            load = os.getloadavg()[0]
            with tempfile.TemporaryDirectory(dir=folder) as place:
                found = several(name, processes, commits, Path(place))
            count = processes * commits
            _, cpu, lost, slept = found[:, :4].sum(axis=0) / count
            print(
                f"{name:11}{count / found[:, 0].max():>10.0f}{np.median(found[:, 4]):>9.2f}{found[:, 5].max():>9.2f}"
                f"{1e3 * cpu:>9.2f}{lost:>7.2f}{1e3 * slept:>10.2f}{load:>7.1f}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=4, help="that write to one table")
    parser.add_argument("--rounds", type=int, default=3, help="of several processes")
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    arguments = parser.parse_args()
    print(f"{'':10}{'commits/s':>10}{'p50 ms':>9}{'p99 ms':>9}   last 100 / first 100: {'wall':>6}{'p50':>6}{'cpu':>6}")
    medians = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name, run in (("lakebed", ours), ("sqlite", sqlite)):
            times = run(Path(folder), arguments.commits)
            wall, cpu = (times[-100:].sum(axis=0) / times[:100].sum(axis=0)).tolist()
            # One slow fsync of a shared disk takes as long as ten commits, but does not affect the median and the CPU
            # time.
            growth = np.median(times[-100:, 0]) / np.median(times[:100, 0])
            middle, high = np.percentile(times[:, 0], [50, 99])
            rate = 1e3 * len(times) / times[:, 0].sum()
            print(f"{name:10}{rate:>10.0f}{middle:>9.2f}{high:>9.2f}{'':25}{wall:>6.2f}{growth:>6.2f}{cpu:>6.2f}")
            medians.append(middle)
    ours_ms, sqlite_ms = medians
    record(f"durable commit of {ROWS} rows", "ms", ours_ms, peer="SQLite", theirs=sqlite_ms)
    show_several(arguments.processes, arguments.commits, arguments.rounds, arguments.folder)


if __name__ == "__main__":
    main()
