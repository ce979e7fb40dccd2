"""Deletes of Iceberg: what is written is read back, by PyIceberg too."""

from __future__ import annotations

import pytest

pytest.importorskip("pyiceberg")

from pyiceberg.io.pyarrow import PyArrowFileIO, _read_deletes
from pyiceberg.manifest import DataFileContent
from pyroaring import BitMap64

from lakebed.upkeep.publish.deletes import position_deletes, read_position_deletes

A, B, NONE = "file:///lake/a.parquet", "file:///lake/b.parquet", "file:///lake/none.parquet"


def spans(*ranges):
    found = BitMap64()
    for first, end in ranges:
        found.add_range(first, end)
    return found


HIDDEN = {B: spans((0, 3), (2**20 - 1, 2**20 + 5)), A: BitMap64([7, 100_000, 2**32 + 1]), NONE: BitMap64()}
SOME = {path: positions for path, positions in HIDDEN.items() if positions}


def by_pyiceberg(path, entry):
    path.write_bytes(entry[0])
    found = _read_deletes(PyArrowFileIO(), entry[1].data_file(str(path)))
    return {name: BitMap64(column.to_pylist()) for name, column in found.items()}


def test_position_deletes_are_read_back(tmp_path):
    data, entry = position_deletes(HIDDEN)
    assert read_position_deletes(data) == SOME
    assert by_pyiceberg(tmp_path / "deletes.parquet", (data, entry)) == SOME
    assert (entry.rows, entry.size_bytes, entry.paths) == (12, len(data), (A, B))


def test_an_entry_names_what_its_deletes_are_about():
    entry = position_deletes({A: BitMap64([1])})[1].data_file("file:///d.parquet")
    assert entry.content is DataFileContent.POSITION_DELETES
    assert entry.lower_bounds == entry.upper_bounds == {2147483546: A.encode()}


def test_a_range_of_many_rows_takes_few_bytes():
    hidden = {A: spans((5, 3_000_000))}
    assert len(position_deletes(hidden)[0]) < 60_000
