"""Statements with parameters: each value means itself, and decides what is read; rows as frames of other libraries."""

import datetime as dt
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, UsageError
from lakebed.clock import random_token
from lakebed.engine.statement_parameters import with_parameters

DAY = dt.datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def lake():
    made = lakebed.create(f"memory://{random_token()}")
    table = made.create_table("t", Schema({"k": "string"}, {}, {"n": "int64", "at": "timestamp[us, tz=UTC]"}))
    table.write(
        pa.table(
            {
                "k": ["a", "b", "it's"],
                "n": [1, 2, 3],
                "at": pa.array([DAY, None, DAY], table.schema.arrow.field("at").type),
            }
        )
    )
    return made


@pytest.mark.parametrize(
    ("statement", "parameters", "keys"),
    [
        ("SELECT k FROM t WHERE k = ?", ["it's"], ["it's"]),
        ("SELECT k FROM t WHERE n > ? AND k < ? ORDER BY k", [0, "c"], ["a", "b"]),
        ("SELECT k FROM t WHERE k = $2 OR k = $1 OR k = $2 ORDER BY k", ("a", "b"), ["a", "b"]),
        ("SELECT k FROM t WHERE k IN ($first, $other) ORDER BY k", {"first": "a", "other": "b"}, ["a", "b"]),
        ("SELECT k FROM t WHERE at = ? ORDER BY k", [DAY], ["a", "it's"]),
        ("SELECT k FROM t WHERE at = $1 ORDER BY k", [pa.scalar(DAY)], ["a", "it's"]),
        ("SELECT k FROM t WHERE n = ? -- is it?", [3], ["it's"]),
        ("SELECT '?' || ? AS k", ["x'; --"], ["?x'; --"]),
        ("SELECT k FROM t WHERE k = 'b'", [], ["b"]),
        ("SELECT k FROM t WHERE k = ?", [None], []),
    ],
)
def test_a_statement_has_the_values_of_its_parameters(lake, statement, parameters, keys):
    assert lake.sql(statement, parameters=parameters).to_arrow()["k"].to_pylist() == keys


@pytest.mark.parametrize(
    "value", [True, -7, 2.5, "ä", b"\x00\xff", Decimal("1.50"), dt.date(2026, 1, 2), dt.time(1, 2, 3), DAY, None]
)
def test_a_value_comes_back_as_it_was_given(lake, value):
    assert lake.sql("SELECT ? AS v", parameters=[value]).to_arrow()["v"].to_pylist() == [value]


@pytest.mark.parametrize("kind", ["time32[s]", "time32[ms]", "time64[us]", "time64[ns]", "uint64", "int8"])
@pytest.mark.parametrize("role", ["row_key", "values"])
def test_a_value_is_compared_with_columns_of_each_unit_and_size(kind, role):
    values = [dt.time(1, 2, 3), dt.time(23)] if kind.startswith("time") else [5, 2**64 - 1 if kind == "uint64" else 6]
    lake = lakebed.create(f"memory://{random_token()}")
    schema = {"row_key": {"id": "int64"}, "values": {}}
    schema[role] = schema[role] | {"v": kind}
    lake.create_table("t", Schema(**schema)).write([{"id": n, "v": value} for n, value in enumerate(values)])
    for n, value in enumerate(values):
        found = lake.sql("SELECT id FROM t WHERE v = ? AND v IN (?)", parameters=[value, value])
        assert found.to_arrow()["id"].to_pylist() == [n]
    assert lake.sql("SELECT id FROM t WHERE v > ?", parameters=[values[0]]).to_arrow()["id"].to_pylist() == [1]


def test_whole_numbers_are_literals_where_the_engine_wants_one(lake):
    tuples = "SELECT k FROM t WHERE (n, k) IN ((?, ?), (?, ?)) ORDER BY k"
    assert lake.sql(tuples, parameters=[1, "a", 2, "x"]).to_arrow()["k"].to_pylist() == ["a"]
    frame = "SELECT sum(n) OVER (ORDER BY n RANGE BETWEEN ? PRECEDING AND CURRENT ROW) AS s FROM t ORDER BY n"
    assert lake.sql(frame, parameters=[1]).to_arrow()["s"].to_pylist() == [1, 3, 5]
    assert lake.sql("SELECT n FROM t WHERE n=?AND 5-?=?ORDER BY n", parameters=[1, -2, 7]).to_arrow().num_rows == 1


