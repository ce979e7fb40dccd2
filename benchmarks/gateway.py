"""The object gateway against the store: one GET of a large object, and ranges of 128 KiB over 16 connections.

The store is versitygw, a server of S3 in Go on local disk, if ``STORES_BIN`` names the folder of it
(``scripts/ensure-stores`` prints one): the same object is read from it and through the gateway. Another is moto's S3
server, which answers from memory here: moto copies a whole object to answer a range of it, so a cache before it answers
GET. A last line is a gateway to an instance on local disk. Goals: one GET at 0.7 of the store's rate, and 500 ranges a
second. The CPU time of each server is also valid on a machine with other load.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pyarrow as pa
from botocore.config import Config

import lakebed
from benchmarks.results import record
from lakebed.server.security.access_keys import create_access_key

CONNECTIONS = 16
RANGE_BYTES = 128 * 1024
READ_BYTES = 1024 * 1024
ROUNDS = 3
KEY = "benchmark"
VERSITYGW_URL = r"(http://127\.0\.0\.1:[0-9]+)"

STORE = """
import io
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

WSGIRequestHandler.protocol_version = "HTTP/1.1"
WSGIRequestHandler.log = lambda *_: None
inner, kept = DomainDispatcherApplication(create_backend_app), {}

def application(environ, start):
    path, text = environ["PATH_INFO"], environ.get("HTTP_RANGE", "")
    if environ["REQUEST_METHOD"] != "GET" or not path.endswith(".parquet"):
        return inner(environ, start)
    if path not in kept:
        environ.pop("HTTP_RANGE", None)
        heads = []
        body = b"".join(inner(environ, lambda status, headers, *_: heads.append(headers)))
        kept[path] = memoryview(body), [one for one in heads[0] if one[0].lower() in ("etag", "last-modified")]
    body, headers = kept[path]
    begin, _, last = text.removeprefix("bytes=").partition("-")
    first, end = int(begin or 0), int(last) + 1 if last else len(body)
    sizes = [("Content-Length", str(end - first)), ("Content-Range", f"bytes {first}-{end - 1}/{len(body)}")]
    start("206 Partial Content" if text else "200 OK", [*headers, *sizes[: 1 + bool(text)]])
    return (bytes(body[at : min(at + 2**20, end)]) for at in range(first, end, 2**20))

