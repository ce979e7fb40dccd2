"""Hidden rows are written as deletes of Iceberg, as PyIceberg reads them and as they are read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO, _read_deletes
from pyiceberg.manifest import DataFileContent
from pyroaring import BitMap64

from lakebed.errors import Code, DamagedError
from lakebed.upkeep.publish.deletes import KINDS, SHARED_ROWS, DeleteFile, DeleteKind, Hidden, position_deletes
from lakebed.upkeep.publish.puffin import deletion_vectors, read_deletion_vectors

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = "file:///lake/a.parquet", "file:///lake/b.parquet", "file:///lake/c.parquet"
POSITIONS, VECTORS = KINDS[2], KINDS[3]


def spans(*ranges: tuple[int, int]) -> BitMap64:
    found = BitMap64()
    for low, high in ranges:
        found.add_range(low, high)
    return found


HIDDEN = {B: spans((0, 7), (5_000_000_000, 5_000_000_002)), A: BitMap64([3, 1, 4_294_967_300])}


@pytest.mark.parametrize("kind", KINDS.values(), ids=["positions", "vectors"])
def test_deletes_are_read_back(tmp_path: Path, kind: DeleteKind) -> None:
    data, facts = kind.encode(HIDDEN)
    path = tmp_path / "deletes"
    path.write_bytes(data)
    entries = kind.entries(f"file://{path}", len(data), facts)
    assert kind.read("deletes", data, entries) == DeleteFile.of("deletes", HIDDEN)
    by_pyiceberg = _read_deletes(PyArrowFileIO(), entries[0])
    assert {path: BitMap64(rows.to_pylist()) for path, rows in by_pyiceberg.items()} == HIDDEN
    assert sum(entry.record_count for entry in entries) == 12
    assert {entry.file_size_in_bytes for entry in entries} == {len(data)}
    assert {entry.content for entry in entries} == {DataFileContent.POSITION_DELETES}


def test_an_entry_says_which_data_files_its_deletes_are_about() -> None:
    (entry,) = POSITIONS.entries("file:///d.parquet", 1, POSITIONS.encode(HIDDEN)[1])
    assert (entry.lower_bounds, entry.upper_bounds) == ({2147483546: A.encode()}, {2147483546: B.encode()})
    data, facts = VECTORS.encode(HIDDEN)
    for entry, path in zip(VECTORS.entries("file:///d.puffin", len(data), facts), (A, B), strict=True):
        assert entry.lower_bounds == entry.upper_bounds == {2147483546: path.encode()}
        referenced, offset, size_bytes = entry[17], entry[18], entry[19]
        assert referenced == path
        assert data[offset + 4 : offset + 8] == bytes.fromhex("d1d33964")
        assert int.from_bytes(data[offset : offset + 4], "big") == size_bytes - 8


def test_a_range_of_many_rows_takes_few_bytes() -> None:
    hidden = {A: spans((5, 3_000_000))}
    assert len(position_deletes(hidden)) < 60_000
    assert len(deletion_vectors(hidden)[0]) < 2_000


@pytest.mark.parametrize("at", [0, 5, 12, -1])
def test_a_damaged_vector_is_found(at: int) -> None:
    data, ranges = deletion_vectors({A: BitMap64([1, 5, 9])})
    offset, size = ranges[A]
    damaged = bytearray(data)
    damaged[offset + at % size] ^= 1
    with pytest.raises(DamagedError) as caught:
        read_deletion_vectors(bytes(damaged))
    assert caught.value.code is Code.OBJECT_DAMAGED


@pytest.mark.parametrize("cut", [2, 20])
def test_a_file_that_is_cut_off_is_damaged(cut: int) -> None:
    data, _ = deletion_vectors({A: BitMap64([1, 5, 9])})
    with pytest.raises(DamagedError) as caught:
        read_deletion_vectors(data[:-cut])
    assert caught.value.code is Code.OBJECT_DAMAGED
    with pytest.raises(pa.ArrowException):
        POSITIONS.read("d", position_deletes({A: BitMap64([1])})[:-cut], ())


# -- what a publication writes -------------------------------------------------------------------------------------


def objects(*hidden: Hidden) -> list[DeleteFile]:
    return [DeleteFile.of(f"d{number}", one) for number, one in enumerate(hidden)]


def test_only_rows_that_were_not_hidden_before_are_written() -> None:
    """The object before has more rows, so it is left alone."""
    before = {A: spans((0, 9)), B: BitMap64([1])}
    after = {A: spans((0, 11)), B: BitMap64([1, 2])}
    plan = POSITIONS.plan(objects(before), before, after, frozenset())
    assert plan.written == [{A: BitMap64([9, 10]), B: BitMap64([2])}]
    assert (plan.kept, plan.dropped) == (objects(before), [])


def test_an_object_takes_in_those_with_no_more_rows() -> None:
    """One row, and so an object of one, and so one of two; not that of five."""
    before = {A: spans((0, 8))}
    files = objects({A: spans((0, 5))}, {A: spans((5, 7))}, {A: spans((7, 8))})
    plan = POSITIONS.plan(files, before, {A: spans((0, 9))}, frozenset())
    assert plan.written == [{A: spans((5, 9))}]
    assert (plan.kept, plan.dropped) == (files[:1], ["d2", "d1"])


def test_what_is_said_of_dropped_files_goes_with_the_last_of_them() -> None:
    files = objects({A: BitMap64([1]), B: BitMap64([1])}, {A: BitMap64([2])})
    plan = POSITIONS.plan(files, {}, {}, frozenset([A]))
    assert (plan.written, plan.dropped) == ([], ["d1"])
    assert [(file.path, file.hidden) for file in plan.kept] == [("d0", {B: BitMap64([1])})]


def test_an_object_of_many_rows_is_divided_by_data_file() -> None:
    before = {A: spans((0, SHARED_ROWS))}
    plan = POSITIONS.plan([], before, {A: spans((0, 2 * SHARED_ROWS)), B: BitMap64([1])}, frozenset())
    assert plan.written == [{A: spans((SHARED_ROWS, 2 * SHARED_ROWS))}, {B: BitMap64([1])}]


def test_a_vector_replaces_the_one_before() -> None:
    before = {A: BitMap64([1]), B: BitMap64([1, 2, 3])}
    plan = VECTORS.plan(objects(before), {A: BitMap64([1])}, {A: BitMap64([1, 2])}, frozenset())
    assert (plan.written, plan.dropped) == ([{A: BitMap64([1, 2])}], [A])
    assert [file.hidden for file in plan.kept] == [{B: BitMap64([1, 2, 3])}]


def test_vectors_are_moved_to_an_object_that_is_larger() -> None:
    before = {A: BitMap64([1, 2]), B: BitMap64([3])}
    plan = VECTORS.plan(objects({A: before[A]}, {B: before[B]}), before, {A: BitMap64([1, 2, 3])}, frozenset())
    assert (plan.written, plan.kept) == ([{A: BitMap64([1, 2, 3]), B: BitMap64([3])}], [])
    assert plan.dropped == [A, B]


def test_vectors_are_moved_when_most_of_their_object_does_not_count() -> None:
    before = {A: spans((0, 9)), B: spans((0, 5)), C: BitMap64([1])}
    plan = VECTORS.plan(objects(before), {C: BitMap64([1])}, {C: BitMap64([1, 2])}, frozenset([A]))
    assert (plan.written, plan.kept) == ([{C: BitMap64([1, 2]), B: spans((0, 5))}], [])
    assert plan.dropped == [A, C, B]


def test_an_object_whose_files_are_all_gone_is_dropped() -> None:
    plan = VECTORS.plan(objects({A: BitMap64([1])}, {C: BitMap64([1])}), {}, {}, frozenset([A]))
    assert (plan.written, plan.dropped) == ([], [A])
    assert [file.path for file in plan.kept] == ["d1"]
