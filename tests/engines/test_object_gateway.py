"""Engines read tables through the object gateway, by the examples of docs/open.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Latest
from tests import pages
from tests.engines.test_iceberg_catalog import run
from tests.processes.gateway.opened import Gateway, opened

DUCKDB = """
import json, pathlib, duckdb
packages = pathlib.Path(duckdb.__file__).parents[1]
connection = duckdb.connect(config={{"allow_unsigned_extensions": "true"}})
(file,) = packages.glob("duckdb_extension_httpfs/extensions/*/httpfs.duckdb_extension")
connection.execute(f"INSTALL '{{file}}'; LOAD httpfs")
connection.execute({statements!r})
print(json.dumps([connection.execute(one).fetchall() for one in {queries!r}]))
"""


SPARK = """
import json
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars", {jars!r})
for name, value in {options!r}:
    builder = builder.config(name, value)
spark = builder.getOrCreate()
found = [spark.read.parquet(f"s3a://lakebed/{{one}}/").orderBy("tail") for one in ("flights", "flights@audited")]
print(json.dumps([[list(row) for row in one.collect()] for one in found]))
"""


@pytest.fixture
def flights(tmp_path: Path) -> lakebed.Table:
    """Rows that are stored as they are, that are merged, and that were removed; and an older version with a tag."""
    lake = lakebed.create(str(tmp_path / "lake"))
    schema = lakebed.Schema({"tail": "string"}, {}, {"delay": "int64"})
    table = lake.create_table("flights", schema, merge=Latest(), split_points=["M"])
    table.write(pa.table({"tail": ["LH1", "LH2", "N1"], "delay": [1, 2, 3]}))
    table.write(pa.table({"tail": ["LH2", "Z"], "delay": [5, 6]}))
    table.tag("audited")
    table.remove(KeyRange(("Z",), None))
    table.write(pa.table({"tail": ["A"], "delay": [9]}))
    return table


@pytest.fixture
def gateway(flights: lakebed.Table) -> Iterator[Gateway]:
    """A gateway to its instance."""
    with opened(lakebed.open(flights.storage.url)) as running:
        yield running


def example_of(gateway: Gateway, mark: str) -> str:
    """The example with a text in docs/open.md, with an access key and the address of the gateway."""
    (example,) = [block.text for block in pages.blocks("docs/open.md", "text") if mark in block.text]
    key = gateway.key()
    for shown, value in (
        ("0199c2f0-…", key["aws_access_key_id"]),
        ("5b1c0a…", key["aws_secret_access_key"]),
        ("127.0.0.1:9000", gateway.url.removeprefix("http://")),
    ):
        assert shown in example
        example = example.replace(shown, value)
    return example.strip()


def rows_of(table: Any) -> list[list[Any]]:
    return [list(row.values()) for row in table.scan().read_all().to_pylist()]


def test_duckdb(engines: Path, gateway: Gateway, flights: lakebed.Table) -> None:
    statements, _, count = example_of(gateway, "CREATE SECRET lake").rpartition("\n")
    rows = "SELECT tail, delay FROM 's3://lakebed/{}/*.parquet' ORDER BY tail"
    queries = [count, rows.format("flights"), rows.format("flights@audited")]
    program = DUCKDB.format(statements=statements, queries=queries)
    counted, newest, audited = run(engines / "bin" / "python", program)
    assert newest == rows_of(flights)
    assert counted == [[len(newest)]]
    assert audited == rows_of(flights.at("audited"))


def test_spark(engines: Path, gateway: Gateway, flights: lakebed.Table) -> None:
    options = [tuple(line.split()) for line in example_of(gateway, "fs.s3a.endpoint").splitlines()]
    jars = ",".join(map(str, (engines / "jars").glob("*.jar")))
    newest, audited = run(engines / "bin" / "python", SPARK.format(jars=jars, options=options))
    assert newest == rows_of(flights)
    assert audited == rows_of(flights.at("audited"))
