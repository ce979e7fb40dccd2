"""Engines read published tables through the Iceberg catalog of a service, by the examples of docs/open.md.

They see exactly the rows that Lakebed has, and only what their token may read.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog import load_catalog

from tests.interop.iceberg_lakes import IcebergLake, iceberg_lake

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["disk", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IcebergLake]:
    with iceberg_lake(request.param, tmp_path, monkeypatch) as made:
        yield made


def run(python: Path, program: str) -> Any:
    """The JSON that a program prints last."""
    ran = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return json.loads(ran.stdout.strip().splitlines()[-1])


DUCKDB = """
import json, pathlib, duckdb
packages = pathlib.Path(duckdb.__file__).parents[1]
connection = duckdb.connect(config={{"allow_unsigned_extensions": "true"}})
# What INSTALL would fetch.
for name in ("avro", "httpfs", "iceberg"):
    (file,) = packages.glob(f"duckdb_extension_{{name}}/extensions/*/{{name}}.duckdb_extension")
    connection.execute(f"INSTALL '{{file}}'; LOAD {{name}}")
connection.execute({statements!r})
print(json.dumps([connection.execute(one).fetchall() for one in {queries!r}]))
"""


def test_duckdb(engines: Path, lake: IcebergLake) -> None:
    (example,) = lake.examples("DuckDB")
    statements, _, last = example.strip().rpartition("\n")
    statements = statements.replace("INSTALL iceberg;", "")
    queries = [last, "SELECT origin, number, delay FROM lake.default.flights ORDER BY origin, number",
               "SELECT name FROM (SHOW ALL TABLES)"]  # fmt: skip
    program = DUCKDB.format(statements=statements, queries=queries)
    counted, rows, tables = run(engines / "bin" / "python", program)
    assert [dict(zip(("origin", "number", "delay"), row, strict=True)) for row in rows] == lake.rows()
    assert counted == [[sum(row["origin"] == "o1" for row in lake.rows())]]
    assert tables == [["flights"]]


SPARK = """
import json
{example}
query = lambda text: [row.asDict() for row in spark.sql(text).collect()]
found = {{
    "rows": query("SELECT * FROM lake.default.flights ORDER BY origin, number"),
    "first": query("SELECT count(*) AS n FROM lake.default.flights VERSION AS OF {snapshot}")[0]["n"],
    "tables": query("SHOW TABLES IN lake.default"),
    "snapshots": len(query("SELECT * FROM lake.default.flights.snapshots")),
}}
for name, text in (("absent", "SELECT * FROM lake.default.kept_back"), ("write", "DELETE FROM lake.default.flights")):
    try:
        query(text)
    except Exception as error:
        found[name] = str(error)
print(json.dumps(found))
"""


def test_spark(engines: Path, lake: IcebergLake) -> None:
    catalog = load_catalog("lake", type="rest", uri=f"{lake.url}/iceberg", token=lake.token)
    first = catalog.load_table("default.flights").metadata.snapshots[0].snapshot_id
    jars = ",".join(map(str, (engines / "jars").glob("*.jar")))
    (example,) = lake.examples("Spark")
    # The same runtime without the registry, and no page of Spark.
    example = re.sub(r'"spark.jars.packages", "[^"]+"', f'"spark.jars", "{jars}"', example)
    example = example.replace(".getOrCreate()", '.config("spark.ui.enabled", "false").master("local[1]").getOrCreate()')
    found = run(engines / "bin" / "python", SPARK.format(example=example, snapshot=first))
    assert found["rows"] == lake.rows()
    assert found["first"] == 1000
    assert found["snapshots"] == 2
    assert [row["tableName"] for row in found["tables"]] == ["flights"]
    assert "kept_back" in found["absent"]
    assert "endpoint" in found["write"] or "read-only" in found["write"]
