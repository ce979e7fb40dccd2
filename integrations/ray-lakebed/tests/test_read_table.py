"""A dataset of Ray has the rows of one version of a table, and its tasks read only what they need."""

import datetime as dt
import pickle
import re
from pathlib import Path

import pyarrow as pa
import pytest
import ray
import ray_lakebed
from ray.data.expressions import col, lit
from ray_lakebed import LakebedDatasource, read_table

import lakebed

ROWS = [
    {"shop": shop, "id": n, "amount": None if n == 3 else n * 1.5, "day": dt.date(2026, 1, 1 + n)}
    for shop in ("bern", "oslo", "rome")
    for n in range(20)
]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, log_to_driver=False, logging_level="error", include_dashboard=False)
    yield
    ray.shutdown()


@pytest.fixture
def table(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    schema = lakebed.Schema(row_key={"shop": "string", "id": "int64"}, values={"amount": "double", "day": "date32"})
    table = lake.create_table("sales", schema, split_points=[("bern", 7), ("oslo",), ("oslo", 19)])
    table.write(pa.Table.from_pylist(ROWS, schema.arrow))
    return table


def ordered(dataset):
    return sorted(dataset.take_all(), key=lambda row: (row["shop"], row["id"]))


def test_tasks_read_all_rows_of_the_version(table):
    dataset, version = read_table(table), table.version
    table.write([{"shop": "late", "id": 1, "amount": 0.0}])
    assert ordered(dataset) == ROWS
    assert (read_table(table).count(), read_table(table, at=version).count()) == (61, 60)
    assert read_table(table, where="id < 2 AND shop = 'oslo'").count() == 2


FILTERS = [
    col("id") >= 18,
    (col("shop") == "oslo") & (col("id") < 3),
    (col("id") == 1) | (col("amount") > 27),
    col("id").is_in([1, 5]) & ~(col("shop") == "bern"),
    col("amount").is_null(),
    col("amount").is_not_null() & (col("amount") < 3.0),
    col("day") > lit(dt.date(2026, 1, 18)),
    col("id") + 1 == 3,
    col("amount") != 0.0,
]


@pytest.mark.parametrize("number", range(len(FILTERS)))
def test_filters_mean_what_ray_says(table, number):
    """The rows are those that Ray itself leaves of all rows."""
    expression = FILTERS[number]
    wanted = pa.Table.from_pylist(ROWS).filter(expression.to_pyarrow()).to_pylist()
    assert ordered(read_table(table).filter(expr=expression)) == wanted
    assert read_table(table).filter(expr=expression).select_columns("day").count() == len(wanted)


@pytest.mark.parametrize(("number", "read"), [(0, 6), (1, 3), (2, 60), (3, 6), (5, 57), (6, 6), (7, 60)])
def test_columns_and_predicates_are_pushed_to_the_table(table, number, read):
    """A task of another process reads no column that is not needed, and ``read`` of the 60 rows."""
    source = LakebedDatasource(table.snapshot(), ("shop", "id", "amount", "day"), None)
    source = source.apply_predicate(FILTERS[number]).apply_projection({"day": "day"})
    reads = [pickle.loads(pickle.dumps(task.read_fn)) for task in source.get_read_tasks(1)]
    assert {one.names for one in reads} == {("day",)}
    assert sum(one.split.scan(columns=["id"], where=one.where).read_all().num_rows for one in reads) == read
    wanted = pa.Table.from_pylist(ROWS).filter(FILTERS[number].to_pyarrow())
    assert pa.concat_tables(block for one in reads for block in one()).num_rows == wanted.num_rows


@pytest.mark.parametrize("options", [{"columns": ["price"]}, {"where": "price > 1"}, {"where": "id >"}])
def test_a_wrong_column_or_predicate_is_refused_at_once(table, options):
    with pytest.raises(lakebed.UsageError):
        read_table(table, **options)


def test_a_table_without_rows_has_its_columns(table):
    empty = read_table(table, where="id < 0")
    assert (empty.count(), empty.schema().names) == (0, ["shop", "id", "amount", "day"])


def test_the_tutorial_runs_as_printed(tmp_path, monkeypatch, capsys):
    ray.shutdown()
    monkeypatch.chdir(tmp_path)
    page = (Path(ray_lakebed.__file__).parents[2] / "README.md").read_text("utf-8")
    names = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(code, "README.md", "exec"), names)
        wanted = [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
        assert capsys.readouterr().out.splitlines()[-len(wanted) :] == wanted or not wanted
    assert names
