"""IN, ANY, ALL and EXISTS over subqueries with nulls, against an evaluator in Python of SQL's three values.

The evaluator has no code of the engine: a condition is made as its text and as a function of a row.
"""

from __future__ import annotations

import random
import uuid

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, UsageError
from tests.soaked import few

NAMES = ("k", "id", "g", "z")
A = [(1, 1, 1, 10), (2, 2, 2, 20), (3, None, 1, 30), (4, 4, 2, 40), (5, 3, None, 50)]
B = [(1, 1, 1, 15), (2, None, 2, 25), (3, 4, 2, 35), (4, 4, None, 45)]
C = [(1, 1, 1, 1), (2, 3, 2, 3), (3, 4, 1, 4)]
TABLES = {"a": A, "b": B, "c": C}
MODES = (lakebed.KeepAll(), lakebed.Latest(by="arrival"))


@pytest.fixture(scope="module")
def lake():
    found = lakebed.create(f"memory://{uuid.uuid4().hex}")
    for name, rows in TABLES.items():
        schema = Schema({"k": "int64"}, values=dict.fromkeys(NAMES[1:], "int64"))
        table = found.create_table(name, schema)
        table.write(
            pa.table(
                {one: pa.array(column, pa.int64()) for one, column in zip(NAMES, zip(*rows, strict=True), strict=True)}
            )
        )
    return found


# -- three values ---------------------------------------------------------------------------------------------------


def negation(value):
    return None if value is None else not value


def conjunction(left, right):
    return False if left is False or right is False else None if None in (left, right) else True


def disjunction(left, right):
    return negation(conjunction(negation(left), negation(right)))


def compared(sign, left, right):
    if left is None or right is None:
        return None
    return {"=": left == right, "<>": left != right, "<": left < right, ">": left > right}[sign]


def anyone(values):
    found = False
    for value in values:
        found = disjunction(found, value)
    return found


def everyone(values):
    return negation(anyone(negation(value) for value in values))


# -- conditions -----------------------------------------------------------------------------------------------------


def operand(choice):
    """Return a value of a row of a, as text and as a function."""
    text = choice.choice(["id", "id", "a.id", "a.g", "id + 1", "3", "NULL", "CAST(NULL AS BIGINT)"])
    place = {"id": 1, "a.id": 1, "a.g": 2}.get(text)
    if place is not None:
        return text, lambda row: row[place]
    if text == "id + 1":
        return text, lambda row: None if row[1] is None else row[1] + 1
    return text, lambda _: 3 if text == "3" else None


def subquery(choice, depth):
    """Return a subquery of one column, as text and as a function from a row of a to its values."""
    name = choice.choice(["b", "b", "c"])
    rows = TABLES[name]
    kind = choice.choice(["all", "all", "equal", "unequal", "where", "none", "nested", "group", "union", "derived"])
    of = "" if choice.random() < 0.5 else f"{name}."
    match kind:
        case "equal":
            return f"SELECT {name}.id FROM {name} WHERE {name}.g = a.g", lambda row: [
                one[1] for one in rows if compared("=", one[2], row[2])
            ]
        case "unequal":
            return f"SELECT {name}.id FROM {name} WHERE {name}.z > a.z", lambda row: [
                one[1] for one in rows if compared(">", one[3], row[3])
            ]
        case "where":
            return f"SELECT {of}id FROM {name} WHERE {name}.id IS NOT NULL", lambda _: [
                one[1] for one in rows if one[1] is not None
            ]
        case "none":
            return f"SELECT {of}id FROM {name} WHERE {name}.k > 100", lambda _: []
        case "nested" if depth:
            sign = choice.choice(["IN", "NOT IN"])
            other = [one[1] for one in C]
            inner = {one: anyone(compared("=", one[2], value) for value in other) for one in rows}
            return f"SELECT {name}.id FROM {name} WHERE {name}.g {sign} (SELECT id FROM c)", lambda _: [
                one[1] for one in rows if (inner[one] if sign == "IN" else negation(inner[one])) is True
            ]
        case "group":
            return f"SELECT {name}.id FROM {name} GROUP BY {name}.id", lambda _: list({one[1] for one in rows})
        case "union":
            return f"SELECT id FROM {name} UNION ALL SELECT 7", lambda _: [*(one[1] for one in rows), 7]
        case "derived":
            return f"SELECT q.n FROM (SELECT id AS n FROM {name} WHERE k <> 1) q", lambda _: [
                one[1] for one in rows if one[0] != 1
            ]
        case _:
            return f"SELECT {of}id FROM {name}", lambda _: [one[1] for one in rows]


