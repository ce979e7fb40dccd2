"""Tables in process: what is written comes back, by key, by range and in order, whatever it is and however it came."""

import datetime as dt
import math
from decimal import Decimal

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Schema, SchemaMismatchError, UsageError, clock
from lakebed.errors import Code
from lakebed.model.state.sums import table_rows
from lakebed.upkeep.retention.run import collect_garbage
from tests.raising import raises
from tests.tables.read.test_answers import VALUES

SCHEMA = Schema({"k": "string"}, {"n": "int64"}, {"v": "double"})


def rows(keys, start=0):
    numbers = range(start, start + len(keys))
    return pa.table(
        {"k": pa.array(keys, pa.string()), "n": pa.array(numbers, pa.int64()), "v": [n / 2 for n in numbers]}
    )


@pytest.fixture(params=["local", "memory"])
def instance(request, tmp_path):
    if request.param == "local":
        return lakebed.create(str(tmp_path / "lake"))
    return lakebed.create(f"memory://{tmp_path.name}-{id(request)}")


@pytest.fixture
def table(instance):
    return instance.create_table("t", SCHEMA, split_points=["h", "p"])


def scanned(table, *ranges, **options):
    return table.scan(*ranges, **options).read_all()


def test_rows_come_back_in_key_order_across_partitions_and_files(table):
    """Then in the order of the sort key."""
    table.write(rows(list("zmakq")))
    table.write(rows(list("azkb"), start=5))
    found = scanned(table)
    assert "".join(found.column("k").to_pylist()) == "aabkkmqzz"
    assert found.column("n").to_pylist() == [2, 5, 8, 3, 7, 1, 4, 0, 6]
    assert found.schema == SCHEMA.arrow
    assert table.get("a").column("n").to_pylist() == [2, 5]
    assert table.get("nothing").num_rows == 0
    assert table.get("nothing").schema == SCHEMA.arrow


def test_one_write_makes_one_file_with_a_reference_in_each_partition_it_touches(table):
    """With exact counts."""
    table.write(rows(list("aabz")))
    files = table.files()
    assert len(set(files.column("file_id").to_pylist())) == 1
    assert files.column("rows").to_pylist() == [3, 1]
    assert files.column("exact").to_pylist() == [True, True]
    assert table.partitions().column("rows").to_pylist() == [3, 0, 1]


def test_a_write_is_seen_by_other_processes_with_their_next_probe(tmp_path):
    """And not before, if staleness is allowed."""
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", SCHEMA)
    other = lakebed.open(str(tmp_path / "lake")).table("t")
    assert other.get("a").num_rows == 0
    version = table.write(rows(["a"]))
    assert other.get("a", max_staleness=3600).num_rows == 0
    assert other.get("a").num_rows == 1
    assert (version, other.version, table.version) == (2, 2, 2)


def test_a_repeated_commit_id_adds_nothing(table):
    """It answers with the first version, from any process."""
    first = table.write(rows(["a"]), commit_id="monday")
    table.write(rows(["b"]))
    assert table.write(rows(["a", "c"]), commit_id="monday") == first
    assert scanned(table).num_rows == 2
    empty = table.write(rows([]), commit_id="nothing")
    assert table.write(rows(["z"]), commit_id="nothing") == empty


def test_no_rows_make_no_entry(table):
    """Of whatever form."""
    before = table.version
    assert table.write(rows([])) == before
    assert table.write(pa.RecordBatchReader.from_batches(SCHEMA.arrow, [])) == before


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], "abcdefgh"),
        ([KeyRange("c", "e")], "cd"),
        ([KeyRange("c", "e", max_inclusive=True)], "cde"),
        ([KeyRange(None, "c")], "ab"),
        ([KeyRange("g", None)], "gh"),
        ([KeyRange("a", "d"), KeyRange("c", "f")], "abcde"),
        ([KeyRange("f"), KeyRange.prefix("a")], "afgh"),
        ([KeyRange("c", "c")], ""),
    ],
)
def test_ranges_are_half_open_and_overlapping_ones_count_once(table, ranges, expected):
    """In key order whatever the order they are asked in."""
    table.write(rows(list("abcdefgh")))
    assert "".join(scanned(table, *ranges).column("k").to_pylist()) == expected


def test_columns_come_in_the_asked_order_and_limits_stop_early(table):
    """Keys only if asked for."""
    table.write(rows(list("abcdefgh")))
    assert scanned(table, columns=["v", "k"], limit=3).to_pydict() == {"v": [0, 0.5, 1], "k": ["a", "b", "c"]}
    assert table.get("b", columns=["v"]).to_pydict() == {"v": [0.5]}
    assert scanned(table, limit=0).num_rows == 0
    for bad in ({"columns": ["x"]}, {"columns": []}, {"columns": "k"}, {"limit": -1}):
        with raises(Code.ARGUMENT_INVALID, Code.COLUMN_UNKNOWN):
            table.scan(**bad)
    with pytest.raises(UsageError, match="KeyRange"):
        table.scan("a")
    for key in ((), ("a", "b"), (5,), (None,)):
        with raises(Code.KEY_LENGTH_MISMATCH, Code.KEY_NULL, Code.KEY_TYPE_MISMATCH):
            table.get(*key)


