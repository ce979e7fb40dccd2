"""Bounds of key fields after the first: what is stored, and which files a predicate on such a field opens."""

from decimal import Decimal

import datafusion
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.errors import DamagedError
from lakebed.model.files import BYTES_MAX, data_name, decode_bounds, encode_bounds
from lakebed.model.keys import EncodedRange, KeyCodec
from lakebed.model.schema import Schema
from lakebed.read.rows.plan import _meets
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task

TEXT = Schema({"a": "string", "b": "string"})
BINARY = Schema({"a": "string", "b": "binary"})


@given(st.lists(st.binary(max_size=40), min_size=1), st.binary(max_size=40))
def test_the_range_holds_every_value_whatever_is_cut(values, other):
    field = BINARY.row_key[1]
    codec = KeyCodec((field,))
    (keys,) = decode_bounds(encode_bounds([(field, min(values), max(values))]))
    assert all(keys.contains(codec.encode((value,))) for value in values)
    if not keys.contains(codec.encode((other,))):
        assert not min(values) <= other <= max(values)


@given(
    st.sets(st.binary(max_size=2), min_size=1), st.binary(max_size=2), st.none() | st.binary(max_size=3), st.booleans()
)
def test_one_of_many_ranges_says_whether_a_bound_meets_any(cuts, low, high, endless):
    ends = [*sorted(cuts), *([None] if endless else [])]
    ranges = [EncodedRange(*pair) for pair in zip(ends[::2], ends[1::2], strict=False)]
    bound = EncodedRange(low, high)
    met = any(not bound.intersect(one).empty for one in ranges)
    assert _meets(bound, ranges, [one.min for one in ranges]) == met


@given(st.lists(st.text(max_size=30), min_size=1))
def test_text_is_ordered_as_its_bytes_are(values):
    field = TEXT.row_key[1]
    codec = KeyCodec((field,))
    ordered = sorted(value.encode() for value in values)
    (keys,) = decode_bounds(encode_bounds([(field, ordered[0], ordered[-1])]))
    assert all(keys.contains(codec.encode((value,))) for value in values)
    assert len(keys.min) <= BYTES_MAX


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integers_are_bounded_exactly(one, other):
    field = Schema({"a": "string", "b": "int64"}).row_key[1]
    codec = KeyCodec((field,))
    low, high = sorted((one, other))
    (keys,) = decode_bounds(encode_bounds([(field, low, high)]))
    assert keys.contains(codec.encode((low,)))
    assert keys.contains(codec.encode((high,)))
    for outside in (low - 1, high + 1):
        if -(2**63) <= outside < 2**63:
            assert not keys.contains(codec.encode((outside,)))


def test_what_is_not_known_and_bytes_without_end_are_every_value():
    field = BINARY.row_key[1]
    for stored in (encode_bounds([(field, None, None)]), encode_bounds([(field, b"", b"\xff" * 40)])):
        (keys,) = decode_bounds(stored)
        assert keys.contains(KeyCodec((field,)).encode((b"\xff" * 50,)))
    assert decode_bounds(b"") == ()


@pytest.mark.parametrize("stored", ["05", "0201", "0101", "010103"])
def test_bytes_of_another_form_are_damage(stored):
    with pytest.raises(DamagedError, match="field bounds"):
        decode_bounds(bytes.fromhex(stored))


# -- with files ------------------------------------------------------------------------------------------------

SCHEMA = Schema({"a": "string", "b": "int64"}, {"at": "timestamp[s]", "name": "string"}, values={"v": "int64"})
FILES = 8


