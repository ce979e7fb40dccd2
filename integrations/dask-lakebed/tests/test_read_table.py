"""A frame of Dask has the rows of one version of a table, and its tasks read only what they need."""

import re
from pathlib import Path

import dask_lakebed
import pandas as pd
import pyarrow as pa
import pytest
from dask_lakebed import read_table

import lakebed

ROWS = [
    {"shop": shop, "id": n, "amount": n * 1.5, "note": None} for shop in ("bern", "oslo", "rome") for n in range(20)
]


@pytest.fixture
def table(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    schema = lakebed.Schema(row_key={"shop": "string", "id": "int64"}, values={"amount": "double", "note": "string"})
    table = lake.create_table("sales", schema, split_points=[("bern", 7), ("oslo",), ("oslo", 19)])
    table.write(ROWS)
    return table


def test_partitions_have_all_rows_in_key_order(table):
    frame = read_table(table)
    assert frame.npartitions == 4
    assert frame.compute().to_dict("records") == pa.Table.from_pylist(ROWS).to_pandas(
        types_mapper=pd.ArrowDtype
    ).to_dict("records")


def test_tasks_of_other_processes_read_the_pinned_version(table):
    frame, version = read_table(table), table.version
    table.write([{"shop": "late", "id": 1, "amount": 0.0}])
    assert frame.groupby("shop")["amount"].sum().compute(scheduler="processes").to_dict() == dict.fromkeys(
        ("bern", "oslo", "rome"), 285.0
    )
    assert len(read_table(table)) == 61
    assert len(read_table(table, at=version)) == 60


def test_columns_and_predicates_are_pushed_to_the_table(table, monkeypatch):
    seen = []
    scan = lakebed.read.snapshot.snapshot.Snapshot.scan

    def spied(self, *ranges, **options):
        seen.append((options["columns"], options["where"]))
        return scan(self, *ranges, **options)

    frame = read_table(table, where="id >= 18 AND shop <> 'rome'")
    monkeypatch.setattr(lakebed.read.snapshot.snapshot.Snapshot, "scan", spied)
    assert frame["amount"].sum().compute(scheduler="synchronous") == 2 * (27 + 28.5)
    assert seen == [(["amount"], "id >= 18 AND shop <> 'rome'")] * 4
    assert len(frame) == 4


def test_empty_partitions_have_the_types_of_the_others(table):
    frame = read_table(table, where="id < 0")
    assert frame.compute().dtypes.to_dict() == frame.dtypes.to_dict() == read_table(table).compute().dtypes.to_dict()


@pytest.mark.parametrize("options", [{"columns": ["price"]}, {"where": "price > 1"}, {"where": "id >"}])
def test_a_wrong_column_or_predicate_is_refused_at_once(table, options):
    with pytest.raises(lakebed.UsageError):
        read_table(table, **options)


def test_the_tutorial_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (Path(dask_lakebed.__file__).parents[2] / "README.md").read_text("utf-8")
    names = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(code, "README.md", "exec"), names)
        wanted = [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
        assert capsys.readouterr().out.splitlines() == wanted
    assert names
