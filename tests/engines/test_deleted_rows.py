"""DuckDB, and Spark with Iceberg's own reader, see no hidden rows of published tables, of both formats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

import lakebed
from lakebed.model.files import iceberg_folder
from lakebed.model.settings import ICEBERG_FORMATS
from lakebed.upkeep.publish.run import current, publish
from tests.engines.test_iceberg_catalog import run

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = lakebed.Schema({"k": "int64"}, {}, {"v": "string"})

PROGRAM = """
import json, pathlib, duckdb
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.jars", {jars!r})
    .getOrCreate()
)
packages = pathlib.Path(duckdb.__file__).parents[1]
connection = duckdb.connect(config={{"allow_unsigned_extensions": "true"}})
for name in ("avro", "httpfs", "iceberg"):
    (file,) = packages.glob(f"duckdb_extension_{{name}}/extensions/*/{{name}}.duckdb_extension")
    connection.execute(f"INSTALL '{{file}}'; LOAD {{name}}")
found = {{"spark": [], "duckdb": []}}
for folder, metadata, snapshots in {tables!r}:
    frames = [spark.read.format("iceberg").option("versionAsOf", one).load(folder) for one in snapshots]
    found["spark"].append([sorted([row.k, row.v] for row in frame.collect()) for frame in frames])
    rows = connection.execute(f"SELECT k, v FROM iceberg_scan('{{metadata}}') ORDER BY k").fetchall()
    found["duckdb"].append([list(row) for row in rows])
print(json.dumps(found))
"""


def test_spark_and_duckdb_read_deleted_rows(engines: Path, tmp_path: Path) -> None:
    """Deletes of several publications, of a slice, of rows that were shown again, and of a table that was upgraded."""
    lake = lakebed.create(str(tmp_path / "lake"))
    tables, expected = [], []
    for name, formats in (("two", ["iceberg"] * 2), ("three", ["iceberg-3"] * 2), ("upgraded", list(ICEBERG_FORMATS))):
        table = lake.create_table(name, SCHEMA, merge=lakebed.Latest(), settings={"publish": formats[0]})
        versions = []
        for number in range(6):
            if number == 3:
                table.set(publish=formats[1])
            table.write(pa.table({"k": range(10 * number, 10 * number + 30), "v": [f"{number}"] * 30}))
            versions.append(publish(table).version)
        table.remove(lakebed.KeyRange(5, 15))
        versions.append(publish(table).version)
        table.restore(versions[-2])
        versions.append(publish(table).version)
        found = current(table)
        assert found is not None
        snapshots = [one["snapshot-id"] for one in json.loads(found.metadata)["snapshots"]]
        folder = table.storage.object_url(iceberg_folder(table.id)).removeprefix("file://")
        tables.append((folder, found.metadata_location.removeprefix("file://"), snapshots))
        rows = [table.at(one).scan().to_arrow().to_pylist() for one in versions]
        expected.append([[[row["k"], row["v"]] for row in one] for one in rows])
    jars = ",".join(map(str, (engines / "jars").glob("*.jar")))
    answers = run(engines / "bin" / "python", PROGRAM.format(jars=jars, tables=tables))
    assert answers["spark"] == expected
    assert answers["duckdb"] == [of_table[-1] for of_table in expected]
