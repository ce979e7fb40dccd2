"""Procedures without Spark: the rows that they give, and what they do to the table."""

import pytest

import lakebed
from lakebed import AddField, UsageError
from lakebed.engine import datafusion
from lakebed.spark import procedures
from tests.spark.cases import SCHEMA, assert_holds, rows, write_parquet


@pytest.fixture(autouse=True)
def all_cores(monkeypatch):
    monkeypatch.setattr(datafusion, "claim_one_core", lambda: None)


@pytest.fixture
def table(tmp_path):
    instance = lakebed.create(tmp_path / "lake")
    settings = {"gc_delay_s": 0, "history_s": 0, "orphan_age_s": 0, "split_rows": 50}
    return instance.create_table("t", SCHEMA, settings=settings)


def call(table, name, *given, **named):
    """The rows by column, as a worker of Spark gives them."""
    from lakebed.spark.batch import Place

    run, columns = procedures.PROCEDURES[name]
    names = [column.split()[0] for column in columns.split(", ")]
    function = procedures._function(Place(table.storage.url), run)
    return [dict(zip(names, row, strict=True)) for row in function().eval("t", *given, **named)]


def test_a_table_is_filled_looked_at_and_looked_after_by_procedures(table, tmp_path):
    made = [rows(seed, 60) for seed in range(2)]
    write_parquet(tmp_path / "in", *made)
    for repeated in (False, True):
        (found,) = call(table, "lakebed_import", str(tmp_path / "in"), commit_id="first")
        assert found == {"row_count": 0 if repeated else 120, "source_files": 2, "version": 2, "repeated": repeated}
    table.write(rows(5, 10))
    assert call(table, "lakebed_create_tag", "kept") == [{"name": "kept", "version": 3}]
    assert call(table, "lakebed_tags") == [{"name": "kept", "version": 3}]
    (compacted,) = call(table, "lakebed_compact", strategy="full")
    assert (compacted["partitions"], compacted["files_in"], compacted["row_count"]) == (1, 2, 130)
    (cut,) = call(table, "lakebed_split")
    assert cut["partition"] == 1
    partitions = call(table, "lakebed_partitions")
    assert len(partitions) == cut["parts"]
    assert (partitions[0]["min_key"], sum(partition["row_count"] for partition in partitions)) == (None, 130)
    assert '"k": ' in partitions[1]["min_key"]
    assert {one["row_count"] for one in call(table, "lakebed_files")} == {
        partition["row_count"] for partition in partitions
    }
    assert call(table, "lakebed_collect_garbage", dry_run=True)[0]["files"] == 0, "the tag keeps them"
    call(table, "lakebed_delete_tag", "kept")
    assert call(table, "lakebed_collect_garbage")[0]["files"] == 2
    assert call(table, "lakebed_remove_orphan_files")[0]["orphans"] == 0
    newest, *_ = call(table, "lakebed_history", limit=2)
    assert newest["version"] == table.state().version
    assert len(call(table, "lakebed_history")) > 8
    assert_holds(table, *made, rows(5, 10))


def test_what_cannot_be_done_is_lakebeds_own_error(table):
    with pytest.raises(UsageError, match="strategy"):
        call(table, "lakebed_compact", "no such")
    table.alter(AddField("later", "int64"))
    with pytest.raises(lakebed.NotFoundError, match="no file or folder"):
        call(table, "lakebed_import", "/no/such/place", "id")
