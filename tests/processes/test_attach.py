"""What a sorted file has to be to be taken as it is, and that nothing else passes."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Schema
from lakebed.errors import BadKeyError, DamagedError, SchemaMismatchError, UsageError
from lakebed.model import types
from lakebed.write.attach import check_sorted
from tests.workers import in_process

SCHEMA = Schema({"k": "string"}, {"s": "int64"}, {"v": "double"})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "in.parquet"


def write(path, rows, schema=SCHEMA.arrow, **options):
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path, **options)
    return path


def check(path, cuts=()):
    return check_sorted(path, [SCHEMA], cuts, "in.parquet")


def test_a_sorted_file_is_known_by_its_rows_and_keys(path):
    found = check(write(path, [("a", 1, 0.5), ("a", 1, None), ("a", 2, 0.1), ("b", 0, 0.2)]))
    key = SCHEMA.codec.encode_key
    assert (found.rows, found.min_key, found.max_key, found.schema_version) == (4, key(("a",)), key(("b",)), 1)
    assert found.summary.rank(key(("b",))) == (3, True)


def test_a_file_without_rows_is_nothing(path):
    pq.write_table(SCHEMA.arrow.empty_table(), path)
    assert check(path) is None


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [([("b", 0), ("a", 0)], 2), ([("a", 2), ("a", 1)], 2), ([("a", 0), ("c", 0), ("d", 1), ("b", 0), ("z", 0)], 4)],
    ids=["row key", "sort key", "in the middle"],
)
@pytest.mark.parametrize("batch_rows", [1, 3, 100])
def test_a_row_below_the_one_before_is_named(path, rows, wrong, batch_rows):
    """Whether it begins a batch, of which each row group has its own, or is inside one."""
    with pytest.raises(UsageError, match=f"not sorted by k, s: row {wrong} is below the one before"):
        check(write(path, [(*row, 0.0) for row in rows], row_group_size=batch_rows))


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (pa.schema([("k", pa.string()), ("s", pa.int64()), ("v", pa.float64())]), "no field ids"),
        (Schema({"k": "string"}, {"s": "int32"}, {"v": "double"}).arrow, "2 s int32"),
        (Schema({"key": "string"}, {"s": "int64"}, {"v": "double"}).arrow, "1 key string"),
        (Schema({"k": "string"}, {"s": "int64"}, {"v": "double", "w": "int8"}).arrow, "4 w int8"),
    ],
    ids=["no ids", "type", "name", "too many"],
)
def test_a_file_with_other_columns_is_refused(path, schema, says):
    with pytest.raises(SchemaMismatchError, match=says):
        check(write(path, [("a", 1, 0.5, 1)[: len(schema)]], schema))


LISTED = pa.list_(pa.time32("s"))
SECONDS = Schema({"k": "timestamp[s]"}, {"s": "timestamp[s, tz=UTC]"}, {"v": "time32[s]", "w": LISTED})


def test_a_file_of_whole_seconds_is_taken_although_parquet_keeps_milliseconds(path):
    """So are exports of such tables. What is noted of it are the keys that the table has."""
    found = check_sorted(write(path, [(1, 1, 1, [1]), (2, 1, None, None)], SECONDS.arrow), [SECONDS], (), "in.parquet")
    key = SECONDS.codec.encode_key
    assert (found.min_key, found.max_key) == (key((1,)), key((2,)))
    assert found.summary.rank(key((2,))) == (1, True)


@pytest.mark.parametrize("column", range(4), ids=SECONDS.names)
def test_a_value_between_two_seconds_is_refused(path, column):
    stored = pa.schema([field.with_type(types.in_parquet(field.type)) for field in SECONDS.arrow])
    row = [1000, 1000, 1000, [1000]]
    row[column] = [1001] if column == 3 else 1001
    with pytest.raises(SchemaMismatchError, match=f"column {SECONDS.names[column]} .* holds a value that"):
        check_sorted(write(path, [row], stored), [SECONDS], (), "in.parquet")


def test_a_null_in_a_key_is_refused(path):
    loose = pa.schema([field.with_nullable(True) for field in SCHEMA.arrow])
    with pytest.raises(SchemaMismatchError, match="a null in s"):
        check(write(path, [("a", None, 0.5)], loose))


def test_a_key_that_is_too_long_is_refused(path):
    with pytest.raises(BadKeyError, match="9002 bytes"):
        check(write(path, [("a" * 9_000, 1, 0.5)]))


def test_a_damaged_file_is_named(path):
    write(path, [(f"{n:09}", n, 0.1 * n) for n in range(5_000)], write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 8
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=r"in\.parquet cannot be read"):
        check(path)


FLOATS = Schema({"k": "string"}, {"s": "double"}, {"v": "float"})


def test_nan_in_a_value_is_refused_if_the_file_has_statistics_that_leave_it_out(path):
    """An engine would skip it, where it is greater than the greatest, or take it for the only value that there is."""
    with pytest.raises(UsageError, match=r": column v holds NaN, which the file's statistics"):
        check(write(path, [("a", 0, 1.0), ("b", 0, float("nan"))]))
    assert check(write(path, [("a", 0, 1.0), ("b", 0, float("nan"))], write_statistics=["k", "s"])).rows == 2


def test_nan_in_a_key_is_taken_if_the_file_has_no_statistics_that_leave_it_out(path):
    rows = [("a", -1.0, 0.5), ("a", float("nan"), None), ("b", float("nan"), float("nan"))]
    write(path, rows, FLOATS.arrow, write_statistics=["k"])
    assert check_sorted(path, [FLOATS], (), "in.parquet").rows == 3
    write(path, rows, FLOATS.arrow)
    with pytest.raises(UsageError, match="key column s holds NaN, which the file's statistics"):
        check_sorted(path, [FLOATS], (), "in.parquet")


def test_a_zero_that_is_not_the_one_of_keys_is_refused(path):
    write(path, [("a", -0.0, 0.5)], FLOATS.arrow, write_statistics=False)
    with pytest.raises(UsageError, match="negative zero, or a NaN with a sign or a payload"):
        check_sorted(path, [FLOATS], (), "in.parquet")


def test_an_export_with_nan_in_its_keys_is_attached(tmp_path):
    lake = lakebed.create(tmp_path / "lake")
    table = lake.create_table("t", Schema({"k": "double"}, {"s": "float"}))
    table.write([{"k": k, "s": s} for k in (1.0, float("nan")) for s in (float("nan"), 2.0, float("-inf"))])
    copy = lake.create_table("copy", table.schema)
    with in_process(lake) as pipeline:
        pipeline.export(table, str(tmp_path / "out"))
        pipeline.attach(copy, str(tmp_path / "out"))
    assert repr(copy.to_arrow().to_pylist()) == repr(table.to_arrow().to_pylist())
    assert copy.get(float("nan")).num_rows == 3
    assert copy.scan(where="s > 1").read_all().num_rows == table.scan(where="s > 1").read_all().num_rows == 4
