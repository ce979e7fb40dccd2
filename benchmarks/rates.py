"""Commit rates: one writer, many threads, many processes, on a local disk and on a remote store.

    python -m benchmarks.rates [--commits 10000] [--threads 128] [--processes 32] [--latency-ms 30] [--seconds 10]

A commit adds one file to one table; its data is prepared, so that only the log is measured.

a. One writer on local disk, durable and not, and how long the last 100 commits took against those around the 100th.
   The peer inserts as many rows of a kilobyte into SQLite, one a transaction, ``synchronous`` FULL and OFF.
b. Threads of one process, each request to the store delayed (data of the log and its checkpoints alike).
c. Processes of one writer each, delayed alike. *lost* is how many creates were refused for each that was not,
   *requests* those for each entry, *waits* the milliseconds of a commit that a process slept (after a lost race, to
   give way to others, or for its turn), *shares* the fewest and the most commits of a process.
d. Processes of one writer each on local disk, durable; every acknowledged commit must be there exactly once.

All processes of one line share the cores of this machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.logs import SCHEMA, prepared
from lakebed import clock
from lakebed.log.backends.objects import ObjectLog
from lakebed.log.checkpoint import CheckpointLocation
from lakebed.log.log import Log
from lakebed.log.outcomes import Committed
from lakebed.model.state.machine import TABLE
from lakebed.model.state.transactions import CreateTable
from lakebed.storage import LocalStorage, PutOutcome, Storage

PREFIX = "tables/table-0000"
FORK = multiprocessing.get_context("fork")


class Distant:
    """A store with a delay for each request; counts requests, and creates that were refused."""

    def __init__(self, inner: Storage, latency_s: float) -> None:
        self.inner, self.latency_s = inner, latency_s
        self.requests: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self.inner, name)
        if name not in ("create", "replace", "get", "last_modified", "now"):
            return asked

        def later(*arguments: Any) -> Any:
            time.sleep(self.latency_s)
            outcome = asked(*arguments)
            self.requests[name] += 1
            self.requests["lost"] += outcome is PutOutcome.EXISTS
            return outcome

        return later


class Near(LocalStorage):
    """Local disk; counts the requests of the log, and the creates that were refused."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.requests: Counter[str] = Counter()

    def create(self, name: str, data: bytes) -> PutOutcome:
        outcome = super().create(name, data)
        self.requests["create"] += 1
        self.requests["lost"] += outcome is PutOutcome.EXISTS
        return outcome

    def get(self, name: str) -> bytes | None:
        self.requests["get"] += 1
        return super().get(name)


def table(storage: Storage) -> Log:
    log = Log(ObjectLog(storage, PREFIX), CheckpointLocation(storage, PREFIX), "table-0000", TABLE)
    if log.follow().version == 0:
        log.commit(CreateTable("table-0000", SCHEMA, {}, ()))
    return log


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def timed(log: Log, proposals: list[Any], end: float = float("inf")) -> np.ndarray:
    """Return the milliseconds of each commit, one after the other."""
    times = []
    for proposal in proposals:
        begin = time.perf_counter()
        if begin > end:
            break
        outcome = log.commit(proposal)
        times.append(time.perf_counter() - begin)
        assert isinstance(outcome, Committed), outcome
    log.wait_for_checkpoint()
    return np.array(times) * 1e3


def show(name: str, times: np.ndarray, taken_s: float, rest: str = "") -> None:
    p50, p99 = np.percentile(times, [50, 99])
    print(f"{name:36}{len(times) / taken_s:>10.0f}{p50:>9.2f}{p99:>9.2f}{rest}", flush=True)


# -- a ----------------------------------------------------------------------------------------------------------


def one_writer(commits: int) -> None:
    print(f"{'one writer':36}{'commits/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'last / 100th':>14}{'p50':>6}")
    for name, durability in (("local disk", "fsync"), ("local disk, not durable", "none")):
        with folder() as place:
            times = timed(table(LocalStorage(place, durability=durability)), [prepared() for _ in range(commits)])
            show(name, times, times.sum() / 1e3, growth(times))
    for name, mode in (("sqlite, FULL", "FULL"), ("sqlite, OFF", "OFF")):
        with folder() as place:
            times = sqlite(place, mode, commits)
            show(name, times, times.sum() / 1e3, growth(times))


def growth(times: np.ndarray) -> str:
    """Return the growth by medians: one slow fsync of a shared disk takes as long as ten commits, but does not affect
    them.
    """
    first, last = times[50:150], times[-100:]
    return f"{last.sum() / first.sum():>14.2f}{np.median(last) / np.median(first):>6.2f}"


def sqlite(place: Path, mode: str, commits: int) -> np.ndarray:
    connection = sqlite3.connect(place / "peer.db", isolation_level=None)
    connection.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous={mode}; CREATE TABLE t (n INTEGER, d BLOB)")
    times = np.empty(commits)
    for version in range(commits):
        begin = time.perf_counter()
        connection.execute("INSERT INTO t VALUES (?, ?)", (version, bytes(1000)))
        times[version] = time.perf_counter() - begin
    connection.close()
    return times * 1e3


