"""Engines read tables through the object gateway, by the examples of docs/open.md."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import lakebed
from lakebed import KeyRange, Latest
from tests import pages
from tests.engines.test_iceberg_catalog import run
from tests.processes.gateway.opened import opened

DUCKDB = """
import json, pathlib, duckdb
packages = pathlib.Path(duckdb.__file__).parents[1]
connection = duckdb.connect(config={{"allow_unsigned_extensions": "true"}})
(file,) = packages.glob("duckdb_extension_httpfs/extensions/*/httpfs.duckdb_extension")
connection.execute(f"INSTALL '{{file}}'; LOAD httpfs")
connection.execute({statements!r})
print(json.dumps([connection.execute(one).fetchall() for one in {queries!r}]))
"""


def test_duckdb(engines: Path, tmp_path: Path) -> None:
    lake = lakebed.create(str(tmp_path / "lake"))
    schema = lakebed.Schema({"tail": "string"}, {}, {"delay": "int64"})
    flights = lake.create_table("flights", schema, merge=Latest(), split_points=["M"])
    flights.write(pa.table({"tail": ["LH1", "LH2", "N1"], "delay": [1, 2, 3]}))
    flights.write(pa.table({"tail": ["LH2", "Z"], "delay": [5, 6]}))
    flights.tag("audited")
    flights.remove(KeyRange(("Z",), None))
    flights.write(pa.table({"tail": ["A"], "delay": [9]}))
    (example,) = [block.text for block in pages.blocks("docs/open.md", "text") if "CREATE SECRET lake" in block.text]
    with opened(lake) as gateway:
        key = gateway.key()
        statements, _, count = example.strip().rpartition("\n")
        for shown, value in (
            ("0199c2f0-…", key["aws_access_key_id"]),
            ("5b1c0a…", key["aws_secret_access_key"]),
            ("127.0.0.1:9000", gateway.url.removeprefix("http://")),
        ):
            assert shown in statements
            statements = statements.replace(shown, value)
        rows = "SELECT tail, delay FROM 's3://lakebed/{}/*.parquet' ORDER BY tail"
        queries = [count, rows.format("flights"), rows.format("flights@audited")]
        program = DUCKDB.format(statements=statements, queries=queries)
        counted, newest, audited = run(engines / "bin" / "python", program)
    expected = [list(row.values()) for row in flights.scan().read_all().to_pylist()]
    assert newest == expected
    assert counted == [[len(expected)]]
    assert audited == [list(row.values()) for row in flights.at("audited").scan().read_all().to_pylist()]
