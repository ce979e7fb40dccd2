"""In SQL, texts that are compared with a UUID become bytes, and numbers that are compared with a decimal, decimals."""

from decimal import Decimal

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.engine.workarounds.typed_literals import with_typed_literals
from lakebed.model.type_names import UUID

TEXT, BYTES = "'6f9619ff-8b86-d011-b42d-00c04fc964ff'", "X'6f9619ff8b86d011b42d00c04fc964ff'"
UUIDS = pa.schema(
    {
        "id": UUID,
        "my id": UUID,
        "name": pa.string(),
        "s": pa.struct([("id", UUID)]),
        "t": pa.struct([("id", pa.string())]),
    }
)


@pytest.mark.parametrize(
    "form",
    [
        "id = {}", "id<>{}", "s.id >= {}", '"my id" != {}', "{} = id", '{} <= s."id"', "id IN ({}, {})",
        "id in ('a', {})", "NOT id NOT IN ({})", "id BETWEEN {} AND {}", "id NOT BETWEEN {} AND {} AND n = 1",
        "x = 1 AND (id = {})", "id IS DISTINCT FROM {}", "{} is not distinct from s.id", "s.id IS NOT DISTINCT FROM {}",
        "id IN ({}, NULL, {})", "id BETWEEN X'00' AND {}",
        "id not between x'00' and {} AND n = 1", "id NOT IN (f(1, (2)), {}, X'00', {})",
    ],
)  # fmt: skip
def test_a_text_beside_a_uuid_column_becomes_bytes(form):
    assert with_typed_literals(form.replace("{}", TEXT), UUIDS) == form.replace("{}", BYTES)


OTHERS = [
    "t.id = {}", "{} = t.id", "x.id = {}",
    "name = {}", "'id = ' || {}", "f({})", "id = 'abc'", "name IN ({})", "1 AND {} = name", "{}",
    "id IN (SELECT {}, name FROM t)", "id IN (f({}, {}))", "SELECT DISTINCT FROM {}", "({}, id)", ") {}",
]  # fmt: skip


@pytest.mark.parametrize("text", OTHERS)
def test_other_texts_stay(text):
    text = text.replace("{}", TEXT)
    assert with_typed_literals(text, UUIDS) == text


PRICES = pa.schema(
    {
        "p": pa.decimal128(12, 2),
        "x": pa.float64(),
        "big": pa.decimal256(60, 2),
        "t": pa.struct([("p", pa.decimal128(5, 2)), ("x", pa.float64())]),
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p = 1.25", "p = CAST('1.25' AS DECIMAL(3, 2))"),
        ("0.5 <= t.p", "CAST('0.5' AS DECIMAL(2, 1)) <= t.p"),
        ("p > -.5", "p > -CAST('0.5' AS DECIMAL(1, 1))"),
        ("p IN (1, -1.5, x)", "p IN (1, -CAST('1.5' AS DECIMAL(2, 1)), x)"),
        (
            "p between -1.5 and 2.5 and x = 1.5",
            "p between -CAST('1.5' AS DECIMAL(2, 1)) and CAST('2.5' AS DECIMAL(2, 1)) and x = 1.5",
        ),
        ("big = 1.5", "big = CAST('1.5' AS DECIMAL(2, 1))"),
    ],
)
def test_a_number_with_a_point_beside_a_decimal_column_becomes_a_decimal(text, expected):
    assert with_typed_literals(text, PRICES) == expected


@pytest.mark.parametrize(
    "text",
    [
        "x = 1.5", "p = 1", "p = 1.5e3", "p = '1.5'", "p = x OR x > 1.5", "sum(p) = 1.5", "p.a = 1", "t.x = 1.5",
        # The engine compares decimals with the digits of both: 10 before the point, 29 behind it.
        "p = 0.12345678901234567890123456789",
    ],
)  # fmt: skip
def test_other_numbers_stay(text):
    assert with_typed_literals(text, PRICES) == text


@pytest.fixture(scope="module", params=["value", "key"])
def prices(request):
    lake = lakebed.create(f"memory://prices-by-{request.param}")
    keys, values = {"p": "decimal128(12, 2)"}, {"n": "int64"}
    schema = Schema(keys, {}, values) if request.param == "key" else Schema(values, {}, keys)
    table = lake.create_table("prices", schema)
    table.write(
        pa.table(
            {
                "p": pa.array(map(Decimal, ["7228510.96", "1.10", "-1.50", "1.01"]), pa.decimal128(12, 2)),
                "n": [1, 2, 3, 4],
            }
        )
    )
    return lake, table


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("p = 7228510.96", {1}),
        ("p >= 7228510.96", {1}),
        ("p > 7228510.96", set()),
        ("p IN (7228510.96, 1.1, -1.5)", {1, 2, 3}),
        ("p BETWEEN -1.50 AND 1.1", {2, 3, 4}),
        ("7228510.96 = p OR 1.005 = p", {1}),
        ("p < 1.005", {3}),
        ("p <> 7228510.96", {2, 3, 4}),
    ],
)
def test_a_decimal_is_compared_exactly_with_a_number(prices, where, expected):
    lake, table = prices
    assert set(table.scan(where=where).read_all()["n"].to_pylist()) == expected
    assert set(lake.sql(f"SELECT n FROM prices WHERE {where}").read_all()["n"].to_pylist()) == expected
