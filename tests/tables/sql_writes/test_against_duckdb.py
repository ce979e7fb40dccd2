"""Generated statements change a table as they change one of DuckDB with the same rows."""

import re

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed.clock import random_token

COLUMNS = ("k", "c", "n", "s", "d")
CREATE = "CREATE TABLE t (k BIGINT, c BIGINT, n BIGINT, s VARCHAR, d DECIMAL(9, 2), PRIMARY KEY ({}))"

NUMBER = st.sampled_from(["0", "1", "-2", "3", "NULL"])
TEXT = st.sampled_from(["'a'", "'b'", "'it''s'", "'x, (y'", "''", "NULL"])
DECIMAL = st.sampled_from(["1.25", "-0.5", "3", "NULL", "1000.01"])
KEY = st.integers(0, 5).map(str)
ROW = st.tuples(KEY, st.integers(0, 2).map(str), NUMBER, TEXT, DECIMAL)

NUMERIC = st.recursive(
    st.sampled_from(["n", "k", "c", "t.n", "1", "NULL", "length(s)"]),
    lambda one: st.one_of(
        st.tuples(one, st.sampled_from("+-*"), one).map(lambda it: f"({' '.join(it)})"),
        st.tuples(one, one).map(lambda it: f"coalesce({it[0]}, {it[1]})"),
        st.tuples(one, one).map(lambda it: f"CASE WHEN s = 'a' THEN {it[0]} WHEN n > 1 THEN {it[1]} END"),
    ),
    max_leaves=3,
)
CONDITION = st.recursive(
    st.one_of(
        st.tuples(NUMERIC, st.sampled_from(["=", "<", ">=", "<>"]), NUMERIC).map(" ".join),
        st.sampled_from([
            "s LIKE 'x%'", "s IS NULL", "n BETWEEN 0 AND 2", "s IN ('a', 'it''s')", "k IN (SELECT n FROM t)",
            "EXISTS (SELECT 1 FROM o WHERE o.k = t.k)", "n > (SELECT min(n) FROM t)", "d > 1", "TRUE", "NULL",
        ]),
    ),
    lambda one: st.one_of(
        st.tuples(one, st.sampled_from(["AND", "OR"]), one).map(lambda it: f"({' '.join(it)})"),
        one.map(lambda it: f"NOT ({it})"),
    ),
    max_leaves=3,
)  # fmt: skip
TEXTUAL = st.sampled_from(["s", "s || '!'", "upper(s)", "'set'", "NULL", "CASE WHEN n IS NULL THEN 'none' ELSE s END"])
AMOUNT = st.sampled_from(["d", "2.50", "-1", "NULL"])
ASSIGNMENTS = st.dictionaries(st.sampled_from("nsd"), st.none(), min_size=1).flatmap(
    lambda named: st.fixed_dictionaries({name: {"n": NUMERIC, "s": TEXTUAL, "d": AMOUNT}[name] for name in named})
)


def values_of(found):
    return "VALUES " + ", ".join(f"({', '.join(row)})" for row in found)


def where_of(condition):
    return "" if condition is None else f" WHERE {condition}"


def the_same(statement):
    return statement, statement.replace("INSERT INTO", "INSERT OR REPLACE INTO")


def whole_rows(found):
    """DuckDB keeps the columns of a replaced row that are not named, so it is given all of them."""
    short, whole = [(*row, "1") for row in found], [(key, "1", "NULL", text, "NULL") for key, text in found]
    return f"INSERT INTO t (k, s, c) {values_of(short)}", f"INSERT OR REPLACE INTO t {values_of(whole)}"


def unique(rows):
    return st.lists(rows, min_size=1, max_size=4, unique_by=lambda row: row[0])


STATEMENTS = st.one_of(
    unique(ROW).map(lambda found: the_same(f"INSERT INTO t {values_of(found)}")),
    unique(st.tuples(KEY, TEXT)).map(whole_rows),
    CONDITION.map(lambda one: the_same(f"INSERT INTO t SELECT k + 6, c, n, s, d FROM t WHERE k < 6 AND {one}")),
    st.tuples(NUMERIC, CONDITION).map(
        lambda it: (
            f"INSERT INTO t (k, c, n) SELECT k, c, {it[0]} AS n FROM t WHERE {it[1]}",
            f"INSERT OR REPLACE INTO t SELECT k, c, {it[0]}, NULL, NULL FROM t WHERE {it[1]}",
        )
    ),
    (st.none() | CONDITION).map(lambda one: the_same(f"DELETE FROM t{where_of(one)}")),
    st.tuples(ASSIGNMENTS, st.none() | CONDITION).map(
        lambda it: the_same(
            f"UPDATE t SET {', '.join(f'{name} = {text}' for name, text in it[0].items())}{where_of(it[1])}"
        )
    ),
)

