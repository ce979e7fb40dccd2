"""Parquet timestamps of the type INT96: every way in stores each time exactly, or refuses it with its row.

The files are made here, byte by byte where it counts: a value is eight bytes of nanoseconds of a day, and four of the
day. What a field should hold is computed from these two numbers.
"""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Error, Schema, SchemaMismatchError, UsageError, clock
from lakebed.errors import Code
from lakebed.upkeep.migration.foreign_table import SourceLocation
from lakebed.upkeep.migration.hive import open_hive
from lakebed.upkeep.migration.run import Selection, migrate, plan
from lakebed.write.attach import check_sorted
from lakebed.write.conformer import Conformer
from lakebed.write.sources import find_files, read_file
from tests.raising import raises
from tests.soaked import few
from tests.tables.ingest.cases import ingested

DAY_NS = 86_400 * 10**9
JULIAN = 2_440_588
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

DAYS = [
    0,
    1,
    -1,
    19_723,
    -106_752,
    106_751,
    106_752,
    -135_140,
    2_932_896,
    -719_162,
    106_751_991,
    -106_751_991,
    2**31 - 1 - JULIAN,
]
NANOS = [0, 1, 999, 1000, 1_000_000, 10**9, DAY_NS - 1, 85_636_854_775_807, 85_636_854_775_808, 763_145_224_192]
TIMES = [(day, nanos) for day in DAYS for nanos in NANOS]


