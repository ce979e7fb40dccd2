"""Struct members that are not nullable, below structs that are null: every way in, then every way to read them."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import AddField, Error, Latest, Schema
from lakebed.model.types import nullable_members
from lakebed.model.validity import masked
from tests.adversarial.test_rows import compact_by_merge
from tests.workers import in_process


def _struct(kind, name="x", *, nullable=False):
    return pa.struct([pa.field(name, kind, nullable=nullable), pa.field("n", pa.int32())])


NUMBERS, TEXTS = _struct(pa.int64()), _struct(pa.string())
SHAPES = {
    "struct": (NUMBERS, [{"x": 7, "n": 1}, None, {"x": 0, "n": None}], "v['x']"),
    "text": (TEXTS, [None, {"x": "a", "n": None}, {"x": "", "n": 2}, None], "v['x']"),
    "struct in struct": (
        _struct(NUMBERS, "s", nullable=True),
        [{"s": {"x": 7, "n": 1}, "n": 1}, {"s": None, "n": None}, None],
        "v['s']['x']",
    ),
    "required in required": (_struct(TEXTS, "s"), [None, {"s": {"x": "a", "n": 1}, "n": 1}, None], "v['s']['x']"),
    "list": (pa.list_(NUMBERS), [[None, {"x": 7, "n": 1}], [{"x": 7, "n": 1}], [], None, [None]], "v[1]['x']"),
    "fixed list": (
        pa.list_(TEXTS, 2),
        [[None, {"x": "a", "n": 1}], [{"x": "b", "n": None}, None], None],
        "v[2]['x']",
    ),
    "map": (pa.map_(pa.string(), NUMBERS), [[("a", None), ("b", {"x": 7, "n": 1})], [], None], None),
    "map in list": (
        pa.list_(pa.map_(pa.string(), TEXTS)),
        [[[("a", None)], None], [[("b", {"x": "c", "n": 1})]]],
        None,
    ),
    "list in struct": (
        _struct(pa.list_(NUMBERS), "s"),
        [{"s": [None, {"x": 7, "n": 1}], "n": 1}, None, {"s": [], "n": None}],
        "v['s'][2]['x']",
    ),
}
PATHS = {"v['x']": ["x"], "v['s']['x']": ["s", "x"], "v[1]['x']": [0, "x"], "v[2]['x']": [1, "x"],
         "v['s'][2]['x']": ["s", 1, "x"]}  # fmt: skip


def _leaf(value, path):
    """Return what an expression gives for a value, by SQL's rule that nothing is in null."""
    for step in path:
        if value is None or (isinstance(step, int) and step >= len(value)):
            return None
        value = value[step]
    return value


def _other(kind):
    """Return a value of a type with every member set, which no row has."""
    if pa.types.is_struct(kind):
        return {member.name: _other(member.type) for member in kind}
    if pa.types.is_map(kind):
        return [("other", _other(kind.item_type))]
    if pa.types.is_fixed_size_list(kind):
        return [_other(kind.value_type)] * kind.list_size
    if pa.types.is_list(kind):
        return [_other(kind.value_type)]
    return "other" if pa.types.is_string(kind) else 99


def _with_hidden(values, kind):
    """Return a column whose buffers hold other values where a struct of the top level is null, as Arrow allows."""
    if not pa.types.is_struct(kind):
        return pa.array(values, kind)
    full = [_other(kind) if one is None else one for one in values]
    members = [_with_hidden([one[member.name] for one in full], member.type) for member in kind]
    mask = pa.array([one is None for one in values])
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=mask)


def _arrow(table, values, kind, folder):
    table.write(pa.table({"k": range(len(values)), "v": _with_hidden(values, nullable_members(kind))}))


def _strict_arrow(table, values, kind, folder):
    table.write(pa.table({"k": range(len(values)), "v": _with_hidden(values, kind)}))


def _rows(table, values, kind, folder):
    table.write([{"k": k, "v": value} for k, value in enumerate(values)])


