"""Constants beside names that mean several things in one statement, against rows that Python filters.

A text in the form of a UUID beside ``id``, and a number with a point beside ``price``, where these names are columns of
several types, aliases, or columns of subqueries.
"""

from __future__ import annotations

import operator
import random
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.read.sql.query import SqlEngine

IDS = [str(uuid.UUID(int=one)) for one in (1, 2**64, 2**100, 2**127)]
TEXTS = [IDS[1], "x", IDS[0].upper(), IDS[3]]
PRICES = ["7228510.96", "1.10", "-1.50", "1.01"]
DOUBLES = [7228510.96, 1.1, 0.1, -1.5]

UUIDS = [uuid.UUID(one).bytes for one in IDS]
DECIMALS = [Decimal(one) for one in PRICES]
SOURCES = {
    "id": [
        ("SELECT k, id FROM a", UUIDS, "uuid"),
        ("SELECT k, name AS id FROM a", TEXTS, "text"),
        ("SELECT k, other id FROM a", UUIDS, "uuid"),
        ("SELECT k, id FROM b", TEXTS, "text"),
        ("SELECT q.k, q.id FROM (SELECT a.k, b.id FROM a JOIN b ON a.k = b.k) q", TEXTS, "text"),
        ("SELECT a.k, a.id FROM a JOIN b USING (k)", UUIDS, "uuid"),
        (f"SELECT k, id FROM (VALUES {', '.join(map(str, enumerate(TEXTS)))}) v(k, id)", TEXTS, "text"),
        ("SELECT k, id FROM b UNION ALL SELECT k, name FROM a WHERE k < 0", TEXTS, "text"),
        ("SELECT k, CASE WHEN k >= 0 THEN id END AS id FROM a", UUIDS, "uuid"),
    ],
    "price": [
        ("SELECT k, price FROM a", DECIMALS, "decimal"),
        ("SELECT k, d AS price FROM a", DOUBLES, "double"),
        ("SELECT k, cost price FROM a", DECIMALS, "decimal"),
        ("SELECT k, price FROM b", DOUBLES, "double"),
        ("SELECT a.k, a.price FROM a JOIN b USING (k)", DECIMALS, "decimal"),
        ("SELECT q.k, q.price FROM (SELECT a.k, b.price FROM a JOIN b ON a.k = b.k) q", DOUBLES, "double"),
        ("SELECT k, max(price) AS price FROM a GROUP BY k", DECIMALS, "decimal"),
    ],
}  # fmt: skip
CONSTANTS = {"id": [*IDS, str(uuid.UUID(int=5))], "price": ["7228510.96", "1.1", "0.1", "1.005", "7228510.955"]}
MEANT = {"uuid": lambda text: uuid.UUID(text).bytes, "text": str, "decimal": Decimal, "double": float}
OPERATORS = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, ">=": operator.ge, "IS DISTINCT FROM": operator.ne,
    "IS NOT DISTINCT FROM": operator.eq,
}  # fmt: skip
WRAPS = (
    "SELECT k FROM ({0}) q WHERE {1}",
    "WITH q AS ({0}) SELECT k FROM q WHERE {1}",
    "SELECT q.k FROM a JOIN ({0}) q ON a.k = q.k WHERE {2}",
    "SELECT k FROM b JOIN ({0}) q USING (k) WHERE {2}",
    "SELECT k FROM a WHERE k IN (SELECT k FROM ({0}) q WHERE {1})",
    "SELECT k FROM b WHERE EXISTS (SELECT 1 FROM ({0}) q WHERE q.k = b.k AND {2})",
    "SELECT k FROM (SELECT k, {1} AS found FROM ({0}) q) WHERE found",
    "SELECT k FROM ({0}) q GROUP BY k, {3} HAVING {1}",
    "SELECT q.k FROM b LEFT JOIN ({0}) q ON b.k = q.k AND {2} WHERE q.k IS NOT NULL",
    "SELECT k FROM ({0}) q WHERE k < (SELECT count(*) FROM ({0}) q WHERE {1}) * 0 + 9 AND {1}",
)


@pytest.fixture(scope="module")
def lake():
    found = lakebed.create(f"memory://{uuid.uuid4().hex}")
    values = {
        "id": "uuid", "other": "uuid", "name": "string", "price": "decimal128(12, 2)", "cost": "decimal256(60, 2)",
        "d": "double", "s": "struct<id: string, price: double>",
    }  # fmt: skip
    a = found.create_table("a", Schema({"k": "int64"}, values=values))
    b = found.create_table("b", Schema({"k": "int64"}, values={"id": "string", "price": "double"}))
    ids = [uuid.UUID(one) for one in IDS]
    a.write(
        [
            {
                "k": k, "id": ids[k], "other": ids[k], "name": TEXTS[k], "price": DECIMALS[k], "cost": DECIMALS[k],
                "d": DOUBLES[k], "s": {"id": TEXTS[k], "price": DOUBLES[k]},
            }
            for k in range(4)
        ]
    )  # fmt: skip
    b.write(pa.table({"k": range(4), "id": TEXTS, "price": DOUBLES}))
    return found


