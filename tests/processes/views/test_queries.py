"""Queries of views: after any refreshes a view has what its query makes of all rows, which DuckDB computes."""

from __future__ import annotations

import re
from contextlib import closing
from itertools import count
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import AddField, Aggregate, DropField, First, KeepAll, Latest, RenameField, Schema, WidenField
from lakebed.errors import Code, UsageError
from lakebed.upkeep.view_feed import refresh
from tests.raising import raises
from tests.workers import in_process

SOURCE = Schema({"k": "int64"}, values={"o": "string", "n": "int64", "d": "double", "b": "bool"})
GROUPS = {"o": "o", "third": "n % 3", "upper": "upper(o)", "big": "d > 1"}
AGGREGATES = {
    "count(*)": "sum", "count(n)": "sum", "sum(n)": "sum", "sum(n + 1)": "sum", "sum(d)": "sum", "min(n)": "min",
    "max(d)": "max", "min(d)": "min", "max(o)": "max", "min(DISTINCT n)": "min", "bool_and(b)": "all",
    "bool_or(b)": "any", "bit_or(n)": "or", "sum(n) FILTER (WHERE b)": "sum", "count(*) FILTER (WHERE d > 1)": "sum",
    "sum(CASE WHEN b THEN n ELSE 0 END)": "sum",
}  # fmt: skip
"""Aggregates that combine, with the function that combines their results."""

OTHERS = [
    "avg(n)", "count(DISTINCT n)", "sum(DISTINCT n)", "median(n)", "stddev(n)", "array_agg(n)", "first_value(n)",
    "last_value(n ORDER BY k)", "approx_distinct(n)", "sum(n) + 1", "-sum(n)", "sum(n) / count(*)", "round(sum(d))",
    "CASE WHEN count(*) > 1 THEN 1 ELSE 0 END", "count(*) > 1", "bit_xor(n)", "string_agg(o, ',')", "abs(min(n))",
]  # fmt: skip
"""Values of groups that those of several parts do not give, or that are computed above groups."""

FORMS = {
    "plain": "SELECT {columns} FROM source {where} GROUP BY {groups}",
    "ordered": "SELECT {columns} FROM source {where} GROUP BY {groups} ORDER BY {groups}",
    "inner": "SELECT {columns} FROM (SELECT * FROM source {where}) s GROUP BY {groups}",
    "outer": "SELECT * FROM (SELECT {columns} FROM source {where} GROUP BY {groups}) s",
    "with": "WITH s AS (SELECT k, o, n, d, b FROM source {where}) SELECT {columns} FROM s GROUP BY {groups}",
}
WRONG_FORMS = {
    "having": "SELECT {columns} FROM source {where} GROUP BY {groups} HAVING count(*) > 1",
    "outer having": "SELECT * FROM (SELECT {columns}, count(*) AS n0 FROM source GROUP BY {groups}) s WHERE n0 > 1",
    "nested": "SELECT {columns} FROM (SELECT o, n, d, b, k FROM source GROUP BY o, n, d, b, k) s GROUP BY {groups}",
    "rollup": "SELECT {columns} FROM source GROUP BY ROLLUP ({groups})",
    "limit": "SELECT {columns} FROM source GROUP BY {groups} LIMIT 3",
    "subquery": "SELECT {columns} FROM source WHERE n > (SELECT min(n) FROM source) GROUP BY {groups}",
    "finer": "SELECT {columns} FROM source GROUP BY {groups}, k",
}


@st.composite
def grouped(draw, forms=FORMS, aggregates=tuple(AGGREGATES)):
    """Return a query that groups rows, its key columns and its merge mode."""
    groups = draw(st.lists(st.sampled_from(sorted(GROUPS)), min_size=1, max_size=2, unique=True))
    values = draw(st.lists(st.sampled_from(aggregates), min_size=1, max_size=4, unique=True))
    named = {f"v{number}": value for number, value in enumerate(values)}
    columns = [*(f"{GROUPS[name]} AS g_{name}" for name in groups), *(f"{v} AS {name}" for name, v in named.items())]
    # A null in a group is refused, and so are rows without one.
    where = "WHERE " + " AND ".join(
        ["o IS NOT NULL", "n IS NOT NULL", "d IS NOT NULL", draw(st.sampled_from(["k > 2", "b"]))]
    )
    form = forms[draw(st.sampled_from(sorted(forms)))]
    query = form.format(columns=", ".join(columns), where=where, groups=", ".join(GROUPS[name] for name in groups))
    merge = Aggregate({name: AGGREGATES.get(value, "sum") for name, value in named.items()})
    return query, [f"g_{name}" for name in groups], merge


