"""CSV that is parsed in pieces has the rows, and the errors, of one stream, wherever it is cut."""

from __future__ import annotations

import threading
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakebed import Error
from lakebed.files.formats import csv_parser
from lakebed.files.formats.csv_file import batches
from lakebed.files.formats.csv_parser import UnparsedError, parsed_batches, parsed_stream
from lakebed.files.formats.csv_records import CsvReading
from lakebed.files.formats.dialect import Dialect
from lakebed.files.formats.input_file import InputFile
from lakebed.files.formats.reading_options import ReadingOptions

TYPES = (pa.string(), pa.int64())

MARK = "\ufeff"
"""As text a byte order mark, which Arrow skips where a file begins."""


@pytest.fixture(autouse=True, scope="module")
def two_cores():
    cores = pa.cpu_count()
    pa.set_cpu_count(2)
    yield
    pa.set_cpu_count(cores)


def plan_of(path, *, encoding="utf-8", header=False, types=TYPES):
    names = tuple("abc"[: len(types)])
    dialect = Dialect(",", '"', header, encoding, names)
    file = InputFile(str(path), str(path))
    return CsvReading(file, dialect, ReadingOptions(), {}, dict(zip(names, types, strict=True)), 0, whole=False)


def found(rows):
    """The rows, or that there is an error."""
    try:
        return [tuple(row.values()) for batch in rows for row in batch.to_pylist()]
    except UnparsedError:
        return "unparsed"


def in_pieces(plan, size):
    return found(parsed_batches(replace(plan, piece_bytes=size)))


CELLS = st.sampled_from(['""', '"x', 'y"', '"\n"', '"\n1,2\n"', 'x"y', '"a""b"', MARK, "é", "1", "", "\r", " "])
TEXTS = st.lists(st.one_of(CELLS, st.sampled_from([",", ",", "\n", "\r\n"])), min_size=1, max_size=30).map("".join)


@settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(1, 30), st.booleans())
@example('a"b,1\n"c\nd",2\n', 4, False)
@example('"",\n"",', 4, False)
@example(f"a,1\n{MARK}b,2\n", 4, False)
@example("a,1\nb", 4, False)
@example('a,1\n"b\n', 4, False)
def test_any_text_has_the_rows_of_one_stream(tmp_path_factory, text, size, header):
    """Quotes in quotes, stray ones, line breaks in values, marks: a piece whose end is no record's gives way."""
    path = tmp_path_factory.mktemp("csv") / "rows.csv"
    path.write_bytes(text.encode())
    plan = plan_of(path, header=header, types=(pa.string(), pa.string()))

    expected = found(parsed_stream(plan))

    assert in_pieces(plan, size) == (expected if text.strip("\r\n") else [])


@pytest.fixture
def streams(monkeypatch):
    """The positions from which streams were read."""
    begun = []

    def seen(plan, *, begin=0, **more):
        begun.append(begin)
        return parsed_stream(plan, begin=begin, **more)

    monkeypatch.setattr(csv_parser, "parsed_stream", seen)
    return begun


@pytest.mark.parametrize("end", ["\n", ""], ids=["ended", "not ended"])
def test_plain_lines_are_parsed_by_threads_that_end(tmp_path, streams, end):
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["a,b", *(f'"text {n}",{n}' for n in range(1_000))]) + end)

    assert in_pieces(plan_of(path, header=True), 100) == [(f"text {n}", n) for n in range(1_000)]

    assert streams == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lakebed-csv")]


def test_a_line_break_in_a_value_is_read_as_a_stream_from_the_record_before(tmp_path, streams):
    path = tmp_path / "rows.csv"
    path.write_text('a,1\nb,2\n"c\nd",3\ne,4\n')

    assert in_pieces(plan_of(path), 5) == [("a", 1), ("b", 2), ("c\nd", 3), ("e", 4)]

    assert streams == [8]


@pytest.mark.parametrize(
    ("encoding", "types"),
    [("utf-16", (pa.string(), pa.int64())), ("utf-8", (pa.string(),))],
    ids=["bytes of line feeds", "one column"],
)
def test_what_no_empty_record_can_check_is_one_stream(tmp_path, streams, encoding, types):
    path = tmp_path / "rows.csv"
    lines = ["x", "y"] if len(types) == 1 else ["x,1", "y,2"]
    path.write_text("\n".join(lines), encoding)

    assert len(in_pieces(plan_of(path, encoding=encoding, types=types), 2)) == 2

    assert streams == [0]


def test_an_error_in_any_piece_names_the_line_and_the_column(tmp_path):
    path = tmp_path / "rows.csv"
    for line in (2, 50, 400, 500):
        lines = ["a,b", *(f"text,{n}" for n in range(2, 501))]
        lines[line - 1] = "text,many"
        path.write_text("\n".join(lines))
        with pytest.raises(Error, match=f"line {line}, column b: 'many' is not int64"):
            list(batches(replace(plan_of(path, header=True), piece_bytes=64)))


def test_threads_end_with_a_reader_that_takes_no_more(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"text,{n}\n" for n in range(10_000)))

    rows = batches(replace(plan_of(path), piece_bytes=64))
    next(rows)
    rows.close()

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lakebed-csv")]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8-sig"])
def test_pieces_are_decoded_as_the_file(tmp_path, streams, encoding):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "".join(f"é{n},{n}\n" for n in range(100)), encoding)

    plan = plan_of(path, encoding=encoding, header=True)

    assert in_pieces(plan, 32) == [(f"é{n}", n) for n in range(100)]
    assert streams == []
