"""Rows with any columns, files of them, and what a table that takes new columns has of them."""

import pyarrow as pa
import pyarrow.parquet as pq

from tests.tables.retention.cases import on


def rows(keys, **columns):
    return pa.table({"k": list(keys), **columns})


def put(folder, *tables):
    """A numbered Parquet file for each table; returns the folder."""
    folder.mkdir()
    for number, data in enumerate(tables):
        pq.write_table(data, folder / f"{number}.parquet")
    return str(folder)


def fields(table):
    """The value fields of the latest version, ``name: type``."""
    return [f"{field.name}: {field.type}" for field in on(table).snapshot().schema.values]


def read(table):
    """What a process that knows nothing yet reads: a line a row, without nulls."""
    every = on(table).scan().read_all().to_pylist()
    return [" ".join(f"{name}={value}" for name, value in row.items() if value is not None) for row in every]
