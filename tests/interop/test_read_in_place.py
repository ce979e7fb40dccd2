"""Engines read a published table in place while it is written, split, compacted and collected.

Each answer names a version, and is compared with what Lakebed reads at that version. PyIceberg, Polars and boto3 with
PyArrow run here; Spark with Iceberg's runtime does too under ``make test-engines``, which installs it. The changes go
on for ``READ_IN_PLACE_S`` seconds: ten minutes under ``make soak``.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import socket
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.config import Config
from pyiceberg.catalog import load_catalog

import lakebed
from lakebed import KeyRange, Latest, Pipeline
from lakebed.server.security import access_keys, stored
from lakebed.upkeep.publish.run import publish
from lakebed.upkeep.retention.run import collect_garbage
from tests.service.served import served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = float(os.environ.get("READ_IN_PLACE_S", "1"))
VERSIONS_MIN = 3
"""Versions that each engine has to see, however short the time is."""

UPKEEP_WRITES = 15
"""Writes between two rounds of upkeep by the writer: beside the readers, the service may come too late."""

WRITES_MIN = 2 * UPKEEP_WRITES
"""Writes, however short the time is and however slow the machine: two rounds of upkeep."""

HISTORY_S = 120
"""An answer is compared with its version within this time: Spark may need a minute beside the others."""

KEYS = 5_000
Rows = list[tuple[int, str]]


@dataclass
class Reads:
    """What engines read: the versions they saw, and where an answer differed."""

    table: lakebed.Table
    versions: dict[str, Counter[int]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def compare(self, engine: str, version: int, rows: Rows) -> None:
        """Compare an answer with the rows of the version that it names, at once: collection goes on."""
        self.versions.setdefault(engine, Counter())[version] += 1
        expected = pairs(self.table.at(version).to_arrow())
        if sorted(rows) != expected:
            self.wrong.append(f"{engine} at version {version}: {len(rows)} rows, not {len(expected)}")

    def all(self, engines: list[str]) -> bool:
        return all(len(self.versions.get(one, ())) >= VERSIONS_MIN for one in engines)


def pairs(rows: pa.Table) -> Rows:
    return sorted(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))


@pytest.fixture
def table(tmp_path: Path) -> lakebed.Table:
    """A table in which a newer row replaces the older one, published, with little history."""
    settings = {"publish": "iceberg", "history_s": HISTORY_S, "split_bytes": 20_000, "file_bytes": 10_000}
    schema = lakebed.Schema({"k": "int64"}, {}, {"v": "string"})
    made = lakebed.create(str(tmp_path / "lake")).create_table("t", schema, merge=Latest(), settings=settings)
    made.write(pa.table({"k": range(KEYS), "v": ["first"] * KEYS}))
    publish(made)
    return made


def test_each_answer_is_that_of_the_version_it_names(table: lakebed.Table, tmp_path: Path) -> None:
    lake = lakebed.open(str(tmp_path / "lake"))
    _, token = stored.create_token(lake.storage, "reader", ["read"])
    key, secret = access_keys.create_access_key(lake.storage, "reader", ["read"])
    reads, ended = Reads(table), threading.Event()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--in-process", "--workers", "1", "--s3", str(port), "--period", "gc=5", "--period", "compaction=1"]
    with served(lake.url, *options) as service:
        catalog = load_catalog("lake", type="rest", uri=f"{service.url}/iceberg", token=token)
        config = Config(s3={"addressing_style": "path"}, signature_version="s3v4")
        names = {"aws_access_key_id": key.id, "aws_secret_access_key": secret, "region_name": "us-east-1"}
        bucket = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", config=config, **names)
        engines: dict[str, Callable[[], Iterator[tuple[int, Rows]]]] = {
            "PyIceberg": lambda: of_iceberg(catalog),
            "Polars": lambda: of_polars(catalog),
            "bucket": lambda: of_bucket(bucket),
        }
        if os.environ.get("ENGINES"):
            engines["Spark"] = lambda: of_spark(Path(os.environ["ENGINES"]), service.url, token, ended)

        def read(engine: str) -> None:
            while not ended.is_set():
                for version, rows in engines[engine]():
                    reads.compare(engine, version, rows)

        with ThreadPoolExecutor(len(engines)) as pool:
            running = [pool.submit(read, engine) for engine in engines]
            try:
                _change(lake, lambda: reads.all(list(engines)) or any(one.done() for one in running))
            finally:
                ended.set()
        assert [one.result() for one in running] == [None] * len(engines)
    assert reads.wrong == []
    assert reads.all(list(engines)), reads.versions
    made = Counter(table.history().column("type").to_pylist())
    # Files of versions younger than the history are not collected.
    collected = {"purge_files"} if SECONDS > 2 * HISTORY_S else set()
    assert {"add_files", "remove_range", "split_partitions", "replace", *collected} <= set(made), made
    print({engine: (sum(seen.values()), len(seen)) for engine, seen in reads.versions.items()}, made)


def _change(lake: lakebed.Instance, is_enough: Callable[[], bool]) -> None:
    """Upsert, delete, remove, split, compact and collect, as the service does too, until the time is over and there are
    enough reads.
    """
    table, chance, began, number = lake.table("t"), random.Random(1), time.monotonic(), 0
    while (
        time.monotonic() - began < SECONDS
        or number < WRITES_MIN
        or not (is_enough() or time.monotonic() - began > SECONDS + 120)
    ):
        number += 1
        keys = chance.sample(range(2 * KEYS), 200)
        table.write(pa.table({"k": keys, "v": [f"write {number}"] * len(keys)}))
        table.delete([(k,) for k in keys[:20]])
        if number % 10 == 0:
            first = chance.randrange(2 * KEYS)
            table.remove(KeyRange(first, first + 50))
        if number % UPKEEP_WRITES == 0:
            with Pipeline(lake, launcher="this-thread") as pipeline:
                pipeline.compact("t", strategy="full")
                pipeline.split("t")
            collect_garbage(table)
        time.sleep(0.1)


# -- engines --------------------------------------------------------------------------------------------------------


def of_iceberg(catalog: Any) -> Iterator[tuple[int, Rows]]:
    opened = catalog.load_table("default.t")
    snapshot = opened.current_snapshot()
    yield int(snapshot.summary["lakebed.version"]), pairs(opened.scan(snapshot_id=snapshot.snapshot_id).to_arrow())


def of_polars(catalog: Any) -> Iterator[tuple[int, Rows]]:
    opened = catalog.load_table("default.t")
    snapshot = opened.current_snapshot()
    rows = pl.scan_iceberg(opened, snapshot_id=snapshot.snapshot_id).collect()
    yield int(snapshot.summary["lakebed.version"]), pairs(rows.to_arrow())


def of_bucket(client: Any) -> Iterator[tuple[int, Rows]]:
    keys = [one["Key"] for one in client.list_objects_v2(Bucket="lakebed", Prefix="t/")["Contents"]]
    (version,) = {int(re.search(r"/v([0-9]+)-", key)[1]) for key in keys}
    files = [client.get_object(Bucket="lakebed", Key=key)["Body"].read() for key in keys]
    yield version, pairs(pa.concat_tables([pq.read_table(io.BytesIO(file)) for file in files]))


SPARK = """
import json, sys, time
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars", {jars!r})
for name, value in {{"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": {uri!r}, ".token": {token!r},
                    ".cache-enabled": "false"}}.items():
    builder = builder.config("spark.sql.catalog.lake" + name, value)
