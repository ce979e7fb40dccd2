"""IS DISTINCT FROM beside AND, OR and NOT means what standard SQL says."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.clock import random_token
from lakebed.engine.workarounds.precedence import with_brackets

ROWS = [{"k": k, "b": b, "c": c} for k, (b, c) in enumerate(product([True, False, None], [1, 2, None]))]


@pytest.fixture
def lake():
    lake = lakebed.create(f"memory://{random_token()}")
    schema = Schema({"k": "int64"}, values={"b": "bool", "c": "int64"})
    lake.create_table("t", schema).write(pa.Table.from_pylist(ROWS, schema.arrow))
    return lake


@pytest.mark.parametrize(
    ("where", "passes"),
    [
        ("b IS NOT DISTINCT FROM TRUE AND c = 1", lambda b, c: b is True and c == 1),
        ("b IS DISTINCT FROM TRUE OR c = 1", lambda b, c: b is not True or c == 1),
        ("NOT b IS DISTINCT FROM TRUE AND c = 1", lambda b, c: b is True and c == 1),
        ("c IS DISTINCT FROM 1 AND b IS NOT DISTINCT FROM NULL AND k < 99", lambda b, c: c != 1 and b is None),
        ("c IS DISTINCT FROM 1 + 1 AND (b IS DISTINCT FROM FALSE AND k < 99)", lambda b, c: c != 2 and b is not False),
        ("c IS NOT DISTINCT FROM NULL OR c BETWEEN 1 AND 1 AND b", lambda b, c: c is None or (c == 1 and bool(b))),
        ("CASE WHEN c IS DISTINCT FROM 1 AND b THEN TRUE ELSE c = 1 END", lambda b, c: (c != 1 and bool(b)) or c == 1),
    ],
)
def test_rows_pass_by_the_precedence_of_standard_sql(lake, where, passes):
    wanted = [row["k"] for row in ROWS if passes(row["b"], row["c"])]
    assert lake.table("t").scan(where=where).read_all().column("k").to_pylist() == wanted
    found = lake.sql(f"SELECT DISTINCT k FROM t WHERE {where} ORDER BY k").read_all()
    assert found.column("k").to_pylist() == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a IS DISTINCT FROM b", "a IS DISTINCT FROM b"),
        ("(a IS DISTINCT FROM b) AND c", "(a IS DISTINCT FROM b) AND c"),
        ("x OR a is not /* */ distinct from b or c", "x OR (a is not /* */ distinct from b) or c"),
        ("f(a IS DISTINCT FROM b, c AND d)", "f(a IS DISTINCT FROM b, c AND d)"),
        ("left(a, 1) IS DISTINCT FROM b[1] AND c", "(left(a, 1) IS DISTINCT FROM b[1]) AND c"),
        ("a IS DISTINCT FROM x BETWEEN 1 AND 2 AND c", "(a IS DISTINCT FROM x BETWEEN 1 AND 2) AND c"),
        ("SELECT DISTINCT FROM t WHERE a AND b", "SELECT DISTINCT FROM t WHERE a AND b"),
        ("SELECT DISTINCT a IS DISTINCT FROM b AND c", "SELECT DISTINCT (a IS DISTINCT FROM b) AND c"),
        ("x JOIN y ON a IS DISTINCT FROM b WHERE c AND d", "x JOIN y ON a IS DISTINCT FROM b WHERE c AND d"),
        ("a = ' IS DISTINCT FROM b AND c'", "a = ' IS DISTINCT FROM b AND c'"),
        ('t.distinct IS DISTINCT FROM "from" AND c', '(t.distinct IS DISTINCT FROM "from") AND c'),
        ("sum(a) OVER (ORDER BY b) IS DISTINCT FROM 1 AND c", "(sum(a) OVER (ORDER BY b) IS DISTINCT FROM 1) AND c"),
        (") end a] AND b IS DISTINCT FROM c OR (", ") end a] AND (b IS DISTINCT FROM c) OR ("),
    ],
)
def test_brackets_are_put_around_a_comparison_before_and_or_or(text, wanted):
    assert with_brackets(text) == wanted