def _json(table, values, kind, folder):
    plain = pa.array(values, nullable_members(kind)).to_pylist(maps_as_pydicts="strict")
    (folder / "in.json").write_text("".join(json.dumps({"k": k, "v": one}) + "\n" for k, one in enumerate(plain)))
    table.write(folder / "in.json")


def _parquet(table, values, kind, folder):
    column = pa.array(values, nullable_members(kind))
    pq.write_table(pa.table({"k": range(len(values)), "v": column}), folder / "in.parquet")
    table.write(folder / "in.parquet")


def _strict_parquet(table, values, kind, folder):
    pq.write_table(pa.table({"k": range(len(values)), "v": pa.array(values, kind)}), folder / "in.parquet")
    table.write(folder / "in.parquet")


def _attached(table, values, kind, folder):
    """Of another writer, or of a version that stored such members as required."""
    schema = pa.schema([one.with_type(kind) if one.name == "v" else one for one in table.schema.arrow])
    rows = pa.Table.from_arrays([pa.array(range(len(values)), pa.int64()), pa.array(values, kind)], schema=schema)
    pq.write_table(rows, folder / "in.parquet")
    with in_process(lakebed.open(str(folder / "lake"))) as pipeline:
        pipeline.attach("t", str(folder / "in.parquet"))


WAYS_IN = (_arrow, _strict_arrow, _rows, _json, _parquet, _strict_parquet, _attached)
PAIRS = [
    pytest.param(shape, way, id=f"{shape}, {way.__name__}", marks=[pytest.mark.slow] * bool((number - other) % 3))
    for number, shape in enumerate(SHAPES)
    for other, way in enumerate(WAYS_IN)
]
"""Of each shape a third of the ways in, and of each way a third of the shapes; in the soak all."""


def _read(lake, table, folder):
    """Return the values in the order of keys, by each way to read whole rows."""
    yield "scan", _values(table.scan().read_all())
    yield "get", [table.get(k)["v"][0].as_py() for k in range(table.count().rows)]
    yield "get_many", _values(table.get_many([(k,) for k in range(table.count().rows)]))
    yield "sql", _values(lake.sql("SELECT * FROM t ORDER BY k").read_all())
    yield "sql in the engine", _values(lake.sql("SELECT * FROM t ORDER BY v IS NULL, k").read_all().sort_by("k"))
    yield "changes", _values(table.changes(0, table.version).read_all().sort_by("k"))
    yield "polars", _values(table.to_polars().to_arrow().sort_by("k"))
    yield "duckdb", _values(table.to_duckdb().arrow().read_all().sort_by("k"))


def _values(rows):
    return rows["v"].to_pylist()


def _check(lake, table, folder, shape, values):
    kind, _, expression = SHAPES[shape]
    loose = nullable_members(kind)
    assert table.schema.by_name["v"].type == kind
    for way, found in _read(lake, table, folder):
        assert pa.array(found, loose).to_pylist() == pa.array(values, loose).to_pylist(), way
    if expression is None:
        return
    leaves = [_leaf(value, PATHS[expression]) for value in values]
    nulls = [k for k, leaf in enumerate(leaves) if leaf is None]
    found = lake.sql(f"SELECT k, {expression} AS leaf FROM t ORDER BY k").read_all()
    assert found["leaf"].to_pylist() == leaves
    assert lake.sql(f"SELECT count({expression}) AS n FROM t").read_all()["n"].to_pylist() == [len(leaves) - len(nulls)]
    for where, wanted in ((f"{expression} IS NULL", nulls), (f"{expression} IS NOT NULL", None)):
        expected = [k for k in range(len(values)) if k not in nulls] if wanted is None else wanted
        assert table.scan(where=where).read_all()["k"].to_pylist() == expected
        assert lake.sql(f"SELECT k FROM t WHERE {where} ORDER BY k").read_all()["k"].to_pylist() == expected


