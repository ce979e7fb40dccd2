"""Checking and sampling the Parquet files of an import."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import DamagedError, Generated, Schema, SchemaMismatchError
from lakebed.engine.computed_columns import checked
from lakebed.jobs.bulk_import import map_inputs
from lakebed.jobs.bulk_import.shuffle import whole_key
from lakebed.jobs.interrupt import Stop
from lakebed.write.conformer import Conformer
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.sources import find_files

SCHEMA = Schema({"k": "string"}, {"n": "int64"}, {"v": "double"})
INTAKE = Conformer(SCHEMA)
ROWS = pa.table({"n": [2, 1], "k": ["b", "a"], "v": [0.5, None]})


def footers(*paths):
    return map_inputs.read_footers(find_files([str(path) for path in paths]), RowEncoder(INTAKE), None, Stop())


def test_footers_tell_rows_and_bounds_of_every_row_group(tmp_path):
    pq.write_table(ROWS, tmp_path / "a.parquet", row_group_size=1)
    pq.write_table(ROWS.slice(0, 0), tmp_path / "b.parquet")
    groups = footers(tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert [(g.file, g.index, g.rows, g.bounds) for g in groups if g.rows] == [
        (0, 0, 1, ("b", "b")), (0, 1, 1, ("a", "a")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"k": ["a"], "v": [1.0]}, "missing column n"),
        ({"k": ["a"], "n": [1], "v": [1.0], "w": [1]}, "extra column w"),
        ({"k": ["a"], "n": ["1"], "v": [1.0]}, "column n is string; the table has int64"),
    ],
)
def test_a_file_that_does_not_fit_is_named_before_anything_runs(tmp_path, columns, message):
    pq.write_table(ROWS, tmp_path / "good.parquet")
    pq.write_table(pa.table(columns), tmp_path / "bad.parquet")
    with pytest.raises(SchemaMismatchError, match=rf"bad\.parquet: {message}"):
        footers(tmp_path)


@pytest.mark.parametrize("damage", ["not parquet", "empty", "cut short"])
def test_a_file_that_is_no_parquet_file_is_named(tmp_path, damage):
    pq.write_table(ROWS, tmp_path / "good.parquet")
    whole = (tmp_path / "good.parquet").read_bytes()
    content = {"not parquet": b"x" * 100, "empty": b"", "cut short": whole[:-20]}[damage]
    (tmp_path / "bad.parquet").write_bytes(content)
    with pytest.raises(DamagedError, match=r"bad\.parquet cannot be read"):
        footers(tmp_path)


def test_samples_are_keys_at_even_distances(tmp_path):
    rows = pa.table({"k": [f"k{i:03}" for i in range(100)], "n": list(range(100)), "v": [0.0] * 100})
    pq.write_table(rows, tmp_path / "a.parquet")
    files = find_files(str(tmp_path))
    group = map_inputs.read_footers(files, RowEncoder(INTAKE), None, Stop())[0]
    keyed = whole_key(SCHEMA)
    expected = tuple(keyed.codec.encode((f"k{i:03}", i)) for i in (12, 37, 62, 87))
    assert map_inputs.sample_keys(files[0], group, INTAKE, keyed, None, sample_rows=4) == expected
    size = sum(map(len, expected))
    for bytes_max, some in ((size, expected), (size - 1, expected[::2]), (0, expected[:1])):
        found = map_inputs.sample_keys(files[0], group, INTAKE, keyed, None, sample_rows=4, bytes_max=bytes_max)
        assert found == some


def test_keys_that_are_mapped_cast_or_computed_are_sampled_as_they_will_be(tmp_path):
    """Rows that will be refused, or rejected, tell nothing."""
    pq.write_table(
        pa.table({"Key": ["a", None, "b"], "n": ["1", "2", "x"], "v": [0.5, 0.5, 0.5]}), tmp_path / "a.parquet"
    )
    schema = checked(Schema({"g": Generated("string", "k || '!'"), "k": "string"}, {"n": "int64"}, {"v": "double"}))
    conformer = Conformer(schema, {"k": "Key"}, frozenset({"n"}))
    files = find_files(str(tmp_path))
    group = map_inputs.read_footers(files, RowEncoder(conformer), None, Stop())[0]
    keyed = whole_key(schema)
    assert map_inputs.sample_keys(files[0], group, conformer, keyed, None) == (keyed.codec.encode(("a!", "a", 1)),)
    assert group.bounds is None
    renamed = Conformer(SCHEMA, {"k": "Key"}, frozenset({"n"}))
    assert map_inputs.read_footers(files, RowEncoder(renamed), None, Stop())[0].bounds == ("a", "b")


def test_of_many_row_groups_some_are_sampled_spread_evenly():
    groups = [map_inputs.SourceGroup(0, i, 10, 100, 10, None) for i in range(100)]
    assert map_inputs.chosen_groups(groups) == list(range(100))
    assert map_inputs.chosen_groups(groups, sample_bytes=40) == [12, 37, 62, 87]


@pytest.mark.parametrize("count", [1, 100, 5_000])
def test_the_sample_of_all_row_groups_is_bounded_however_well_keys_compress(count):
    """Some bytes may be a row group of equal keys, or of keys that count up."""
    groups = [map_inputs.SourceGroup(0, i, 100_000, 100_000, 8, None) for i in range(count)]
    asked = []

    def sample(_, rows, bytes_max):
        asked.append((rows, bytes_max))
        return (b"k",)

    parts = map_inputs.sampled_parts(groups, sample, whole_key(SCHEMA).codec, Stop())
    assert [part.rows for part in parts] == [100_000] * count
    assert (len(asked), len(set(asked))) == (count, 1)
    ((rows, bytes_max),) = set(asked)
    assert 0 < rows * count <= map_inputs.SAMPLE_KEYS
    assert bytes_max * count <= map_inputs.SAMPLE_KEY_BYTES
    assert rows == map_inputs.SAMPLE_ROWS or count > 64
