"""What Lakebed writes as CSV it reads back, with the same values: an export, ``--format csv``, an answer over HTTP."""

from __future__ import annotations

import datetime as dt
from uuid import UUID

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, SchemaMismatchError, UsageError
from lakebed.cli import render
from lakebed.clock import new_id
from lakebed.files.formats.csv_file import batches, detect
from lakebed.files.formats.input_file import InputFile
from lakebed.files.formats.reading_options import ReadingOptions
from lakebed.files.formats.row_chunks import csv_lines
from lakebed.upkeep.export.run import write_rows
from lakebed.write.input_files import open_files

SCHEMA = Schema(
    {"id": "int64"},
    values={
        "raw": "binary",
        "four": "fixed_size_binary[4]",
        "text": "string",
        "x": "double",
        "at": "timestamp[us, tz=UTC]",
        "day": "date32",
        "ok": "bool",
        "code": "uuid",
    },
)
AT, DAY = dt.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=dt.UTC), dt.date(2026, 1, 31)
ROWS = [
    (1, b"\xff\x00", b"\x00\x01\x02\xff", 'a "b", c\n', 0.1, AT, DAY, True, UUID(int=7)),
    (2, b"", b"abcd", "", 1e300, AT, DAY, False, UUID(int=2**127)),
    (3, None, None, None, None, None, None, None, None),
    (4, b"00ff", b"00ff", "00ff", -2.0, AT, DAY, None, UUID(int=0)),
]


