"""Schemas that change between imports, and under one."""

import pyarrow as pa

from lakebed import AddField, DropField, RenameField
from lakebed.spark import source_frames
from tests.spark.cases import SCHEMA, multiset, rows, write_parquet

CHANGES = (RenameField("k", "key"), DropField("v"), AddField("v", "int8"))
"""The dropped ``v`` was a double."""


def as_altered(old):
    """Rows that were written before the changes, as they are read after them."""
    named = old.drop_columns(["v"]).rename_columns({"k": "key"})
    return named.append_column("v", pa.nulls(old.num_rows, pa.int8()))


def new_rows(seed):
    """Rows with the columns that there are after the changes."""
    kept = as_altered(rows(seed, 500)).drop_columns(["v"])
    return kept.append_column("v", pa.array([seed] * 500, pa.int8()))


def version_of(table):
    return sorted(file.schema_version for file in table.state().referenced().values())


def test_imports_before_and_after_an_alter_are_read_and_compacted_as_one(pipeline, lake, spark, tmp_path):
    table = lake.create_table("t", SCHEMA)
    old, new, last = rows(1, 500), new_rows(2), new_rows(3)
    pipeline.bulk_import(table, write_parquet(tmp_path / "old", old))
    table.alter(*CHANGES)
    pipeline.bulk_import(table, write_parquet(tmp_path / "new", new))
    write_parquet(tmp_path / "last", last)
    pipeline.bulk_import(table, spark.read.parquet(str(tmp_path / "last")))
    assert version_of(table) == [1, 2, 2]
    expected = [as_altered(old).select(table.schema.names), *(r.select(table.schema.names) for r in (new, last))]
    wanted = sorted(line for part in expected for line in multiset(part))
    assert multiset(table.scan().read_all()) == wanted
    assert pipeline.compact(table, strategy="full").rows == 1500
    assert version_of(table) == [2]
    assert multiset(table.scan().read_all()) == wanted


def test_an_alter_in_the_midst_of_an_import_does_not_tear_it(pipeline, lake, spark, tmp_path, monkeypatch):
    """What was staged by one schema is merged by the same, and committed as a file of that version."""
    table = lake.create_table("t", SCHEMA)
    old = rows(1, 500)
    write_parquet(tmp_path / "old", old)
    stage = source_frames.run_tasks

    def altering(*given, **how):
        staged = stage(*given, **how)
        table.alter(*CHANGES)
        return staged

    monkeypatch.setattr(source_frames, "run_tasks", altering)
    assert pipeline.bulk_import(table, spark.read.parquet(str(tmp_path / "old"))).rows == 500
    assert version_of(table) == [1]
    assert multiset(table.scan().read_all()) == multiset(as_altered(old).select(table.schema.names))