@pytest.mark.parametrize(("shape", "way"), PAIRS)
def test_a_null_struct_has_no_members_whatever_its_type_says(shape, way, tmp_path):
    kind, values, _ = SHAPES[shape]
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": "int64"}, values={"v": kind}))
    way(table, values, kind, tmp_path)
    _check(lake, table, tmp_path, shape, values)
    if way not in (_arrow, _attached):
        # Files that Lakebed wrote are compacted alike.
        return
    table.write([{"k": len(values), "v": None}])
    compact_by_merge(table)
    _check(lake, table, tmp_path, shape, [*values, None])


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_without_the_struct_deletes_and_partial_rows_are_stored_merged_and_compacted(shape, tmp_path):
    kind, values, _ = SHAPES[shape]
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": "int64"}, values={"n": "int64"}), merge=Latest())
    table.write([{"k": k, "n": k} for k in range(len(values) + 2)])
    table.alter(AddField("v", kind))
    table.write([{"k": k, "v": value} for k, value in enumerate(values)], partial=True)
    table.write([{"k": len(values) + 1, "n": 1}], partial=True)
    table.delete([len(values)])
    table.delete(where=f"k = {len(values) + 1}")
    for compacted in (False, True):
        if compacted:
            compact_by_merge(table)
        assert _values(table.scan().read_all()) == pa.array(values, nullable_members(kind)).to_pylist()
        assert _values(lake.sql("SELECT * FROM t ORDER BY k").read_all()) == _values(table.scan().read_all())


@pytest.mark.parametrize(("shape", "way"), [pair for pair in PAIRS if "strict" not in pair.id])
def test_a_struct_without_a_required_member_is_refused_and_nothing_is_added(shape, way, tmp_path):
    kind, values, _ = SHAPES[shape]
    bad = [*values, _without_member(kind)]
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": "int64"}, values={"v": kind}))
    given = nullable_members(kind) if way is _attached else kind
    with pytest.raises(Error, match=f"null in a member.*row {len(values)}"):
        way(table, bad, given, tmp_path)
    assert table.count().rows == 0


def _without_member(kind):
    """Return a value in which the innermost required member is null."""
    if pa.types.is_struct(kind):
        member = kind.field(0)
        return {member.name: _without_member(member.type) if pa.types.is_nested(member.type) else None, "n": 1}
    if pa.types.is_map(kind):
        return [("a", _without_member(kind.item_type))]
    return [_without_member(kind.value_type)] * max(1, getattr(kind, "list_size", 1))


def test_a_generated_key_of_a_null_struct_is_refused(tmp_path):
    generated = lakebed.Generated("int64", "s['x']")
    table = lakebed.create(str(tmp_path / "lake")).create_table(
        "t", Schema({"g": generated}, values={"k": "int64", "s": NUMBERS})
    )
    column = _with_hidden([{"x": 5, "n": 1}, None], NUMBERS)
    with pytest.raises(Error, match="field g, made of s"):
        table.write(pa.table({"k": [1, 2], "s": column}))
    assert table.count().rows == 0


def test_a_change_envelope_has_the_values_of_its_own_rows(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    row = "struct<id: int64 not null, name: string>"
    table = lake.create_table("cdc", Schema({"lsn": "int64"}, values={"before": row, "after": row}))
    one = {"id": 7, "name": "a"}
    table.write([{"lsn": 1, "before": None, "after": one}, {"lsn": 2, "before": one, "after": None}])
    found = lake.sql("SELECT before['id'] AS b, after['id'] AS a FROM cdc ORDER BY lsn").read_all().to_pylist()
    assert found == [{"b": None, "a": 7}, {"b": 7, "a": None}]


@pytest.mark.parametrize("shape", SHAPES)
def test_masking_changes_nothing_but_what_is_hidden(shape):
    kind, values, _ = SHAPES[shape]
    whole = _with_hidden([*values, *values], kind)
    for column in (whole, whole.slice(1), whole.slice(1, 2), whole.slice(len(whole))):
        found = masked(column)
        assert found.type == nullable_members(kind)
        found.validate(full=True)
        assert found.to_pylist() == column.to_pylist()
        if pa.types.is_struct(kind):
            assert pc.all(pc.or_(found.is_valid(), found.field(0).is_null())).as_py() in (True, None)
