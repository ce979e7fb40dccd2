"""The first lookup of a new process on an object store: without a cache on local disk, with one, and a warm lookup.

The store is moto's S3 server in a process of its own, which waits 30 ms before each answer. Each cold lookup is one of
a new process: the time from ``lakebed.open`` to the row, without the imports, and the requests that the server saw.
Then a process that restarts, as a service does, and has opened the table looks up 100 keys, with and without the cache,
and once more when it is warm.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from urllib.request import Request, urlopen

import pyarrow as pa

import lakebed
from benchmarks.http_get import SCHEMA, key
from benchmarks.results import record

STORE = """
import sys, threading, time
import moto.backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server
modules = tuple(moto.backends.list_of_moto_modules())
moto.backends.list_of_moto_modules = lambda: modules
inner, delay_s, count, lock = DomainDispatcherApplication(create_backend_app), float(sys.argv[1]), 0, threading.Lock()
class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"
    def log(self, *_):
        pass
def application(environ, start):
    global count
    if environ["PATH_INFO"] == "/count":
        start("200 OK", [("Content-Type", "text/plain")])
        return [str(count).encode()]
    with lock:
        count += 1
    time.sleep(delay_s)
    return inner(environ, start)
server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""

LOOKUPS = """
import json, sys, time
import lakebed
import lakebed.read.rows.point_lookup, lakebed.read.rows.reader, lakebed.files.parquet.page_decoder
import lakebed.storage.object_store, lakebed.storage.clients, lakebed.storage.client_errors, lakebed.table.opening
import obstore.store, concurrent.futures.thread
url, options, keys, rounds = json.loads(sys.argv[1])
table, rounds_ms = None, []
if len(keys) > 1:
    table = lakebed.open(url, storage_options=options).table("t")
    table.state()
for _ in range(rounds):
    found_ms = []
    for key in keys:
        began = time.perf_counter()
        if table is None:
            table = lakebed.open(url, storage_options=options).table("t")
        assert table.get(key).num_rows == 1, key
        found_ms.append(1000 * (time.perf_counter() - began))
    rounds_ms.append(found_ms)
print(json.dumps(rounds_ms))
"""

_UNSIGNED = "AWS4-HMAC-SHA256 Credential=test/20300101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"
"""moto finds the service by the scope of the signature, if a request names none."""


def rows(begin: int, end: int) -> pa.Table:
    """Return the rows of these numbers, of some 80 bytes."""
    numbers = range(begin, end)
    return pa.table(
        {
            "k": [key(n) for n in numbers],
            "a": pa.array(numbers, pa.int64()),
            "b": [n / 3 for n in numbers],
            "c": [f"{n * 0x9E3779B97F4A7C15 % 2**64:016x}{n * 0xC2B2AE3D27D4EB4F % 2**64:016x}" for n in numbers],
        }
    )


class Store:
    """The server, with a bucket and a table of ``count`` rows in files of ``step``."""

    def __init__(self, delay_s: float, count: int, step: int) -> None:
        command = [sys.executable, "-c", STORE, str(delay_s)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        endpoint = self.process.stdout.readline().strip()
        self.endpoint = endpoint
        self.options = {"access_key_id": "k", "secret_access_key": "s", "region": "us-east-1", "endpoint": endpoint}
        request = Request(f"{endpoint}/bench", method="PUT", headers={"Authorization": _UNSIGNED})
        urlopen(request, timeout=60).close()
        self.url = "s3://bench/lake"
        table = lakebed.create(self.url, storage_options=self.options).create_table("t", SCHEMA)
        for begin in range(0, count, step):
            table.write(rows(begin, min(count, begin + step)))
        table.log.wait_for_checkpoint()

    def count(self) -> int:
        """Return how many requests there were."""
        with urlopen(f"{self.endpoint}/count", timeout=60) as answer:
            return int(answer.read())

    def lookups(self, keys: list[str], rounds: int, folder: Path | None) -> tuple[list[list[float]], int]:
        """Look up keys in a new process; return the milliseconds of each, by round, and the requests of all."""
        options = self.options | ({} if folder is None else {"cache_dir": str(folder)})
        before = self.count()
        asked = json.dumps([self.url, options, keys, rounds])
        ran = subprocess.run([sys.executable, "-c", LOOKUPS, asked], check=True, capture_output=True, text=True)
        return json.loads(ran.stdout), self.count() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--files", type=int, default=2, help="Two: each is larger than 16 MiB, so it is read in parts.")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--delay-ms", type=float, default=30.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as scratch:
        store = Store(given.delay_ms / 1000, given.rows, -(-given.rows // given.files))
        try:
            measure(store, given, Path(scratch))
        finally:
            store.process.kill()
            store.process.wait()


def measure(store: Store, given: argparse.Namespace, scratch: Path) -> None:
    """Print and record what the lookups took."""
    folder = scratch / "cache"
    one = [key(12345 % given.rows)]
    store.lookups(one, 1, folder)
    sides: dict[str, list[tuple[float, float, int]]] = {"no cache": [], "with the cache": []}
    for _ in range(given.turns):
        for name, where in (("no cache", None), ("with the cache", folder)):
            [[cold], [warm]], requests = store.lookups(one, 2, where)
            sides[name].append((cold, warm, requests))
    for name, found in sides.items():
        cold_ms, warm_ms, requests = (median(column) for column in zip(*found, strict=True))
        print(f"first get, {name:<15} {cold_ms:7.1f} ms; the next {warm_ms:6.1f} ms; {requests:.0f} requests for both")
        record(f"first get of a process, {given.delay_ms:g} ms a request, {name}", "ms", [cold for cold, _, _ in found])
    keys = [key(number * 7919 % given.rows) for number in range(100)]
    store.lookups(keys, 1, folder)
    for name, where in (("no cache", None), ("with the cache", folder)):
        (cold, warm), requests = store.lookups(keys, 2, where)
        first, again = quantiles(cold, n=100)[98], quantiles(warm, n=100)[98]
        print(
            f"restart, {name:<15} first 100 gets p50 {median(cold):6.1f}, p99 {first:7.1f} ms; warm p50 "
            f"{median(warm):6.1f}, p99 {again:6.1f} ms: {first / again:.2f} times; {requests} requests"
        )


if __name__ == "__main__":
    main()
