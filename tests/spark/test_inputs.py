"""What a bulk import takes in: named columns, casts, queries, formats, generated keys; and what it keeps apart."""

import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import ExistsError, Generated, Schema, SchemaMismatchError, UsageError
from lakebed.errors import Code
from tests.raising import raises
from tests.soaked import few
from tests.spark.cases import SCHEMA, assert_holds, file_of, rows, write_parquet

DAYS = Schema(
    {"day": Generated("date32", "cast(at as date)"), "id": "int64"},
    {},
    {"at": "timestamp[s]", "price": "decimal128(9, 2)"},
)
AT = [dt.datetime(2020, 1, day, 12) for day in (2, 1, 3)]  # noqa: DTZ001 - the field has no zone
TEXTS = pa.table({"Id": ["2", "1", "3"], "at": [str(at) for at in AT], "price": ["0.50", None, "3.00"]})
EXPECTED = [(dt.date(2020, 1, day), n, dt.datetime(2020, 1, day, 12)) for day, n in ((1, 1), (2, 2), (3, 3))]  # noqa: DTZ001


@pytest.fixture
def table(lake):
    return lake.create_table("days", DAYS)


def held(table):
    return [(row["day"], row["id"], row["at"]) for row in table.scan().read_all().to_pylist()]


def of_texts(pipeline, table, source, **how):
    return pipeline.bulk_import(table, source, columns={"id": "Id"}, casts=["id", "at", "price"], **how)


def test_parquet_is_mapped_cast_and_given_its_keys_without_the_jvm(pipeline, table, tmp_path):
    """Sampled too: the keys are computed before they are known."""
    write_parquet(tmp_path / "in", TEXTS, TEXTS.slice(0, 0))
    assert of_texts(pipeline, table, tmp_path / "in").map_tasks == 1
    assert held(table) == EXPECTED
    assert [str(v) for v in table.scan().read_all()["price"].to_pylist()] == ["None", "0.50", "3.00"]


def test_a_dataframe_is_mapped_and_cast_alike(pipeline, table, spark, tmp_path):
    """Spark's times have microseconds, and the field seconds."""
    frame = spark.read.parquet(str(file_of(TEXTS, tmp_path / "in.parquet")))
    timed = frame.withColumn("at", frame["at"].cast("timestamp_ntz"))
    of_texts(pipeline, table, timed)
    assert held(table) == EXPECTED


def test_a_query_over_the_source_filters_projects_and_computes(pipeline, table, tmp_path):
    path = file_of(TEXTS.append_column("more", pa.array(["x{y}", "z", "z"])), tmp_path / "in.parquet")
    columns = "bigint(Id) AS id, cast(at AS timestamp_ntz) AS at, cast(price AS decimal(9, 2)) AS price"
    query = f"SELECT {columns} FROM source WHERE Id < 3 AND more <> '{{}}';"
    assert pipeline.bulk_import(table, path, select=query).rows == 2
    assert held(table) == EXPECTED[:2]
    nested = f"WITH some AS (SELECT * FROM parquet.`{path}` WHERE more = 'x{{y}}') SELECT Id, at, price FROM some"
    assert of_texts(pipeline, table, nested, format="query").rows == 1
    for wrong in ("SELECT nothing FROM source", "DROP TABLE source", "SELEKT 1"):
        with pytest.raises(UsageError, match="Spark cannot run the query"):
            pipeline.bulk_import(table, path, select=wrong)
    assert table.version == 3


def test_csv_tells_empty_text_from_null_and_every_file_has_its_columns(pipeline, lake, tmp_path):
    table = lake.create_table("t", Schema({"k": "int64"}, {}, {"s": "string", "at": "timestamp[s, tz=UTC]"}))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text('k,s,at\n1,"",2020-01-01T00:00:00Z\n2,,\n3,"a""b",\n')
    pipeline.bulk_import(table, tmp_path / "in", format="csv")
    assert table.scan().read_all().column("s").to_pylist() == ["", None, 'a"b']
    (tmp_path / "in" / "2.csv").write_text("s,k,at\n7,8,\n")
    assert pipeline.bulk_import(table, tmp_path / "in").rows == 4
    (tmp_path / "in" / "2.csv").write_text("s,l,at\n7,8,\n")
    with pytest.raises(SchemaMismatchError, match=r"2\.csv: "):
        pipeline.bulk_import(table, tmp_path / "in", format="csv")
    assert table.scan().read_all().num_rows == 7


