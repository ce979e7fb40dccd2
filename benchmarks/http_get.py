"""Reads by key over HTTP: ``lakebed serve``, and a second process with 16 connections that are kept alive.

Three runs: without other load; while another process writes and compacts; and with writes alone. Goals: 1,000
requests/s with a p99 of 25 ms, and a p99 of 100 ms during an ingest and a compaction. The CPU time per request, in the
service and in the client, is also valid on a machine with other load.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

import lakebed
from benchmarks.results import record

CONNECTIONS = 16
WARM_S = 2
SCHEMA = lakebed.Schema({"k": "string"}, {}, {"a": "int64", "b": "double", "c": "string"})


def key(number: int) -> str:
    """Return a key; keys of successive numbers are unordered."""
    return f"{number * 2654435761 % 2**32:08x}-{number}"


def rows(begin: int, end: int) -> pa.Table:
    """Return the rows of these numbers."""
    numbers = range(begin, end)
    return pa.table(
        {
            "k": [key(n) for n in numbers],
            "a": pa.array(numbers, pa.int64()),
            "b": [n / 3 for n in numbers],
            "c": [f"text {n % 97}" for n in numbers],
        }
    )


def load(url: str, count: int) -> None:
    """Load a table of four files and two partitions."""
    table = lakebed.create(url).create_table("t", SCHEMA, split_points=["8"])
    for part in range(4):
        table.write(rows(part * count // 4, (part + 1) * count // 4))


def disturb(url: str, begin: int, *, compact: bool, until: float) -> None:
    """Repeatedly write 2,000 rows, and compact the result."""
    table = lakebed.open(url).table("t")
    number = begin
    while time.time() < until:
        table.write(rows(number, number + 2_000))
        number += 2_000
        if compact and number % 16_000 == begin % 16_000:
            command = [sys.executable, "-m", "lakebed.cli", "--instance", url, "compact", "t", "--in-process"]
            subprocess.run([*command, "--workers", "1"], check=False, capture_output=True)
        time.sleep(0.2)


async def connection(port: int, count: int, until: float, taken: list[float], bad: list[bytes]) -> None:
    """Request one key after another."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    chance = random.Random(id(reader))
    while time.time() < until:
        wanted = key(chance.randrange(count))
        began = time.perf_counter()
        writer.write(f"GET /v1/tables/t/get?key={wanted} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(found[1])) if found else b""
        taken.append(time.perf_counter() - began)
        if b" 200 " not in head[:20] or wanted.encode() not in body:
            bad.append(head + body)
    writer.close()


def ask(port: int, count: int, seconds: float, answers: multiprocessing.SimpleQueue) -> None:
    """Run the second process."""

    async def all_of_them() -> None:
        taken: list[float] = []
        bad: list[bytes] = []
        warm = time.time() + WARM_S
        await asyncio.gather(*(connection(port, count, warm, [], bad) for _ in range(CONNECTIONS)))
        until, before_s = time.time() + seconds, time.process_time()
        await asyncio.gather(*(connection(port, count, until, taken, bad) for _ in range(CONNECTIONS)))
        answers.put((sorted(taken), len(bad), bad[:1], time.process_time() - before_s))

    asyncio.run(all_of_them())


def cpu_s(process: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(port: int, count: int, seconds: float) -> tuple[list[float], int, float]:
    """Return the times of all requests, the number of failed ones, and the CPU time of the client."""
    answers = multiprocessing.SimpleQueue()
    process = multiprocessing.Process(target=ask, args=(port, count, seconds, answers))
    process.start()
    taken, bad, first, spent_s = answers.get()
    process.join()
    if bad:
        print(f"{bad} answers were wrong, the first: {first}", file=sys.stderr)
    return taken, bad, spent_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=8)
    chosen = parser.parse_args()
    multiprocessing.set_start_method("spawn")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "lake")
        load(url, chosen.rows)
        command = [sys.executable, "-m", "lakebed.cli", "--instance", url, "serve", "--port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as service:
            assert service.stderr is not None
            port = 0
            for line in service.stderr:
                if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                    port = int(found[1])
                    break
            lines = []
            for what, writes, compact in (
                ("quiet", False, False),
                ("with writes and compactions", True, True),
                ("with writes", True, False),
            ):
                until = time.time() + chosen.seconds + 4
                other = multiprocessing.Process(
                    target=disturb, args=(url, 10**7 + len(lines) * 10**6), kwargs={"compact": compact, "until": until}
                )
                if writes:
                    other.start()
                before_s = cpu_s(service.pid)
                taken, bad, client_s = measured(port, chosen.rows, chosen.seconds)
                # The service also answers while the client warms up.
                service_s = (cpu_s(service.pid) - before_s) * chosen.seconds / (chosen.seconds + WARM_S)
                failed += bad
                if writes:
                    other.join()
                p50, p99 = (1000 * taken[int(len(taken) * share)] for share in (0.5, 0.99))
                record(f"get over HTTP, {what}", "ms", taken[int(len(taken) * 0.5)] * 1000)
                each = [f"{1000 * spent_s / len(taken):.2f}" for spent_s in (service_s, client_s)]
                lines.append((what, f"{len(taken) / chosen.seconds:,.0f}", f"{p50:.1f}", f"{p99:.1f}", *each, str(bad)))
            service.terminate()
    headings = ("requests/s", "p50 ms", "p99 ms", "service ms CPU", "client ms CPU", "wrong")
    for what, *cells in (("get over HTTP", *headings), *lines):
        print(
            f"{what:<28}", *(f"{cell:>{len(heading)}}" for cell, heading in zip(cells, headings, strict=True)), sep="  "
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
