"""Long chains of OR become lists where that means the same, and nothing else changes."""

from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lakebed.engine.complexity import CHAIN_MIN, fit, use_lists
from lakebed.engine.datafusion import context
from lakebed.errors import UsageError

COUNT = CHAIN_MIN + 2


def chain(*operands):
    """A chain of the operands in turn, each COUNT times, where {i} counts."""
    return " OR ".join(one.replace("{i}", str(i)) for i in range(COUNT) for one in operands)


def inner(literal="{i}"):
    """The list of the operands but for the first and the last."""
    return ", ".join(literal.replace("{i}", str(i)) for i in range(1, COUNT - 1))


@pytest.mark.parametrize(
    ("operand", "column", "literal"),
    [
        ("a = {i}", "a", "{i}"),
        ("a=-{i}", "a", "-{i}"),
        ("(a = {i})", "a", "{i}"),
        ("((t.a = {i}))", "t.a", "{i}"),
        ('"OR".a = {i}', '"OR".a', "{i}"),
        ("x.or = {i}", "x.or", "{i}"),
        ("s = 'it''s OR {i}'", "s", "'it''s OR {i}'"),
        ("d = DATE '2026-01-{i}'", "d", "DATE '2026-01-{i}'"),
        ("t = timestamp '{i}'", "t", "timestamp '{i}'"),
        ("a /* OR */ = {i} -- OR\n", "a", "{i}"),
    ],
)
def test_equalities_of_a_column_become_a_list(operand, column, literal):
    text = f"b < 1 AND ({chain(operand)})"
    assert " ".join(use_lists(text).split()) == " ".join(
        f"b < 1 AND ({operand.format(i=0)} OR {column} IN ({inner(literal)}) OR {operand.format(i=COUNT - 1)})".split()
    )


@pytest.mark.parametrize(
    "operand",
    [
        "a = {i} + 1",
        "1 + a = {i}",
        "a = {i} AND b = 1",
        "a = {i}.5",
        "a = {i}e3",
        "a = 1234567890123456789{i}",
        "a = b",
        "a = NULL",
        "a == {i}",
        "a >= {i}",
        "a <> {i}",
        "NOT a = {i}",
        "a = {i} IS TRUE",
        "a = {i}::smallint",
        "s = X'0{i}'",
        "s = E'{i}'",
        "s = 'x' 'y{i}'",
        "f(a) = {i}",
        "f(a = {i})",
        "a[1] = {i}",
        "(a) = {i}",
        "{i} = a",
        "(a = {i}",
        "a = {i})",
        "s = $$a = {i} OR a = 2$$",
    ],
)
def test_whatever_else_stays_as_it_is(operand):
    assert use_lists(chain(operand)) == chain(operand)


def test_short_chains_stay_as_they_are():
    text = " OR ".join(f"a = {i}" for i in range(CHAIN_MIN))
    assert use_lists(text) == text


def test_columns_and_kinds_of_literals_have_lists_of_their_own():
    texts = ", ".join(f"'{i}'" for i in range(COUNT))
    less, more = (", ".join(map(str, some)) for some in (range(COUNT - 1), range(1, COUNT)))
    found = use_lists(chain("a = {i}", "a = '{i}'", "b = {i}"))
    assert " ".join(found.split()) == f"a = 0 OR a IN ({texts}) OR b IN ({less}) OR a IN ({more}) OR b = {COUNT - 1}"


def test_an_expression_becomes_the_same_wherever_it_stands():
    text = chain("a = {i}")
    assert use_lists(f"SELECT {text}, 1 FROM t GROUP BY {text}") == "SELECT {0}, 1 FROM t GROUP BY {0}".format(
        use_lists(text)
    )


TIMES = [datetime(2026, 1, 1), datetime(1970, 1, 1, 0, 0, 1), datetime(2026, 1, 1, 5), datetime(1960, 1, 1), None]  # noqa: DTZ001
COLUMNS = {
    "int8": pa.array([1, 2, -3, 0, None], pa.int8()),
    "int64": pa.array([1, 2**53 + 1, -3, 0, None], pa.int64()),
    "uint64": pa.array([1, 2**63 + 5, 3, 0, None], pa.uint64()),
    "float32": pa.array([1, 2.0**24, 2, float("nan"), None], pa.float32()),
    "float64": pa.array([1, 2.0**53, 2, float("nan"), None], pa.float64()),
    "decimal": pa.array([Decimal("1.00"), Decimal("2.50"), Decimal(-3), Decimal(0), None], pa.decimal128(10, 2)),
    "string": pa.array(["1", "01", " 1", "2026-01-01", None]),
    "bool": pa.array([True, False, True, False, None]),
    "binary": pa.array([b"1", b"01", b"x", b"", None]),
    "date": pa.array([date(2026, 1, 1), date(1970, 1, 2), date(1970, 1, 1), date(1960, 1, 1), None]),
    "seconds": pa.array(TIMES, pa.timestamp("s")),
    "micros": pa.array(TIMES, pa.timestamp("us")),
    "utc": pa.array(TIMES, pa.timestamp("us", "UTC")),
    "dictionary": pa.array(["1", "01", "x", "y", None]).dictionary_encode(),
    "null": pa.nulls(5),
}
LITERALS = {
    "integers": ["1", "2", "0", "-3", "9007199254740993", "300"],
    "texts": ["'1'", "'01'", "' 1'", "'x'", "''", "'2026-01-01'"],
    "digits": ["'1'", "'01'", "'2'", "'-3'", "'0'"],
    "days": ["'2026-01-01'", "'1970-01-01'", "'1970-01-02'"],
    "times": ["'2026-01-01'", "'2026-01-01T05:00:00'", "'2026-01-01T06:00:00+01:00'"],
    "dates": ["DATE '2026-01-01'", "DATE '1970-01-01'"],
    "timestamps": ["TIMESTAMP '2026-01-01'", "TIMESTAMP '2026-01-01T05:00:00'"],
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("literals", LITERALS.values(), ids=LITERALS)
def test_a_list_is_true_of_the_rows_of_which_its_equalities_are(column, literals):
    """Asked one by one: a chain of several is made a list by the engine itself."""
    one_by_one = [asked(f'"{column}" = {literal}') for literal in literals]
    long = asked(" OR ".join(f'"{column}" = {literal}' for literal in literals * CHAIN_MIN))
    if None in one_by_one:
        assert long is None
    else:
        of_rows = list(zip(*one_by_one, strict=True))
        assert long == [True if True in one else None if None in one else False for one in of_rows]


def asked(condition):
    """What the engine says of each row; None where it refuses."""
    engine = context(partitions=1, batch_rows=8192, pool_bytes=64 * 1024 * 1024)
    frame = engine.from_arrow(pa.table(COLUMNS))
    try:
        return (
            frame.select(frame.parse_sql_expr(use_lists(condition)).alias("x")).to_arrow_table().column(0).to_pylist()
        )
    except Exception:  # noqa: BLE001 - the engine raises plain exceptions.
        return None


def test_equalities_that_became_a_list_count_as_one_condition():
    many = " OR ".join(f"a = {i}" for i in range(20_000))
    assert "IN (1, 2" in fit(f"NOT ({many})", "it").text
    ranges = " OR ".join(f"a BETWEEN {i} AND {i}" for i in range(10_001))
    with pytest.raises(UsageError, match=r"it has 10,001 conditions joined by OR; at most 10,000 are allowed\. Use IN"):
        fit(ranges, "it")
    assert fit(ranges.rpartition(" OR ")[0], "it").text.count("BETWEEN") == 10_000