def leaf(choice, depth):
    kind = choice.choice(["in", "in", "not in", "not in", "any", "all", "exists", "not exists", "plain"])
    if kind == "plain":
        n = choice.randrange(1, 6)
        return f"k = {n}", lambda row: row[0] == n
    inner, values = subquery(choice, depth)
    if kind in ("exists", "not exists"):
        sign = "" if kind == "exists" else "NOT "
        return f"{sign}EXISTS ({inner})", lambda row: bool(values(row)) is (kind == "exists")
    text, value = operand(choice)
    if kind in ("in", "not in"):
        word = kind.upper() if choice.random() < 0.7 else kind
        found = lambda row: anyone(compared("=", value(row), one) for one in values(row))  # noqa: E731
        return f"{text} {word} ({inner})", found if kind == "in" else lambda row: negation(found(row))
    sign, every = choice.choice(["=", "<>", "<", ">"]), everyone if kind == "all" else anyone
    return f"{text} {sign} {kind.upper()} ({inner})", lambda row: every(
        compared(sign, value(row), one) for one in values(row)
    )


def condition(choice, depth=2):
    """Return a condition on a row of a, as text and as a function to True, False or None."""
    kind = choice.choice(["leaf", "leaf", "and", "or", "not", "is null", "is not true", "case", "coalesce"])
    if kind == "leaf" or not depth:
        return leaf(choice, depth)
    text, value = condition(choice, depth - 1)
    match kind:
        case "and" | "or":
            other, beside = condition(choice, depth - 1)
            join = conjunction if kind == "and" else disjunction
            return f"({text}) {kind.upper()} ({other})", lambda row: join(value(row), beside(row))
        case "not":
            return f"NOT ({text})", lambda row: negation(value(row))
        case "is null":
            return f"({text}) IS NULL", lambda row: value(row) is None
        case "is not true":
            return f"({text}) IS NOT TRUE", lambda row: value(row) is not True
        case "case":
            return (
                f"CASE WHEN {text} THEN k > 1 ELSE k = 1 END",
                lambda row: row[0] > 1 if value(row) is True else row[0] == 1,
            )
        case _:
            return f"coalesce({text}, true)", lambda row: value(row) is not False


PLACES = (
    "SELECT k FROM a WHERE {}",
    "SELECT k FROM a WHERE {}",
    "SELECT k FROM a WHERE {} AND k < 100",
    "SELECT a.k FROM a JOIN c ON a.k = c.k OR c.k = 1 WHERE c.k = 1 AND ({})",
    "WITH w AS (SELECT * FROM a WHERE {}) SELECT k FROM w",
    "SELECT k FROM (SELECT * FROM a WHERE {}) q ORDER BY k LIMIT 100",
    "SELECT k FROM a GROUP BY k, id, g, z HAVING {}",
    "SELECT k FROM a WHERE k IN (SELECT k FROM a WHERE {})",
    "SELECT max(k) AS k FROM a WHERE {} GROUP BY k",
    "SELECT a.k FROM c JOIN a ON c.k = 1 AND ({})",
    "SELECT q.k FROM c LEFT JOIN (SELECT * FROM a WHERE {}) q ON c.k = 1 WHERE c.k = 1 AND q.k IS NOT NULL",
)


def outcome(lake, seed):
    """Compare one statement with the evaluator. Return whether the engine answered it; it refuses some forms."""
    choice = random.Random(seed)
    text, value = condition(choice)
    statement = choice.choice(PLACES).format(text)
    if "HAVING" in statement or "JOIN" in statement:
        statement = statement.replace(" id ", " a.id ").replace("(id ", "(a.id ")
        statement = statement.replace(" k =", " a.k =").replace(" k >", " a.k >").replace("(k =", "(a.k =")
    try:
        found = lake.sql(statement).read_all()["k"].to_pylist()
    except UsageError:
        return False
    assert sorted(found) == [row[0] for row in A if value(row) is True], statement
    return True


