"""Finding and reading the files that users want taken in."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import DamagedError, NotFoundError, Schema, SchemaMismatchError, StorageError, UsageError
from lakebed.errors import Code
from lakebed.write import sources
from lakebed.write.conformer import Conformer
from tests.raising import raises

SCHEMA = Schema({"k": "string"}, {"n": "int64"}, {"v": "double"})
INTAKE = Conformer(SCHEMA)
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
    files = sources.find_files(given[0] if len(given) == 1 else given)
    return [os.path.relpath(file.url, folder) for file in files]


def test_a_folder_stands_for_the_parquet_files_below_it(folder):
    """By their names' ends; what begins with _ or . is someone's own."""
    assert found(folder, "") == ["a.parquet", "deep/b.PARQUET", "deep/c.pq"]


def test_a_file_named_outright_may_have_any_name(folder):
    assert found(folder, "odd") == ["odd"]
    assert found(folder, "odd", "deep") == ["odd", "deep/b.PARQUET", "deep/c.pq"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.parquet", ["a.parquet"]),
        ("d*/?.pq", ["deep/c.pq"]),
        ("**/*.pq", ["deep/c.pq"]),
        ("dee[p]", ["deep/b.PARQUET", "deep/c.pq"]),
        ("_*/*.pq", ["_t/d.pq"]),
        ("[_]*", None),
        (".h*", [".hidden.parquet"]),
        ("_t", ["_t/d.pq"]),
        ("deep/*", ["deep/b.PARQUET", "deep/c.pq"]),
        ("deep/**", ["deep/b.PARQUET", "deep/c.pq"]),
        ("**", ["a.parquet", "deep/b.PARQUET", "deep/c.pq", "notes.txt", "odd"]),
    ],
)
def test_a_glob_means_what_it_says_and_nothing_hidden_that_it_does_not_name(folder, pattern, expected):
    if expected is None:
        with pytest.raises(NotFoundError, match="nothing matches"):
            found(folder, pattern)
    else:
        assert found(folder, pattern) == expected


def test_a_name_with_the_characters_of_a_glob_is_itself_first(tmp_path):
    pq.write_table(ROWS, tmp_path / "a[1].parquet")
    assert found(tmp_path, "a[1].parquet") == ["a[1].parquet"]


def test_uris_are_read_as_paths_are(folder):
    assert [f.url for f in sources.find_files(f"file://{folder}/a.parquet")] == [f"{folder}/a.parquet"]


@pytest.mark.parametrize("item", ["missing.parquet", "*.nothing", "empty"])
def test_nothing_is_an_error_that_names_it(folder, item):
    (folder / "empty").mkdir()
    with pytest.raises(NotFoundError, match=item.replace("*", r"\*")):
        found(folder, item)


def test_a_step_up_from_a_link_is_one_from_where_it_leads(folder):
    (folder / "deep" / "deeper").mkdir()
    (folder / "link").symlink_to(folder / "deep" / "deeper")
    assert found(folder, "link/../c.pq") == ["deep/c.pq"]


def test_no_source_at_all_is_an_error():
    with pytest.raises(UsageError, match="no source"):
        sources.find_files([])


def test_a_file_named_twice_is_refused(folder):
    """Its rows would come twice, which no caller means."""
    with pytest.raises(UsageError, match=r"a\.parquet is named twice"):
        found(folder, "a.parquet", "*.parquet")


def read(path):
    file = sources.find_files(str(path))[0]
    return pa.Table.from_batches(list(sources.read_file(file, INTAKE)), SCHEMA.arrow)


def test_rows_come_as_the_schema_has_them(tmp_path):
    pq.write_table(ROWS, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").to_pydict() == {"k": ["b", "a"], "n": [2, 1], "v": [0.5, None]}


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
    file = sources.find_files(str(tmp_path))[0]
    pq.write_table(pa.concat_tables([ROWS, ROWS]), tmp_path / "a.parquet")
    with pytest.raises(StorageError, match=r"a\.parquet was changed since it was found"):
        list(sources.read_file(file, INTAKE))
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(StorageError, match=r"a\.parquet is not there any more"):
        list(sources.read_file(file, INTAKE))


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path):
    """Its last rows may be those of another file than its first."""
    pq.write_table(ROWS, tmp_path / "a.parquet")
    rows = sources.read_file(sources.find_files(str(tmp_path))[0], INTAKE)
    next(rows)
    os.utime(tmp_path / "a.parquet", (1, 1))
    with pytest.raises(StorageError, match="was changed since it was found"):
        next(rows)


def test_a_file_is_held_against_the_schema_before_its_first_row(tmp_path):
    pq.write_table(ROWS.drop_columns("n"), tmp_path / "a.parquet")
    with pytest.raises(SchemaMismatchError, match=r"a\.parquet: missing column n"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize("kind", [pa.string_view(), pa.list_(pa.string_view()), pa.struct([("x", pa.binary_view())])])
def test_rows_of_views_are_read_in_a_layout_that_arrow_can_take_and_filter(tmp_path, kind):
    """As Polars and DataFusion write them; the file's own Arrow schema brings them back."""
    pq.write_table(pa.table({"v": pa.array([None, None], kind)}), tmp_path / "views.parquet")
    (file,) = sources.find_files(tmp_path / "views.parquet")
    (batch,) = sources.read_rows(file)
    assert batch.filter(pa.array([True, False])).num_rows == 1


@pytest.mark.parametrize("odd", ["/dev/zero", "/dev/null", "/dev/nul*", "{folder}/fifo"])
def test_what_is_no_regular_file_is_no_source(tmp_path, odd):
    """A device has no size, and a pipe's bytes are there once."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UsageError, match="is not a regular file"):
        sources.find_files(odd.format(folder=tmp_path))


def test_a_folder_by_the_name_of_a_file_is_a_folder(tmp_path):
    (tmp_path / "x.parquet").mkdir()
    with pytest.raises(NotFoundError) as raised:
        sources.find_files(tmp_path / "x.parquet")
    assert raised.value.code is Code.SOURCE_NOT_FOUND
    pq.write_table(ROWS, tmp_path / "x.parquet" / "in.parquet")
    assert found(tmp_path, "*.parquet") == ["x.parquet/in.parquet"]


@pytest.mark.parametrize("odd", [7, None, b"x", True, {"a": 1}, [7], [None], "", "a\0b", "\ud800", [["x"]], object()])
def test_what_is_no_path_is_refused(odd):
    with raises(Code.ARGUMENT_MISSING, Code.URL_INVALID):
        sources.find_files(odd)


def test_a_name_that_is_not_utf_8_is_refused(tmp_path):
    (tmp_path / os.fsdecode(b"\xff.parquet")).write_bytes(b"x")
    with pytest.raises(UsageError, match="UTF-8"):
        sources.find_files(tmp_path)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (b"", "it has 4 bytes"),
        (b"a plain text, of some length", "its last 8 bytes are b'e length'"),
        (b"\x10\x00\x00\x00PARE", "encrypted"),
        (b"\xff\xff\x00\x00PAR1", "its last 8 bytes"),
        (b"\x00\x00\x00\x00PAR1", "its last 8 bytes"),
    ],
)
def test_a_file_that_does_not_end_as_parquet_does_is_recognized_by_its_end(tmp_path, end, why):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1" + end)
    with pytest.raises(UsageError, match=why):
        sources.check_parquet(sources.find_files(path))


def test_files_that_end_as_parquet_does_pass(folder):
    sources.check_parquet(sources.find_files(folder))
