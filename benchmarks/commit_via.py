"""Commits of many processes on a remote store: each by itself, and through one service.

    python -m benchmarks.commit_via [--processes 32] [--threads 4] [--latency-ms 30] [--seconds 10]

Every process is a writer with some threads, each of which has one commit under way. The latency is added to each
request to the store, in the writers and in the service. The service is the real application on a socket of this
machine.

*log alone*: a commit adds an existing file. *with data files*: a write of ten rows, whose data file is put first. Every
acknowledged commit must be in the log exactly once. *entries/s* are those of the log, so commits/s divided by it is the
size of a group. *service* is the share of a core that the service process used.

All processes share the cores of this machine, which limit them; the writers of a real fleet have their own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

import lakebed
from benchmarks.logs import prepared
from benchmarks.rates import Distant, folder
from lakebed import clock
from lakebed.log.outcomes import Committed
from lakebed.log.through_service import CommitService
from lakebed.model.documents import load
from lakebed.model.files import INSTANCE_NAME
from lakebed.server.service.service import Service
from lakebed.server.web import server
from lakebed.server.web.app import make_app
from lakebed.storage import LocalStorage
from lakebed.table.instance import Instance

FORK = multiprocessing.get_context("fork")
SCHEMA = lakebed.Schema({"k": "string"})


class DistantWithData(Distant):
    """A remote store on which sending a file takes as long as other requests."""

    def __getattr__(self, name: str) -> Any:
        if name != "send":
            return super().__getattr__(name)
        time.sleep(self.latency_s)
        return self.inner.send


def opened(place: Path, latency_s: float, via: str | None = None) -> Instance:
    """Open the instance on a remote store."""
    storage = LocalStorage(place, durability="none")
    document = load(storage.get(INSTANCE_NAME) or b"")
    commits = None
    if via is not None:
        commits = CommitService(via, document["instance"])
    return Instance(DistantWithData(storage, latency_s), document, commits=commits)


@contextmanager
def service(place: Path, latency_s: float) -> Iterator[tuple[str, Callable[[], float]]]:
    """Start a service in a process of its own; return its URL, and a function for the CPU seconds that it used."""
    listening = server.listen("127.0.0.1", 0)
    url = server.url_of(listening)

    def run() -> None:
        server.serve(make_app(Service(opened(place, latency_s), maintain=False)), listening, threading.Event())

    process = FORK.Process(target=run)
    process.start()
    listening.close()

    def used_s() -> float:
        times = psutil.Process(process.pid).cpu_times()
        return float(times.user + times.system)

    try:
        yield url, used_s
    finally:
        process.terminate()
        process.join()


def written(table: lakebed.Table) -> Callable[[], int]:
    """Return a function that writes ten rows."""

    def write() -> int:
        name = clock.new_id()
        table.write(pa.table({"k": [f"{name}-{n}" for n in range(10)]}))
        return 10

    return write


def proposed(table: lakebed.Table, count: int) -> Callable[[], int]:
    """Return a function that commits an existing file."""
    proposals = [prepared() for _ in range(count)]

    def commit() -> int:
        outcome = table.log.commit(proposals.pop() if proposals else prepared())
        assert isinstance(outcome, Committed), outcome
        return 1000

    return commit


def work(place: Path, sizes: argparse.Namespace, via: str | None, data: bool, *, ready: Any, outcomes: Any) -> None:
    """Run one process: its threads commit until the time is up."""
    table = opened(place, sizes.latency_ms / 1e3, via).table("t")
    table.snapshot()
    commit = written(table) if data else proposed(table, 200 * sizes.threads)
    # Loads the imports of a first write.
    warm_up = lakebed.create(f"memory://{clock.new_id()}").create_table("t", SCHEMA)
    written(warm_up)()
    ready.wait()
    end = time.perf_counter() + sizes.seconds

    def thread(_: int) -> tuple[list[float], int]:
        times, rows = [], 0
        while (begin := time.perf_counter()) < end:
            rows += commit()
            times.append(time.perf_counter() - begin)
        return times, rows

    with ThreadPoolExecutor(sizes.threads) as threads:
        found = list(threads.map(thread, range(sizes.threads)))
    outcomes.put(([one for times, _ in found for one in times], sum(rows for _, rows in found)))


def measure(name: str, sizes: argparse.Namespace, *, via: bool, data: bool) -> None:
    """One line of the table."""
    with folder() as place:
        lakebed.create(str(place)).create_table("t", SCHEMA, settings={"runs_max": 0})
        used_s = 0.0
        if via:
            with service(place, sizes.latency_ms / 1e3) as (url, service_s):
                times, rows, taken = writers(place, sizes, url, data)
                used_s = service_s()
        else:
            times, rows, taken = writers(place, sizes, None, data)
        state = lakebed.open(str(place)).table("t").state()
        stored = sum(one.file.rows for held in [state.held_by(p) for p in state.partitions.ids] for one in held)
        assert len(state.files) == len(times), f"{len(times)} commits were acknowledged, {len(state.files)} are there"
        assert stored == rows
        p50, p99 = np.percentile(np.array(times) * 1e3, [50, 99])
        entries = state.version / taken
        share = f"{used_s / taken:>9.0%}" if via else f"{'':>9}"
        print(f"{name:44}{len(times) / taken:>10.0f}{p50:>9.0f}{p99:>9.0f}{entries:>11.1f}{share}", flush=True)


def writers(place: Path, sizes: argparse.Namespace, via: str | None, data: bool) -> tuple[list[float], int, float]:
    """Return the times of all commits, the number of added rows, and the total time."""
    ready, outcomes = FORK.Barrier(sizes.processes + 1), FORK.SimpleQueue()
    children = [
        FORK.Process(target=work, args=(place, sizes, via, data), kwargs={"ready": ready, "outcomes": outcomes})
        for _ in range(sizes.processes)
    ]
    for child in children:
        child.start()
    ready.wait()
    begin = time.perf_counter()
    results = [outcomes.get() for _ in children]
    taken = time.perf_counter() - begin
    for child in children:
        child.join()
    return [one for times, _ in results for one in times], sum(rows for _, rows in results), taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--threads", type=int, default=4, help="commits under way in each process")
    parser.add_argument("--latency-ms", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", choices=["service", "alone"], help="these lines alone")
    parser.add_argument("--data", choices=["with", "without"], help="with data files alone, or without")
    sizes = parser.parse_args()
    print(f"{sizes.processes} processes of {sizes.threads} threads, {sizes.latency_ms:.0f} ms a request, ", end="")
    print(f"{os.cpu_count()} cores")
    print(f"{'':44}{'commits/s':>10}{'p50 ms':>9}{'p99 ms':>9}{'entries/s':>11}{'service':>9}")
    for data in [False, True] if sizes.data is None else [sizes.data == "with"]:
        what = "with data files" if data else "log alone"
        if sizes.only != "alone":
            measure(f"through a service, {what}", sizes, via=True, data=data)
        if sizes.only != "service":
            measure(f"each process for itself, {what}", sizes, via=False, data=data)


if __name__ == "__main__":
    main()
