"""Rows that no table can keep, and columns that are not there, through what runs on Spark."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed import Schema, SchemaMismatchError
from tests.soaked import few

SCHEMA = Schema({"k": "int64"}, {}, {"v": "string", "größe": "string"})
BAD_ROW = {"k": 2, "v": "b\ufffd", "größe": "é"}


@pytest.fixture
def table(lake):
    return lake.create_table("t", SCHEMA)


def source(folder, form):
    """Two files, of two rows and one; the second row of the first file holds a byte that is no text."""
    folder.mkdir()
    if form == "csv":
        (folder / "bad.csv").write_bytes("\ufeffk,v,größe\n1,a,ü\n2,b?,é\n".encode().replace(b"?", b"\xff"))
        (folder / "good.csv").write_text('k,v,größe\n3,"c ""€"" c",𝄞\n')
    elif form == "json":
        (folder / "bad.json").write_bytes(
            '{"k":1,"v":"a","größe":"ü"}\n{"k":2,"v":"b?","größe":"é"}\n'.encode().replace(b"?", b"\xff")
        )
        (folder / "good.json").write_text('{"k":3,"v":"c \\"€\\" c","größe":"𝄞"}\n')
    else:
        v = pa.array([b"a", b"b\xff"]).view(pa.string())
        pq.write_table(pa.table({"k": [1, 2], "v": v, "größe": ["ü", "é"]}), folder / "bad.parquet")
        pq.write_table(pa.table({"k": [3], "v": ['c "€" c'], "größe": ["𝄞"]}), folder / "good.parquet")
    return folder


@pytest.mark.parametrize(
    ("form", "select"),
    few([("csv", None), ("parquet", "SELECT * FROM source"), ("csv", "SELECT * FROM source"), ("parquet", None)], 2),
)
def test_text_that_is_not_utf8_is_refused_with_file_column_and_row(pipeline, table, tmp_path, form, select):
    folder = source(tmp_path / "in", form)
    text = form == "csv" and select is None
    says = (
        "line 3: the byte 0xff is not UTF-8"
        if text
        else r"column v .* not UTF-8; 1 of \d rows in a batch, first row \d"
    )
    with pytest.raises(SchemaMismatchError, match=says) as e:
        pipeline.bulk_import(table, folder, format=form, select=select)
    assert str(folder) in str(e.value)
    if select is None:
        assert f"{folder}/bad.{form}" in str(e.value)
    assert table.version == 1


def test_json_that_is_not_utf8_is_malformed_and_its_path_is_named(pipeline, table, tmp_path):
    """Its parser reads no further, so no row of the file can be named."""
    folder = source(tmp_path / "in", "json")
    with pytest.raises(SchemaMismatchError, match=rf"{folder}/bad.json, line 2 is not JSON"):
        pipeline.bulk_import(table, folder, format="json", quarantine=tmp_path / "bad")
    assert table.version == 1


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_quarantine_takes_the_row_and_the_others_come_in(pipeline, table, tmp_path, form):
    folder = source(tmp_path / "in", form)
    report = pipeline.bulk_import(table, folder, format=form, quarantine=tmp_path / "bad")
    assert (report.rows, report.rejected) == (2, 1)
    assert table.scan().read_all().to_pylist() == [
        {"k": 1, "v": "a", "größe": "ü"},
        {"k": 3, "v": 'c "€" c', "größe": "𝄞"},
    ]
    (rejected,) = pq.read_table(report.quarantine).to_pylist()
    assert {**rejected, "k": int(rejected["k"])} | BAD_ROW == {**rejected, "k": int(rejected["k"])}
    assert "text that is not UTF-8" in rejected["_lakebed_reason"]
    assert rejected["_lakebed_source"] == f"{folder}/bad.{form}"


def test_a_dataframe_and_the_data_source_refuse_it_too(pipeline, table, spark):
    frame = spark.sql("SELECT 1L AS k, cast(X'61ff' AS STRING) AS v")
    with pytest.raises(SchemaMismatchError, match=r"the DataFrame: column v .* not UTF-8"):
        pipeline.bulk_import(table, frame)
    with pytest.raises(Exception, match=r"column v .* not UTF-8"):
        frame.write.format("lakebed").mode("append").options(instance=pipeline.instance.url, table="t").save()
    assert table.state().version == 1


@pytest.mark.parametrize("form", few(["csv", "frame", "json", "parquet"], 2))
def test_a_field_that_may_be_null_may_be_missing(pipeline, table, spark, tmp_path, form):
    folder = tmp_path / "in"
    folder.mkdir()
    if form == "csv":
        (folder / "a.csv").write_text("k\n1\n")
    elif form == "json":
        (folder / "a.json").write_text('{"k":1}\n')
    else:
        pq.write_table(pa.table({"k": [1]}), folder / "a.parquet")
    given = spark.read.parquet(str(folder)) if form == "frame" else folder
    pipeline.bulk_import(table, given, **({} if form == "frame" else {"format": form}))
    assert table.scan().read_all().to_pylist() == [{"k": 1, "v": None, "größe": None}]
