"""Tables with keys of every type: written, read by key, by range and by predicate, compacted, and removed."""

import datetime as dt
import math
import operator
import random
import struct
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

import lakebed
from lakebed import Aggregate, KeyRange, Latest, Schema
from lakebed.model.keys import KeyCodec
from lakebed.model.number_keys import decimal_of
from lakebed.read.rows.conditions import Comparison, keys_of
from lakebed.read.rows.key_ranges import key_ranges
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from tests import pages
from tests.tables.cases import compact_partition
from tests.tables.read.merging_tables import reading_by

CHANCE = random.Random(20261123)
MOMENT = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def integers(bits, *, signed):
    low = -(1 << bits - 1) if signed else 0
    high = low + (1 << bits) - 1
    return [low, low + 1, 0, 1, high - 1, high, *(CHANCE.randint(low, high) for _ in range(6))]


def floats(kind):
    size = struct.calcsize(kind)
    found = [struct.unpack(kind, CHANCE.randbytes(size))[0] for _ in range(6)]
    return [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 1.5, -1.5, 2.0**-126, *found]


def times(step_us):
    day = 86_400_000_000 // step_us
    return [
        (MOMENT + dt.timedelta(microseconds=n * step_us)).time()
        for n in (0, 1, day - 1, *(CHANCE.randrange(day) for _ in range(5)))
    ]


def moments(*, zone=None):
    days = (-25_567, -1, 0, 1, *(CHANCE.randrange(-20_000, 40_000) for _ in range(5)))
    return [(MOMENT + dt.timedelta(days=day, seconds=7)).replace(tzinfo=zone) for day in days]


def decimals(precision, scale):
    most = 10**precision - 1
    return [decimal_of(n, scale) for n in (0, 1, -1, most, -most, *(CHANCE.randint(-most, most) for _ in range(5)))]


