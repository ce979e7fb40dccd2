"""Files of text that several tasks read in parts, as one process reads them whole."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Schema, SchemaMismatchError, StorageError
from lakebed.files.formats.file_format import SUFFIXES as DATA_SUFFIXES
from lakebed.files.formats.input_file import InputFile
from lakebed.files.formats.reading_options import DETECTED, ReadingOptions
from lakebed.storage.contract import Storage
from lakebed.write.conformer import Conformer
from lakebed.write.file_parts import SourcePart, are_parquet, divided
from lakebed.write.input_files import TextFields
from lakebed.write.row_encoder import RowEncoder
from lakebed.write.source_rows import conformed
from lakebed.write.sources import find_files
from tests.soaked import few

SCHEMA = Schema({"id": "int64"}, {}, {"s": "string", "d": "decimal128(9, 2)"})
TEXT = TextFields.of(SCHEMA, {})
ROWS = [(n, f"text {n}" + "é" * (n % 5), f"{n}.25") for n in range(500)]


@pytest.fixture
def home(tmp_path: Path) -> Storage:
    return lakebed.create(tmp_path / "lake").storage


def parts_of(
    path: Path, home: Storage, size: int, options: ReadingOptions = DETECTED, **sample: int
) -> list[SourcePart]:
    return divided(find_files(path, home), home, options, part_bytes=size, **sample)


def read(parts: list[SourcePart], home: Storage, text: TextFields = TEXT) -> list[tuple[int, str, str]]:
    encoder = RowEncoder(Conformer(SCHEMA, casts=frozenset(SCHEMA.names)))
    found: list[tuple[int, str, str]] = []
    for part in parts:
        for batch in conformed(part.open(home, text, DETECTED), encoder):
            found += [(row["id"], row["s"], str(row["d"])) for row in batch.to_pylist()]
    return found


def written(path: Path, *, header: bool = True, quoted: bool = False) -> Path:
    """The rows as the end of the name says; a line break in the last row of quoted text."""
    if path.suffix == ".csv":
        lines = ["id;s;d"] if header else []
        lines += [f'{n};"{s}";{d}' if quoted else f"{n};{s};{d}" for n, s, d in ROWS]
    else:
        lines = [f'{{"id": {n}, "s": {json.dumps(s)}, "d": {d}}}' for n, s, d in ROWS]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("size", few([100, 1_000, 17, 5_000], 2))
@pytest.mark.parametrize(("name", "header"), [("a.csv", True), ("b.csv", False), ("c.jsonl", True)])
def test_the_parts_of_a_file_are_its_rows_each_once(
    home: Storage, tmp_path: Path, size: int, name: str, header: bool
) -> None:
    path = written(tmp_path / name, header=header)
    parts = parts_of(path, home, size)
    assert len(parts) == -(-path.stat().st_size // size)
    some = parts if size > 50 else parts[:40] + parts[-40:]
    rows = read(some, home)
    assert rows == (ROWS if some is parts else [row for row in ROWS if row in rows])
    assert not set(rows) - set(ROWS)


def test_files_without_a_byte_are_no_parts_beside_others(home: Storage, tmp_path: Path) -> None:
    written(tmp_path / "b.csv")
    for name in ("a.csv", "c.jsonl"):
        (tmp_path / name).write_text("")
    parts = divided(find_files(str(tmp_path / "*.*"), home, DATA_SUFFIXES), home, DETECTED, part_bytes=1_000_000)
    assert [Path(part.source.url).name for part in parts] == ["b.csv"]
    assert read(parts, home) == ROWS
    with pytest.raises(SchemaMismatchError, match=r"a.csv: the file is empty"):
        read(parts_of(tmp_path / "a.csv", home, 1_000_000), home)


def test_what_cannot_be_divided_is_read_as_a_whole(home: Storage, tmp_path: Path) -> None:
    plain = written(tmp_path / "a.csv").read_bytes()
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(plain))
    (tmp_path / "utf16.csv").write_bytes(plain.decode().encode("utf-16"))
    (tmp_path / "broken.csv").write_text(plain.decode().replace("text 10;", '"text\n 10";'))
    (tmp_path / "array.json").write_text(json.dumps([{"id": n, "s": s, "d": d} for n, s, d in ROWS], indent=1))
    for name in ("a.csv.gz", "utf16.csv", "broken.csv", "array.json"):
        parts = parts_of(tmp_path / name, home, 1_000)
        assert [part.part for part in parts] == [None], name
        assert len(read(parts, home)) == len(ROWS)


def test_a_part_that_begins_within_quotes_is_refused(home: Storage, tmp_path: Path) -> None:
    """The sample does not show the line break; the rows after it would be read wrongly."""
    path = written(tmp_path / "a.csv", quoted=True)
    assert read(parts_of(path, home, 1_000, sample_bytes=200), home) == ROWS
    inner = "\n".join(f"{n};x;1.00" for n in range(900, 990))
    path.write_text(path.read_text().replace("text 400", f"text\n{inner}\n400"))
    with pytest.raises(SchemaMismatchError, match="has a line break, or quotes are not in pairs"):
        read(parts_of(path, home, 1_000, sample_bytes=200), home)


@pytest.mark.parametrize(("name", "first"), [("a.csv", 2), ("b.jsonl", 1)])
def test_an_error_in_a_part_has_the_line_of_the_file(home: Storage, tmp_path: Path, name: str, first: int) -> None:
    path = written(tmp_path / name)
    path.write_text(path.read_text().replace("400.25", "soon" if name == "a.csv" else '"soon"'))
    with pytest.raises(SchemaMismatchError, match=rf"{name}, line {400 + first}, column d: .soon. is not decimal"):
        read(parts_of(path, home, 1_000), home)


@pytest.mark.parametrize(("instead", "says"), [("oh no", "400 is not JSON"), ("5", "400: 5 is not a JSON object")])
def test_a_line_that_is_no_row_has_the_line_of_the_file(home: Storage, tmp_path: Path, instead: str, says: str) -> None:
    path = written(tmp_path / "b.jsonl")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:399], instead, *lines[400:], ""]))
    with pytest.raises(SchemaMismatchError, match=f"b.jsonl, line {says}"):
        read(parts_of(path, home, 1_000), home)


@pytest.mark.parametrize("name", ["a.csv", "b.jsonl"])
def test_a_part_without_an_error_does_not_read_those_before(
    home: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Lines are counted for messages alone: each part would read all of the file that precedes it."""
    monkeypatch.setattr(InputFile, "lines_before", lambda _: pytest.fail("the lines before were counted"))
    assert read(parts_of(written(tmp_path / name), home, 1_000), home) == ROWS


