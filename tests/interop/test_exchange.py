"""Tables in other libraries: pandas, Polars, DuckDB and DataFusion see the rows that a scan sees, and no others."""

from __future__ import annotations

import asyncio
import datetime as dt
from functools import reduce
from operator import or_

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from datafusion import SessionContext
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import KeyRange, Schema, aio
from lakebed.clock import random_token
from lakebed.errors import UsageError
from lakebed.model.keys import ALL_KEYS
from lakebed.read.rows.conditions import UNKNOWN, keys_of
from lakebed.read.rows.key_ranges import key_ranges
from lakebed.read.rows.reader import Reader

SCHEMA = Schema(
    row_key={"t": "string", "a": "int64", "d": "date", "s": "timestamp[us, tz=UTC]", "b": "binary"},
    values={"v": "double", "l": pa.list_(pa.int64())},
)
PART = KeyRange(("b'c", 2), ("d", 3, dt.date(2020, 1, 4), dt.datetime(2020, 1, 1, 3, tzinfo=dt.UTC), b"\x03"))


def lake():
    return lakebed.create(f"memory://{random_token()}")


def row(text, a):
    moment = dt.datetime(2020, 1, 1, a, tzinfo=dt.UTC)
    return {"t": text, "a": a, "d": dt.date(2020, 1, a + 1), "s": moment, "b": bytes([a]), "v": float(a), "l": [a, a]}


@pytest.fixture
def table():
    """Two runs in three partitions, of which a part was removed: no file counts whole."""
    table = lake().create_table("t", SCHEMA, split_points=["b", "d"])
    rows = [row(text, a) for text in ("a", "b'c", "d", 'é"') for a in range(5)]
    table.write(pa.Table.from_pylist(rows[::2], schema=SCHEMA.arrow))
    table.write(pa.Table.from_pylist(rows[1::2], schema=SCHEMA.arrow))
    table.remove(KeyRange.prefix("b'c", 2), KeyRange(("d", 2), ("d", 3, dt.date(2020, 1, 4))))
    return table


def scanned(table, *ranges):
    return table.scan(*ranges).read_all().to_pylist()


def ordered(rows):
    return sorted(rows, key=lambda one: (one["t"], one["a"]))


def test_a_table_and_a_view_are_arrow_streams(table):
    older = table.at(version=2)
    assert pa.table(table).to_pylist() == scanned(table)
    assert pa.table(older).num_rows == 10
    assert pl.DataFrame(table).height == len(scanned(table))
    assert table.to_arrow(PART, columns=["a"]).to_pylist() == [{"a": one["a"]} for one in scanned(table, PART)]


def test_rows_become_a_pandas_and_a_polars_frame(table):
    assert table.to_pandas(PART)["a"].tolist() == [one["a"] for one in scanned(table, PART)]
    assert table.to_polars(PART).drop("s").to_dicts() == [
        {k: v for k, v in one.items() if k != "s"} for one in scanned(table, PART)
    ]


def test_json_is_text_in_polars():
    """Its own type for it, an extension, has none of the methods of text."""
    table = lake().create_table("t", Schema({"k": "int64"}, values={"raw": "json"}))
    table.write([{"k": 1, "raw": '{"a": 5}'}, {"k": 2, "raw": None}])
    assert table.to_polars().schema["raw"] == pl.String
    frame = table.lazy_polars().filter(pl.col("raw").str.contains("a"))
    assert frame.select(pl.col("raw").str.json_path_match("$.a")).collect().to_series().to_list() == ["5"]
    assert table.scan().to_polars()["raw"].to_list() == ['{"a": 5}', None]


# -- DuckDB and DataFusion --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ranges", [(), (PART,), (KeyRange.prefix("zz"),), (KeyRange.prefix("a"), KeyRange.prefix("d", 4))]
)
def test_duckdb_and_datafusion_see_the_rows_that_count(table, ranges):
    names = SCHEMA.names
    wanted = scanned(table, *ranges)
    relation = table.to_duckdb(*ranges, connection=duckdb.connect())
    assert relation.columns == list(names)
    assert ordered(dict(zip(names, one, strict=True)) for one in relation.fetchall()) == wanted
    context = SessionContext()
    table.register(context, "rows", *ranges)
    assert ordered(context.sql("SELECT * FROM rows").to_arrow_table().to_pylist()) == wanted