@pytest.mark.parametrize("ticks", [-(2**63), -62_135_596_801, 253_402_300_800, 2**63 - 1])
@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("ns", "+05:30")], ids=str)
def test_a_time_may_be_outside_the_years_of_python(lake, kind, ticks):
    """The text of such a time was no SQL: "<value out of range: …>"."""
    value = pa.scalar(ticks, pa.int64()).cast(kind)
    found = lake.sql("SELECT ? AS v", parameters=[value]).to_arrow()["v"]
    assert (found.type, found.cast(pa.int64()).to_pylist()) == (kind, [ticks])


@pytest.mark.parametrize("days", [-(2**31), 2**31 - 1])
def test_a_date_may_be_outside_the_years_of_python(lake, days):
    found = lake.sql("SELECT ? AS v", parameters=[pa.scalar(days, pa.int32()).cast(pa.date32())]).to_arrow()["v"]
    assert (found.type, found.cast(pa.int32()).to_pylist()) == (pa.date32(), [days])


@pytest.mark.parametrize(
    ("statement", "parameters", "says"),
    [
        ("SELECT ?", None, "the statement has the parameter ?; give its value: parameters=[…]"),
        ("SELECT $n", None, "the statement has the parameter $n; give its value"),
        (
            "SELECT ?, ?",
            [1],
            "the statement has 2 parameters, and the values are for 1 parameter; give a value for each",
        ),
        ("SELECT 1", [1], "the statement has no parameters, and the values are for 1 parameter"),
        ("SELECT $a", {"b": 1}, "the statement has the parameters $a, and the values are for the parameters $b"),
        ("SELECT $1, ?", [1, 2], "parameters of several kinds; use one of ?, $1 and $name"),
        ("SELECT $0", [1], "parameters are $1 to $32767"),
        ("SELECT ?", 5, "parameters = 5: must be a list of values, or a dict"),
        ("SELECT ?", "a", "parameters = 'a': must be a list of values, or a dict"),
        ("SELECT ?", [object], "a parameter cannot be <class 'object'>; give text, a number"),
        ("SELECT ?", [[1, 2]], "a parameter cannot be of type list<item: int64>"),
        ("SELECT ?", [2**70], "a parameter cannot be 1180591620717411303424; give text"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(lake, statement, parameters, says):
    with pytest.raises(UsageError) as caught:
        lake.sql(statement, parameters=parameters)
    assert says in str(caught.value)


def test_a_statement_without_parameters_is_left_as_it_is():
    assert with_parameters("SELECT $$?$$, '$1', \"?\"", None) == "SELECT $$?$$, '$1', \"?\""


def test_rows_are_frames_of_other_libraries(lake):
    pandas = lake.sql("SELECT k, n FROM t WHERE k < 'b'").to_pandas()
    assert (list(pandas.columns), pandas["n"].tolist()) == (["k", "n"], [1])
    assert lake.sql("SELECT n FROM t WHERE k < 'b'").to_polars().to_dicts() == [{"n": 1}]
    assert lake["t"].scan(columns=["n"]).to_polars()["n"].to_list() == [1, 2, 3]
    assert lake["t"].scan(columns=["n"]).to_pandas()["n"].tolist() == [1, 2, 3]


def test_a_closed_answer_says_so(lake):
    with lake.sql("SELECT 1") as rows:
        pass
    with pytest.raises(UsageError, match="the stream is closed; run the statement again"):
        rows.to_arrow()


def test_a_uuid_is_a_parameter(tmp_path):
    first, second = (uuid.UUID(int=n) for n in (1, 2**100))
    table = lakebed.create(tmp_path / "lake").create_table("t", Schema({"id": "uuid"}))
    table.write([{"id": first}, {"id": second}])
    found = lakebed.open(tmp_path / "lake").sql("SELECT id FROM t WHERE id = ?", parameters=[second]).to_arrow()
    assert found["id"].to_pylist() == [second]