VALUES = {
    "bool": [True, False],
    **{f"int{bits}": integers(bits, signed=True) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": integers(bits, signed=False) for bits in (8, 16, 32, 64)},
    "float": floats("<f"),
    "double": floats("<d"),
    "decimal128(5, 2)": decimals(5, 2),
    "decimal128(38, 10)": decimals(38, 10),
    "decimal256(60, 3)": decimals(60, 3),
    "time32[s]": times(1_000_000),
    "time32[ms]": times(1_000),
    "time64[us]": times(1),
    "time64[ns]": times(1),
    "date32[day]": [moment.date() for moment in moments()],
    **{f"timestamp[{unit}]": moments() for unit in ("s", "ms", "us", "ns")},
    "timestamp[ms, tz=UTC]": moments(zone=dt.UTC),
    "fixed_size_binary[3]": [bytes(3), b"\x00\xff\x00", b"\xff\xff\xff", *(CHANCE.randbytes(3) for _ in range(4))],
    "uuid": [uuid.UUID(int=n) for n in (0, 1, 2**128 - 1, *(CHANCE.getrandbits(128) for _ in range(6)))],
    "string": ["", "a", "a\x00", "b", "\U0001f600", "\uffff"],
    "binary": [b"", b"\x00", b"\x00\x01", b"\xff"],
}  # fmt: skip


def order(value):
    """As keys are ordered: UUIDs and text by their bytes, NaN above all numbers."""
    match value:
        case float():
            return (True, 0.0) if math.isnan(value) else (False, value)
        case uuid.UUID():
            return value.bytes
        case str():
            return value.encode()
    return value


def ordered(values):
    """The distinct values in key order, as a column of the type gives them."""
    return sorted({order(value): value for value in values}.values(), key=order)


@pytest.fixture(params=sorted(VALUES))
def case(request, tmp_path):
    """A table with keys of one kind in three overlapping files, and the values of which these are slices."""
    kind = request.param
    schema = Schema({"k": kind}, values={"n": "int64"})
    table = lakebed.create(str(tmp_path)).create_table("t", schema)
    column = pa.array(VALUES[kind], schema.row_key[0].type)
    for part in range(3):
        rows = pa.table({"k": column, "n": pa.array(range(len(column)))}).slice(part)
        table.write(rows)
    return table, column


OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def keys_in(rows):
    return [order(value) for value in rows.column("k").to_pylist()]


def test_rows_are_found_by_key_range_and_predicate_before_and_after_a_compaction(case):
    table, column = case
    given = column.to_pylist()
    every = sorted(order(value) for part in range(3) for value in given[part:])
    keys = ordered(given)
    for _ in range(2):
        assert keys_in(table.scan().read_all()) == every
        for key in keys:
            assert keys_in(table.get(key)) == [one for one in every if one == order(key)]
        assert sorted(keys_in(table.get_many(keys))) == every
        assert sorted(keys_in(table.get_many(column))) == every
        low, high = keys[len(keys) // 4], keys[-1 - len(keys) // 4]
        found = keys_in(table.scan(KeyRange(low, high, max_inclusive=True)).read_all())
        assert found == [one for one in every if order(low) <= one <= order(high)]
        assert table.count(KeyRange(low)).rows == len([one for one in every if order(low) <= one])
        compact_partition(table, 0)


@pytest.mark.parametrize("way", ["engine", "levels"])
@pytest.mark.parametrize("kind", ["time32[s]", "timestamp[s]", "time32[ms]", "date32[day]"])
def test_the_engine_finds_and_merges_keys_that_parquet_has_in_another_unit(kind, way, tmp_path):
    """Files reach over two partitions, so a merge takes a part of each."""
    schema = Schema({"k": kind, "j": kind}, values={"n": "int64"})
    keys = ordered(VALUES[kind])
    cut = keys[len(keys) // 2]
    table = lakebed.create(str(tmp_path)).create_table("t", schema, split_points=[(cut, cut)])
    column = pa.array(keys, schema.row_key[0].type)
    for _ in range(2):
        table.write(pa.table({"k": column, "j": column, "n": range(len(column))}))
    every = sorted(keys + keys)
    for _ in range(2):
        with reading_by(table, way):
            assert keys_in(table.scan(KeyRange(keys[1], cut)).read_all()) == [k for k in every if keys[1] <= k < cut]
            assert keys_in(table.get(cut, cut)) == [cut, cut]
            assert keys_in(table.scan(where="n >= 0").read_all()) == every
        report = compact(
            table, prepare(table, "full"), lambda tasks: [run_merge_task(t, table.storage, tmp_path) for t in tasks],
            cores=1,
        )  # fmt: skip
        assert not report.failed


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_conditions_on_a_key_include_each_key_that_meets_them(kind):
    """Exactly, where the literal has the type of the field, and is neither zero nor NaN in a float."""
    field = Schema({"k": kind}).row_key[0]
    codec = KeyCodec((field,))
    keys = ordered(VALUES[kind])
    literals = field.key_type.array([field.key_type.content_of(key, field.name) for key in keys])
    for sign, meets in OPERATORS.items():
        for position, literal in enumerate(literals):
            ranges = key_ranges(keys_of(Comparison("k", sign, literal), codec), codec)
            inside = [any(one.contains(codec.encode((key,))) for one in ranges) for key in keys]
            wanted = [meets(other, position) for other in range(len(keys))]
            assert all(found >= expected for found, expected in zip(inside, wanted, strict=True))
            if order(keys[position]) not in ((True, 0.0), (False, 0.0)):
                assert inside == wanted


def test_keys_merge_and_are_deleted(tmp_path):
    """Of rows with equal keys one is left, also of zeros with another sign and of NaNs with other bits."""
    lake = lakebed.create(str(tmp_path))
    for number, (kind, values) in enumerate(VALUES.items()):
        schema = Schema({"k": kind}, values={"n": "int64"})
        table = lake.create_table(f"t{number}", schema, merge=Latest())
        column = pa.array(values, schema.row_key[0].type)
        for _ in range(2):
            table.write(pa.table({"k": column, "n": pa.array(range(len(column)))}))
        keys = ordered(column.to_pylist())
        assert keys_in(table.scan().read_all()) == [order(key) for key in keys]
        table.delete(keys[1:])
        assert keys_in(table.scan().read_all()) == [order(keys[0])]
        table.remove(KeyRange())
        assert table.scan().read_all().num_rows == 0


def test_sort_keys_of_every_type(tmp_path):
    """Aggregates merge by row key and sort key together."""
    sort_key = {f"s{number}": kind for number, kind in enumerate(VALUES)}
    schema = Schema({"k": "int32"}, sort_key, {"n": "int64"})
    table = lakebed.create(str(tmp_path)).create_table("t", schema, merge=Aggregate({"n": "sum"}))
    columns = {"k": pa.array([1, 1, 1], pa.int32()), "n": pa.array([1, 2, 4])}
    for name, kind in sort_key.items():
        least, greatest = ordered(VALUES[kind])[:: len(ordered(VALUES[kind])) - 1]
        columns[name] = pa.array([least, greatest, least], schema.by_name[name].type)
    for _ in range(2):
        table.write(pa.table(columns))
    for _ in range(2):
        assert table.scan().read_all().column("n").to_pylist() == [10, 4]
        compact_partition(table, 0)


SQL = {
    "bool": ("k", [True]),
    "uint64": ("k >= 18446744073709551614", [2**64 - 2, 2**64 - 1]),
    "int8": ("k IN (-128, 127, 1000)", [-128, 127]),
    "double": ("k = 1.5", [1.5]),
    "float": ("k BETWEEN -1.5 AND 0", [-1.5, 0.0]),
    "decimal128(5, 2)": ("k >= 999.985", [Decimal("999.99")]),
    "time64[us]": ("k < '00:00:00.000002'", [dt.time(0), dt.time(0, 0, 0, 1)]),
    "fixed_size_binary[3]": ("k = X'00FF00'", [b"\x00\xff\x00"]),
    "uuid": ("k = '00000000-0000-0000-0000-000000000001'", [uuid.UUID(int=1)]),
}


@pytest.mark.parametrize("kind", sorted(SQL))
def test_predicates_in_sql_read_the_keys_that_they_need(kind, tmp_path):
    """A literal of the usual form in SQL, in a predicate and in a statement."""
    where, wanted = SQL[kind]
    lake = lakebed.create(str(tmp_path))
    schema = Schema({"k": kind}, values={"n": "int64"})
    table = lake.create_table("t", schema)
    values = [value for value in ordered(VALUES[kind]) if value in wanted or order(value) > order(wanted[-1])
              or order(value) < order(wanted[0])]  # fmt: skip
    table.write(pa.table({"k": pa.array(values, schema.row_key[0].type), "n": pa.array(range(len(values)))}))
    assert table.scan(where=where).read_all().column("k").to_pylist() == wanted
    assert lake.sql(f"SELECT k FROM t WHERE {where} ORDER BY k").read_all().column("k").to_pylist() == wanted


def test_the_schema_of_the_page_on_types_holds_what_the_page_says(tmp_path):
    """UUIDs and JSON go in as text, and JSON that is none does not."""
    names = {}
    (block,) = pages.blocks("docs/types.md", "python")
    pages.run(block, names)
    table = lakebed.create(str(tmp_path)).create_table("t", names["schema"])
    row = {
        "id": str(uuid.UUID(int=7)).upper(),
        "price": 1.5,
        "tags": ["a"],
        "place": {"x": 1.0, "y": 2.0},
        "raw": '{"a": 1}',
    }
    table.write(pa.Table.from_pylist([row]))
    assert table.get(uuid.UUID(int=7)).to_pylist() == [row | {"id": uuid.UUID(int=7), "price": Decimal("1.50")}]
    with pytest.raises(lakebed.SchemaMismatchError, match=r"column raw .*json"):
        table.write(pa.Table.from_pylist([row | {"raw": "{a: 1}"}]))
    with pytest.raises(lakebed.SchemaMismatchError, match=r"column id .*uuid"):
        table.write(pa.Table.from_pylist([row | {"id": "7"}]))
    with pytest.raises(lakebed.SchemaMismatchError, match=r"column raw .*json"):
        table.write(pa.table({**pa.Table.from_pylist([row]).to_pydict(), "raw": pa.array(["{a"], pa.json_())}))


def test_listings_of_partitions_and_files_have_keys_of_uuids(tmp_path):
    low, cut, high = (uuid.UUID(int=n) for n in (1, 2**100, 2**120))
    schema = lakebed.Schema({"id": "uuid", "n": "int64"})
    table = lakebed.create(tmp_path / "lake").create_table("t", schema, split_points=[(cut,)])
    table.write(pa.table({"id": [str(low), str(high)], "n": [1, 2]}))
    assert [row["max"] for row in table.partitions().to_pylist()] == [{"id": cut, "n": None}, None]
    assert {(row["min_key"]["id"], row["max_key"]["id"]) for row in table.files().to_pylist()} == {(low, high)}