def rows():
    columns = [list(column) for column in zip(*ROWS, strict=True)]
    columns[-1] = [None if value is None else value.bytes for value in columns[-1]]
    arrays = [
        pa.array(values, getattr(field.type, "storage_type", field.type)).cast(field.type)
        for values, field in zip(columns, SCHEMA.arrow, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.arrow)


def by_export(path, _):
    return write_rows([rows()], SCHEMA.arrow, "csv", path.parent, memory_limit_bytes=64 << 20).path.read_bytes()


def by_command_line(_, capsys):
    render.write_rows("csv", SCHEMA.arrow, [rows()])
    return capsys.readouterr().out.encode()


def by_http(*_):
    return b"".join(csv_lines(SCHEMA.arrow, [rows()]))


@pytest.mark.parametrize("written", [by_export, by_command_line, by_http])
def test_csv_that_is_written_is_read_with_the_same_values(tmp_path, capsys, written):
    path = tmp_path / "rows.csv"
    path.write_bytes(written(path, capsys))
    table = lakebed.create(f"memory://{new_id()}").create_table("t", SCHEMA)

    table.write(path)

    assert table.to_arrow().equals(pa.Table.from_batches([rows()]))


def test_a_null_of_json_is_no_null_and_makes_none_of_a_text(tmp_path):
    """The cell ``null`` of a JSON column was read as a null, and so were texts of that word in the whole file."""
    schema = Schema({"id": "int64"}, values={"doc": "json", "text": "string"})
    docs = pa.array(["null", None, "1"]).cast(pa.json_())
    rows = pa.record_batch([pa.array([0, 1, 2]), docs, pa.array(["null", None, "x"])], schema=schema.arrow)
    path = tmp_path / "rows.csv"
    path.write_bytes(b"".join(csv_lines(rows.schema, [rows])))
    table = lakebed.create(f"memory://{new_id()}").create_table("t", schema)

    table.write(path)

    assert table.to_arrow().equals(pa.Table.from_batches([rows]))


def test_a_null_alone_is_a_row():
    rows = pa.record_batch({"n": pa.array([None, 1])})
    assert b"".join(csv_lines(rows.schema, [rows])) == b'n\n""\n1\n'


def test_only_cells_that_need_quotes_have_them():
    columns = {
        "a": ["plain", "", 'a "b"', "c, d", "e\r\nf", None],
        "": [1.0, 0.1, float("nan"), float("-inf"), 1e300, None],
        "l,": [[1, 2], [], None, [None], [3], [4]],
        "ok": [True, False, None, True, False, True],
    }
    rows = pa.record_batch({name: pa.array(values) for name, values in columns.items()}).slice(1)
    assert b"".join(csv_lines(rows.schema, [rows.slice(0, 0), rows])).decode().split("\n") == [
        'a,"","l,",ok',
        '"",0.1,[],false',
        '"a ""b""",NaN,,',
        '"c, d",-Infinity,[null],true',
        '"e\r',
        'f",1e300,[3],false',
        ",,[4],true",
        "",
    ]


def read(tmp_path, text, kind="binary"):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    table = lakebed.create(f"memory://{new_id()}").create_table("t", Schema({"id": "int64"}, values={"raw": kind}))
    table.write(path)
    return table.to_arrow()["raw"].to_pylist()


@pytest.mark.parametrize("cell", ["hello", "0", "0g", " 00", "0x00", "00\n", "é"])
@pytest.mark.parametrize("kind", ["binary", "fixed_size_binary[2]"])
def test_binary_that_is_not_hex_digits_names_line_and_column(tmp_path, cell, kind):
    with pytest.raises(SchemaMismatchError) as found:
        read(tmp_path, f'id,raw\n1,0aff\n2,\n3,"{cell}"\n', kind)
    assert f"line 4, column raw: {cell!r} is not {kind} in hex digits" in str(found.value)
    assert "--type raw=string" in str(found.value)


def test_upper_case_digits_are_read(tmp_path):
    assert read(tmp_path, 'id,raw\n1,00Ff\n2,""\n3,\n') == [b"\x00\xff", b"", None]


def test_fixed_size_binary_of_another_size_is_refused(tmp_path):
    with pytest.raises(SchemaMismatchError, match="line 2, column raw: '00' is not fixed_size_binary"):
        read(tmp_path, "id,raw\n1,00\n", "fixed_size_binary[2]")


def test_the_bytes_of_text_are_read_as_text(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,raw\n1,hello\n2,00ff\n")
    table = lakebed.create(f"memory://{new_id()}").create_table("t", Schema({"id": "int64"}, values={"raw": "binary"}))

    table.write(open_files(path, table.schema, options=ReadingOptions(types={"raw": pa.string()})))

    assert table.to_arrow()["raw"].to_pylist() == [b"hello", b"00ff"]


@pytest.mark.parametrize(
    ("date_format", "text"),
    [
        ("%d.%m.%Y", "31.02.2024"),
        ("%d.%m.%Y", "29.02.2023"),
        ("%Y%m%d", "20240431"),
        ("%d %b %Y", "30 Feb 2024"),
        ("%e.%m.%Y %H:%M", "31.06.2024 10:00"),
        ("%F %T", "2024-01-01 10:00:60"),
    ],
)
def test_a_date_that_is_in_no_calendar_is_refused(tmp_path, date_format, text):
    """Arrow reads 31.02. as 02.03."""
    path = tmp_path / "rows.csv"
    path.write_text(f"id,at\n1,\n2,{text}\n")
    options = ReadingOptions(date_format=date_format)
    plan = detect(InputFile(str(path), str(path)), options, {"at": pa.timestamp("us")})

    with pytest.raises(SchemaMismatchError, match=f"line 3, column at: '{text}' is not timestamp"):
        list(batches(plan))


def test_a_date_of_a_format_is_read_at_the_end_and_at_the_beginning_of_a_month(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,at\n1,31.01.2024\n2,29.02.2024\n3,01.03.2024\n4,2024-03-02\n")
    plan = detect(InputFile(str(path), str(path)), ReadingOptions(date_format="%d.%m.%Y"), {"at": pa.date32()})

    found = pa.Table.from_batches(list(batches(plan)))["at"]
    assert list(map(str, found.to_pylist())) == ["2024-01-31", "2024-02-29", "2024-03-01", "2024-03-02"]


@pytest.mark.parametrize("date_format", ["%Y %j", "%G-W%V-%u", "%Y-%U"])
def test_a_format_of_days_of_a_year_or_of_weeks_is_refused(date_format):
    """Arrow accepts these directives, and reads another date."""
    with pytest.raises(UsageError, match="days of a year and weeks"):
        ReadingOptions(date_format=date_format)


TEXTS = [
    "a\0b",
    "\0",
    "\ufeff",
    "\x1a",
    "\x7f",
    "\u2028",
    "\x85",
    "\r",
    "a\rb",
    "\n",
    '"',
    "''",
    "NA",
    "null",
    "-",
    " x ",
    "\t",
    ",",
]


@pytest.mark.parametrize("written", [csv_lines, None])
def test_texts_of_any_characters_are_read_as_they_were_written(tmp_path, written):
    schema = Schema({"id": "int64"}, values={"text": "string"})
    texts = [*TEXTS, *map(chr, range(32)), ""]
    rows = pa.record_batch([pa.array(range(len(texts))), pa.array(texts)], schema=schema.arrow)
    path = tmp_path / "rows.csv"
    if written is None:
        path = write_rows([rows], schema.arrow, "csv", tmp_path, memory_limit_bytes=2**30).path
    else:
        path.write_bytes(b"".join(written(rows.schema, [rows])))
    table = lakebed.create(f"memory://{new_id()}").create_table("t", schema)

    table.write(path)

    assert table.to_arrow()["text"].to_pylist() == texts


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32"])
def test_utf_16_without_a_mark_is_still_no_utf_8(tmp_path, encoding):
    path = tmp_path / "rows.csv"
    path.write_bytes("id,text\n1,a\n2,b\n".encode(encoding).removeprefix(b"\xff\xfe\0\0"))

    with pytest.raises(UsageError, match=r"is not text: its byte \d is 0"):
        detect(InputFile(str(path), str(path)), ReadingOptions(), {})
