"""A table as a Polars lazy frame: what a query says of the key decides what is read.

python examples/polars_frames.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
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
    """Returns how many readings of three sensors are above 15 °C."""
    table = readings(folder)
    warm = (
        table.lazy_polars()
        .filter(pl.col("sensor").is_in([7, 42, 99]), pl.col("celsius") > 15)
        .group_by("sensor")
        .agg(pl.len().alias("readings"), pl.col("celsius").max())
        .sort("sensor")
        .collect()
    )
    print(warm)
    print(f"{warm['readings'].sum()} readings above 15 °C")
    return int(warm["readings"].sum())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch))
