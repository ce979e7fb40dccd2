"""Scans skip pages by the minima and maxima of value columns, and find the same rows as without them."""

from __future__ import annotations

import datetime as dt
import math
import operator
import uuid
from collections import Counter
from contextlib import contextmanager
from decimal import Decimal
from random import Random

import polars as pl
import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext

import lakebed
from lakebed import AddField, Aggregate, First, KeepAll, Latest, Schema, WidenField
from lakebed.model.keys import ALL_KEYS
from lakebed.model.policies import Policy
from lakebed.model.type_names import parse_name
from lakebed.read.rows import datafusion_scan
from lakebed.read.rows.conditions import And, Comparison, OneOf, Or
from lakebed.read.rows.page_bounds import BoundedColumns
from lakebed.read.rows.request import ReadLimits
from lakebed.storage import telemetry
from lakebed.table.restricted_table import RestrictedTable
from tests.soaked import few
from tests.tables.read.merging_tables import WAYS, reading_by

ROWS = 6000
SETTINGS = {"page_rows": 100, "row_group_rows": 2000}


def table_of(lake, values, merge=None, **settings):
    schema = Schema({"k": "int64"}, values={name: pa.field(name, kind, True) for name, kind in values.items()})
    return lake.create_table("t", schema, merge=merge or KeepAll(), settings=SETTINGS | settings)


def found(table, where, **options):
    return table.scan(where=where, columns=["k"], **options).read_all().column("k").to_pylist()