spark = builder.getOrCreate()
for _ in sys.stdin:
    found, begin = None, time.monotonic()
    while found is None:
        snapshot, summary = spark.sql(
            "SELECT snapshot_id, summary FROM lake.default.t.snapshots ORDER BY committed_at DESC, snapshot_id LIMIT 1"
        ).first()
        try:
            found = spark.sql(f"SELECT k, v FROM lake.default.t VERSION AS OF {{snapshot}}")
        except Exception as error:
            # Spark loads the table again. A snapshot that was the latest is listed for so long; Spark may be slower.
            if "Cannot find snapshot" not in str(error) or time.monotonic() - begin < {history_s}:
                raise
            begin = time.monotonic()
    rows = found.collect()
    print("ROWS", json.dumps([int(summary["lakebed.version"]), [tuple(row) for row in rows]]), flush=True)
"""


def of_spark(engines: Path, url: str, token: str, ended: threading.Event) -> Iterator[tuple[int, Rows]]:
    """Answers of one session of Spark, each asked for by a line."""
    jars = ",".join(map(str, (engines / "jars").glob("*.jar")))
    program = SPARK.format(jars=jars, uri=f"{url}/iceberg", token=token, history_s=HISTORY_S)
    process = subprocess.Popen(
        [engines / "bin" / "python", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        while not ended.is_set():
            print("read", file=process.stdin, flush=True)
            line = next((line for line in process.stdout if line.startswith("ROWS ")), None)
            assert line is not None, process.wait()
            version, rows = json.loads(line.removeprefix("ROWS "))
            yield version, [(k, v) for k, v in rows]
    finally:
        process.kill()
        process.communicate()
