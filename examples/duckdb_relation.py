"""A table as a DuckDB relation: DuckDB reads the files, of each the rows that count.

python examples/duckdb_relation.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa

import lakebed


def readings(folder: Path) -> lakebed.Table:
    """A hundred sensors, a hundred readings each."""
    lake = lakebed.create(folder / "lake")
    schema = lakebed.Schema({"sensor": "int64"}, {"minute": "int64"}, {"celsius": "double"})
    table = lake.create_table("readings", schema, split_points=[50])
    sensors = [n % 100 for n in range(10_000)]
    minutes = [n // 100 for n in range(10_000)]
    table.write(pa.table({"sensor": sensors, "minute": minutes, "celsius": [n % 37 / 2 for n in range(10_000)]}))
    return table


def run(folder: Path) -> int:
    """Returns how many sensors are left after one is removed."""
    table = readings(folder)
    table.remove(lakebed.KeyRange.prefix(42))  # moves no data: the file still holds the rows
    connection = duckdb.connect()
    table.to_duckdb(connection=connection).create_view("readings")
    print(connection.sql("SELECT sensor, max(celsius) AS warmest FROM readings GROUP BY ALL ORDER BY ALL LIMIT 3"))
    ((sensors,),) = connection.sql("SELECT count(DISTINCT sensor) FROM readings").fetchall()
    print(f"{sensors} sensors")
    return int(sensors)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch))