KINDS = {
    "int8": (pa.int8(), lambda n: n // 50 - 60),
    "uint32": (pa.uint32(), lambda n: 2**31 + n),
    "uint64": (pa.uint64(), lambda n: 2**63 + n - 3000),
    "int64": (pa.int64(), lambda n: (n - 3000) * 10**15),
    "float": (pa.float32(), lambda n: (n - 3000) / 4 if n % 9 else -0.0),
    "double": (pa.float64(), lambda n: {0: -math.inf, ROWS - 1: math.inf}.get(n, (n - 3000) / 8)),
    "bool": (pa.bool_(), lambda n: n >= ROWS - 150),
    "decimal": (pa.decimal128(30, 3), lambda n: Decimal(n - 3000) / 8),
    "string": (pa.string(), lambda n: f"é{n:05}" if n % 2 else f"a{n:05}"),
    "binary": (pa.binary(), lambda n: n.to_bytes(2, "big")),
    "fixed": (pa.binary(2), lambda n: n.to_bytes(2, "big")),
    "uuid": (pa.uuid(), lambda n: uuid.UUID(int=n << 100)),
    "date": (pa.date32(), lambda n: dt.date(1960, 1, 1) + dt.timedelta(n)),
    "time": (pa.time64("us"), lambda n: (dt.datetime(1, 1, 1) + dt.timedelta(seconds=n)).time()),  # noqa: DTZ001
    "seconds": (pa.timestamp("s"), lambda n: dt.datetime(1969, 12, 31) + dt.timedelta(seconds=30 * n)),  # noqa: DTZ001
    "zoned": (pa.timestamp("us", "UTC"), lambda n: dt.datetime(1969, 12, 31, tzinfo=dt.UTC) + dt.timedelta(hours=n)),
    "nanoseconds": (pa.timestamp("ns"), lambda n: (n - 3000) * 10**9),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_type_that_keys_can_have(memory_lake, name):
    """Each comparison with each of some values gives the rows that comparing them in memory does."""
    kind, value = KINDS[name]
    table = table_of(memory_lake, {"v": kind})
    contents = [None if n % 11 == 0 or 2000 <= n < 2300 else value(n) for n in range(ROWS)]
    column = pa.array(contents, kind)
    table.write(pa.table({"k": range(ROWS), "v": column}))
    known = [(n, one) for n, one in enumerate(contents) if one is not None]
    literal = table.schema.by_name["v"].key_type.literal
    for number in (0, 3000, 3300):
        at = next(n for n, _ in known if n >= min(number, known[-1][0]))
        text, other = literal(column[at]), contents[at]
        for sign, passes in {"=": operator.eq, "<": operator.lt, ">=": operator.ge}.items():
            assert found(table, f"v {sign} {text}") == [n for n, one in known if passes(one, other)], (sign, text)
        assert found(table, f"v <> {text} AND v BETWEEN {text} AND {text}") == []
        assert found(table, f"v IN ({text}) OR v IS NULL AND k < 20") == sorted(
            [0, 11, *(n for n, one in known if one == other)]
        )
    assert table.explain(where=f"v = {literal(column[ROWS - 1])}").pages_out_by_bounds > 0


def test_few_pages_are_read_where_values_follow_the_key(memory_lake):
    table = table_of(memory_lake, {"v": "int64", "other": "string"})
    table.write(pa.table({"k": range(ROWS), "v": range(ROWS), "other": ["x"] * ROWS}))
    seen = table.explain(where="v BETWEEN 2050 AND 2149", columns=["k", "other"])
    assert (seen.rows, seen.pages_out_by_bounds, seen.row_groups) == (100, 58, 1)
    assert seen.pages <= 2 * 3
    assert "skipped     58 pages of keys by bounds of columns" in str(seen)
    assert found(table, "v BETWEEN 2050 AND 2149", reverse=True) == list(range(2149, 2049, -1))
    assert found(table, "v > 3000 AND v < 3003 OR v = 5", limit=2) == [5, 3001]
    assert found(table, "v > 3000 AND v < 3003 OR v = 5", limit=2, reverse=True) == [3002, 3001]
    assert found(table, "v < 0") == []
    assert table.explain(where="v < 0").pages == 0


def test_many_ranges_are_left_to_a_scan_of_all_rows(memory_lake):
    """Each range costs as much as a scan of so many bytes; the first one costs what a scan does."""
    table = table_of(memory_lake, {"v": "int64"})
    table.write(pa.table({"k": range(ROWS), "v": [n % 1000 for n in range(ROWS)]}))
    row_bytes = table.state().referenced().popitem()[1].size_bytes // ROWS
    skipped = ROWS - 6 * 100
    # Six ranges, with pages between them.
    for range_rows, pages_out in ((skipped // 5, 54), (skipped // 5 + 1, 0)):
        table.reader.limits = ReadLimits(narrowed_rows=0, narrowed_bytes=range_rows * row_bytes)
        assert table.explain(where="v < 50").pages_out_by_bounds == pages_out
        assert table.explain(where="v < 50 AND k < 1000").pages_out_by_bounds == 9
        assert len(found(table, "v < 50")) == 6 * 50


def test_a_scan_without_bounds_reads_all_pages_and_finds_the_same(memory_lake):
    """Such are the files of versions before, and columns whose statistics are turned off."""
    table = table_of(memory_lake, {"v": "int64"}, statistics_off="v")
    table.write(pa.table({"k": range(ROWS), "v": range(ROWS)}))
    assert table.explain(where="v < 10").pages_out_by_bounds == 0
    assert found(table, "v < 10") == list(range(10))
    table.set(statistics_off=None)
    table.write(pa.table({"k": range(ROWS, 2 * ROWS), "v": range(ROWS)}))
    assert found(table, "v < 10") == [*range(10), *range(ROWS, ROWS + 10)]
    assert table.explain(where="v < 10").pages_out_by_bounds == 59


@pytest.mark.parametrize("kind", few(["float32", "float64"], 1))
def test_nan_is_above_all_numbers_and_never_skipped(memory_lake, kind):
    table = table_of(memory_lake, {"v": kind})
    values = [math.nan if n in (5, 4321) else float(n) for n in range(ROWS)]
    table.write(pa.table({"k": range(ROWS), "v": pa.array(values, table.schema.by_name["v"].type)}))
    table.write(pa.table({"k": [ROWS, ROWS + 1], "v": pa.array([-0.0, 0.0], table.schema.by_name["v"].type)}))
    for way in WAYS:
        with reading_by(table, way):
            assert found(table, "v > 5998") == [5, 4321, ROWS - 1]
            assert found(table, "v = 'NaN'::double") == [5, 4321]
            assert found(table, "NOT v < 5999") == [5, 4321, ROWS - 1]
            assert found(table, "v = 0.0") == [0, ROWS, ROWS + 1]
            assert found(table, "v <= -0.0") == [0, ROWS, ROWS + 1]


def test_columns_that_changed(memory_lake):
    """A widened column has bounds of its former type, and one that was added is null in files before."""
    table = table_of(memory_lake, {"v": "int32"})
    table.write(pa.table({"k": range(ROWS), "v": pa.array(range(ROWS), pa.int32())}))
    table.alter(WidenField("v", pa.int64()))
    table.alter(AddField("w", pa.int64()))
    assert found(table, "v = 7") == [7]
    assert table.explain(where="w = 7").pages_out_by_bounds == 60
    table.write(pa.table({"k": range(ROWS, 2 * ROWS), "v": range(ROWS), "w": range(ROWS)}))
    assert found(table, "v = 7") == [7, ROWS + 7]
    assert found(table, "w = 7") == [ROWS + 7]
    assert found(table, "w IS NULL AND v = 8") == [8]


# -- merges: of a key all rows are read, or none ----------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_row_that_a_newer_one_replaces_stays_hidden(memory_lake, way):
    """The page of the newer row does not pass, and must be read all the same."""
    table = table_of(memory_lake, {"v": "int64"}, Latest())
    table.write(pa.table({"k": range(ROWS), "v": range(ROWS)}))
    table.write(pa.table({"k": range(0, ROWS, 2), "v": [-1] * (ROWS // 2)}))
    with reading_by(table, way):
        assert found(table, "v BETWEEN 100 AND 105") == [101, 103, 105]
        assert found(table, "v BETWEEN 100 AND 105", reverse=True) == [105, 103, 101]
    assert table.explain(where="v BETWEEN 100 AND 105").pages_out_by_bounds > 60
    table.delete(pa.table({"k": [101]}))
    with reading_by(table, way):
        assert found(table, "v BETWEEN 100 AND 105") == [103, 105]


@pytest.mark.parametrize("way", WAYS)
def test_the_first_row_of_a_key_hides_later_ones(memory_lake, way):
    table = table_of(memory_lake, {"v": "int64"}, First())
    table.write(pa.table({"k": range(0, ROWS, 2), "v": [-1] * (ROWS // 2)}))
    table.write(pa.table({"k": range(ROWS), "v": range(ROWS)}))
    with reading_by(table, way):
        assert found(table, "v BETWEEN 100 AND 105") == [101, 103, 105]


@pytest.mark.parametrize("way", WAYS)
def test_a_merged_row_may_have_its_values_of_several_rows(memory_lake, way):
    table = table_of(memory_lake, {"a": "int64", "b": "int64"}, Latest())
    table.write(pa.table({"k": range(ROWS), "a": range(ROWS), "b": [0] * ROWS}))
    table.write(pa.table({"k": range(ROWS), "b": range(ROWS)}), partial=True)
    with reading_by(table, way):
        assert found(table, "a = 700 AND b = 700") == [700]
        assert found(table, "a = 700 AND b = 0") == []
        assert found(table, "b BETWEEN 3 AND 5 OR a = 9") == [3, 4, 5, 9]
    assert table.explain(where="a = 700 AND b = 700").pages_out_by_bounds > 0


@pytest.mark.parametrize("way", WAYS)
def test_an_aggregate_may_have_a_value_that_no_row_has(memory_lake, way):
    table = table_of(memory_lake, {"v": "int64"}, Aggregate({"v": "sum"}))
    for _ in range(2):
        table.write(pa.table({"k": range(ROWS), "v": range(ROWS)}))
    with reading_by(table, way):
        assert found(table, "v > 11990") == [ROWS - 4, ROWS - 3, ROWS - 2, ROWS - 1]
    assert table.explain(where="v > 11990").pages_out_by_bounds == 0


@pytest.mark.parametrize("merge", [KeepAll(), Latest()], ids=["keep all", "latest"])
def test_many_overlapping_files(memory_lake, merge):
    chance = Random(1)
    table, rows = table_of(memory_lake, {"v": "int64"}, merge), {}
    for write in range(5):
        keys = sorted(chance.sample(range(ROWS), 2500))
        values = [key + chance.choice((0, 0, 0, write)) for key in keys]
        table.write(pa.table({"k": keys, "v": values}))
        for key, value in zip(keys, values, strict=True):
            rows[key] = [*(() if merge == Latest() else rows.get(key, ())), value]
    for way in WAYS:
        with reading_by(table, way):
            for low in chance.sample(range(ROWS), 3):
                wanted = sorted(key for key, kept in rows.items() for value in kept if low <= value < low + 200)
                assert sorted(found(table, f"v >= {low} AND v < {low + 200}")) == wanted


def test_attached_files_may_have_truncated_bounds(memory_lake, tmp_path):
    """DataFusion cuts them at 64 bytes, and increments what is left of a maximum."""
    table = table_of(memory_lake, {"t": "string", "b": "binary"})
    texts = [("é" * 31 if n < 3000 else "ü" * 40) + f"{n:06}" for n in range(ROWS)]
    binaries = [b"\xff" * 62 + n.to_bytes(4, "big") for n in range(ROWS)]
    rows = pa.table({"k": range(ROWS), "t": texts, "b": binaries}, schema=table.schema.arrow)
    context = SessionContext(SessionConfig({"datafusion.execution.target_partitions": "1"}))
    context.from_arrow(rows).sort("k").write_parquet(str(tmp_path / "foreign.parquet"))
    with lakebed.Pipeline(memory_lake, launcher="this-thread") as pipeline:
        pipeline.attach("t", str(tmp_path / "*"))
    assert table.count().rows == ROWS
    assert found(table, f"t = '{texts[17]}'") == [17]
    assert found(table, f"t >= '{texts[5990]}'") == list(range(5990, ROWS))
    assert found(table, f"b <= decode('{binaries[3].hex()}', 'hex')") == [0, 1, 2, 3]
    assert found(table, f"b > decode('{binaries[5997].hex()}', 'hex')") == [5998, 5999]
    assert table.explain(where=f"t > '{'z' * 3}'").pages_out_by_bounds == 0
    assert table.explain(where=f"t < '{'z' * 3}'").rows == 0


@pytest.mark.parametrize(("text", "number"), [("3 total → 1 matched", 1), ("1.20 K total → 1.01 K matched", 1010)])
def test_large_counts_of_the_engine_are_read(text, number):
    matched = datafusion_scan._MATCHED.search(text)
    assert datafusion_scan._number(matched) == number


# -- SQL, Polars and roles: the conditions of other engines ------------------------------------------------------------


def by_sql(table, lake):
    """The keys that a statement finds, of files that the engine reads."""
    engine, _ = lake.sql_engine()
    engine.in_memory_rows = -1
    return lambda where: sorted(lake.sql(f"SELECT k FROM t WHERE {where}").read_all().column("k").to_pylist())


@contextmanager
def counted():
    """Count the rows that scans return."""
    seen = Counter()

    class Sink:
        def measured(self, name, value, labels):
            seen[name] += value

        def begun(self, *_, **__):
            return None

    before, telemetry.sink = telemetry.sink, Sink()
    try:
        yield seen
    finally:
        telemetry.sink = before


@pytest.mark.parametrize("way", ["pages", "slices"])
@pytest.mark.parametrize("merge", [KeepAll(), Latest(), First()], ids=["keep all", "latest", "first"])
def test_statements_and_lazy_frames_are_narrowed_as_scans_are(memory_lake, merge, way):
    """A row that a newer one replaces stays hidden. The engine itself prunes local files that need no merge."""
    table = table_of(memory_lake, {"v": "int64"}, merge)
    table.write(pa.table({"k": range(0, ROWS, 2), "v": [-1] * (ROWS // 2)}))
    table.write(pa.table({"k": range(ROWS), "v": range(ROWS)}))
    passing = {KeepAll(): range(700, 705), Latest(): range(700, 705), First(): (701, 703)}[merge]
    with reading_by(table, way, copied_share=0.2):
        with counted() as seen:
            assert by_sql(table, memory_lake)("v BETWEEN 700 AND 704") == [*passing]
        assert seen["read_rows_total"] <= 200
        assert (seen["read_rows_total"] > 0) == (way == "slices" or merge != KeepAll())
        with counted() as seen:
            frame = table.lazy_polars().filter(pl.col("v").is_between(700, 704)).collect()
        assert sorted(frame["k"].to_list()) == [*passing]
        assert 0 < seen["read_rows_total"] <= 200


@pytest.mark.parametrize("kind", ["halffloat", "float", "double"])
@pytest.mark.parametrize("way", ["pages", "slices"])
def test_statements_over_files_compare_nan_as_the_engine_does(memory_lake, way, kind):
    """PyArrow, which reads files on a store for the engine, would compare it in another way."""
    table = table_of(memory_lake, {"v": kind})
    table.write(pa.table({"k": range(5), "v": pa.array([1.0, math.nan, 5.0, None, -math.inf]).cast(parse_name(kind))}))
    with reading_by(table, way):
        ask = by_sql(table, memory_lake)
        assert ask("v > 2") == [1, 2]
        assert ask("v < 'NaN'::double") == [0, 2, 4]
        assert ask("v = 'NaN'::double") == [1]
        assert ask("v IS NULL OR v <> 'NaN'::double") == [0, 2, 3, 4]


@pytest.mark.parametrize("way", ["pages", "slices"])
def test_a_statement_whose_scans_have_different_conditions_gets_the_rows_of_each(memory_lake, way):
    table = table_of(memory_lake, {"v": "int64"}, Latest())
    table.write(pa.table({"k": range(ROWS), "v": range(ROWS)}))
    table.write(pa.table({"k": [5], "v": [5]}))
    with reading_by(table, way):
        by_sql(table, memory_lake)
        text = "SELECT a.k FROM t a JOIN t b ON a.k = b.k - 3000 WHERE a.v IN (7, 9) AND b.v > 3008 ORDER BY a.k"
        assert memory_lake.sql(text).read_all().to_pylist() == [{"k": 9}]
        assert memory_lake.sql("SELECT count(*) AS n FROM t WHERE v < 3 OR v IS NULL").read_all().to_pylist() == [
            {"n": 3}
        ]
        text = "SELECT k FROM t WHERE v = 11 UNION ALL SELECT k FROM t WHERE k = 4000"
        assert sorted(row["k"] for row in memory_lake.sql(text).read_all().to_pylist()) == [11, 4000]


@pytest.mark.parametrize("way", ["pages", "slices"])
def test_a_merged_statement_over_some_keys_reads_no_others(memory_lake, way):
    table = table_of(memory_lake, {"v": "int64"}, Latest())
    for _ in range(2):
        table.write(pa.table({"k": range(ROWS), "v": range(ROWS)}))
    with reading_by(table, way), counted() as seen:
        assert by_sql(table, memory_lake)("k BETWEEN 10 AND 30") == [*range(10, 31)]
    # The first time, to find out whether they fit into memory.
    assert seen["read_rows_total"] == 2 * 21


def test_a_condition_on_a_masked_column_is_about_the_mask(memory_lake):
    """The bounds of the stored values say nothing of it."""
    table = table_of(memory_lake, {"v": "int64", "w": "int64"})
    table.write(pa.table({"k": range(ROWS), "v": range(ROWS), "w": range(ROWS)}))
    part = RestrictedTable(table, Policy(("w >= 3000",), masks=(("v", "5"),)))
    with reading_by(table, "pages"):
        assert found(part, "v = 5") == [*range(3000, ROWS)]
        assert found(part, "v = 3500 OR w = 20") == []
        assert found(part, "v = 5 AND w < 3002") == [3000, 3001]
        rows = part.snapshot().rows((ALL_KEYS,), ["k"], condition=Comparison("v", "=", pa.scalar(5))).read_all()
        assert rows.num_rows == ROWS - 3000


def test_conditions_of_many_alternatives_narrow_nothing(memory_lake):
    """Each costs time for each row group; a list of values of one column is one."""
    schema = Schema({"k": "int64"}, values={"v": "int64", "w": "int64"})
    pairs = [And((OneOf("v", [pa.scalar(n)]), OneOf("w", [pa.scalar(n)]))) for n in range(1000)]
    assert BoundedColumns.of(Or(pairs), schema) is None
    assert len(BoundedColumns.of(Or(pairs[:10]), schema).boxes) == 10
    one = BoundedColumns.of(OneOf("v", [pa.scalar(n) for n in range(1000)]), schema)
    assert len(one.boxes) == 1


def test_an_index_is_fetched_once(memory_lake):
    """A second scan finds all of them in the read cache."""
    table = table_of(memory_lake, {"v": "int64"})
    table.write(pa.table({"k": range(ROWS), "v": range(ROWS)}))
    with reading_by(table, "slices"):
        storage = table.reader._files._storage
        read, asked = storage.read_ranges, []
        storage.read_ranges = lambda name, ranges: asked.append(ranges) or read(name, ranges)
        assert found(table, "v < 0") == []
        first = len(asked)
        assert found(table, "v < 0") == []
        assert 0 < first <= 3
        assert len(asked) == first
