"""An import whose task fails ends: no other task begins."""

import pytest

import lakebed
from lakebed import Pipeline, Schema, SchemaMismatchError
from lakebed.model.files import data_folder


@pytest.mark.parametrize(("bad", "staged"), [(0, 0), (2, 2), (4, 4)])
def test_no_task_begins_after_one_has_failed(tmp_path, bad, staged):
    """Each task stages a file, in order."""
    lake = lakebed.create(tmp_path / "lake")
    table = lake.create_table("t", Schema({"k": "int64"}))
    (tmp_path / "in").mkdir()
    for number in range(5):
        (tmp_path / "in" / f"{number}.csv").write_text("k\nx\n" if number == bad else f"k\n{number}\n")
    with Pipeline(lake, launcher="this-thread") as pipeline, pytest.raises(SchemaMismatchError, match=f"{bad}.csv"):
        pipeline.bulk_import(table, tmp_path / "in")
    assert len(list(lake.storage.list(data_folder(table.id)))) == staged
    assert table.version == 1
