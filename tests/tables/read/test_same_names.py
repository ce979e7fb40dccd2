"""Statements with two columns of one name: the engine must not take one of them for the other."""

from __future__ import annotations

from itertools import product

import duckdb
import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.clock import random_token
from lakebed.engine.datafusion import expression_context
from lakebed.engine.workarounds.same_names import options_off
from lakebed.errors import Code
from tests.raising import raises

TRIPS = [{"k": k, "a": a, "d": d} for k, (a, d) in enumerate(product([1, 5, 7], [-1, 2]))]


@pytest.fixture
def lake():
    """Tables of two files each, which the engine reads."""
    lake = lakebed.create(f"memory://{random_token()}")
    lake.sql_engine()[0].in_memory_rows = 0
    schema = Schema({"k": "int64"}, values={"a": "int64", "d": "int64"})
    for name, rows in (("t", TRIPS), ("u", [trip | {"a": 6 - trip["a"]} for trip in TRIPS])):
        table = lake.create_table(name, schema)
        for half in (rows[::2], rows[1::2]):
            table.write(pa.Table.from_pylist(half, schema.arrow))
    return lake


@pytest.mark.parametrize(("one", "other"), [("t", "t"), ("t", "u")])
@pytest.mark.parametrize(
    ("join", "kept"), [("RIGHT JOIN", "y"), ("FULL JOIN", "y"), ("LEFT JOIN", "x"), ("FULL JOIN", "x")]
)
def test_a_condition_over_an_outer_join_compares_the_columns_of_both_sides(lake, one, other, join, kept):
    where = f"x.a < y.a OR {kept}.d > 0"
    found = lake.sql(f"SELECT x.k AS x, y.k AS y FROM {one} x {join} {other} y ON x.d = y.d WHERE {where}").read_all()
    ours, theirs = (lake.table(name).to_arrow().to_pylist() for name in (one, other))
    wanted = [
        (x["k"], y["k"])
        for x, y in product(ours, theirs)
        if x["d"] == y["d"] and (x["a"] < y["a"] or (y if kept == "y" else x)["d"] > 0)
    ]
    assert sorted((row["x"], row["y"]) for row in found.to_pylist()) == sorted(wanted)


def test_a_join_with_groups_by_two_columns_of_one_name_loses_no_rows(lake):
    places = lake.create_table("places", Schema({"id": "string"}, values={"kind": "string"}))
    places.write(pa.table({"id": ["a"], "kind": ["x"]}))
    lake.create_table("kinds", Schema({"id": "string"})).write(pa.table({"id": ["x"]}))
    groups = "SELECT p.id, k.id FROM places p LEFT JOIN kinds k ON p.kind = k.id GROUP BY p.id, k.id"
    found = lake.sql(f"SELECT s.id AS s, p.id AS p FROM kinds s JOIN ({groups}) ON s.id = k.id").read_all()
    assert found.to_pylist() == [{"s": "x", "p": "a"}]


def test_a_condition_on_groups_of_several_sets_is_not_moved_to_a_column_of_the_same_name(lake):
    sets = "GROUP BY GROUPING SETS ((x.k), (x.k, x.a)) HAVING x.k > 2"
    found = lake.sql(f"SELECT x.k, max(y.k) AS m FROM t x JOIN u y ON x.d = y.d {sets}").read_all()
    wanted = [(one["k"], max(other["k"] for other in TRIPS if other["d"] == one["d"])) for one in TRIPS if one["k"] > 2]
    assert sorted((row["k"], row["m"]) for row in found.to_pylist()) == sorted(2 * wanted)


HASH, TOPK, JOIN, GROUPS = (
    f"datafusion.optimizer.{name}"
    for name in (
        "prefer_hash_join",
        "enable_topk_dynamic_filter_pushdown",
        "enable_join_dynamic_filter_pushdown",
        "enable_aggregate_dynamic_filter_pushdown",
    )
)


@pytest.mark.parametrize(
    ("statement", "off"),
    [
        ("SELECT k FROM t WHERE a > 1 ORDER BY d LIMIT 2", set()),
        ("SELECT x.a, u.d FROM t x JOIN u ON x.k = u.k WHERE x.a > 1 AND u.d < x.a", set()),
        ("SELECT x.a, count(*) FROM t x JOIN u ON x.k = u.k GROUP BY x.a HAVING count(*) > 1", {GROUPS}),
        ("SELECT x.a, u.a FROM t x JOIN u ON x.k = u.k ORDER BY u.a LIMIT 2", {TOPK}),
        ("SELECT x.a, u.a FROM t x JOIN u ON x.k = u.k GROUP BY x.a, u.a", {GROUPS}),
        ("SELECT min(x.a), max(u.a) FROM t x JOIN u ON x.k = u.k", {GROUPS}),
        ("SELECT x.a, y.a, u.a FROM t x JOIN t y ON x.k = y.k JOIN u ON y.a = u.k", {JOIN}),
        ("SELECT x.d FROM t x LEFT JOIN u ON x.k = u.k WHERE x.a < u.a", set()),
        ("SELECT x.d FROM t x LEFT JOIN u ON x.k = u.k WHERE u.a IS NULL OR u.a > x.a", {HASH}),
        ("SELECT x.k, u.k FROM t x RIGHT JOIN u ON x.d = u.d WHERE x.a > 0 OR u.a IS NULL", {HASH}),
        ("SELECT x.d FROM t x FULL JOIN u ON x.k = u.k WHERE u.a IS NULL OR x.a IS NULL", set()),
        ("SELECT max(u.k) FROM t x JOIN u ON x.d = u.d GROUP BY ROLLUP (x.k) HAVING x.k > 1", {HASH, GROUPS}),
        ("SELECT max(u.k) FROM t x JOIN u ON x.d = u.d GROUP BY x.k HAVING count(*) > 1", {GROUPS}),
        ("SELECT k FROM t WHERE a = (SELECT max(x.a) FROM t x JOIN u ON x.k = u.k)", {HASH, TOPK, JOIN, GROUPS}),
    ],
)
def test_options_are_off_where_a_filter_may_be_moved_by_a_name(statement, off):
    context = expression_context()
    for name in "tu":
        context.from_pydict({"k": [1], "a": [1], "d": [1]}, name=name)
    has_hidden = "(SELECT" in statement
    assert set(options_off(context.sql(statement).optimized_logical_plan(), has_hidden=has_hidden)) == off


REFUSED = """
SELECT x.k, x.a, CAST(sum(y.{a}) AS BIGINT) AS s FROM t x JOIN {right} y ON x.k = y.{a}
WHERE y.{k} > 1 OR x.k < 0 GROUP BY ROLLUP (x.k, x.a) HAVING x.a > 2
"""


def test_a_join_that_is_mistaken_by_either_way_is_refused_and_answered_under_other_names(lake):
    """Hash joins move its filter by name, and joins of sorted rows evaluate its condition over other columns."""
    with raises(Code.SQL_INVALID):
        lake.sql(REFUSED.format(a="a", k="k", right="t"))
    renamed = REFUSED.format(a="other_a", k="other_k", right="(SELECT k AS other_k, a AS other_a FROM t)")
    peer = duckdb.connect()
    peer.register("t", lake.table("t").to_arrow())
    found, wanted = lake.sql(renamed).read_all(), peer.sql(renamed).to_arrow_table()
    assert found.num_rows
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))
