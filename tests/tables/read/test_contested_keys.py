"""Overlapping files of which an engine merges only the keys that the small ones have, against rows merged in Python."""

import random
from collections import Counter

import datafusion
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import col, lit
from msgspec import structs

import lakebed
from lakebed import AddField, Aggregate, Latest, RenameField, Schema, SetFilter, WidenField
from lakebed.engine.datafusion import scan_context
from lakebed.engine.key_joins import with_keys, without_keys
from lakebed.model.keys import ALL_KEYS
from lakebed.model.row_kinds import RowKind
from lakebed.read.rows.engine_frames import contest_of, large_files
from lakebed.read.rows.plan import divided, plan
from tests.soaked import each_once
from tests.tables.read.merging_tables import CONTESTED, MODES, Change, MergingTable
from tests.tables.test_key_types import VALUES

SEEDS = range(4)
WHERE = {
    "": lambda row: True,
    "a >= 5": lambda row: row["a"] is not None and row["a"] >= 5,
    "a IS NULL": lambda row: row["a"] is None,
    "k < 'k3' AND b = 'x'": lambda row: row["k"] < "k3" and row["b"] == "x",
    "k >= 'k20' AND k < 'k4'": lambda row: "k20" <= row["k"] < "k4",
    "k IN ('k7', 'k11', 'k12', 'none')": lambda row: row["k"] in ("k7", "k11", "k12", "none"),
}


def contested(table):
    """The table, read so that an engine joins large files by all contested keys."""
    table.reader.limits = structs.replace(table.reader.limits, **CONTESTED)
    return table


def contest_in(table):
    """How an engine reads the overlapping files of a table."""
    _, overlapping = divided(plan(table.state(), (ALL_KEYS,)))
    assert overlapping.partitions
    return contest_of(overlapping, table.reader)[0]


def by_files(lake, statement):
    """The rows of a statement whose tables are read by the engine, however few rows they have."""
    engine, _ = lake.sql_engine()
    rows, engine.in_memory_rows = engine.in_memory_rows, -1
    try:
        return lake.sql(statement).read_all().to_pylist()
    finally:
        engine.in_memory_rows = rows


def same(found, wanted):
    assert Counter(tuple(row.values()) for row in found) == Counter(tuple(row.values()) for row in wanted)


def random_changes(chance, mode, share):
    """Changes of a part of 60 row keys, one of each sort key, as the mode takes them."""
    found = []
    for number in sorted(chance.sample(range(60), int(60 * share))):
        key, sort, kind = f"k{number}", chance.randrange(2), RowKind.WHOLE
        values = {"a": chance.choice([None, *range(-9, 10)]), "b": chance.choice([None, "x", "y"])}
        if mode.takes_markers and share < 1:
            kind = chance.choice(list(RowKind))
            if kind is RowKind.PARTIAL:
                values = {name: value for name, value in values.items() if chance.random() < 0.5}
            elif kind is RowKind.DELETE:
                values = {}
        # By row key alone, so that a key is at most once in a file.
        found.append(Change(key, 0 if mode.one_row_per_key else sort, values, kind))
    return found


def random_table(tmp_path, mode, chance):
    """A large file among small ones that are older and newer than it, perhaps in several partitions."""
    made = MergingTable(mode, str(tmp_path / "lake"), page_rows=8)
    shares = [chance.choice([0.05, 0.15]) for _ in range(chance.randrange(1, 4))]
    for share in (*shares[1:], 1.0, shares[0]):
        made.arrive(random_changes(chance, mode, share))
    if chance.random() < 0.5:
        made.split(chance.choice(["k2", "k35", "k5"]))
    contested(made.table)
    return made


@each_once(seed=SEEDS, name=[name for name, mode in MODES.items() if not mode.may_drop_rows])
def test_sql_over_contested_keys_finds_the_merged_rows(tmp_path, name, seed):
    chance = random.Random(f"{name} {seed}")
    made = random_table(tmp_path, MODES[name], chance)
    assert contest_in(made.table) is not None
    wanted = made.rows()
    lake = lakebed.open(str(tmp_path / "lake"))
    contested(lake.table("t"))
    for where, holds in WHERE.items():
        condition = f" WHERE {where}" if where else ""
        same(by_files(lake, f"SELECT * FROM t{condition}"), [row for row in wanted if holds(row)])
        [found] = by_files(lake, f"SELECT count(*) AS n, sum(a) AS a FROM t{condition}")
        passing = [row for row in wanted if holds(row)]
        sums = [row["a"] for row in passing if row["a"] is not None]
        assert found == {"n": len(passing), "a": sum(sums) if sums else None}
    same(by_files(lake, "SELECT b FROM t"), [{"b": row["b"]} for row in wanted])
    context = datafusion.SessionContext()
    lake.table("t").register(context, "t")
    same(context.sql("SELECT * FROM t").to_arrow_table().to_pylist(), wanted)