server = make_server("127.0.0.1", 0, application, threaded=True)
import sys
print(f"Running on http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
server.serve_forever()
"""


def load(url: str, size_bytes: int, options: dict[str, str] | None = None) -> tuple[str, str]:
    """Load a table of one file of about this size; return the id and the secret of an access key."""
    lake = lakebed.create(url, storage_options=options)
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}, {}, {"v": "binary"}))
    table.set(file_bytes=4 * size_bytes)
    chance = random.Random(1)
    count = size_bytes // 4096
    table.write(pa.table({"k": range(count), "v": [chance.randbytes(4096) for _ in range(count)]}))
    key, secret = create_access_key(lake.storage, "benchmark", ["read"])
    return key.id, secret


class Server:
    """A server in a process of its own, whose presigned URLs are read."""

    def __init__(self, command: list[str], said: str, environment: dict[str, str] | None = None) -> None:
        """``said`` finds its URL in what it says when it has started."""
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(said, line):
                self.url = found[1]
                break
        else:
            raise RuntimeError(f"{command} did not start")
        # What else it says must not fill the pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def client(self, key_id: str, secret: str) -> Any:
        """Return a client."""
        config = Config(signature_version="s3v4", s3={"addressing_style": "path"})
        given = {"aws_access_key_id": key_id, "aws_secret_access_key": secret, "region_name": "us-east-1"}
        return boto3.client("s3", endpoint_url=self.url, config=config, **given)

    def cpu_s(self) -> float:
        """Return the CPU time that the process took so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text("utf-8").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_all(url: str) -> int:
    """Return the bytes of one GET."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request("GET", f"{parts.path}?{parts.query}")
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    size = 0
    while data := answer.read(READ_BYTES):
        size += len(data)
    connection.close()
    assert size == int(answer.headers["Content-Length"])
    return size


def read_ranges(url: str, size_bytes: int, until: float, seed: int) -> list[float]:
    """Return the time of each request for a range over one connection."""
    parts, chance, taken = urlsplit(url), random.Random(seed), []
    connection = http.client.HTTPConnection(parts.netloc)
    while time.time() < until:
        begin = chance.randrange(size_bytes - RANGE_BYTES)
        began = time.perf_counter()
        headers = {"Range": f"bytes={begin}-{begin + RANGE_BYTES - 1}"}
        connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
        answer = connection.getresponse()
        assert (answer.status, len(answer.read())) == (206, RANGE_BYTES)
        taken.append(time.perf_counter() - began)
    return taken


def many_ranges(arguments: tuple[str, int, float]) -> list[float]:
    """Return the times of all requests of a process with 16 connections."""
    url, size_bytes, seconds = arguments
    until = time.time() + seconds
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        found = threads.map(lambda seed: read_ranges(url, size_bytes, until, seed), range(CONNECTIONS))
        return sorted(one for times in found for one in times)


def best(function: Callable[[], int]) -> float:
    """Return the rate of the fastest of some rounds, in MiB/s."""
    rates = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        size = function()
        rates.append(size / (time.perf_counter() - began) / 2**20)
    return max(rates)


def measure(name: str, server: Server, url: str, size_bytes: int, seconds: float) -> float:
    """Print the lines of one server; return its rate of one GET."""
    before = server.cpu_s()
    rate = best(lambda: read_all(url))
    cpu = (server.cpu_s() - before) / ROUNDS
    before = server.cpu_s()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (times,) = pool.map(many_ranges, [(url, size_bytes, seconds)])
    each = (server.cpu_s() - before) / len(times) * 1000
    half, late = times[len(times) // 2] * 1000, times[len(times) * 99 // 100] * 1000
    print(
        f"| {name} | {rate:,.0f} | {cpu:.2f} | {len(times) / seconds:,.0f} | {half:.1f} | {late:.1f} | {each:.2f} |",
        flush=True,
    )
    return rate


def gateway(url: str, size_bytes: int, options: dict[str, str] | None = None) -> tuple[Server, str]:
    """Return a gateway to a new instance, and the URL of its object."""
    key_id, secret = load(url, size_bytes, options)
    environment = {"LAKEBED_STORAGE_OPTIONS": json.dumps(options or {})}
    command = [sys.executable, "-m", "lakebed.cli", "--instance", url, "serve", "--s3", "0", "--s3-only"]
    server = Server(command, r"S3 at (http://\S+), bucket", environment)
    client = server.client(key_id, secret)
    (found,) = client.list_objects_v2(Bucket="lakebed", Prefix="t/")["Contents"]
    return server, client.generate_presigned_url("get_object", {"Bucket": "lakebed", "Key": found["Key"]})


def stores(folder: str) -> Iterator[tuple[str, Server]]:
    """Return the stores, each started when the one before was measured."""
    if found := os.environ.get("STORES_BIN"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        data = Path(folder) / "versitygw"
        data.mkdir()
        keys = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": KEY, "VGW_REGION": "us-east-1"}
        yield "versitygw", Server([f"{found}/versitygw", "--port", address, "posix", str(data)], VERSITYGW_URL, keys)
    yield "moto", Server([sys.executable, "-c", STORE], r"Running on (http://\S+)")


def measure_store(name: str, store: Server, size: int, seconds: float) -> str:
    """Print the lines of a store and of a gateway to it; return what their rates say."""
    peer = store.client(KEY, KEY)
    peer.create_bucket(Bucket="bucket")
    options = {"aws_access_key_id": KEY, "aws_secret_access_key": KEY, "aws_region": "us-east-1"}
    through, url = gateway("s3://bucket/lake", size, {**options, "endpoint_url": store.url})
    try:
        pages = peer.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="lake/tables/")
        largest = max((one for page in pages for one in page.get("Contents", ())), key=lambda one: one["Size"])
        direct = peer.generate_presigned_url("get_object", {"Bucket": "bucket", "Key": largest["Key"]})
        rate = measure(name, store, direct, largest["Size"], seconds)
        ours = measure(f"gateway to {name}", through, url, largest["Size"], seconds)
    finally:
        through.process.kill()
    record("one GET through the gateway", "MiB/s", ours, peer=name, theirs=rate, aim=0.7)
    return f"one GET through the gateway has {ours / rate:.2f} of the rate of {name}"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256, help="size of the object")
    parser.add_argument("--seconds", type=float, default=8.0, help="how long ranges are read")
    given = parser.parse_args()
    size = given.mib * 2**20
    print(f"one GET of {given.mib} MiB, and ranges of 128 KiB over {CONNECTIONS} connections\n")
    print("| | MiB/s | CPU s a GET | ranges/s | p50 ms | p99 ms | CPU ms a range |")
    print("|---|---|---|---|---|---|---|")
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for name, store in stores(folder):
            try:
                said.append(measure_store(name, store, size, given.seconds))
            finally:
                store.process.kill()
        local, url = gateway(f"{folder}/lake", size)
        try:
            measure("gateway to local disk", local, url, size, given.seconds)
        finally:
            local.process.kill()
    print("", *said, sep="\n")


if __name__ == "__main__":
    main()
