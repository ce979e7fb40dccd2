"""A bulk import into a table that takes new columns, with all of its tasks in this thread."""

import pyarrow as pa
import pytest

import lakebed
from lakebed import KeepAll, RejectedError, Schema, SchemaMismatchError
from lakebed.jobs.bulk_import import importer as importing
from lakebed.jobs.bulk_import.importer import Importer
from lakebed.jobs.executor import Root, TableCall
from lakebed.jobs.this_thread import ThisThread
from lakebed.log.log_limits import LogLimits
from lakebed.testing.faults import Meanwhile
from lakebed.write.imports import SourceReading
from tests.tables.ingest.columns import fields, put, read, rows
from tests.tables.retention.cases import on


@pytest.fixture
def table(tmp_path):
    schema = Schema({"k": "string"}, values={"v": "int64"})
    return lakebed.create(tmp_path / "lake").create_table("t", schema, settings={"schema_growth": "add"})


@pytest.fixture
def importer_of(monkeypatch):
    """Makes importers of two reducers, whose tasks run in this thread."""
    monkeypatch.setattr(importing, "reducer_count", lambda *_: 2)
    return lambda table: Importer(ThisThread(), TableCall(table, Root(table.storage.url)))


@pytest.fixture
def importer(importer_of, table):
    return importer_of(table)


def test_the_columns_of_all_files_are_added_in_the_entry_of_their_rows(importer, table, tmp_path):
    source = put(
        tmp_path / "in", rows("b", x=pa.array([1], pa.int32())), rows("a", x=[2], y=["t"]), rows("c", n=pa.nulls(1))
    )
    before = table.version
    report = importer.run(source, "parquet", None)
    assert (report.rows, report.files, report.version) == (3, 2, before + 1)
    assert fields(table) == ["v: int64", "x: int64", "y: string"]
    assert read(table) == ["k=a x=2 y=t", "k=b x=1", "k=c"]
    again = importer.run(put(tmp_path / "more", rows("d", q=[5], v2=[6])), "parquet", "job", SourceReading({"v": "v2"}))
    assert again.version == before + 2
    assert fields(table) == ["v: int64", "x: int64", "y: string", "q: int64"]
    assert read(table)[-1] == "k=d v=6 q=5"
    assert table.verify(files=True, deep=True).sound


def test_columns_that_do_not_fit_add_nothing(importer, table, tmp_path):
    before = table.version
    with pytest.raises(SchemaMismatchError, match=r"1\.parquet: column x is string, and in .*0\.parquet it is int64"):
        importer.run(put(tmp_path / "two", rows("a", x=[1]), rows("b", x=["t"])), "parquet", None)
    with pytest.raises(SchemaMismatchError, match="column v is string; the table has int64"):
        importer.run(put(tmp_path / "old", rows("a", v=["t"], x=[1])), "parquet", None)
    table.set(schema_growth="refuse")
    with pytest.raises(SchemaMismatchError, match="extra column x"):
        importer.run(put(tmp_path / "extra", rows("a", x=[1])), "parquet", None)
    assert fields(table) == ["v: int64"]
    assert table.state().version == before + 1


def test_an_import_that_is_overtaken_takes_the_field_that_won_or_adds_nothing(importer_of, table, tmp_path):

    def overtaken_by(written):
        late = on(table, Meanwhile(table.storage, "create", "*/log/*", lambda: table.write(written)))
        late.log.limits = LogLimits(turn_wait_s=0.0)
        return importer_of(late)

    overtaken_by(rows("a", x=[0])).run(put(tmp_path / "in", rows("b", x=[1], y=[2])), "parquet", None)
    assert read(table) == ["k=a x=0", "k=b x=1 y=2"]
    late = overtaken_by(rows("c", z=["t"]))
    with pytest.raises(RejectedError, match="column z is int64; the table has string by now"):
        late.run(put(tmp_path / "late", rows("d", z=[1])), "parquet", None)
    assert fields(table) == ["v: int64", "x: int64", "y: int64", "z: string"]
    assert read(table)[-1] == "k=c z=t"


def test_the_files_of_requests_that_are_shuffled_have_their_new_columns(importer, table, tmp_path):
    put(tmp_path / "in", rows("b", x=[1]), rows("a", y=["t"]))
    table.submit(tmp_path / "in")
    files = [file for request in table.state().open_requests.values() for file in request.files]
    made = importer.sort(files, KeepAll())
    assert made.rows_read == 2
    assert {field.name for new in made.files for field in new.added} == {"x", "y"}
