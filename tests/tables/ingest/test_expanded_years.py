"""Dates and timestamps outside of the years 0 to 9999: written as expanded years of ISO 8601, and read back."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, SchemaMismatchError
from lakebed.clock import new_id
from lakebed.errors import BadKeyError
from lakebed.files.formats.reading_options import ReadingOptions
from lakebed.files.formats.row_chunks import csv_lines, json_lines
from lakebed.model.arrays import of_integers
from lakebed.model.iso_times import iso_texts, times_of_texts
from lakebed.model.json_values import encode_array
from lakebed.upkeep.export.run import write_rows
from lakebed.write.conformer import converted
from lakebed.write.input_files import open_files

BEGIN = 253_402_300_800
"""10000-01-01, in seconds."""

NUMBERS = {
    "date32": [0, 2_932_896, 2_932_897, -719_528, -719_529, 2**31 - 1, -(2**31)],
    "timestamp[s]": [0, BEGIN - 1, BEGIN, -62_167_219_200, -62_167_219_201, 10**12, -(10**12)],
    "timestamp[ms, tz=UTC]": [1, BEGIN * 1000, -62_167_219_201_000, 2**63 - 1, -(2**63)],
    "timestamp[us]": [1, BEGIN * 10**6, 2**63 - 1, -(2**63)],
    "timestamp[us, tz=Europe/Berlin]": [1, BEGIN * 10**6, -62_167_219_201_000_000],
}


def column(numbers, kind):
    made = of_integers(np.array(numbers, np.int64))
    return (made.cast(pa.int32()) if pa.types.is_date32(kind) else made).view(kind)


def rows_of(name):
    kind = lakebed.Schema({"k": "int64"}, values={"at": name}).by_name["at"].type
    at = pa.concat_arrays([column(NUMBERS[name], kind), pa.nulls(1, kind)])
    schema = Schema({"k": "int64"}, values={"at": kind})
    return schema, pa.RecordBatch.from_arrays([pa.array(range(len(at))), at], schema=schema.arrow)


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (pa.timestamp("s"), BEGIN, "+10000-01-01T00:00:00"),
        (pa.timestamp("s"), -62_167_219_200, "0000-01-01T00:00:00"),
        (pa.timestamp("s"), -62_167_219_201, "-0001-12-31T23:59:59"),
        (pa.timestamp("s"), 2**63 - 1, "+292277026596-12-04T15:30:07"),
        (pa.timestamp("ms", "+01:00"), BEGIN * 1000, "+10000-01-01T00:00:00.000Z"),
        (pa.timestamp("us", "UTC"), 2**63 - 1, "+294247-01-10T04:00:54.775807Z"),
        (pa.date32(), 2**31 - 1, "+5881580-07-11"),
        (pa.date32(), -719_529, "-0001-12-31"),
    ],
)
def test_a_year_has_a_sign_where_four_digits_do_not_suffice(kind, number, text):
    one = column([number], kind)
    assert iso_texts(one) == encode_array(one) == [text]
    assert times_of_texts(pa.array([text]), kind).equals(one)


def csv_answer(schema, rows, path):
    path.write_bytes(b"".join(csv_lines(schema.arrow, [rows])))


def json_answer(schema, rows, path):
    path.write_bytes(b"".join(json_lines(schema.arrow, [rows])))


def csv_export(schema, rows, path):
    made = write_rows([rows.slice(0, 1), rows.slice(1)], schema.arrow, "csv", path.parent, memory_limit_bytes=64 << 20)
    made.path.rename(path)


def json_export(schema, rows, path):
    made = write_rows([rows.slice(0, 1), rows.slice(1)], schema.arrow, "json", path.parent, memory_limit_bytes=64 << 20)
    made.path.rename(path)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("write", [csv_answer, json_answer, csv_export, json_export])
def test_what_is_written_is_read_with_the_same_times(tmp_path, write, name):
    schema, rows = rows_of(name)
    path = tmp_path / f"rows.{write.__name__[:4].rstrip('_')}"
    write(schema, rows, path)
    table = lakebed.create(f"memory://{new_id()}").create_table("t", schema)
    table.write(path)
    assert table.to_arrow().equals(pa.Table.from_batches([rows]))


def test_json_has_no_garbage_in_lists_and_structs(tmp_path):
    kind = pa.timestamp("s")
    times = column(NUMBERS["timestamp[s]"], kind)
    nested = pa.StructArray.from_arrays([pa.ListArray.from_arrays(list(range(len(times) + 1)), times)], ["all"])
    schema = Schema({"k": "int64"}, values={"s": nested.type})
    rows = pa.RecordBatch.from_arrays([pa.array(range(len(times))), nested], schema=schema.arrow)
    json_export(schema, rows, tmp_path / "rows.json")
    table = lakebed.create(f"memory://{new_id()}").create_table("t", schema)
    table.write(tmp_path / "rows.json")
    assert table.to_arrow().equals(pa.Table.from_batches([rows]))


def test_a_dictionary_has_the_texts_of_its_values():
    times = column([BEGIN, 0, BEGIN], pa.timestamp("s"))
    assert encode_array(times.dictionary_encode()) == encode_array(times)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_csv_is_read_on_from_the_first_expanded_year(tmp_path, zone):
    """Arrow's parser refuses the value after it has returned other rows."""
    kind = pa.timestamp("s", "UTC" if zone else None)
    count = 200_000
    path = tmp_path / "rows.csv"
    lines = [f"{n},2020-01-01T00:00:{n % 60:02d}\n" for n in range(count)]
    path.write_text(f"k,at\n{''.join(lines)}{count},+10000-01-01T00:00:00\n")
    read = open_files([path], Schema({"k": "int64"}, values={"at": kind}), options=ReadingOptions(timezone=zone))
    found = pa.Table.from_batches([rows.batch for rows in read.rows])
    assert isinstance(read.columns[0][1].field("at").type, pa.TimestampType)
    assert found["k"].to_pylist() == list(range(count + 1))
    ahead = 3600 if zone else 0
    assert found["at"].cast(pa.int64()).to_pylist()[-2:] == [1_577_836_800 + (count - 1) % 60 - ahead, BEGIN - ahead]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("timestamp[ns]", "+10000-01-01T00:00:00"),
        ("timestamp[us]", "+300000-01-01T00:00:00"),
        ("date32", "+5881581-01-01"),
        ("date32", "+10000-13-01"),
        ("timestamp[s]", "10000-01-01T00:00:00"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_a_time_that_the_type_does_not_hold_is_named(tmp_path, kind, text, suffix):
    path = tmp_path / f"rows.{suffix}"
    path.write_text(f"k,at\n1,{text}\n" if suffix == "csv" else json.dumps({"k": 1, "at": text}))
    table = lakebed.create(f"memory://{new_id()}").create_table("t", Schema({"k": "int64"}, values={"at": kind}))
    with pytest.raises(SchemaMismatchError, match=f"(?s)line .*at.*{text[1:]}"):
        table.write(path)


def test_keys_are_read_from_words():
    table = lakebed.create(f"memory://{new_id()}").create_table("t", Schema({"at": "timestamp[ms, tz=UTC]"}))
    table.write(pa.table({"at": column([BEGIN * 1000], pa.timestamp("ms", "UTC"))}))
    field = table.schema.row_key[0]
    for word in ("+10000-01-01", "+10000-01-01T00:00:00Z", "+10000-01-01T01:00:00+01:00"):
        assert table.get(field.parse(word)).num_rows == 1
    with pytest.raises(BadKeyError, match=r"cannot read '\+10000-13-01'"):
        field.parse("+10000-13-01")


@pytest.mark.parametrize("name", NUMBERS)
def test_casts_keep_every_year(name):
    at = rows_of(name)[1].column("at")
    assert converted(converted(at, pa.string()), at.type).equals(at)


def test_a_message_has_the_text_of_a_time():
    schema = Schema({"k": "int64"}, values={"at": "date32"})
    table = lakebed.create(f"memory://{new_id()}").create_table("t", schema)
    rows = pa.table({"k": [1], "at": column([BEGIN], pa.timestamp("s"))})
    rows = rows.set_column(1, "at", column([BEGIN + 1], pa.timestamp("s")))
    with pytest.raises(SchemaMismatchError, match=r"\+10000-01-01T00:00:01"):
        table.write(rows, casts=["at"])