def test_duckdb_reads_files_of_older_schemas_as_the_newest_has_their_rows():
    table = lake().create_table("t", Schema(row_key={"k": "int32"}, values={"v": "int32", "gone": "string"}))
    table.write(pa.table({"k": pa.array([1, 2], pa.int32()), "v": pa.array([1, 2], pa.int32()), "gone": ["x", "y"]}))
    table.alter(
        lakebed.RenameField("v", "w"),
        lakebed.WidenField("w", "int64"),
        lakebed.DropField("gone"),
        lakebed.AddField("gone", "double"),
    )
    table.remove(KeyRange.prefix(1))
    relation = table.to_duckdb(connection=duckdb.connect())
    assert relation.fetchall() == [(2, 2, None)]
    assert [str(kind) for kind in relation.types] == ["INTEGER", "BIGINT", "DOUBLE"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", ["", ", tz=UTC"])
def test_duckdb_compares_times_of_any_unit(unit, zone):
    schema = Schema(row_key={"s": f"timestamp[{unit}{zone}]"}, values={"v": "int64"})
    table = lake().create_table("t", schema)
    column = pa.array([-2, -1, 0, 1, 2], pa.int64()).cast(schema.row_key[0].type)
    table.write(pa.table([column, pa.array(range(5))], names=["s", "v"]))
    table.remove(KeyRange(-1, 1))
    assert sorted(v for _, v in table.to_duckdb(connection=duckdb.connect()).fetchall()) == [0, 3, 4]


# -- files ------------------------------------------------------------------------------------------------------


def test_files_tell_which_keys_count(tmp_path):
    table = lakebed.create(str(tmp_path / "lake")).create_table(
        "t", Schema(row_key={"k": "int64"}, values={"v": "int64"})
    )
    table.write(pa.table({"k": [1, 2, 3, 4], "v": [1, 2, 3, 4]}))
    (whole,) = table.files().to_pylist()
    assert (whole["whole"], whole["live_min"], whole["live_max"]) == (True, None, None)
    (part,) = table.files(KeyRange(2, 4)).to_pylist()
    assert (part["whole"], part["live_min"], part["live_min_inside"]) == (False, {"k": 2}, True)
    assert (part["live_max"], part["live_max_inside"]) == ({"k": 4}, False)
    table.remove(KeyRange.prefix(3))
    left = table.files().to_pylist()
    assert [one["whole"] for one in left] == [False, False]
    assert [(one["live_min"], one["live_max"]) for one in left] == [(None, {"k": 3}), ({"k": 4}, None)]
    assert table.files(KeyRange.prefix(3)).num_rows == 0


# -- Polars -----------------------------------------------------------------------------------------------------


class Noting(Reader):
    """A reader of the table that keeps the requests for scans."""

    def __init__(self, table):
        super().__init__(table.storage, table.id, lambda _: True)
        self.asked = []

    def scan(self, plan, columns, limit, **more):
        self.asked.append((plan, set(columns), limit))
        return super().scan(plan, columns, limit, **more)


def asked_of(table, query):
    """The rows that Polars collects for a query of the table's frame, and what it asked the table for."""
    reader = table.versions.reader = Noting(table)
    return query(table.lazy_polars()).collect(), reader.asked


def test_polars_pushes_columns_and_limits_down(table):
    found, [(_, columns, limit)] = asked_of(table, lambda frame: frame.select("v", "a").head(3))
    assert found.rows() == [(one["v"], one["a"]) for one in scanned(table)[:3]]
    assert (columns, limit) == ({"v", "a"}, 3)


def test_polars_pushes_predicates_down(table):
    passing = (pl.col("t") == "a") & (pl.col("a") > 2) & (pl.col("v") < 4)
    found, [(plan, columns, _)] = asked_of(table, lambda frame: frame.filter(passing).select("a"))
    assert found.rows() == [(3,)]
    assert columns == {"t", "a", "v"}
    assert [keys for partition in plan.partitions for keys in partition.ranges] != [ALL_KEYS]
    assert len(plan.partitions) == 1


def test_polars_asks_a_predicate_of_the_first_rows_alone(table):
    """It hands over both, and means the rows of the limit first."""
    frame = table.lazy_polars().head(3).filter(pl.col("a") > 1)
    assert frame.select("a").collect().to_series().to_list() == [one["a"] for one in scanned(table)[:3] if one["a"] > 1]
    assert table.lazy_polars().head(3).filter(pl.col("t") == "d").collect().height == 0


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_polars_compares_a_key_with_what_is_no_number(table, value):
    """It writes such a literal, and cannot read it again."""
    assert table.lazy_polars().filter((pl.col("a") < value) & (pl.col("t") == "d")).collect().height > 0


def test_polars_counts_and_joins(table):
    lazy = table.lazy_polars()
    assert lazy.select(pl.len()).collect().item() == len(scanned(table))
    assert lazy.filter(pl.col("t") == "a").head(2).collect().height == 2
    assert lazy.filter(pl.col("t") == "absent").collect().height == 0
    assert lazy.join(lazy, on=["t", "a"]).collect().height == len(scanned(table))


c = pl.col
EXPRESSIONS = {
    "t": (c("t"), ["a", "b'c", "d", "", "zz"]),
    "a": (c("a"), [0, 2, 4, -1, 2.5, 10**12]),
    "d": (c("d"), [dt.date(2020, 1, 3), dt.date(1970, 1, 1)]),
    "s": (c("s"), [dt.datetime(2020, 1, 1, 2, tzinfo=dt.UTC)]),
    "b": (c("b"), [b"\x02", b""]),
    "v": (c("v"), [2.0]),
}
COMPARISONS = st.one_of(
    *(
        st.builds(lambda name, column, value, op: getattr(column, op)(value), st.just(name), st.just(column),
                  st.sampled_from(values), st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]))
        for name, (column, values) in EXPRESSIONS.items()
    ),
    st.sampled_from([
        c("t").is_in(["a", "d"]), c("a").is_in([1, 2]), c("a").is_between(1, 3), c("t").str.starts_with("b"),
        c("a").is_null(), c("a").is_between(1, 3, closed="none"), c("a") < 2, c("a").cast(pl.Float64) > 1.5,
        c("a") % 2 == 0, c("t").str.contains("b"), c("a") > c("v"),
        c("d").cast(pl.Datetime("ms")) > pl.datetime(2020, 1, 2, 12, time_unit="ms"),
    ]),
)  # fmt: skip
PREDICATES = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds(lambda x, y: x & y, inner, inner),
        st.builds(lambda x, y: x | y, inner, inner),
        inner.map(lambda x: ~x),
    ),
    max_leaves=5,
)
PLAIN = pl.DataFrame(
    pa.Table.from_pylist([row(text, a) for text in ("a", "b'c", "d") for a in range(5)], schema=SCHEMA.arrow)
)