# -- b ----------------------------------------------------------------------------------------------------------


def threads(count: int, seconds: float, latency_s: float) -> None:
    with folder() as place:
        log = table(Distant(LocalStorage(place, durability="none"), latency_s))
        log.commit(prepared())
        proposals = [[prepared() for _ in range(int(seconds * 100))] for _ in range(count)]
        first, begin = log.head.version, time.perf_counter()
        with ThreadPoolExecutor(count) as pool:
            times = np.concatenate(list(pool.map(lambda mine: timed(log, mine, begin + seconds), proposals)))
        taken = time.perf_counter() - begin
        stored = table(LocalStorage(place)).head.state.files
        assert len(stored) == len(times) + 1, f"{len(times)} commits were acknowledged, {len(stored) - 1} are there"
        show(
            f"{count} threads, {latency_s * 1e3:.0f} ms a request",
            times,
            taken,
            entries(log.head.version - first, taken),
        )


def entries(count: int, taken_s: float) -> str:
    return f"{count / taken_s:>12.1f}"


# -- c, d -------------------------------------------------------------------------------------------------------


def processes(count: int, place: Path, latency_s: float, commits: int, seconds: float) -> tuple[np.ndarray, Any, float]:
    """Return the times of all commits, the requests of each process to the store, and the total time."""
    ready, outcomes = FORK.Barrier(count + 1), FORK.SimpleQueue()

    def work() -> None:
        storage = Distant(LocalStorage(place, durability="none"), latency_s) if latency_s else Near(place)
        log, proposals, sleep = table(storage), [prepared() for _ in range(commits)], clock.sleep
        slept_s = [0.0]

        def sleeping(seconds: float) -> None:
            begin = time.perf_counter()
            sleep(seconds)
            slept_s[0] += time.perf_counter() - begin

        clock.sleep = sleeping
        storage.requests.clear()
        ready.wait()
        times = timed(log, proposals, time.perf_counter() + seconds)
        asked = {**storage.requests, "slept_us": round(slept_s[0] * 1e6)}
        outcomes.put((times, asked, [new.file.id for o in proposals[: len(times)] for new in o.files]))

    children = [FORK.Process(target=work) for _ in range(count)]
    for child in children:
        child.start()
    ready.wait()
    begin = time.perf_counter()
    results = [outcomes.get() for _ in children]
    taken = time.perf_counter() - begin
    for child in children:
        child.join()
    names = [name for _, _, mine in results for name in mine]
    stored = table(LocalStorage(place)).head.state.files
    assert len(names) == len(set(names)) == len(stored), (
        f"{len(names)} commits were acknowledged, {len(stored)} are there"
    )
    assert set(names) == set(stored)
    return [times for times, _, _ in results], sum((Counter(asked) for _, asked, _ in results), Counter()), taken


def many_processes(name: str, count: int, latency_s: float, commits: int, seconds: float) -> None:
    with folder() as place:
        table(LocalStorage(place))
        times, asked, taken = processes(count, place, latency_s, commits, seconds)
        log = table(LocalStorage(place))
        shares = f"{min(map(len, times))}-{max(map(len, times))}"
        made = log.head.version - 1
        each = sum(asked[kind] for kind in ("create", "get", "last_modified", "replace")) / made
        waits = asked["slept_us"] / 1e3 / made
        rest = f"{entries(made, taken)}{asked['lost'] / made:>8.1f}{each:>12.1f}{waits:>10.1f}{shares:>10}"
        show(f"{count} processes, {name}", np.concatenate(times), taken, rest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=128)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--latency-ms", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", choices=["a", "b", "c", "d"], action="append", help="these parts alone")
    arguments = parser.parse_args()
    parts, latency_s = arguments.only or ["a", "b", "c", "d"], arguments.latency_ms / 1e3
    if "a" in parts:
        one_writer(arguments.commits)
    if "b" in parts:
        print(f"\n{'':36}{'commits/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'entries/s':>12}")
        threads(1, arguments.seconds, latency_s)
        threads(arguments.threads, arguments.seconds, latency_s)
    if "c" in parts or "d" in parts:
        titles = f"{'entries/s':>12}{'lost':>8}{'requests':>12}{'waits ms':>10}{'shares':>10}"
        print(f"\n{'':36}{'commits/s':>10}{'p50 ms':>9}{'p99 ms':>9}{titles}")
    if "c" in parts:
        distant = f"{arguments.latency_ms:.0f} ms a request"
        many_processes(distant, arguments.processes, latency_s, 10_000, arguments.seconds)
    if "d" in parts:
        many_processes("local disk", 4, 0.0, 200, 600.0)


if __name__ == "__main__":
    assert threading.active_count() == 1, os.getpid()
    main()
