"""Commits per second by log location, and by number of committing processes.

    python -m benchmarks.logs [--seconds 5] [--processes 8] [--threads 16] [--tables 10] [--postgres URL]

A commit adds one file to a table; its data is prepared, so that only the log is measured: validation, one durable
entry, and the new state. First one writer for each log location, beside pgbench's own round trip: the same INSERT of a
kilobyte by the server's C client. Then many processes on PostgreSQL, each with ``--threads`` threads, on several tables
at once, in two ways: every process commits to every table, so that all race for each version and follow each other's
entries; or a table's commits come from one process, as with writers routed by table.

Without ``--postgres``, a durable server is started on the loopback interface. All processes share this machine.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count

import numpy as np

import lakebed
from lakebed import clock
from lakebed.log.checkpoint import CheckpointLocation
from lakebed.log.locations import connect_logs
from lakebed.log.log import Log
from lakebed.log.outcomes import Committed
from lakebed.model.files import DataFile, NewFile
from lakebed.model.key_summaries import Summary
from lakebed.model.state.machine import TABLE
from lakebed.model.state.transactions import CreateTable, ProposeFiles
from lakebed.storage import connect
from tests.postgres.cluster import PASSWORD, Cluster

SCHEMA = lakebed.Schema({"k": "string"})
LOW, HIGH = (SCHEMA.codec.encode_key((text,)) for text in ("a", "z"))


def prepared() -> ProposeFiles:
    """Return a file of 1,000 rows, as if it had been written."""
    name = clock.new_id()
    file = DataFile(name, name, 1000, 100_000, LOW, HIGH, 1, 0, "0" * 32, 5000, "0" * 32)
    return ProposeFiles((NewFile(file, Summary((LOW, HIGH), (0, 999), 1000, HIGH), name),))


def table(folder: str, log_url: str | None, instance: str, version: int) -> Log:
    """Open table ``version`` of an instance, made if it does not exist."""
    storage = connect(folder)
    prefix = f"tables/table-{version:04}"
    place = connect_logs(log_url, storage, instance)
    log = Log(place.open(prefix), CheckpointLocation(storage, prefix), f"table-{version:04}", TABLE)
    if log.follow().version == 0:
        log.commit(CreateTable(f"table-{version:04}", SCHEMA, {}, ()))
    return log


def one_writer(name: str, log_url: str | None, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        instance = clock.new_id()
        storage = connect(folder)
        connect_logs(log_url, storage, instance).check()
        log = table(folder, log_url, instance, 0)
        proposals = [prepared() for _ in range(int(seconds * 4000))]
        times = []
        end = time.perf_counter() + seconds
        for proposal in proposals:
            begin = time.perf_counter()
            assert isinstance(log.commit(proposal), Committed)
            times.append(time.perf_counter() - begin)
            if begin > end:
                break
        middle, high = np.percentile(times, [50, 99]) * 1e3
        print(f"{name:34}{len(times) / sum(times):>12.0f}{middle:>9.2f}{high:>9.2f}", flush=True)


def pgbench(cluster: Cluster, clients: int, seconds: float) -> None:
    """Measure the peer: inserts of a kilobyte by the server's own client, one per transaction."""
    cluster.sql("CREATE TABLE IF NOT EXISTS peer (id bigserial PRIMARY KEY, data bytea)")
    script = cluster.folder / "peer.sql"
    script.write_text("INSERT INTO peer (data) VALUES (decode(repeat('00', 1000), 'hex'));\n")
    port = ["-h", "127.0.0.1", "-p", str(cluster.port), "-U", "lakebed"]
    words = [str(cluster.bin / "pgbench"), "-n", "-f", str(script), "-T", str(int(seconds)), "-c", str(clients)]
    ran = subprocess.run([*words, *port, "lakebed"], capture_output=True, text=True, check=True)
    rate = float(re.search(r"tps = ([\d.]+)", ran.stdout)[1])
    latency = float(re.search(r"latency average = ([\d.]+)", ran.stdout)[1])
    print(f"{f'pgbench, {clients} client(s), INSERT':34}{rate:>12.0f}{latency:>9.2f}{'':>9}  (mean)", flush=True)


