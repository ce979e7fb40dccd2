"""Object stores of other makers keep the contract, and the main job runs on them: S3, Google Cloud Storage, Azure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Schema
from lakebed.storage import Storage, check_conditional_puts, connect, keeps_replace_if
from lakebed.testing.conformance import StorageConformance
from lakebed.upkeep.retention.run import collect_garbage
from tests.adversarial.proxy import FaultyProxy
from tests.adversarial.torture import Config, tortured
from tests.orphans import delete_orphans
from tests.tables.cases import compact

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})


class TestContract(StorageConformance):
    @pytest.fixture
    def storage(self, server: Any) -> Storage:
        return connect(server.new_root(), server.options)


class TestContractBelowAPrefix(StorageConformance):
    @pytest.fixture
    def storage(self, server: Any) -> Storage:
        return connect(f"{server.new_root()}/deep/prefix", server.options)


def test_the_store_is_safe_for_commits(server: Any) -> None:
    storage = connect(server.new_root(), server.options)
    check_conditional_puts(storage)
    assert keeps_replace_if(storage)


def rows(start: int, count: int) -> pa.Table:
    return pa.table({"k": [f"{n:06}" for n in range(start, start + count)], "v": list(range(start, start + count))})


def test_the_main_job(server: Any) -> None:
    """Written, read by key and range and in SQL, compacted, removed, collected, swept, verified; by two openers."""
    url = f"{server.new_root()}/lake"
    lake = lakebed.create(url, storage_options=server.options)
    table = lake.create_table("t", SCHEMA, settings={"history_s": 0, "orphan_age_s": 0})
    for start in range(0, 4_000, 1_000):
        table.write(rows(start, 1_000), commit_id=f"w{start}")
    table.write(rows(0, 1_000), commit_id="w0")
    other = lakebed.open(url, storage_options=server.options)
    there = other.table("t")
    assert there.get("001234").to_pydict() == {"k": ["001234"], "v": [1234]}
    assert there.scan(KeyRange("000998", "001002")).read_all()["v"].to_pylist() == [998, 999, 1000, 1001]
    assert other.sql("SELECT sum(v) AS s FROM t").read_all()["s"].to_pylist() == [sum(range(4_000))]
    compact(table)
    table.remove(KeyRange("002000", None))
    collect_garbage(table)
    delete_orphans(table, force=True)
    assert there.count(exact=True).rows == 2_000
    assert there.verify(files=True).sound


COMMITS = 15
KILLS = 15
WRITER = """
import json, sys
import pyarrow as pa, lakebed
url, options, name = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
table = lakebed.open(url, storage_options=options).table("t")
for n in range(int(sys.argv[4])):
    table.write(pa.table({"k": [f"{name}-{n}"], "v": [n]}), commit_id=f"{name}-{n}")
"""


def test_a_storm_of_commits_loses_and_doubles_nothing(server: Any) -> None:
    """Four processes race for the numbers of one log."""
    url = f"{server.new_root()}/lake"
    table = lakebed.create(url, storage_options=server.options).create_table("t", SCHEMA)
    options = json.dumps(server.options)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, options, f"w{n}", str(COMMITS)], stderr=subprocess.PIPE)
        for n in range(4)
    ]
    for writer in writers:
        _, said = writer.communicate(timeout=300)
        assert writer.returncode == 0, said.decode()
    keys = table.scan().read_all()["k"].to_pylist()
    assert sorted(keys) == sorted(f"w{n}-{m}" for n in range(4) for m in range(COMMITS))


def test_killed_processes_and_broken_connections_lose_and_double_nothing(s3_store: Any, tmp_path: Path) -> None:
    """Every connection to the store goes through a proxy that breaks one chunk in a hundred, either way."""
    proxy = FaultyProxy(urlsplit(s3_store.options["endpoint_url"]).port or 0, rate=0.01, seed=1)
    url = f"{s3_store.new_root()}/lake"
    options = s3_store.options | {"endpoint_url": f"http://127.0.0.1:{proxy.port}"}
    try:
        assert tortured(Config(url, str(tmp_path), options), kills=KILLS, seed=1) > 0
        assert proxy.faults > 0
    finally:
        proxy.close()