@pytest.fixture
def table(tmp_path):
    """Files that all reach the same first fields, each with values of its own of the others."""
    found = lakebed.create(str(tmp_path / "instance")).create_table("t", SCHEMA)
    for version in range(FILES):
        found.write(
            pa.table(
                {
                    "a": ["x", "y", "z"],
                    "b": [10 * version, 10 * version + 5, 10 * version + 9],
                    "at": pa.array([60 * version] * 3, pa.timestamp("s")),
                    "name": [f"{version}-{'long ' * 10}"] * 3,
                    "v": [version] * 3,
                }
            )
        )
    return found


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("b = 35", 1),
        ("b = 36", 1),
        ("b >= 60", 2),
        ("b IN (5, 75)", 2),
        ("b = 35 OR a = 'x'", FILES),
        ("b = 35 OR at = TIMESTAMP '1970-01-01 00:05:00'", 2),
        ("b = 35 AND at = TIMESTAMP '1970-01-01 00:05:00'", 0),
        ("a = 'y' AND b BETWEEN 20 AND 39", 2),
        ("at < TIMESTAMP '1970-01-01 00:02:00'", 2),
        ("name LIKE '3-%'", 1),
        ("name > '6'", 2),
        ("b + 1 = 36", FILES),
        ("v = 3", FILES),
        ("NOT (b < 70)", 1),
        ("b <> 35", FILES),
    ],
)
def test_a_predicate_opens_only_files_that_can_match(table, where, files):
    rows = table.scan().read_all()
    expected = table.scan(where=where).read_all().to_pylist()
    explained = table.explain(where=where)
    assert explained.files_opened == files
    if files < FILES:
        assert explained.files_out_by_bounds >= FILES - files
    context = datafusion.SessionContext()
    context.register_record_batches("t", [rows.to_batches()])
    wanted = context.sql(f"SELECT a, b, at, name, v FROM t WHERE {where}").to_arrow_table().to_pylist()
    assert sorted(map(repr, expected)) == sorted(map(repr, wanted))


def test_sql_and_polars_open_the_same_files(table, tmp_path):
    """Files that cannot match are not there any more, and no read needs them."""
    polars = pytest.importorskip("polars")
    state = table.state()
    gone = [file for file in state.referenced().values() if 35 not in range(*_span(file))]
    assert len(gone) == FILES - 1
    table.storage.delete([data_name(table.id, file) for file in gone])
    instance = lakebed.open(str(tmp_path / "instance"))
    assert instance.sql("SELECT v FROM t WHERE b = 35").read_all().to_pylist() == [{"v": 3}]
    found = instance.table("t").lazy_polars().filter(polars.col("b") == 35).collect()
    assert found["v"].to_list() == [3]


def _span(file):
    keys = decode_bounds(file.bounds)[0]
    return tuple(int.from_bytes(end, "big") - 2**63 for end in (keys.min, keys.max))


def test_what_is_merged_has_bounds_of_all_its_inputs(table, tmp_path):
    compact(
        table,
        prepare(table, "full"),
        lambda tasks: [run_merge_task(t, table.storage, tmp_path) for t in tasks],
        cores=1,
    )
    (file,) = table.state().referenced().values()
    assert _span(file) == (0, 80)
    times = decode_bounds(file.bounds)[1]
    field = SCHEMA.sort_key[0]
    assert times.contains(field.key_type.encode(0))
    assert not times.contains(field.key_type.encode(480))


NAN, INF = float("nan"), float("inf")
HELD = [[NAN, 3.5, -1.0], [5.0, 6.0], [NAN], [-INF, NAN, 10.0]]


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("b > 4 AND b < 5.5", 3),
        ("b >= -3 AND b <= -2", 1),
        ("b < -1", 1),
        ("b = -1", 2),
        ("b > 6", 3),
        ("b >= 5", 4),
    ],
)
def test_nan_is_above_all_numbers_in_the_bounds_of_a_file(tmp_path, kind, where, files):
    table = lakebed.create(tmp_path / "lake").create_table("t", Schema({"a": "int64"}, {"b": kind}))
    for values in HELD:
        table.write([{"a": 1, "b": value} for value in values])
    assert table.explain(where=where).files_opened == files
    rows = datafusion.SessionContext().from_arrow(table.to_arrow())
    assert table.scan(where=where).read_all().num_rows == rows.filter(where).count()


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("decimal128(10, 2)", Decimal("-5.00"), Decimal("7.25")),
        ("decimal256(50, 0)", Decimal(-(10**45)), Decimal(10**45)),
        ("uint64", 0, 2**64 - 1),
        ("uint32", 0, 2**32 - 1),
        ("int64", -(2**63), 2**63 - 1),
        ("string", "", "\U0010ffff"),
    ],
)
def test_a_file_of_several_row_groups_has_the_bounds_of_all(tmp_path, kind, low, high):
    """Also where the raw values of statistics have another order than the field."""
    schema = Schema({"a": "int64"}, {"b": kind})
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", schema, settings={"row_group_rows": 1000})
    column = pa.array([low] * 1000 + [high] * 1000, schema.by_name["b"].type)
    table.write(pa.table({"a": range(2000), "b": column}))
    for value in (low, high):
        literal = f"arrow_cast('{value}', '{kind.capitalize()}')" if "decimal" in kind else f"'{value}'"
        assert table.scan(where=f"b = {literal}").read_all().num_rows == 1000
    assert not [finding for finding in table.verify(deep=True).findings if finding.damage]