@pytest.mark.parametrize("name", ["a.csv", "b.jsonl"])
def test_rows_are_separated_where_values_stay_text(home: Storage, tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name)
    path.write_text(path.read_text().replace("400.25", "soon" if name == "a.csv" else '"soon"'))
    encoder = RowEncoder(Conformer(SCHEMA, casts=frozenset(SCHEMA.names)))
    text = TextFields.of(SCHEMA, {}, as_text=True)
    kept, rejected = 0, []
    for part in parts_of(path, home, 1_000):
        for rows in part.open(home, text, DETECTED).rows:
            fitting, others = encoder.separate(rows.batch, rows.source)
            kept += fitting.num_rows
            rejected += [row for batch in others for row in batch.to_pylist()]
    assert kept == 499
    assert [(row["id"], row["d"]) for row in rejected] == [("400", "soon")]


def test_a_file_that_changes_is_not_read(home: Storage, tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv")
    parts = parts_of(path, home, 1_000)
    path.write_text("id;s;d\n")
    with pytest.raises(StorageError, match="was changed since it was found"):
        read(parts, home)


def test_parquet_is_recognized_by_names_and_else_by_content(home: Storage, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "odd")
    (tmp_path / "a.parquet").write_text("named so")
    written(tmp_path / "a.csv")
    for names, expected in ((["odd"], True), (["a.parquet", "odd"], True), (["a.parquet", "a.csv"], False)):
        files = find_files([str(tmp_path / name) for name in names], home)
        assert are_parquet(files, home, DETECTED) is expected


def test_bytes_that_are_no_text_are_separated_where_values_stay_text(home: Storage, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("\ufeffid,s,d\n1,ü,1\n2,?,1\n".encode().replace(b"?", b"\xff"))
    (part,) = parts_of(path, home, 1_000)
    with pytest.raises(SchemaMismatchError, match="line 3: the byte 0xff is not UTF-8; give the encoding"):
        part.open(home, TEXT, DETECTED)
    encoder = RowEncoder(Conformer(SCHEMA, casts=frozenset(SCHEMA.names)))
    (rows,) = part.open(home, TextFields.of(SCHEMA, {}, as_text=True), DETECTED).rows
    kept, rejected = encoder.separate(rows.batch, rows.source)
    assert (kept.num_rows, [row["id"] for batch in rejected for row in batch.to_pylist()]) == (1, ["2"])
    (tmp_path / "b.jsonl").write_bytes(b'{"id": 1}\n{"id": 2, "s": "\xff"}\n')
    with pytest.raises(SchemaMismatchError, match=r"b\.jsonl, line 2 is not JSON"):
        read(parts_of(tmp_path / "b.jsonl", home, 1_000), home)
