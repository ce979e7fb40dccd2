"""What a bulk import leaves and says if the store fails after its rows are there, on a session without a JVM."""

import pytest

import lakebed
from lakebed import Schema, StorageError
from lakebed.jobs.bulk_import.importer import Importer
from lakebed.jobs.executor import Root, TableCall
from lakebed.model.files import data_folder
from lakebed.spark.spark_executor import SparkExecutor
from lakebed.storage import connect
from lakebed.table.instance import Instance
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from lakebed.upkeep.retention.run import gc
from lakebed.write.imports import SourceReading
from tests.tables.retention.cases import AT_ONCE, let_time_pass
from tests.tables.spark.sessions import Session

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})


@pytest.fixture
def lake(tmp_path):
    lake = lakebed.create(tmp_path / "lake")
    lake.create_table("t", SCHEMA, settings=AT_ONCE)
    return lake


def failing(storage, operation, name="*"):
    faults = Fault.FULL, Fault.FAIL_BEFORE
    return FaultyStorage(storage, FaultPlan([Rule(fault, operation, name) for fault in faults]))


def data_of(table):
    return list(table.storage.list(data_folder(table.id)))


@pytest.fixture
def fail_quarantine(tmp_path, monkeypatch):
    """Lets calls to the store of rejected rows fail."""

    def fail(*calls):
        asides = failing(connect(str(tmp_path / "bad")), *calls)
        monkeypatch.setattr(Root, "connect", lambda place: asides if place.url.endswith("bad") else connect(place.url))

    return fail


def imported(table, tmp_path, reading=None):
    path = tmp_path / "in.csv"
    path.write_text("k,v\na,1\nb,two\nc,3\n" if reading else "k,v\na,1\nc,3\n")
    importer = Importer(SparkExecutor(Session), TableCall(table, Root(str(tmp_path / "lake"))))
    return importer.run(str(path), None, None, reading)


def test_staged_files_that_cannot_be_deleted_are_orphans_and_the_rows_are_imported(lake, tmp_path):
    storage = failing(lake.storage, "delete")
    report = imported(Instance(storage, {"instance": lake.id}).table("t"), tmp_path)
    table = lake.table("t")
    assert (report.rows, report.version, storage.fired) == (2, table.state().version, {Fault.FAIL_BEFORE: 1})
    assert len(data_of(table)) == 2
    let_time_pass(lake.storage)
    gc(lake, force=True)
    assert len(data_of(table)) == len(table.state().files) == 1


def test_a_quarantine_that_cannot_be_tidied_counts(lake, tmp_path, fail_quarantine):
    """The file of a task that ran twice may stay: _SUCCESS names those that count."""
    fail_quarantine("list")
    report = imported(lake.table("t"), tmp_path, SourceReading(quarantine=tmp_path / "bad"))
    assert (report.rows, report.rejected) == (2, 1)
    assert list(tmp_path.glob("bad/*/_SUCCESS"))


def test_an_import_whose_rejected_rows_cannot_be_listed_says_that_its_rows_are_there(lake, tmp_path, fail_quarantine):
    fail_quarantine("create", "*/_SUCCESS")
    with pytest.raises(StorageError, match=r"the rows are imported.*do not import them again"):
        imported(lake.table("t"), tmp_path, SourceReading(quarantine=tmp_path / "bad"))
    assert lake.table("t").count().rows == 2
    assert len(list(tmp_path.glob("bad/*/*.parquet"))) == 1
