"""Files through ``Table.write``: formats, compression, what is detected of text, and what errors say of it."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import lzma

import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
import zstandard

import lakebed
from lakebed import Error, Schema, SchemaMismatchError, UsageError
from lakebed.clock import new_id
from lakebed.files.formats.input_file import input_file
from lakebed.files.formats.reading_options import ReadingOptions
from lakebed.write.input_files import infer, open_files

VALUES = {"name": "string", "n": "int32", "x": "double", "at": "timestamp[us, tz=UTC]", "day": "date32", "ok": "bool"}
TEXT = """id,name,n,x,at,day,ok
1,Ann,10,0.5,2026-01-01T12:00:00Z,2026-01-01,true
2,"B, ""b"" and
more",,1e3,2026-01-01 12:00:00+02:00,,false
3,"",30,,,2026-01-03,
"""
ROWS = [
    (1, "Ann", 10, 0.5, dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), dt.date(2026, 1, 1), True),
    (2, 'B, "b" and\nmore', None, 1000.0, dt.datetime(2026, 1, 1, 10, tzinfo=dt.UTC), None, False),
    (3, "", 30, None, None, dt.date(2026, 1, 3), None),
]


@pytest.fixture
def table():
    return lakebed.create(f"memory://{new_id()}").create_table("t", Schema({"id": "int64"}, values=VALUES))


def held(table):
    return [tuple(row.values()) for row in table.to_arrow().to_pylist()]


def arrow():
    schema = Schema({"id": "int64"}, values=VALUES)
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in ROWS], schema=schema.arrow)


def as_json_lines():
    rows = [dict(zip(arrow().schema.names, row, strict=True)) for row in ROWS]
    return "\n".join(json.dumps(row, default=str) for row in rows).encode() + b"\n\n"


def ipc(stream):
    sink = pa.BufferOutputStream()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, arrow().schema) as writer:
        writer.write_table(arrow())
    return sink.getvalue().to_pybytes()


def written(write):
    sink = pa.BufferOutputStream()
    write(arrow(), sink)
    return sink.getvalue().to_pybytes()


FILES = {
    "a.csv": TEXT.encode(),
    "a.tsv": b"id\tname\tn\n1\tA, b\t5\n",
    "bom.csv": b"\xef\xbb\xbf" + TEXT.encode(),
    "crlf.csv": TEXT.replace("\n", "\r\n").replace("and\r\n", "and\n").encode(),
    "utf16.csv": TEXT.encode("utf-16"),
    "semicolons.csv": b"id;name;n\n1;A,b,c;5\n",
    "bars.csv": b"id|name|n\n1|A, b|5\n",
    "order.csv": b'n,name,id\n5,"A, b",1\n',
    "a.csv.gz": gzip.compress(TEXT.encode()),
    "a.csv.bz2": bz2.compress(TEXT.encode()),
    "a.csv.zst": zstandard.compress(TEXT.encode()),
    "a.csv.xz": lzma.compress(TEXT.encode()),
    "zipped_without_a_name_for_it.csv": gzip.compress(TEXT.encode()),
    "a.jsonl": as_json_lines(),
    "a.ndjson.gz": gzip.compress(as_json_lines()),
    "a.arrow": ipc(stream=False),
    "a.arrows": ipc(stream=True),
    "a.parquet": written(pq.write_table),
    "a.feather": written(pyarrow.feather.write_feather),
    "no_suffix": TEXT.encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_every_format_are_read(table, tmp_path, name):
    (tmp_path / name).write_bytes(FILES[name])
    table.write(tmp_path / name)
    small = len(held(table)) == 1
    assert held(table) == ([(1, "A,b,c" if "semi" in name else "A, b", 5, None, None, None, None)] if small else ROWS)


def test_orc_files_are_read(table, tmp_path):
    pyarrow.orc.write_table(arrow().select(["id", "name", "n", "x"]), tmp_path / "a.orc")
    table.write(str(tmp_path / "a.orc"))
    assert [row[:4] for row in held(table)] == [row[:4] for row in ROWS]


def test_folders_and_globs_and_lists_stand_for_their_files(table, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.csv").write_text("id,n\n1,1\n")
    (tmp_path / "deep" / "b.jsonl").write_text('{"id": 2}\n')
    (tmp_path / "_hidden.csv").write_text("id\n9\n")
    (tmp_path / "notes.md").write_text("no data")
    table.write(tmp_path)
    table.write([tmp_path / "a.csv", tmp_path / "deep/b.jsonl"])
    table.write(f"{tmp_path}/*.csv", ignore_extra=True)
    assert [row[0] for row in held(table)] == [1, 1, 1, 2, 2]
    with pytest.raises(LookupError, match="nothing matches"):
        table.write(f"{tmp_path}/*.parquet")
    with pytest.raises(UsageError, match="named twice"):
        table.write([tmp_path / "a.csv", tmp_path / "a.csv"])


def test_words_for_null_are_found_in_columns_with_a_type(table, tmp_path):
    (tmp_path / "a.csv").write_text('id,name,n,x\n1,a,NA,NULL\n2,"NA",7,-\n')
    table.write(tmp_path / "a.csv")
    assert [row[:4] for row in held(table)] == [(1, "a", None, None), (2, "NA", 7, None)]
    (tmp_path / "b.csv").write_text('"id","name","n"\n"3","",""\n')
    table.write(tmp_path / "b.csv")
    assert held(table)[2][:3] == (3, None, None)


def options(**given):
    return ReadingOptions(**given)


def read(table, path, **given):
    from lakebed.write.run import Write, add

    add(table, open_files(path, table.schema, options=options(**given)), Write())
    return held(table)


def test_what_is_detected_can_be_said_instead(table, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("1~'a~b'~31.01.2026~31.01.2026 10:30\n", "latin-1")
    said = {"format": "csv", "delimiter": "~", "quote": "'", "columns": ("id", "name", "day", "at")}
    (row,) = read(
        table, path, date_format="%d.%m.%Y", types={"at": pa.string()}, **(said | {"nulls": ("31.01.2026 10:30",)})
    )
    assert row == (1, "a~b", None, None, None, dt.date(2026, 1, 31), None)


def test_a_value_of_another_date_format_is_refused_with_the_format(table, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,day\n1,31.01.2026\n2,01/31/2026\n")
    with pytest.raises(SchemaMismatchError, match=r"'01/31/2026' is not .*neither of the format '%d.%m.%Y' nor"):
        read(table, path, date_format="%d.%m.%Y")


def test_times_without_a_zone_need_one_to_be_instants(table, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,at\n1,2026-07-01 12:00:00\n")
    with pytest.raises(SchemaMismatchError, match=r"a.csv, line 2, column at: '2026-07-01 12:00:00' has no time zone"):
        table.write(path)
    assert read(table, path, timezone="Europe/Berlin")[0][4] == dt.datetime(2026, 7, 1, 10, tzinfo=dt.UTC)
    path.write_text("id,at\n1,2026-03-29 02:30:00\n")
    with pytest.raises(SchemaMismatchError, match="column at: Timestamp doesn't exist in timezone 'Europe/Berlin'"):
        read(table, path, timezone="Europe/Berlin")


def test_other_encodings_are_named_and_read_if_they_are_given(table, tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("id,name\n1,a\n2,é\n".encode("latin-1"))
    with pytest.raises(SchemaMismatchError, match=r"a.csv, line 3: the byte 0xe9 is not UTF-8; .* latin-1"):
        table.write(path)
    assert read(table, path, encoding="latin-1")[1][1] == "é"


def test_a_file_without_a_header_has_the_columns_of_the_table_in_their_order(table, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("5,a,6,0.5,,,true\n")
    assert read(table, path) == [(5, "a", 6, 0.5, None, None, True)]


BAD = {
    "value": ("id,n\n1,5\n2,x\n", r"a.csv, line 3, column n: 'x' is not int32; correct it, or .*--null 'x'"),
    "value after a line break": ('id,name,n\n1,"a\nb",5\n2,c,x\n', "line 4, column n: 'x' is not int32"),
    "decimal comma": ('id,x\n1,"1,50"\n', r"'1,50' is not .*; correct it \(a number has a decimal point and no sep"),
    "local date": ("id,at\n1,31.12.2025\n", r"column at: '31.12.2025' is not .*--date-format, such as %d.%m.%Y"),
    "range": ("id,n\n1,5000000000\n", "line 2, column n: '5000000000' is not int32"),
    "ragged": ("id,n\n1,5\n2\n", r"a.csv, line 3: 1 column, and the file has 2 columns: '2'"),
    "more": ("id,n\n1,5\n\n2,3,4\n", r"a.csv, line 4: 3 columns, and the file has 2 columns: '2,3,4'"),
    "null": ("id,n\n1,5\n,6\n", r"a.csv, line 3: column id is null"),
    "missing": ("n,name\n1,a\n", "a.csv: missing column id"),
    "extra": ("id,colour\n1,red\n", "a.csv: extra column colour; the table has [^?]*; set schema_growth=add"),
    "misspelt": (
        "id,nmae\n1,red\n",
        r"extra column nmae; the table has [^;]*; did you mean 'name'\? Or set schema_gro",
    ),
    "like one that is there": (
        "id,name,nmae\n1,red,red\n",
        "extra column nmae; the table has [^?]*; set schema_growth",
    ),
    "twice": ("id,n,n\n1,2,3\n", "a.csv, line 1: duplicate column n, in places 2 and 3"),
    "unnamed": ("id,,n\n1,2,3\n", "a.csv, line 1: column 2 of 3 has no name"),
    "empty": ("", "a.csv: the file is empty"),
    "unclosed": ('id,name\n1,a\n2,"b\n3,c\n', "a.csv, line 3: quotes that begin in this row are not closed"),
    "long unclosed": ('id,name\n2,"b\n' + "3,c\n" * 50_000, "a.csv, line 2: quotes that begin in this row are not"),
    "very long unclosed": ('id,name\n2,"b\n' + "3,c\n" * 2_200_000, "a.csv, line 2: quotes that begin in this row"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_of_csv_name_line_and_column_and_add_nothing(table, tmp_path, name):
    text, says = BAD[name]
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UsageError, match=says):
        table.write(tmp_path / "a.csv")
    assert table.count().rows == 0


def test_a_time_of_json_without_a_zone_names_the_cast(tmp_path):
    zoned = lakebed.create((tmp_path / "lake").as_uri()).create_table(
        "zoned", Schema({"id": "int64"}, values={"at": "timestamp[us, tz=Europe/Berlin]"})
    )
    (tmp_path / "a.json").write_text('{"id": 1, "at": "2026-01-31T12:00:00"}\n')
    with pytest.raises(SchemaMismatchError, match=r"column at: .*it has no time zone, and the field has one: --cast"):
        zoned.write(tmp_path / "a.json")
    zoned.write(tmp_path / "a.json", casts=["at"])
    assert zoned.get(1)["at"].to_pylist()[0].isoformat() == "2026-01-31T12:00:00+01:00"


@pytest.mark.parametrize("end", ["", "\n", "\r\n\r\n"])
def test_the_last_value_may_have_line_breaks(table, tmp_path, end):
    (tmp_path / "a.csv").write_bytes(gzip.compress(f'id,name\n1,a\n2,"b\n""c""\n"{end}'.encode()))
    table.write(tmp_path / "a.csv")
    assert table.get(2, columns=["name"]).column("name").to_pylist() == ['b\n"c"\n']


def test_a_header_alone_adds_nothing(table, tmp_path):
    (tmp_path / "a.csv").write_text("id,n\n")
    assert table.write(tmp_path / "a.csv") == 1


def test_a_value_far_behind_the_sample_is_named_with_its_line(table, tmp_path):
    lines = [f"{i},name of {i},{i % 7}" for i in range(400_000)]
    lines[399_990] = "5,late,many"
    (tmp_path / "a.csv").write_text("id,name,n\n" + "\n".join(lines))
    with pytest.raises(SchemaMismatchError, match=r"line 399,992, column n: 'many' is not int32"):
        table.write(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.csv", written(pq.write_table), "is Parquet by its content, and not CSV"),
        ("a.csv", b"PK\x03\x04\0\0\0rest", "an Excel or ZIP file: its byte 4 is 0"),
        ("a.csv.zip", b"PK\x03\x04\0\0\0rest", "a.csv.zip is an Excel or ZIP file: unpack it, or save it as CSV"),
        ("a.xlsx", b"PK\x03\x04\0\0\0rest", "a.xlsx is an Excel or ZIP file: unpack it, or save it as CSV"),
        ("a.csv", b"id,\0\n", "is not text: its byte 3 is 0"),
        ("a.csv.gz", gzip.compress(TEXT.encode(), mtime=0)[:-12], "cannot be"),
        ("a.parquet", TEXT.encode(), "does not have the header of such a file"),
        ("a.xlsx", TEXT.encode(), r"give its format \(--format csv\)"),
        ("a.jsonl", b'{"id": 1}\n{"id": "x", }\n', "line 2 is not JSON"),
        ("a.jsonl", b"5\n", "line 1: 5 is not a JSON object"),
        ("a.jsonl", b'{"id": 1}\n[{"id": 2}]', "line 2: .* is not a JSON object"),
        ("a.jsonl", b'{"id": 1, "n": 5}\n\n{"id": 2, "n": 5.5}\n', r"a.jsonl, line 3, column n: 5.5 is not int32"),
        ("a.jsonl", b'{"id": 1}\n\n{"n": 2}\n', "a.jsonl, line 3: column id is null"),
    ],
    ids=str,
)
def test_files_that_are_not_what_they_seem_are_refused(table, tmp_path, name, data, says):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(Error, match=says):
        table.write(tmp_path / name)
    assert table.count().rows == 0


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-5", ""], "int64"),
        (["1", "2.5", "1e-3", "nan"], "double"),
        (["00123", "04567"], "string"),
        (["123456789012345678901", "1"], "string"),
        (["true", "FALSE"], "bool"),
        (["2026-01-31", "NULL"], "date32[day]"),
        (["2026-02-30"], "string"),
        (["2026-01-31", "2026-01-31 10:00"], "timestamp[us]"),
        (["2026-01-31T10:00:00.123456789"], "timestamp[ns]"),
        (["2026-01-31T10:00:00Z", "2026-01-31 10:00:00+02"], "timestamp[us, tz=UTC]"),
        (["10:00:00"], "time64[us]"),
        (["31.01.2026"], "string"),
        (["a", "1"], "string"),
        (["NA", "NULL"], "string"),
    ],
    ids=str,
)
def test_types_of_text_are_those_that_all_values_have(tmp_path, values, kind):
    (tmp_path / "a.csv").write_text("k,v\n" + "".join(f"1,{value}\n" for value in values))
    assert str(infer(input_file(str(tmp_path / "a.csv"))).columns.field("v").type) == kind


@pytest.mark.parametrize("form", ["{}", "[{}]"])
def test_numbers_of_a_json_column_keep_their_digits(tmp_path, form):
    schema = lakebed.Schema({"id": "int64"}, values={"v": "json", "more": "list<json>"})
    table = lakebed.create(f"file://{tmp_path}/digits").create_table("t", schema)
    value = '{"x":12345678901234567890.5,"y":[1.10,9007199254740993.0]}'
    (tmp_path / "a.json").write_text(form.replace("{}", f'{{"id": 1, "v": {value}, "more": [0.30]}}'))
    table.write(tmp_path / "a.json")
    assert table.get(1).select(["v", "more"]).to_pylist() == [{"v": value, "more": ["0.30"]}]


@pytest.mark.parametrize("other", ["", "n/a", "NULL", "-", " ", " 2026-01-01", "2026-02-30", "20260101"])
@pytest.mark.parametrize("time", ["2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00Z", "12:00:00"])
def test_texts_of_json_are_times_only_if_all_are(tmp_path, time, other):
    """No text of JSON stands for null, so that a column with another text is text."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"id": 1, "at": time}) + "\n" + json.dumps({"id": 2, "at": other}) + "\n")
    found = infer(input_file(str(path))).columns
    assert found.field("at").type == pa.string()
    table = lakebed.create(f"memory://{new_id()}").create_table("t", Schema.from_arrow(found, ["id"]))
    table.write(path)
    assert table.to_arrow()["at"].to_pylist() == [time, other]


def test_columns_of_json_lines_are_inferred(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"id": 1, "x": 1, "at": "2026-01-01T00:00:00Z"}\n{"id": 2, "x": 1.5, "tags": ["a"], "o": {"m": 1}}\n'
    )
    found = {field.name: str(field.type) for field in infer(input_file(str(path))).columns}
    assert found == {
        "id": "int64",
        "x": "double",
        "at": "timestamp[us, tz=UTC]",
        "tags": str(pa.list_(pa.string())),
        "o": "struct<m: int64>",
    }