ROW_BY_ROW = [
    ("SELECT * FROM source WHERE o IS NOT NULL", ["k"], KeepAll()),
    ("SELECT k, n * 2 AS v, CASE WHEN b THEN o END AS w FROM source WHERE d > 1 OR b IS NULL", ["k"], KeepAll()),
    ("SELECT DISTINCT o FROM source WHERE o IS NOT NULL", ["o"], First()),
    ("SELECT DISTINCT o, n % 2 AS h FROM source WHERE o IS NOT NULL AND n IS NOT NULL", ["o", "h"], Latest()),
    ("SELECT o FROM source WHERE o IS NOT NULL GROUP BY o", ["o"], First()),
    ("SELECT o, 'x' AS kind, count(*) AS n FROM source WHERE o IS NOT NULL GROUP BY o", ["o"],
     Aggregate({"kind": "last", "n": "sum"})),
    ("SELECT 'all' AS a, max(d) AS d FROM source WHERE d > 0 GROUP BY 'all'", ["a"], Aggregate({"d": "max"})),
]  # fmt: skip

CELLS = {
    "o": st.sampled_from(["a", "A", "b", "", None]),
    "n": st.one_of(st.none(), st.integers(-4, 4), st.just(2**40)),
    # No infinity: the minimum that DataFusion 55 gives of a group of nothing else is the largest finite number.
    "d": st.sampled_from([None, -1.5, -0.0, 0.0, 0.25, 1.0, 2.5, 1e300]),
    "b": st.sampled_from([None, True, False]),
}
BATCHES = st.lists(st.lists(st.fixed_dictionaries(CELLS), min_size=1, max_size=6), min_size=1, max_size=4)


def rows(found: Any) -> list[str]:
    """Return rows for a comparison: numbers of any type, and one zero."""
    plain = [[value + 0 if isinstance(value, float) else value for value in row] for row in found]
    return sorted(str([float(v) if not isinstance(v, str | None) else v for v in row]) for row in plain)


def recomputed(query: str, data: pa.Table) -> list[str]:
    with closing(duckdb.connect()) as connection:
        connection.register("source", data)
        return rows(connection.sql(query.replace("bit_or(n)", "bit_or(n::BIGINT)")).fetchall())


def compare(folder, query, keys, merge, batches):
    """Feed a view with batches, several of which are new at some refreshes; its rows are those of the query."""
    lake = lakebed.create(str(folder))
    source = lake.create_table("s", SOURCE)
    view = lake.create_view_table("v", source="s", select=query, row_key=keys, merge=merge)
    names, numbers = view.schema.names, count()
    for index, batch in enumerate(batches):
        given = [{"k": next(numbers)} | row for row in batch]
        source.write(pa.Table.from_pylist(given, source.schema.arrow))
        if index % 2 or index == len(batches) - 1:
            refresh(view, source, part_rows=2)
            found = rows(row.values() for row in view.scan().read_all().to_pylist())
            ordered = f"SELECT {', '.join(names)} FROM ({query}) r"
            assert found == recomputed(ordered, source.scan().read_all()), query
    refresh(view, source, anew=True, part_rows=2)
    assert rows(row.values() for row in view.scan().read_all().to_pylist()) == found