def worker(arguments: argparse.Namespace) -> None:
    """Run one process: report that it is ready, start with the others, print its commits, entries won, and waits."""
    numbers = range(arguments.worker, arguments.tables, arguments.processes)
    if not arguments.routed:
        numbers = range(arguments.tables)
    logs = [table(arguments.folder, arguments.postgres, arguments.instance, number) for number in numbers]
    proposals = [[prepared() for _ in range(arguments.proposals)] for _ in range(arguments.threads)]
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.perf_counter() + arguments.seconds

    def commit(thread: int) -> tuple[list[float], set[tuple[int, int]]]:
        times, entries = [], set()
        for turn, proposal in zip(count(thread), proposals[thread], strict=False):
            begin = time.perf_counter()
            if begin > end:
                break
            outcome = logs[turn % len(logs)].commit(proposal)
            assert isinstance(outcome, Committed), outcome
            entries.add((turn % len(logs), outcome.version))
            times.append(time.perf_counter() - begin)
        return times, entries

    with ThreadPoolExecutor(arguments.threads) as pool:
        results = list(pool.map(commit, range(arguments.threads)))
    times = np.concatenate([times for times, _ in results]) * 1e3
    entries = set().union(*(entries for _, entries in results))
    print(len(times), len(entries), *np.percentile(times, [50, 99]), flush=True)


def many_processes(arguments: argparse.Namespace, url: str, words: list[str]) -> None:
    """Start the processes together, sum their figures, and verify the log: no commit is lost or doubled."""
    with tempfile.TemporaryDirectory() as folder:
        instance = clock.new_id()
        for version in range(arguments.tables):
            table(folder, url, instance, version)
        common = ["--folder", folder, "--instance", instance, "--postgres", url, "--seconds", str(arguments.seconds)]
        common += [f"--{name}={getattr(arguments, name)}" for name in ("processes", "threads", "tables", "proposals")]
        start = [sys.executable, "-m", "benchmarks.logs", *common, *words]
        children = [
            subprocess.Popen([*start, f"--worker={version}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for version in range(arguments.processes)
        ]
        for child in children:
            assert child.stdout.readline() == "ready\n"
        begin = time.perf_counter()
        for child in children:
            child.stdin.write("go\n")
            child.stdin.flush()
        figures = np.array([[float(word) for word in child.communicate()[0].split()] for child in children])
        taken = time.perf_counter() - begin
        commits, entries = figures[:, :2].sum(axis=0)
        stored = sum(len(table(folder, url, instance, number).follow().files) for number in range(arguments.tables))
        assert stored == commits, f"{commits} commits were acknowledged, {stored} are there"
        name = f"{arguments.processes} x {arguments.threads}, {'routed by table' if words else 'all on all tables'}"
        latency = f"{np.median(figures[:, 2]):>9.1f}{figures[:, 3].max():>9.1f}"
        print(f"{name:34}{commits / taken:>12.0f}{latency}{entries / taken:>12.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--postgres", help="the URL of a server (default: one is started)")
    parser.add_argument("--proposals", type=int, default=5_000, help=argparse.SUPPRESS)
    for name in ("--folder", "--instance"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--routed", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        worker(arguments)
        return
    with ExitStack() as until_done:
        cluster = None
        if arguments.postgres is None:
            cluster = Cluster.make()
            until_done.callback(cluster.remove)
            os.environ["PGPASSWORD"] = PASSWORD
        url = arguments.postgres or cluster.url()
        connect_logs(url, connect("memory://unused"), clock.new_id()).check()
        print(f"{'one writer':34}{'commits/s':>12}{'p50 ms':>9}{'p99 ms':>9}")
        one_writer("local disk", None, arguments.seconds)
        one_writer("postgresql", url, arguments.seconds)
        if cluster is not None:
            pgbench(cluster, 1, arguments.seconds)
        title = f"processes x threads, {arguments.tables} tables"
        print(f"\n{title:34}{'commits/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'entries/s':>12}")
        many_processes(arguments, url, [])
        many_processes(arguments, url, ["--routed"])
        if cluster is not None:
            pgbench(cluster, 8, arguments.seconds)


if __name__ == "__main__":
    main()