@pytest.fixture(scope="module")
def whole():
    table = lake().create_table("t", SCHEMA, split_points=["b", "d"])
    table.write(PLAIN)
    return table


@settings(max_examples=60, deadline=None)
@given(predicate=PREDICATES)
def test_any_predicate_of_polars_gives_what_it_gives_in_memory(whole, predicate):
    assert whole.lazy_polars().filter(predicate).collect().equals(PLAIN.filter(predicate))


def test_an_expression_that_polars_shows_in_another_way_is_every_key(monkeypatch):
    from lakebed.read.adapters import polars

    for node in (
        {},
        {"BinaryExpr": {}},
        {"BinaryExpr": {"op": "Or"}},
        {"BinaryExpr": {"left": 1, "op": "Eq", "right": 2}},
        {"New": {"Column": "a"}},
        "x",
        None,
    ):
        assert polars._condition(node) is UNKNOWN


def test_alternatives_are_put_together_at_once_and_those_nested_too_deep_are_every_key():
    from lakebed.read.adapters import polars

    codec = Schema({"a": "int64"}).codec

    def ranges(predicate):
        return key_ranges(keys_of(polars.condition_of(predicate), codec), codec)

    some, many = ([pl.col("a") == pl.lit(2 * i, dtype=pl.Int64) for i in range(count)] for count in (200, 5_000))
    assert len(ranges(reduce(or_, some))) == len(some)
    assert ranges(reduce(or_, many)) == (ALL_KEYS,)
    while len(many) > 1:
        many = [reduce(or_, many[begin : begin + 2]) for begin in range(0, len(many), 2)]
    assert len(ranges(many[0])) == 5_000


# -- servers ----------------------------------------------------------------------------------------------------


def test_reads_of_a_server_go_on_beside_each_other(table):
    async def reads():
        one, rows, batches = await asyncio.gather(
            aio.get(table, *list(row("a", 1).values())[:5]),
            aio.get_many(table, [list(row("a", number).values())[:5] for number in (1, 2)], columns=["a"]),
            collected(),
        )
        return one.num_rows, rows.num_rows, batches

    async def collected():
        return sum([batch.num_rows async for batch in aio.scan(table, PART, columns=["a"])])

    assert asyncio.run(reads()) == (1, 2, len(scanned(table, PART)))


def test_ranges_are_ranges(table):
    for use in (table.to_duckdb, table.files):
        with pytest.raises(UsageError, match="KeyRange"):
            use("a")