@settings(max_examples=settings().max_examples // 3)
@given(one=grouped(), batches=BATCHES)
def test_groups_of_a_view_are_those_of_all_rows(tmp_path_factory, one, batches):
    compare(tmp_path_factory.mktemp("lake"), *one, batches)


@settings(max_examples=settings().max_examples // 5)
@given(one=st.sampled_from(ROW_BY_ROW), batches=BATCHES)
def test_rows_of_a_view_are_those_of_all_rows(tmp_path_factory, one, batches):
    compare(tmp_path_factory.mktemp("lake"), *one, batches)


@settings(max_examples=settings().max_examples)
@given(one=st.one_of(grouped(WRONG_FORMS), grouped(aggregates=tuple(OTHERS))))
def test_a_query_whose_parts_do_not_give_the_whole_is_refused(shared_lake, one):
    query, keys, merge = one
    with raises(Code.SQL_INVALID):
        shared_lake.create_view_table("v", source="s", select=query, row_key=keys, merge=merge)


@pytest.fixture(scope="module")
def shared_lake(tmp_path_factory):
    lake = lakebed.create(str(tmp_path_factory.mktemp("queries") / "lake"))
    lake.create_table("s", SOURCE)
    return lake


@pytest.mark.parametrize(
    ("select", "keys", "merge", "said"),
    [
        ("SELECT o, count(*) AS c FROM source GROUP BY o", ["o"], {"c": "max"}, "use sum"),
        ("SELECT o, max(n) AS c FROM source GROUP BY o", ["c"], {"o": "last"}, "column o tells groups apart"),
        ("SELECT o, n, count(*) AS c FROM source GROUP BY o, n", ["o"], {"c": "sum", "n": "last"}, "column n tells"),
        ("SELECT o, 1 AS one FROM source GROUP BY o", ["o"], {"one": "sum"}, "use last"),
        ("SELECT o, avg(n) AS a FROM source GROUP BY o", ["o"], {"a": "sum"}, "a sum and a count for an average"),
        ("SELECT count(*) AS c FROM source", ["c"], {}, "GROUP BY 'all'"),
        ("SELECT o, sum(n) + 1 AS c FROM source GROUP BY o", ["o"], {"c": "sum"}, r"sum\(n \+ 1\)"),
        ("SELECT o, count(*) AS c FROM source GROUP BY o HAVING count(*) > 1", ["o"], {"c": "sum"}, "HAVING"),
        ("SELECT DISTINCT ON (o) o, n FROM source", ["o"], {"n": "last"}, "DISTINCT ON"),
    ],
)
def test_a_refusal_says_what_would_be_wrong_and_what_to_do(shared_lake, select, keys, merge, said):
    mode = Aggregate(merge) if merge else KeepAll()
    with pytest.raises(UsageError, match=said):
        shared_lake.create_view_table("v", source="s", select=select, row_key=keys, merge=mode)


def test_the_query_of_a_view_reads_the_fields_that_it_was_declared_with(tmp_path):
    """Fields that are renamed or swapped are the same fields; new ones are no part of ``SELECT *``."""
    lake = lakebed.create(str(tmp_path / "lake"))
    source = lake.create_table("s", Schema({"k": "int64"}, values={"o": "string", "a": "int32", "b": "int32"}))
    every = lake.create_view_table("every", source="s", select="SELECT * FROM source", row_key=["k"])
    select = "SELECT o, sum(a) AS a FROM source GROUP BY o"
    total = lake.create_view_table("total", source="s", select=select, row_key=["o"], merge=Aggregate({"a": "sum"}))
    with in_process(lake) as pipeline:
        source.write(pa.table({"k": [1], "o": ["x"], "a": [1], "b": [10]}))
        pipeline.refresh(every)
        pipeline.refresh(total)
        source.alter(RenameField("a", "was_a"))
        source.alter(RenameField("b", "a"))
        source.alter(AddField("b", "int64"))
        source.alter(WidenField("was_a", "int64"))
        source.write(pa.table({"k": [2], "o": ["x"], "was_a": [2], "a": [20], "b": [200]}))
        for anew in (False, True):
            pipeline.refresh(every, anew=anew)
            pipeline.refresh(total, anew=anew)
            assert total.scan().read_all().to_pylist() == [{"o": "x", "a": 3}]
            wanted = [{"k": 1, "o": "x", "a": 1, "b": 10}, {"k": 2, "o": "x", "a": 2, "b": 20}]
            assert every.scan().read_all().to_pylist() == wanted
        source.alter(DropField("a"))
        source.alter(AddField("c", "int64"))
        source.write(pa.table({"k": [3], "o": ["x"], "was_a": [4], "b": [0], "c": [0]}))
        pipeline.refresh(total)
        assert total.get("x").column("a").to_pylist() == [7]
        with pytest.raises(UsageError, match="its query reads some of b, which were dropped from s"):
            pipeline.refresh(every)


def test_results_with_a_null_in_the_key_are_left_out_as_by_the_condition_that_is_said(tmp_path, caplog):
    lake = lakebed.create(str(tmp_path / "lake"))
    source = lake.create_table("s", SOURCE)
    select, merge = "SELECT upper(o) AS o, n, count(*) AS c FROM source{} GROUP BY upper(o), n", Aggregate({"c": "sum"})
    one = lake.create_view_table("v", source="s", select=select.format(""), row_key=["o", "n"], merge=merge)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "lakebed.views"]
    query = re.search(r"as by (SELECT .*)$", said)[1]
    source.write(pa.table({"k": [1, 2, 3], "o": ["a", None, "b"], "n": [1, 1, None]}))
    with in_process(lake) as pipeline:
        assert pipeline.refresh("v").rows_without_key == 2
        assert len(caplog.records) == 1
    assert one.scan().read_all().to_pylist() == [{"o": "A", "n": 1, "c": 1}]
    columns = "o, n, c"
    assert recomputed(f"SELECT {columns} FROM ({query}) r", source.scan().read_all()) == rows([("A", 1, 1)])
    said_of = len(caplog.records)
    lake.create_view_table("k", source="s", select="SELECT k, o FROM source", row_key=["k"])
    assert len(caplog.records) == said_of, "a key of the source is never null"