def test_json_comes_in_with_what_is_nested_in_it(pipeline, lake, tmp_path):
    values = {"p": "decimal128(9, 2)", "tags": pa.list_(pa.int64()), "ok": "bool"}
    table = lake.create_table("t", Schema({"k": "int32"}, {}, values))
    (tmp_path / "in.json").write_text('{"k": 1, "p": 0.10, "tags": [1, 2], "ok": true}\n{"k": 2}\n')
    pipeline.bulk_import(table, tmp_path / "in.json", format="json")
    found = table.scan().read_all().to_pylist()
    assert [str(found[0]["p"]), found[0]["tags"], found[0]["ok"], found[1]["tags"]] == ["0.10", [1, 2], True, None]


# -- rejected rows ----------------------------------------------------------------------------------------------

BAD = pa.table({"Id": ["4", "five", None], "at": [str(AT[0]), str(AT[0]), "soon"], "price": ["0.5", None, None]})


@pytest.mark.parametrize("how", ["parquet", "frame"])
def test_rejected_rows_are_kept_apart_with_their_reason(pipeline, table, spark, tmp_path, how):
    """Rows in are rows out and rows rejected; what is kept apart counts once the import does."""
    write_parquet(tmp_path / "in", TEXTS, BAD, BAD.slice(0, 0))
    source = tmp_path / "in" if how == "parquet" else spark.read.parquet(str(tmp_path / "in"))
    report = of_texts(pipeline, table, source, quarantine=tmp_path / "bad", job_id="monday")
    assert (report.rows, report.rejected, report.quarantine) == (4, 2, f"{tmp_path}/bad/monday")
    assert [row[1] for row in held(table)] == [1, 2, 4, 3]
    manifest = json.loads((tmp_path / "bad" / "monday" / "_SUCCESS").read_text())
    assert (manifest["version"], manifest["rows"], manifest["job"]) == (report.version, 2, "monday")
    aside = pa.concat_tables(
        [pq.read_table(tmp_path / "bad" / "monday" / name) for name in manifest["files"]]
    ).to_pylist()
    reasons = {row["Id"]: row["_lakebed_reason"] for row in aside}
    assert reasons == {
        "five": "column Id is string and holds a value that int64 cannot keep",
        None: "column Id is null, and is not nullable",
    }
    where = {row["_lakebed_source"] for row in aside}
    assert where == ({f"{tmp_path}/in/part-001.parquet"} if how == "parquet" else {"the DataFrame"})
    again = of_texts(pipeline, table, source, quarantine=tmp_path / "bad", job_id="monday")
    assert (again.repeated, again.rejected, again.quarantine) == (True, 0, None)


def test_files_without_rows_are_imported_with_a_quarantine_too(pipeline, table, tmp_path):
    write_parquet(tmp_path / "in", TEXTS.slice(0, 0))
    report = of_texts(pipeline, table, tmp_path / "in", quarantine=tmp_path / "bad", job_id="monday")
    assert (report.rows, report.rejected, report.version) == (0, 0, table.version)


def test_without_a_quarantine_the_import_fails_and_names_file_column_and_rows(pipeline, table, tmp_path):
    write_parquet(tmp_path / "in", TEXTS, BAD)
    with pytest.raises(SchemaMismatchError, match=r"part-001\.parquet: column Id .* 1 of 3 rows .* row 1: 'five'"):
        of_texts(pipeline, table, tmp_path / "in")
    assert table.version == 1


def test_a_failed_import_leaves_nothing_in_its_quarantine(pipeline, lake, table, tmp_path):
    """The table is dropped when all but the commit is done."""
    write_parquet(tmp_path / "in", TEXTS, BAD)

    def drop(progress):
        if progress.phase == "commit":
            assert [path for path in (tmp_path / "bad").rglob("*") if path.is_file()]
            lake.drop_table(table.name)

    with raises(Code.TABLE_DROPPED):
        of_texts(pipeline, table, tmp_path / "in", quarantine=tmp_path / "bad", progress=drop)
    assert not [path for path in (tmp_path / "bad").rglob("*") if path.is_file()]