def test_every_type_of_key_and_value_survives(instance):
    """Nulls and NaN in values included; order and ranges exact beyond the basic plane and at bytes from 0x80."""
    schema = Schema(
        {"s": "string", "b": "binary", "d": "date32", "t": "timestamp[ms, tz=UTC]", "i": "int32"},
        {},
        {
            "f": "float",
            "x": "decimal128(10, 2)",
            "l": pa.list_(pa.int64()),
            "m": pa.map_(pa.string(), pa.int64()),
            "st": pa.struct([("a", pa.int32()), ("b", pa.string())]),
            "flag": "bool",
            "u": "uint64",
        },
    )
    texts = ["", "\x00", "a", "a\x00", "ä", "\uffff", "\U0001f600"]
    binaries = [b"", b"\x00", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"\x00\xff"]
    when = dt.datetime(1969, 12, 31, 23, 59, 59, 123000, tzinfo=dt.UTC)
    data = [
        {
            "s": text, "b": binary, "d": dt.date(1960 + n, 1, 1), "t": when, "i": -n,
            "f": float("nan") if n == 1 else None, "x": Decimal("1.50"), "l": [1, None], "m": [("a", n)],
            "st": {"a": n, "b": None}, "flag": n % 2 == 0, "u": 2**64 - 1,
        }
        for n, (text, binary) in enumerate(zip(texts, binaries, strict=True))
    ]  # fmt: skip
    table = instance.create_table("t", schema)
    table.write(pa.Table.from_pylist(data[::-1], schema=schema.arrow))
    found = scanned(table)
    assert found.schema == schema.arrow
    assert found.column("s").to_pylist() == sorted(texts, key=str.encode)
    assert found.select(["b", "d", "t", "i", "x", "l", "m", "st", "flag", "u"]).to_pylist() == [
        {name: row[name] for name in ("b", "d", "t", "i", "x", "l", "m", "st", "flag", "u")}
        for row in sorted(data, key=lambda row: row["s"].encode())
    ]
    assert math.isnan(next(v for v in found.column("f").to_pylist() if v is not None))
    for row in data:
        key = tuple(row[name] for name in schema.row_key_names)
        assert table.get(*key, columns=["s"]).num_rows == 1
        assert scanned(table, KeyRange.prefix(row["s"], row["b"])).num_rows == 1
    assert scanned(table, KeyRange("\uffff", None)).num_rows == 2


@pytest.mark.parametrize("form", ["pandas", "duckdb", "reader", "batch"])
def test_rows_are_taken_from_anything_with_an_arrow_stream(table, form):
    """Columns matched by name."""
    given = rows(list("ba")).select(["v", "n", "k"])
    data = {
        "pandas": given.to_pandas(),
        "duckdb": duckdb.sql("select v, n, k from given"),
        "reader": given.to_reader(),
        "batch": given.to_batches()[0],
    }[form]
    table.write(data)
    assert scanned(table).column("k").to_pylist() == ["a", "b"]


def test_rows_that_do_not_fit_leave_nothing_behind(tmp_path):
    """Not even an object; a good batch before the bad one does not count."""
    table = lakebed.create(str(tmp_path / "lake")).create_table("t", SCHEMA)
    good = rows(["a"]).to_batches()[0]
    bad = pa.RecordBatch.from_pydict({"k": pa.array([None], pa.string()), "n": pa.array([1], pa.int64()), "v": [0.5]})
    with pytest.raises(SchemaMismatchError, match="is null, and is not nullable"):
        table.write(pa.RecordBatchReader.from_batches(bad.schema, [good, bad]))
    with pytest.raises(SchemaMismatchError, match="missing column n"):
        table.write(pd.DataFrame({"k": ["a"]}))
    with pytest.raises(UsageError, match="a row is 1; give dicts"):
        table.write([1, 2])
    assert not list((tmp_path / "lake").rglob("*.parquet"))
    assert table.version == 1


