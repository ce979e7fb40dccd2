"""How large rows are once decoded, and that they are cut by that."""

import numpy as np
import pyarrow as pa
import pytest

from lakebed.files.parquet.sizes import decoded, gather, row_ends, size_of, slice_rows, value_ends

DICTIONARY = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], pa.int32()), pa.array(["q" * 100, "z"]))
COLUMNS = {
    "numbers": pa.array([1, 2, 3, 4]),
    "text": pa.array(["x" * 10, None, "yy", ""]),
    "large": pa.array([b"abc", b"", None, b"d"], pa.large_binary()),
    "snapshot": pa.array(["a" * 50, "b", None, "c"], pa.string_view()),
    "list": pa.array([[1, 2], [], None, [3]]),
    "list_view": pa.array([[1], [2, 3], [], None], pa.list_view(pa.int64())),
    "pairs": pa.array([[1, 2], [3, 4], None, [5, 6]], pa.list_(pa.int64(), 2)),
    "map": pa.array([[("k", 1)], [], None, [("a", 2), ("b", 3)]], pa.map_(pa.string(), pa.int32())),
    "struct": pa.array([{"a": "x", "b": 1}, {"a": None, "b": 2}, None, {"a": "zz", "b": 3}]),
    "dictionary": DICTIONARY,
    "dictionaries": pa.ListArray.from_arrays(pa.array([0, 1, 1, 3, 4], pa.int32()), DICTIONARY),
    "shared": pa.StructArray.from_arrays([DICTIONARY], ["d"]),
    "flags": pa.array([True, None, False, True]),
    "nothing": pa.nulls(4),
    "fixed": pa.array([b"abc"] * 4, pa.binary(3)),
    "json": pa.array(['{"a": 1}', None, "[]", "1"], pa.json_()),
    "uuid": pa.array([b"0123456789abcdef", None] * 2, pa.uuid()),
    "jsons": pa.ListArray.from_arrays([0, 2, 2, 3, 4], pa.array(["1", "[2]", None, "{}"], pa.json_())),
    "money": pa.array([1, 2, None, 4], pa.decimal128(10, 2)),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_slice_takes_what_its_values_take_alone(name):
    column = COLUMNS[name]
    ends = value_ends(column)
    assert len(ends) == len(column) + 1
    assert ends[0] == 0
    for begin in range(len(column)):
        assert ends[begin + 1] - ends[begin] == value_ends(column.slice(begin, 1))[-1], begin
    assert list(value_ends(column.slice(1)) + ends[1]) == list(ends[1:])


@pytest.mark.parametrize("name", COLUMNS)
def test_values_without_dictionaries_are_the_same(name):
    column = COLUMNS[name]
    for piece in (column, column.slice(1), column.slice(1, 2), column.slice(2, 0)):
        plain = decoded(piece)
        plain.validate(full=True)
        assert plain.to_pylist() == piece.to_pylist()
        assert "dictionary" not in str(plain.type)


def test_a_reference_is_as_large_as_what_it_refers_to():
    assert list(np.diff(value_ends(DICTIONARY))) == [104, 0, 5, 104]


def test_one_long_value_does_not_size_all_short_ones():
    """Arrow reserves the mean length of a dictionary's values for each index: here a terabyte."""
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 40_000 + [None], pa.int32()), pa.array(["a", "b" * 2**26]))
    plain = decoded(values)
    assert plain.nbytes < 2**20
    assert plain.null_count == 1
    assert plain[0].as_py() == "a"


@pytest.mark.parametrize("bytes_max", [1, 60, 300, 10_000])
def test_no_slice_is_larger_than_allowed_unless_it_is_one_row(bytes_max):
    rows = pa.record_batch({"k": range(7), "v": ["x" * n for n in (10, 10, 1000, 10, 10, 200, 0)]})
    slices = list(slice_rows(rows, bytes_max))
    assert all(size_of(one) <= bytes_max or one.num_rows == 1 for one in slices)
    assert pa.Table.from_batches(slices).equals(pa.Table.from_batches([rows]))


def test_tables_gathered_are_bounded_by_rows_and_by_the_bytes_of_each():
    """An average would take 1,000 bytes for 100."""
    rows = pa.record_batch({"v": ["x" * n for n in (10, 10, 1000, 10, 10, 10, 10)]})
    tables = list(gather([rows, rows], 3, 60))
    assert [table.num_rows for table in tables] == [2, 1, 3, 3, 1, 3, 1]
    assert pa.concat_tables(tables).combine_chunks().equals(pa.Table.from_batches([rows, rows]).combine_chunks())
    assert all(row_ends(batch)[-1] <= 60 or table.num_rows == 1 for table in tables for batch in table.to_batches())