def test_a_quarantine_that_cannot_be_is_refused_before_anything_runs(pipeline, lake, table, tmp_path):
    """Another import's rejected rows are never written over."""
    path = file_of(TEXTS, tmp_path / "in.parquet")
    (tmp_path / "bad" / "x").mkdir(parents=True)
    (tmp_path / "bad" / "x" / "_SUCCESS").write_text("{}")
    for quarantine, job, kind, message in (
        (tmp_path / "bad", "x", ExistsError, "rejected rows of another import"),
        (tmp_path / "bad", "a/../b", UsageError, "unsafe object name"),
        ("memory://bad", "x", UsageError, "in memory"),
        ("ftp://bad", "x", UsageError, "unknown scheme"),
    ):
        with pytest.raises(kind, match=message):
            of_texts(pipeline, table, path, quarantine=quarantine, job_id=job)
    assert table.version == 1


# -- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", few(["avro", "delta", "iceberg"], 1))
def test_a_format_whose_connector_is_missing_names_it(pipeline, table, tmp_path, format):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.avro").write_bytes(b"Obj\x01")
    with pytest.raises(UsageError, match=rf"cannot read {format}: it lacks the package .*{format}.*--packages"):
        pipeline.bulk_import(table, tmp_path / "in", format=format)


@pytest.mark.parametrize("format", few(["json", "orc", "csv"], 2))
def test_files_that_are_not_of_their_format_are_named(pipeline, table, tmp_path, format):
    (tmp_path / f"bad.{format}").write_bytes(b"\x00\xff{[garbage\n" * 3)
    with pytest.raises(lakebed.Error, match=f"bad.{format}"):
        pipeline.bulk_import(table, tmp_path / f"bad.{format}", format=format)
    assert table.version == 1


def test_a_column_of_no_field_and_a_query_with_more_columns_are_refused(pipeline, table, tmp_path):
    path = file_of(TEXTS, tmp_path / "in.parquet")
    with pytest.raises(UsageError, match="no field 'ID'"):
        pipeline.bulk_import(table, path, columns={"ID": "Id"})
    with pytest.raises(UsageError, match="field day is generated"):
        pipeline.bulk_import(table, path, columns={"day": "at"})
    with pytest.raises(SchemaMismatchError, match="extra column two"):
        of_texts(pipeline, table, path, select="SELECT *, 2 AS two FROM source")


def test_an_import_of_all_that_a_generated_table_holds_is_the_same_table(pipeline, lake, table, tmp_path):
    """The generated column is there, and agrees."""
    table.write(
        pa.table({"id": pa.array([1, 2], pa.int64()), "at": pa.array(AT[:2], pa.timestamp("s")), "price": pa.nulls(2)})
    )
    everything = table.scan().read_all()
    copy = lake.create_table("copy", DAYS)
    pipeline.bulk_import(copy, file_of(everything, tmp_path / "all.parquet"))
    assert_holds(copy, everything)


def test_plain_rows_come_in_as_before(pipeline, lake, tmp_path):
    """With a quarantine that nothing is put into."""
    table = lake.create_table("t", SCHEMA)
    data = rows(7, 900)
    report = pipeline.bulk_import(table, file_of(data, tmp_path / "in.parquet"), quarantine=tmp_path / "bad")
    assert (report.rejected, report.quarantine) == (0, None)
    assert_holds(table, data)
    assert not (tmp_path / "bad").exists()


PLAIN = Schema({"k": "string"}, values={"n": "int64"})


def test_a_query_over_files_reads_those_that_a_write_reads(pipeline, lake, tmp_path):
    """Spark gets names of files, and sees neither a wildcard nor a column in the name of a folder."""
    table = lake.create_table("t", PLAIN)
    rows = pa.table({"k": ["a"], "n": [1]})
    for name in ("x[1]/n=7/a.parquet", "x[1]/n=7/_b.parquet", "x[1]/_temporary/0/c.parquet", "x[1]/.d/d.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, tmp_path / name)
    for number, source in enumerate((tmp_path / "x[1]", f"{tmp_path}/x[[]1]/**", f"{tmp_path}/x[[]1]/*/*.parquet")):
        pipeline.bulk_import(table, source, select="SELECT * FROM source")
        assert table.scan().read_all()["n"].to_pylist() == [1] * (number + 1)


def test_a_query_over_a_file_that_spark_would_leave_out_is_refused(pipeline, lake, tmp_path):
    table = lake.create_table("t", PLAIN)
    pq.write_table(pa.table({"k": ["a"], "n": [1]}), tmp_path / "_a.parquet")
    with pytest.raises(UsageError, match=r"Spark leaves out files whose names begin with _ or \."):
        pipeline.bulk_import(table, tmp_path / "_a.parquet", select="SELECT * FROM source")
    assert table.count(exact=True).rows == 0