@pytest.mark.parametrize("first", few(range(0, 200, 50), 2))
def test_subqueries_with_nulls_have_the_rows_of_sqls_three_values(lake, first):
    answered = sum(outcome(lake, seed) for seed in range(first, first + 50))
    assert answered >= 25


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 30_000, 500))
def test_many_subqueries_with_nulls_have_the_rows_of_sqls_three_values(lake, first):
    assert sum(outcome(lake, seed) for seed in range(first, first + 500)) >= 250


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        # As a null-aware join; also where the join of equal names switches hash joins off.
        ("SELECT k FROM a WHERE id NOT IN (SELECT id FROM b)", []),
        ("SELECT k FROM a WHERE id NOT IN (SELECT id FROM c) AND k < 4", [2]),
        ("SELECT x.k FROM a x JOIN a y ON x.k = y.k WHERE x.id NOT IN (SELECT id FROM c) AND y.id > 1", [2]),
        # As comparisons.
        ("SELECT k FROM a WHERE 3 NOT IN (SELECT id FROM b)", []),
        ("SELECT k FROM a WHERE (id, g) IS NOT NULL AND NOT id IN (SELECT id FROM c)", [2]),
        ("SELECT k FROM a WHERE k = ANY (SELECT k FROM a WHERE k < 3)", [1, 2]),
        ("SELECT k FROM a WHERE k <> ALL (SELECT k FROM a WHERE k < 3) OR k = 1", [1, 3, 4, 5]),
        ("SELECT k FROM (SELECT k, 3 AS id FROM a) q WHERE id NOT IN (SELECT id FROM b)", []),
        ("WITH b AS (SELECT id FROM c) SELECT k FROM a WHERE id NOT IN (SELECT id FROM b) OR k = 1", [1, 2]),
        ("SELECT k FROM a WHERE id NOT IN (WITH w AS (SELECT id FROM b) SELECT id FROM w)", []),
        ("SELECT count(*) FILTER (WHERE k > 1) AS k FROM a WHERE id NOT IN (SELECT id FROM c)", [1]),
    ],
)
def test_a_statement_with_nulls_in_a_subquery(lake, statement, wanted):
    assert sorted(lake.sql(statement).read_all()["k"].to_pylist()) == wanted


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "SELECT a.k FROM a, c WHERE a.id <> ALL (SELECT a.id FROM a WHERE a.g = c.g)",
            "over a that names columns .* give it an alias in the subquery, as in FROM a AS x",
        ),
        (
            "SELECT a.k FROM c JOIN a ON c.k = 1 AND (a.id IN (SELECT id FROM b)) IS NULL",
            "would take null for false .* make it a condition of WHERE",
        ),
    ],
)
def test_what_the_engine_can_only_evaluate_wrongly_is_refused_with_a_remedy(lake, statement, says):
    with pytest.raises(UsageError, match=says):
        lake.sql(statement)


def test_the_remedies_work(lake):
    aliased = "SELECT a.k FROM a, c WHERE a.id <> ALL (SELECT x.id FROM a AS x WHERE x.g = c.g) AND c.k = 1"
    wanted = [row[0] for row in A if everyone(compared("<>", row[1], x[1]) for x in A if x[2] == 1)]
    assert sorted(lake.sql(aliased).read_all()["k"].to_pylist()) == wanted
    moved = "SELECT a.k FROM c JOIN a ON c.k = 1 WHERE (a.id IN (SELECT id FROM b)) IS NULL"
    assert sorted(lake.sql(moved).read_all()["k"].to_pylist()) == [2, 3, 5]


@pytest.mark.parametrize(
    "many",
    ["id IN (SELECT id FROM b)", "id NOT IN (SELECT id FROM b)", "k = 1 OR (id IN (SELECT id FROM b) AND k > 2)"],
)
def test_a_plain_condition_stays_a_join(lake, many):
    """A comparison with every row would be slow."""
    plan = lake.sql(f"EXPLAIN SELECT k FROM a WHERE {many}").read_all()["plan"].to_pylist()[0]
    assert " ANY " not in plan
    assert "Filter: __correlated" not in plan
    assert " Join: a.id = __correlated" in plan