def test_a_damaged_data_file_is_named(tmp_path):
    """Never wrong rows."""
    made = lakebed.create(str(tmp_path / "lake"))
    table = made.create_table("t", SCHEMA)
    table.write(rows(list("abc")))
    path = next((tmp_path / "lake").rglob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[-20] ^= 0x10
    path.chmod(0o644)
    path.write_bytes(bytes(data))
    with pytest.raises(lakebed.DamagedError, match=path.stem):
        lakebed.open(made.url).table("t").get("a")
    path.unlink()
    with pytest.raises(lakebed.Error, match=path.stem):
        lakebed.open(made.url).table("t").get("a")


def test_the_outcome_of_a_request_is_known_to_any_process(table, instance):
    """And None for one that is not in the log."""
    version = table.write(rows(["a"]), commit_id="monday")
    assert table.outcome("monday") == version
    assert lakebed.open(instance.url).table("t").outcome("monday") == version
    assert table.outcome("tuesday") is None


def test_removed_rows_are_gone_and_their_neighbours_are_not(table):
    """In one entry, by metadata: the boundaries h and p stay, and one is put where the range ends inside a
    partition."""
    table.write(rows(list("abcijz")))
    table.write(rows(list("cc"), start=6))
    files = set(table.state().files)
    before = table.version
    version = table.remove(KeyRange("b", "j"), KeyRange.prefix("z"))
    assert version == before + 1
    assert scanned(table).column("k").to_pylist() == ["a", "j"]
    assert table_rows(table.state()) == (2, 0)
    assert set(table.state().files) == files
    assert scanned(table.at(version=before)).num_rows == 8
    assert table.remove(KeyRange("b", "j")) == table.version == version
    table.write(rows(["c"]))
    assert table.get("c").num_rows == 1


@pytest.mark.parametrize("kind", VALUES)
def test_a_removal_takes_nothing_beside_its_range_whatever_the_type_of_the_key(kind):
    """What is left of a file is counted by a summary, which is made of the file."""
    schema = Schema({"k": kind})
    keys = sorted(set(VALUES[kind]), key=lambda key: schema.codec.encode((key,)))
    table = lakebed.create(f"memory://{clock.random_token()}").create_table("t", schema)
    table.write(pa.table({"k": pa.array(keys, schema.arrow.field("k").type)}))
    for begin in keys[-2::-1]:
        table.remove(KeyRange(begin, keys[-1]))
        keys.remove(begin)
        assert scanned(table).column("k").to_pylist() == keys
        assert table.count(exact=True).rows == table.count().rows == len(keys)


def test_of_keys_of_whole_seconds_a_removal_knows_which_rows_lie_beside_it(instance):
    """Parquet keeps them as milliseconds; by these, none of the rows would lie below the range."""
    table = instance.create_table("seconds", Schema({"k": "timestamp[s]"}))
    moments = [dt.datetime(2026, 1, 1, 0, 0, second) for second in range(10)]  # noqa: DTZ001 - the field has no zone
    table.write(pa.table({"k": pa.array(moments, pa.timestamp("s"))}))
    table.remove(KeyRange(moments[4], moments[6]))
    assert scanned(table).column("k").to_pylist() == moments[:4] + moments[6:]


def test_a_write_that_began_before_a_fence_does_not_pass_it(instance, table):
    """Whose rows were read before the removal may be those that were to go; one that begins after it does pass."""

    def removing():
        yield rows(["c"]).to_batches()[0]
        instance.table("t").remove(KeyRange("b", "d"), fence=True)

    late = pa.RecordBatchReader.from_batches(SCHEMA.arrow, removing())
    with pytest.raises(lakebed.RejectedError, match="for good"):
        table.write(late)
    assert scanned(table).num_rows == 0
    table.write(rows(["c"]))
    assert scanned(table).num_rows == 1


def test_a_removal_without_a_range_is_refused(table):
    """Not taken for all rows, as by a scan."""
    with pytest.raises(UsageError, match="needs a range"):
        table.remove()
    with raises(Code.KEY_RANGE_INVALID):
        table.remove(KeyRange("d", "b"))


def test_a_commit_id_that_is_forgotten_is_reported_as_unknown_and_adds_nothing(instance):
    """To a caller that gives the number of before the first call; another only sees that it is not on record."""
    table = instance.create_table("t", SCHEMA, settings={"log_s": 0, "history_s": 0})
    before = table.version
    table.write(rows(["a"]), commit_id="monday")
    table.set(page_rows=500)
    collect_garbage(table)

    assert (table.outcome("monday"), table.state().request_watermark) == (None, 4 - 1)
    with pytest.raises(lakebed.UnknownOutcomeError, match="log_s"):
        table.write(rows(["a"]), commit_id="monday", base_version=before)
    assert scanned(table).num_rows == 1


@pytest.mark.parametrize(("commit_id", "base_version"), [("monday", 99), ("monday", -1), (None, 1)])
def test_a_base_number_that_means_nothing_is_refused(table, commit_id, base_version):
    with pytest.raises(UsageError, match="base_version"):
        table.write(rows(["a"]), commit_id=commit_id, base_version=base_version)
    assert table.version == 1
