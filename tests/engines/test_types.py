"""DuckDB and Spark read the values of each published type as Lakebed does."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.upkeep.publish.run import publish
from tests.engines.test_iceberg_catalog import run
from tests.tables.publish.test_types import VALUES, arrow_rows

if TYPE_CHECKING:
    from pathlib import Path

DUCKDB = """
import pathlib, duckdb
packages = pathlib.Path(duckdb.__file__).parents[1]
connection = duckdb.connect(config={{"allow_unsigned_extensions": "true"}})
for name in ("avro", "iceberg"):
    (file,) = packages.glob(f"duckdb_extension_{{name}}/extensions/*/{{name}}.duckdb_extension")
    connection.execute(f"INSTALL '{{file}}'; LOAD {{name}}")
connection.execute("COPY (FROM iceberg_scan('{metadata}')) TO '{out}' (FORMAT parquet)")
print("{{}}")
"""

SPARK = """
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.config("spark.jars", "{jars}").config("spark.ui.enabled", "false").master("local[1]")
    .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    .config("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED")
    .config("spark.sql.session.timeZone", "UTC").getOrCreate()
)
spark.read.format("iceberg").load("{metadata}").coalesce(1).write.parquet("{out}")
print("{{}}")
"""

NOT_IN_SPARK = ("time64[us]",)
"""Spark has no times of day, and refuses a table that has one."""


def comparable(value: Any) -> Any:
    """A value as all engines have it: UUIDs as text, times in UTC, maps as lists of entries."""
    match value:
        case uuid.UUID():
            return str(value)
        case dt.datetime(tzinfo=zone) if zone is not None:
            return value.astimezone(dt.UTC)
        case dict():
            return {name: comparable(one) for name, one in value.items()}
        case list() | tuple():
            return [comparable(one) for one in value]
        case _:
            return value


def published(folder: Path, kinds: list[str]) -> tuple[lakebed.Table, str]:
    """A table with a column of each type, and one for a value of it in each row, and its metadata file."""
    schema = lakebed.Schema({"k": "int64"}, values={f"c{place}": kind for place, kind in enumerate(kinds)})
    table = lakebed.create(str(folder / "lake")).create_table("t", schema, settings={"publish": "iceberg"})
    for k in range(max(map(len, VALUES.values())) + 1):
        values = {f"c{place}": dict(enumerate(VALUES[kind])).get(k) for place, kind in enumerate(kinds)}
        table.write(arrow_rows([{"k": k, **values}], schema))
    return table, publish(table).metadata_location


def check(table: lakebed.Table, out: Path, kinds: list[str]) -> None:
    found, expected = pq.read_table(out).sort_by("k"), pa.table(table.scan()).sort_by("k")
    for place, kind in enumerate(kinds):
        values = [[repr(comparable(one)) for one in rows.column(f"c{place}").to_pylist()] for rows in (found, expected)]
        assert values[0] == values[1], kind


def test_duckdb(engines: Path, tmp_path: Path) -> None:
    table, metadata = published(tmp_path, list(VALUES))
    out = tmp_path / "out.parquet"
    run(engines / "bin" / "python", DUCKDB.format(metadata=metadata.removeprefix("file://"), out=out))
    check(table, out, list(VALUES))


def test_spark(engines: Path, tmp_path: Path) -> None:
    kinds = [kind for kind in VALUES if kind not in NOT_IN_SPARK]
    table, metadata = published(tmp_path, kinds)
    jars = ",".join(map(str, (engines / "jars").glob("*.jar")))
    out = tmp_path / "out"
    run(engines / "bin" / "python", SPARK.format(jars=jars, metadata=metadata, out=out))
    check(table, out, kinds)


@pytest.mark.parametrize("kind", NOT_IN_SPARK)
def test_what_spark_refuses(engines: Path, tmp_path: Path, kind: str) -> None:
    _, metadata = published(tmp_path, [kind])
    jars = ",".join(map(str, (engines / "jars").glob("*.jar")))
    with pytest.raises(AssertionError, match=r"(?i)time"):
        run(engines / "bin" / "python", SPARK.format(jars=jars, metadata=metadata, out=tmp_path / "out"))
