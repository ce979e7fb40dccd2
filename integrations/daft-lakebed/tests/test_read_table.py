"""A frame of Daft has the rows of one version of a table, and its tasks read only what they need."""

import asyncio
import datetime as dt
import pickle
import re
from pathlib import Path

import daft_lakebed
import pyarrow as pa
import pytest
from daft import DataType, col, lit
from daft.io.pushdowns import Pushdowns
from daft_lakebed import LakebedSource, read_table

import lakebed

ROWS = [
    {"shop": shop, "id": n, "amount": None if n == 3 else n * 1.5, "day": dt.date(2026, 1, 1 + n)}
    for shop in ("bern", "oslo", "rome")
    for n in range(20)
]


@pytest.fixture
def table(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    schema = lakebed.Schema(row_key={"shop": "string", "id": "int64"}, values={"amount": "double", "day": "date32"})
    table = lake.create_table("sales", schema, split_points=[("bern", 7), ("oslo",), ("oslo", 19)])
    table.write(pa.Table.from_pylist(ROWS, schema.arrow))
    return table


def ordered(frame):
    return frame.sort(["shop", "id"]).to_pylist()


def test_tasks_read_all_rows_of_the_version(table):
    frame, version = read_table(table), table.version
    table.write([{"shop": "late", "id": 1, "amount": 0.0}])
    assert ordered(frame) == ROWS
    assert (read_table(table).count_rows(), read_table(table, at=version).count_rows()) == (61, 60)
    assert read_table(table, where="id < 2 AND shop = 'oslo'").count_rows() == 2
    assert frame.limit(3).count_rows() == 3


FILTERS = {
    "comparison": (col("id") >= 18, lambda row: row["id"] >= 18, True),
    "and": ((col("shop") == "oslo") & (col("id") < 3), lambda row: row["shop"] == "oslo" and row["id"] < 3, True),
    "or": (
        (col("id") == 1) | (col("day") > lit(dt.date(2026, 1, 19))),
        lambda row: row["id"] == 1 or row["day"] > dt.date(2026, 1, 19),
        True,
    ),
    "or of a float": ((col("id") == 1) | (col("amount") > 27), lambda row: row["id"] in (1, 19), False),
    "in": (col("id").is_in([1, 5]), lambda row: row["id"] in (1, 5), True),
    "between": (col("id").between(4, 6), lambda row: 4 <= row["id"] <= 6, True),
    "null": (col("amount").is_null(), lambda row: row["amount"] is None, True),
    "not null": (col("amount").not_null() & (col("id") < 5), lambda row: row["id"] in (0, 1, 2, 4), True),
    "not": (~(col("id") > 1), lambda row: row["id"] <= 1, None),
    "arithmetic": (col("id") + 1 == 3, lambda row: row["id"] == 2, None),
    "cast": (col("id").cast(DataType.string()) == "7", lambda row: row["id"] == 7, None),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_mean_what_daft_says(table, name):
    expression, passes, _ = FILTERS[name]
    wanted = [row for row in ROWS if passes(row)]
    assert ordered(read_table(table).where(expression)) == wanted
    assert read_table(table).where(expression).select("day").count_rows() == len(wanted)


@pytest.mark.parametrize("name", FILTERS)
def test_columns_and_predicates_are_pushed_to_the_table(table, name):
    """A task of another process reads no column and no row that is not needed."""
    expression, passes, pushed = FILTERS[name]
    source = LakebedSource(table.snapshot(), ("shop", "id", "amount", "day"), None)

    async def tasks():
        return [task async for task in source.get_tasks(Pushdowns(filters=expression, columns=["day"]))]

    found = [pickle.loads(pickle.dumps(task)) for task in asyncio.run(tasks())]
    assert len(found) == 4
    assert "shop" not in found[0].names or name == "and"
    if pushed is not None:
        rows = sum(task.split.scan(columns=["id"], where=task.where).read_all().num_rows for task in found)
        assert rows == (sum(map(passes, ROWS)) if pushed else len(ROWS))


@pytest.mark.parametrize("options", [{"columns": ["price"]}, {"where": "price > 1"}, {"where": "id >"}])
def test_a_wrong_column_or_predicate_is_refused_at_once(table, options):
    with pytest.raises(lakebed.UsageError):
        read_table(table, **options)


def test_a_table_without_rows_has_its_columns(table):
    empty = read_table(table, where="id < 0")
    assert (empty.count_rows(), empty.column_names) == (0, ["shop", "id", "amount", "day"])


def test_the_tutorial_runs_as_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (Path(daft_lakebed.__file__).parents[2] / "README.md").read_text("utf-8")
    names = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(code, "README.md", "exec"), names)
        wanted = [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
        assert capsys.readouterr().out.splitlines() == wanted
    assert names