def _condition(choice, column, quoted):
    """Return a condition on a column, as text with a place for its name, and as a function of a value and a meaning."""
    kind = choice.choice([*OPERATORS, "reversed", "in", "not in", "between"])
    constants = [choice.choice(CONSTANTS[column]) for _ in range({"in": 3, "not in": 2, "between": 2}.get(kind, 1))]
    texts = [quoted(constant) for constant in constants]
    first = constants[0]
    match kind:
        case "reversed":
            return f"{texts[0]} < {{}}", lambda value, meant: meant(first) < value
        case "in":
            return f"{{}} IN ({', '.join(texts)})", lambda value, meant: value in map(meant, constants)
        case "not in":
            return f"{{}} NOT IN ({', '.join(texts)})", lambda value, meant: value not in map(meant, constants)
        case "between":
            return (
                f"{{}} BETWEEN {texts[0]} AND {texts[1]}",
                lambda value, meant: meant(first) <= value <= meant(constants[1]),
            )
        case sign:
            return f"{{}} {sign} {texts[0]}", lambda value, meant: OPERATORS[sign](value, meant(first))


@pytest.mark.parametrize("seed", range(120))
def test_a_constant_has_the_type_of_what_its_name_means_there(lake, seed):
    choice = random.Random(seed)
    column = choice.choice(["id", "price"])
    source, values, kind = choice.choice(SOURCES[column])
    parameters = []

    def quoted(constant):
        if column == "id" and choice.random() < 0.3:
            parameters.append(constant)
            return f"${len(parameters)}"
        return f"'{constant}'" if column == "id" else constant

    where, is_true = _condition(choice, column, quoted)
    wrap = choice.choice(WRAPS)
    statement = wrap.format(source, where.format(column), where.format(f"q.{column}"), column)
    found = lake.sql(statement, parameters=parameters or None).read_all()["k"].to_pylist()
    assert sorted(found) == [k for k, value in enumerate(values) if is_true(value, MEANT[kind])], statement


@pytest.mark.parametrize("seed", range(40))
def test_two_names_of_one_statement_have_each_its_own_type(lake, seed):
    choice = random.Random(seed)
    column = choice.choice(["id", "price"])
    (left, left_values, left_kind), (right, right_values, right_kind) = choice.choices(SOURCES[column], k=2)
    quoted = "'{}'".format if column == "id" else str
    (where, is_true), (other, is_other) = (_condition(choice, column, quoted) for _ in range(2))
    operator_, either = choice.choice([("AND", all), ("OR", any)])
    statement = (
        f"SELECT p.k FROM ({left}) p JOIN ({right}) q ON p.k = q.k "
        f"WHERE {where.format(f'p.{column}')} {operator_} {other.format(f'q.{column}')}"
    )
    pairs = enumerate(zip(left_values, right_values, strict=True))
    wanted = [k for k, (a, b) in pairs if either([is_true(a, MEANT[left_kind]), is_other(b, MEANT[right_kind])])]
    assert sorted(lake.sql(statement).read_all()["k"].to_pylist()) == wanted, statement


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (f"id = '{IDS[1]}'", [1]),
        (f"s.id = '{IDS[1]}'", [0]),
        (f"s.id IN ('{IDS[0]}', '{IDS[3]}') AND id = '{IDS[3]}'", [3]),
        ("s.price = 0.1 AND price = -1.5", [2]),
        ("price IN (1.1, 1.005) OR d = 0.1", [1, 2]),
    ],
)
def test_a_name_in_a_predicate_is_a_column_or_a_member_of_a_struct(lake, where, wanted):
    assert lake.table("a").scan(where=where).read_all()["k"].to_pylist() == wanted
    assert lake.sql(f"SELECT k FROM a WHERE {where} ORDER BY k").read_all()["k"].to_pylist() == wanted


def test_an_alias_in_order_by_is_not_the_column_of_its_name(lake):
    """In WHERE the name is the column, in ORDER BY the alias."""
    found = lake.sql(f"SELECT k, name AS id FROM a WHERE id >= '{IDS[0]}' ORDER BY id = '{TEXTS[0]}' DESC, k")
    assert found.read_all()["k"].to_pylist() == [0, 1, 2, 3]


def test_many_constants_beside_one_name_are_asked_for_once(lake):
    asked = []

    class Noting(SqlEngine):
        def _refusal(self, *given):
            asked.append(given)
            return super()._refusal(*given)

    engine = Noting(lake.snapshot_named, lake.tables)
    anyone = " OR ".join(f"id = '{uuid.UUID(int=n)}'" for n in range(500))
    found = engine.run(f"SELECT k FROM a WHERE {anyone}", lake.sql_pool_bytes())
    assert found.read_all()["k"].to_pylist() == [0]
    assert len(asked) == 0
