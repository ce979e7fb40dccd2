"""The types of the columns that statements in SQL return."""

from __future__ import annotations

import uuid

import pytest

import lakebed


@pytest.mark.parametrize("mode", [lakebed.KeepAll(), lakebed.Latest(by="arrival")], ids=["all", "latest"])
@pytest.mark.parametrize("store", ["local", "memory"])
def test_columns_of_statements_keep_uuid_and_json_however_many_rows_are_read(tmp_path, store, mode):
    """The engine reads files where there are many rows, or more than it is worth to count."""
    lake = lakebed.create(str(tmp_path / "lake") if store == "local" else f"memory://{uuid.uuid4().hex}")
    table = lake.create_table("t", lakebed.Schema({"k": "uuid"}, values={"v": "uuid", "j": "json"}), merge=mode)
    ids = [uuid.UUID(int=n) for n in range(4)]
    for some in (ids[:3], ids[1:]):
        table.write([{"k": one, "v": one, "j": "1"} for one in some])
    table.alter(lakebed.AddField("late", "uuid"))
    as_read = [table.schema.arrow.field(name).type for name in ("k", "v", "j", "late")]
    for statement in (
        "select k, v as x, j, late from t",
        "select k, v, j, late from t where j = '1' order by v limit 2",
        "select k, v, j, late from t where k = '00000000-0000-0000-0000-000000000001'",
        "select a.k, b.v, a.j, b.late from t a join t b on a.k = b.v",
        "select distinct k, v, j, late from t union all select v, k, j, late from t",
        "select k, first_value(v) v, j, late from t group by k, j, late",
    ):
        with lake.sql(statement) as rows:
            assert rows.schema.types == as_read, statement
            found = rows.read_all()
        assert found.schema.types == as_read, statement
        assert found.num_rows, statement
        assert set(found["k"].to_pylist()) <= set(ids), statement
