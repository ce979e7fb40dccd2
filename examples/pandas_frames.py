"""Rows of a table as pandas frames, and a frame as rows of a table.

python examples/pandas_frames.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd
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


def run(folder: Path) -> float:
    """Returns the warmest reading of sensor 42."""
    table = readings(folder)
    warm = table.to_pandas(lakebed.KeyRange.prefix(42))  # only its partition, file and pages are read
    print(warm.nlargest(3, "celsius"))

    # Whatever has an Arrow stream can be written; a frame has one.
    late = pd.DataFrame({"sensor": [42], "minute": [100], "celsius": [21.5]})
    table.write(pa.Table.from_pandas(late, preserve_index=False))
    warmest = float(table.to_pandas(lakebed.KeyRange.prefix(42))["celsius"].max())
    print(f"the warmest reading of sensor 42: {warmest} °C")
    return warmest


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        run(Path(scratch))