@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind not in ("float", "double")])
def test_keys_of_every_type_are_contested(tmp_path, kind):
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": kind}, values={"v": "int64"}), merge=Latest())
    keys = sorted(set(VALUES[kind]))
    table.write([{"k": key, "v": 1} for key in keys])
    table.write([{"k": key, "v": 2} for key in keys[::2]])
    table.delete(keys[1:2])
    contested(table)
    assert contest_in(table) is not None
    wanted = table.scan().read_all().to_pylist()
    assert len(wanted) == len(keys) - 1
    same(by_files(lake, "SELECT * FROM t"), wanted)


def test_keys_of_floats_are_merged(tmp_path):
    """Joins take 0.0 and -0.0 for one key, or NaN for none."""
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": "double"}, values={"v": "int64"}), merge=Latest())
    table.write([{"k": key, "v": 1} for key in VALUES["double"][:6]])
    table.write([{"k": key, "v": 2} for key in VALUES["double"][1:3]])
    assert contest_in(contested(table)) is None
    same(
        [{"k": repr(r["k"]), "v": r["v"]} for r in by_files(lake, "SELECT * FROM t")],
        [{"k": repr(r["k"]), "v": r["v"]} for r in table.scan().read_all().to_pylist()],
    )


def test_rows_that_a_filter_hides_and_columns_that_changed(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": "int64"}, values={"old": "int32", "w": "int64"}), merge=Latest())
    table.write(pa.table({"k": range(100), "old": range(100), "w": [0] * 100}))
    table.alter(RenameField("old", "key 0"), AddField("more", "string"), WidenField("key 0", "int64"))
    table.write(pa.table({"k": range(0, 100, 9), "key 0": range(0, 100, 9), "w": [1] * 12, "more": ["x"] * 12}))
    table.alter(SetFilter("k % 2 = 0"))
    assert contest_in(contested(table)) is not None
    wanted = table.scan().read_all().to_pylist()
    assert {row["k"] for row in wanted} == set(range(0, 100, 2))
    same(by_files(lake, "SELECT * FROM t"), wanted)
    same(by_files(lake, 'SELECT w FROM t WHERE "key 0" > 50'), [{"w": r["w"]} for r in wanted if r["k"] > 50])


def test_only_files_with_most_of_the_rows_are_large(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": "int64"}), merge=Latest())
    for first, last in ((0, 400), (500, 900), (300, 600), (2, 3)):
        table.write(pa.table({"k": range(first, last)}))
    files = table.state().files_of(1)
    limits = structs.replace(table.reader.limits, contested_rows_min=0, rows_a_contested_key=2)
    assert sorted(file.rows for file in large_files(files, limits)) == [400, 400]
    for other in ({"rows_a_contested_key": 4}, {"contested_rows_min": 10**6}, {"fan_in": 3}):
        assert large_files(files, structs.replace(limits, **other)) == ()


def test_too_many_contested_keys_are_merged(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": "int64"}, values={"v": "int64"}), merge=Aggregate({"v": "sum"}))
    table.write(pa.table({"k": range(1000), "v": [1] * 1000}))
    table.write(pa.table({"k": range(0, 1000, 10), "v": [1] * 100}))
    contested(table).reader.limits = structs.replace(table.reader.limits, contested_bytes=500)
    assert contest_in(table) is None
    assert by_files(lake, "SELECT sum(v) AS v FROM t") == [{"v": 1100}]


def test_no_session_keeps_contested_keys(tmp_path):
    """A session of the engine lives as long as its table, and has a table of all Arrow data that is given to it."""
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": "int64"}, values={"v": "int64"}), merge=Latest())
    table.write(pa.table({"k": range(1000), "v": [1] * 1000}))
    table.write(pa.table({"k": range(0, 1000, 10), "v": [2] * 100}))
    # Small reads go past the engine.
    contested(table)
    table.reader.limits = structs.replace(table.reader.limits, page_rows=-1)
    assert contest_in(table) is not None
    assert by_files(lake, "SELECT sum(v) AS v FROM t") == [{"v": 1100}]
    sessions = table.reader.engine()._contexts.values()
    assert sessions
    assert not [name for one in sessions for name in one.catalog().schema("public").table_names()]


@pytest.mark.parametrize("keys", [[], [3, 5, 299_999]], ids=["no keys", "some keys"])
@pytest.mark.parametrize("kept", [with_keys, without_keys])
def test_rows_joined_with_keys_are_one_partition_in_order(tmp_path, kept, keys):
    """With two, the engine waits for the other partition of the join before it gives rows of the first."""
    pq.write_table(pa.table({"k": range(300_000)}), tmp_path / "rows.parquet", row_group_size=50_000)
    rows = scan_context(8192).read_parquet(str(tmp_path / "rows.parquet"), file_sort_order=[[col("k").sort()]])
    for condition, passing in ((None, range(300_000)), (col("k") == lit(5), [5])):
        joined = kept(rows, pa.table({"k": pa.array(keys, pa.int64())}))
        plan = (joined if condition is None else joined.filter(condition)).execution_plan()
        assert plan.partition_count == 1
        found = [key for batch in rows_of(plan) for key in batch.column("k").to_pylist()]
        wanted = [key for key in passing if (key in set(keys)) == (kept is with_keys)]
        assert found == wanted if kept is with_keys else sorted(found) == wanted


def rows_of(plan):
    return [batch.to_pyarrow() for batch in scan_context(8192).execute(plan, 0)]
