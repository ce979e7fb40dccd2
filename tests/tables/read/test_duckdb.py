"""DuckDB's relations: columns by their position, whatever their names, and types that it does not have."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import AddField, DropField, KeepAll, KeyRange, Latest, RenameField, Schema
from lakebed.errors import Code, UsageError
from lakebed.read.adapters.duckdb import output_names

NAMES = [
    "a", "A", "a_1", "A_1", "a_2", "id", "ID", "Id", "é", "É", "ß", "ss", "SS", "filename", "FILENAME",
    "file_row_number", "file_index", "rowid", "c0", "c1", "C1", "rows", "select", "x y", 'q"x', "x.y", "*",
]  # fmt: skip


def numbered(names, keys, start):
    """Return rows with another number in each cell."""
    numbers = itertools.count(start)
    return pa.table({name: keys if name == names[0] else [next(numbers) for _ in keys] for name in names})


@settings(max_examples=settings().max_examples // 2, suppress_health_check=list(HealthCheck))
@given(
    names=st.lists(st.sampled_from(NAMES), min_size=2, max_size=6, unique=True),
    new=st.lists(st.sampled_from(NAMES), min_size=3, max_size=3, unique=True),
    merged=st.booleans(),
    folder=st.sampled_from(["plain", "any*"]),
)
def test_columns_are_those_of_a_scan_whatever_their_names(tmp_path, names, new, merged, folder):
    lake = lakebed.create(str(Path(tempfile.mkdtemp(dir=tmp_path)) / folder))
    schema = Schema({names[0]: "int64"}, values=dict.fromkeys(names[1:], "int64"))
    table = lake.create_table("t", schema, merge=Latest() if merged else KeepAll())
    table.write(numbered(names, [1, 2, 3], 100))
    for name in new:
        held = list(table.schema.names)
        if name not in held:
            table.alter(AddField(name, "int64") if len(held) < 3 else RenameField(held[-1], name))
    if len(new[0]) > 1 and len(table.schema.names) > 2:
        table.alter(DropField(table.schema.names[1]))
    table.write(numbered(list(table.schema.names), [3, 4], 200))
    table.remove(KeyRange(2, 3))
    relation = table.to_duckdb()
    assert len({name.encode().lower() for name in relation.columns}) == len(relation.columns)
    wanted = [tuple(row.values()) for row in table.scan().read_all().to_pylist()]
    assert sorted(relation.fetchall(), key=repr) == sorted(wanted, key=repr)


def test_names_that_differ_in_case_only_are_numbered_so_that_none_is_taken_for_another():
    assert output_names(["k", "a", "A", "b"]) == ["k", "a_1", "A_2", "b"]
    assert output_names(["a", "A", "a_1"]) == ["a_2", "A_3", "a_1"]
    assert output_names(["é", "É"]) == ["é", "É"]


@pytest.mark.parametrize("kind", ["struct<a: int64, A: int64>", "list<struct<b: int64, x: int64, X: string>>"])
def test_struct_members_that_differ_in_case_only_are_refused_by_the_name_of_the_column(tmp_path, kind):
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", Schema({"k": "int64"}, values={"s": kind}))
    with pytest.raises(
        UsageError, match=r"column s is .* does not distinguish the members \w and \w of a struct"
    ) as got:
        table.to_duckdb()
    assert (got.value.code, got.value.facts["column"]) == (Code.TYPE_UNSUPPORTED, "s")