def int96_file(path, times, **columns):
    """Write a Parquet file with the column ``at`` of days and nanoseconds, and other columns."""
    marks = pa.array([7_777_777 * DAY_NS // DAY_NS * 1000 + row for row in range(len(times))], pa.timestamp("us"))
    table = pa.table({"k": pa.array(range(len(times)), pa.int64()), **columns, "at": marks})
    how = {"use_dictionary": False, "compression": "none", "write_statistics": False, "store_schema": False}
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, **how)
    given = b"".join(_bytes_of(0, (7_777_777 * 1000 + row) * 1000) for row in range(len(times)))
    wanted = b"".join(_bytes_of(*time) for time in times)
    data = path.read_bytes()
    assert data.count(given) == 1
    path.write_bytes(data.replace(given, wanted))
    return path


def _bytes_of(day, nanos):
    days, nanos = divmod(day * DAY_NS + nanos, DAY_NS)
    return nanos.to_bytes(8, "little") + (JULIAN + days).to_bytes(4, "little", signed=True)


def expected(time, unit):
    """Return the number of a field that holds the time; None if it cannot."""
    number, rest = divmod((time[0] * DAY_NS + time[1]) * PER_SECOND[unit], 10**9)
    return number if not rest and -(2**63) <= number < 2**63 else None


def table_of(unit, zone=None, **how):
    schema = Schema({"k": "int64"}, values={"at": pa.timestamp(unit, zone)})
    return lakebed.create(f"memory://{clock.random_token()}").create_table("t", schema, **how)


def stored(table):
    return table.scan().read_all()["at"].cast(pa.int64()).to_pylist()


def write(table, path):
    table.write(path)


def submit(table, path):
    table.submit(path)
    report = ingested(table)
    if report.failed:
        raise SchemaMismatchError(report.failed[0].reason, code=Code.VALUE_NOT_REPRESENTABLE)


def migrate_folder(table, path):
    source = open_hive(SourceLocation(str(path.parent), table.storage, wanted={"at": table.schema.by_name["at"].type}))
    migrate(table, plan(table.state(), source, None), Selection({}), lambda _done, _total: None)


WAYS = [write, submit, migrate_folder]


@pytest.mark.parametrize("unit", PER_SECOND)
@pytest.mark.parametrize("way", WAYS)
def test_times_that_a_field_holds_are_stored_exactly(tmp_path, unit, way):
    times = [time for time in TIMES if expected(time, unit) is not None]
    assert len(times) > 10
    table = table_of(unit)
    way(table, int96_file(tmp_path / "x.parquet", times))
    assert stored(table) == [expected(time, unit) for time in times]


@pytest.mark.parametrize("unit", few(PER_SECOND, 2))
def test_each_other_time_is_refused_with_its_row_and_nothing_is_written(tmp_path, unit):
    table = table_of(unit)
    others = [time for time in TIMES if expected(time, unit) is None]
    assert others
    for time in others:
        path = int96_file(tmp_path / "x.parquet", [(0, 0), time, (1, 0)])
        with pytest.raises(Error, match="column at") as caught:
            table.write(path)
        assert caught.value.facts["column"] == "at"
        assert caught.value.facts.get("row", 1) == 1
    assert table.version == 1


@pytest.mark.parametrize("way", WAYS)
def test_no_way_stores_another_time_for_one_that_the_field_cannot_hold(tmp_path, way):
    table = table_of("ns")
    with raises(Code.VALUE_NOT_REPRESENTABLE):
        way(table, int96_file(tmp_path / "x.parquet", [(0, 0), (2_932_896, 0)]))
    assert table.count(exact=True).rows == 0


def test_a_batch_may_have_rows_of_nanoseconds_beside_rows_of_far_years(tmp_path):
    """No unit holds both, so the rows that fit are separated from the others."""
    path = int96_file(tmp_path / "x.parquet", [(0, 1), (2_932_896, 1000), (5, 0), (1, 999)])
    (file,) = find_files(path)
    schema = Schema({"k": "int64"}, values={"at": "timestamp[us]"})
    with pytest.raises(SchemaMismatchError, match=r"column at is timestamp\[ns\]"):
        list(read_file(file, Conformer(schema)))
    good, bad = [], []
    from lakebed.write.sources import read_rows

    for batch in read_rows(file):
        fitting, rejected = Conformer(schema).separate(batch, "x")
        good += fitting["k"].to_pylist()
        bad += [row for part in rejected for row in part["k"].to_pylist()]
    assert (good, bad) == ([1, 2], [0, 3])


@pytest.mark.parametrize(
    "wrap",
    [
        lambda at: pa.StructArray.from_arrays([at], names=["x"]),
        lambda at: pa.ListArray.from_arrays(pa.array([0, 1, 1, len(at)], pa.int32()), at),
        lambda at: pa.FixedSizeListArray.from_arrays(at, 2),
        lambda at: pa.MapArray.from_arrays(pa.array([0, 1, 1, len(at)], pa.int32()), pa.array(list("abcd")), at),
    ],
)
def test_times_within_other_values_are_exact_too(tmp_path, wrap):
    at = pa.array([253_402_214_400_000_000, None, -62_135_596_800_000_000, 5], pa.timestamp("us"))
    column = wrap(at)
    rows = pa.table({"k": list(range(len(column))), "v": column})
    pq.write_table(rows, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    schema = Schema({"k": "int64"}, values={"v": column.type})
    table = lakebed.create(f"memory://{clock.random_token()}").create_table("t", schema)
    table.write(tmp_path / "x.parquet")
    assert table.scan().read_all()["v"].to_pylist() == column.to_pylist()


def test_a_file_with_such_times_is_not_attached_as_it_is(tmp_path):
    schema = Schema({"k": "int64"}, values={"at": "timestamp[ns]"})
    path = int96_file(tmp_path / "x.parquet", [(0, 0)])
    rows = pq.read_table(path)
    ids = [field.with_metadata({"PARQUET:field_id": str(number)}) for number, field in enumerate(rows.schema, 1)]
    pq.write_table(rows.cast(pa.schema(ids)), path, use_deprecated_int96_timestamps=True, store_schema=False)
    with pytest.raises(UsageError, match="INT96"):
        check_sorted(path, [schema], [], "x.parquet")


def test_local_times_are_not_stored_in_a_field_with_a_zone(tmp_path):
    with pytest.raises(SchemaMismatchError, match="column at"):
        table_of("us", "UTC").write(int96_file(tmp_path / "x.parquet", [(0, 0)]))


@pytest.mark.parametrize("way", WAYS)
def test_the_row_of_an_error_counts_those_of_earlier_row_groups_and_units(tmp_path, way):
    """The rows before need another unit, so that they are another batch."""
    path = int96_file(tmp_path / "x.parquet", [(0, 1), (2_932_896, 0), (0, 0), (2_932_896, 0), (0, 999)])
    with pytest.raises(Error, match="first row 0"):
        way(table_of("us"), path)
    with pytest.raises(Error, match="first row 1"):
        way(table_of("ns"), path)
