"""Finding, checking and reading the Parquet files of an import."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import DamagedError, Generated, NotFoundError, Schema, SchemaMismatchError, StorageError, UsageError
from lakebed.ingest.intake import Intake
from lakebed.kernels.compute import checked
from lakebed.spark import source
from lakebed.spark.shuffle import whole_key

SCHEMA = Schema({"k": "string"}, {"n": "int64"}, {"v": "double"})
INTAKE = Intake(SCHEMA)
ROWS = pa.table({"n": [2, 1], "k": ["b", "a"], "v": [0.5, None]})


@pytest.fixture
def folder(tmp_path):
    for name in ("a.parquet", "deep/b.PARQUET", "deep/c.pq", "odd", "_SUCCESS.parquet", ".hidden.parquet", "_t/d.pq"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(ROWS, tmp_path / name)
    (tmp_path / "notes.txt").write_text("not for us")
    return tmp_path


def found(folder, *items):
    given = [str(folder / item) for item in items]
    files = source.find_files(given[0] if len(given) == 1 else given)
    return [os.path.relpath(file.uri, folder) for file in files]


def test_a_folder_stands_for_the_parquet_files_below_it(folder):
    """By their names' ends; what begins with _ or . is someone's own."""
    assert found(folder, "") == ["a.parquet", "deep/b.PARQUET", "deep/c.pq"]


def test_a_file_named_outright_may_have_any_name(folder):
    assert found(folder, "odd") == ["odd"]
    assert found(folder, "odd", "deep") == ["odd", "deep/b.PARQUET", "deep/c.pq"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.parquet", [".hidden.parquet", "_SUCCESS.parquet", "a.parquet"]),
        ("d*/?.pq", ["deep/c.pq"]),
        ("**/*.pq", ["_t/d.pq", "deep/c.pq"]),
        ("dee[p]", ["deep/b.PARQUET", "deep/c.pq"]),
    ],
)
def test_a_glob_means_what_it_says(folder, pattern, expected):
    assert found(folder, pattern) == expected


def test_a_name_with_the_characters_of_a_glob_is_itself_first(tmp_path):
    pq.write_table(ROWS, tmp_path / "a[1].parquet")
    assert found(tmp_path, "a[1].parquet") == ["a[1].parquet"]


def test_uris_are_read_as_paths_are(folder):
    assert [f.uri for f in source.find_files(f"file://{folder}/a.parquet")] == [f"{folder}/a.parquet"]


@pytest.mark.parametrize("item", ["missing.parquet", "*.nothing", "empty"])
def test_nothing_is_an_error_that_names_it(folder, item):
    (folder / "empty").mkdir()
    with pytest.raises(NotFoundError, match=item.replace("*", r"\*")):
        found(folder, item)


def test_no_source_at_all_is_an_error():
    with pytest.raises(UsageError, match="no source"):
        source.find_files([])


def test_a_file_named_twice_is_refused(folder):
    """Its rows would come twice, which nobody means."""
    with pytest.raises(UsageError, match=r"a\.parquet is named twice"):
        found(folder, "a.parquet", "*.parquet")


def footers(*paths):
    return source.read_footers(source.find_files([str(path) for path in paths]), INTAKE)


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
        ({"k": ["a"], "n": [1]}, "missing column v"),
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


def read(path):
    file = source.find_files(str(path))[0]
    return pa.Table.from_batches(list(source.read_rows(file, [0])))


def test_rows_come_as_the_file_has_them(tmp_path):
    pq.write_table(ROWS, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").to_pydict() == {"n": [2, 1], "k": ["b", "a"], "v": [0.5, None]}


def test_a_page_that_is_damaged_names_its_file(tmp_path):
    pq.write_table(ROWS, tmp_path / "a.parquet", write_page_checksum=True, compression="none", use_dictionary=False)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    position = data.index(b"\x01\0\0\0a") + 4
    data[position] = ord("z")
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(DamagedError, match=r"a\.parquet cannot be read"):
        read(tmp_path / "a.parquet")


def test_a_file_that_changed_since_it_was_listed_is_refused(tmp_path):
    pq.write_table(ROWS, tmp_path / "a.parquet")
    file = source.find_files(str(tmp_path))[0]
    pq.write_table(pa.concat_tables([ROWS, ROWS]), tmp_path / "a.parquet")
    with pytest.raises(StorageError, match="was changed or removed"):
        list(source.read_rows(file, [0]))


def test_samples_are_keys_at_even_distances(tmp_path, monkeypatch):
    rows = pa.table({"k": [f"k{i:03}" for i in range(100)], "n": list(range(100)), "v": [0.0] * 100})
    pq.write_table(rows, tmp_path / "a.parquet")
    monkeypatch.setattr(source, "SAMPLE_ROWS", 4)
    files = source.find_files(str(tmp_path))
    group = source.read_footers(files, INTAKE)[0]
    keyed = whole_key(SCHEMA)
    expected = tuple(keyed.codec.encode((f"k{i:03}", i)) for i in (12, 37, 62, 87))
    assert source.sample_keys(files[0], group, INTAKE, keyed) == expected


def test_keys_that_are_mapped_cast_or_computed_are_sampled_as_they_will_be(tmp_path):
    """Rows that will be refused, or rejected, tell nothing."""
    pq.write_table(
        pa.table({"Key": ["a", None, "b"], "n": ["1", "2", "x"], "v": [0.5, 0.5, 0.5]}), tmp_path / "a.parquet"
    )
    schema = checked(Schema({"g": Generated("string", "k || '!'"), "k": "string"}, {"n": "int64"}, {"v": "double"}))
    intake = Intake(schema, {"k": "Key"}, frozenset({"n"}))
    files = source.find_files(str(tmp_path))
    group = source.read_footers(files, intake)[0]
    keyed = whole_key(schema)
    assert source.sample_keys(files[0], group, intake, keyed) == (keyed.codec.encode(("a!", "a", 1)),)
    assert group.bounds is None
    assert source.read_footers(files, Intake(SCHEMA, {"k": "Key"}, frozenset({"n"})))[0].bounds == ("a", "b")


def test_of_many_row_groups_some_are_sampled_spread_evenly(monkeypatch):
    groups = [source.Group(0, i, 10, 100, 10, None) for i in range(100)]
    assert source.chosen_groups(groups) == list(range(100))
    monkeypatch.setattr(source, "SAMPLE_BYTES", 40)
    assert source.chosen_groups(groups) == [12, 37, 62, 87]