SOURCE = "(SELECT k + {} AS k, c, n, s FROM t WHERE {})"
CLAUSES = st.tuples(
    st.lists(
        st.tuples(
            st.none() | CONDITION.map(lambda one: one.replace("t.k", "b.k")).filter(lambda one: "SELECT" not in one),
            st.sampled_from(["DELETE", "UPDATE SET n = b.n, s = 'm'", "UPDATE SET d = 2.5", "DO NOTHING"]),
        ),
        max_size=2,
    ),
    st.none() | st.sampled_from(["INSERT (k, c, n) VALUES (b.k, b.c, b.n)", "INSERT (s, k, c) VALUES ('i', b.k, 9)"]),
)


def qualified(condition):
    """The same condition over the target, whose columns the source has as well."""
    return re.sub(r"(?<![.'\w])(?:t\.)?([kcnsd])(?![\w'(])", r"a.\1", condition)


def merge_of(shift, condition, clauses):
    matched, inserted = clauses
    words = [
        f"WHEN MATCHED{'' if test is None else f' AND {qualified(test)}'} THEN {action}" for test, action in matched
    ]
    words += [] if inserted is None else [f"WHEN NOT MATCHED THEN {inserted}"]
    return f"MERGE INTO t AS a USING {SOURCE.format(shift, condition)} AS b ON (a.k = b.k) {' '.join(words)}"


def is_reachable(clauses):
    """DuckDB refuses clauses behind one without a condition."""
    matched, inserted = clauses
    return bool(matched or inserted) and all(test is not None for test, _ in matched[:-1])


MERGES = st.tuples(st.integers(-3, 3), CONDITION, CLAUSES.filter(is_reachable)).map(lambda it: merge_of(*it))

FIRST = the_same("INSERT INTO t VALUES (0, 0, 1, 'a', 1.25), (1, 0, NULL, 'it''s', NULL), (2, 1, 3, NULL, 2)")


def pair(keys, **options):
    """The same empty table, and one that is only read, in Lakebed and in DuckDB."""
    lake, other = lakebed.create(f"memory://{random_token()}"), duckdb.connect()
    with_options = ", ".join(f"{name} = '{value}'" for name, value in options.items())
    create = CREATE.format(keys)
    for made in (
        "CREATE TABLE o (k BIGINT PRIMARY KEY, n BIGINT, s VARCHAR)",
        "INSERT INTO o VALUES (1, 7, 'o'), (4, NULL, 'p')",
    ):
        lake.execute(made)
        other.execute(made)
    lake.execute(create + (f" WITH ({with_options})" if options else ""))
    other.execute(create)
    return lake, other


def held(rows):
    return sorted(rows, key=repr)


def check_same(lake, other, statement, of_duckdb):
    """Run it in both; the same rows are there afterwards, and the counts are the same."""
    report = lake.execute(statement)
    ((count,),) = other.execute(of_duckdb).fetchall()
    assert report.rows == count, statement
    found = [tuple(row.values()) for row in lake.sql("SELECT * FROM t").to_arrow().to_pylist()]
    assert held(found) == held(other.execute("SELECT * FROM t").fetchall()), statement


@settings(max_examples=2 * settings.default.max_examples)
@given(st.lists(STATEMENTS, min_size=1, max_size=6))
def test_statements_change_what_they_change_in_duckdb(found):
    lake, other = pair("k")
    for statement in (FIRST, *found):
        check_same(lake, other, *statement)
    assert lake.table("t").verify(files=True).sound


@given(st.lists(MERGES, min_size=1, max_size=4))
def test_merges_change_what_they_change_in_duckdb(found):
    lake, other = pair("k")
    for statement in (FIRST, *map(the_same, found)):
        check_same(lake, other, *statement)
    assert lake.table("t").verify(files=True).sound


def test_a_table_that_merges_by_sort_key_takes_whole_rows():
    lake, other = pair("k", merge="latest_by_sort_key", sort_key="c")
    for statement in (
        FIRST[0],
        "UPDATE t SET n = n + 1, s = 'u' WHERE k < 2",
        "UPDATE t SET d = 7.5",
        "DELETE FROM t WHERE n = 2",
        "DELETE FROM t",
    ):
        check_same(lake, other, *the_same(statement))
