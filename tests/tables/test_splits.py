"""Splits have each row of a version once, in key order, in any process."""

from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.model.policies import Policy
from lakebed.read.snapshot.restricted import RestrictedSnapshot

UTC = dt.UTC
DAY = dt.datetime(2026, 1, 1, tzinfo=UTC)

KEYS = {
    "int64": (range(20), [5, 12]),
    "string": ([f"k{n:02}" for n in range(20)], ["k05", "k0", "k15"]),
    "binary": ([bytes([n, 0]) for n in range(20)], [b"\x05", b"\x05\x00\x01"]),
    "double": ([*map(float, range(18)), float("inf"), float("nan")], [5.5, float("inf")]),
    "timestamp[ns, tz=UTC]": (
        pa.array([1_000 * n + 7 for n in range(20)], pa.timestamp("ns", "UTC")),
        [dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=n) for n in (3, 9)],
    ),
    "date32": ([DAY.date() + dt.timedelta(days=n) for n in range(20)], [dt.date(2026, 1, 5)]),
    "decimal128(5, 2)": (list(map(Decimal, range(20))), [Decimal("3.50")]),
}


@pytest.fixture
def instance(tmp_path):
    return lakebed.create(str(tmp_path / "splits"))


def read(splits, **how):
    tables = [split.scan(**how).read_all() for split in splits]
    return pa.concat_tables(tables).to_pylist()


@pytest.mark.parametrize("kind", KEYS)
def test_splits_have_each_row_once_in_key_order(instance, kind):
    values, points = KEYS[kind]
    table = instance.create_table("t", Schema({"k": kind}, values={"n": "int64"}), split_points=sorted(points))
    table.write(pa.table({"k": pa.array(values, table.schema.arrow.field("k").type), "n": range(20)}))
    splits = table.splits()
    assert len(splits) == len(points) + 1
    assert str(read(splits)) == str(table.scan().read_all().to_pylist())
    assert [split.rows for split in splits] == [split.scan().read_all().num_rows for split in splits]
    assert sum(split.size_bytes for split in splits) == sum(table.partitions()["bytes"].to_pylist()) > 0
    assert read(splits, columns=["n"], where="n >= 18") == [{"n": 18}, {"n": 19}]


def test_a_bound_of_nanoseconds_is_rounded_and_one_that_python_lacks_joins_its_neighbours(instance):
    """The table splits itself at keys of its rows, which Python cannot hold."""
    table = instance.create_table("t", Schema({"at": "timestamp[ns, tz=UTC]"}, values={"n": "int64"}))
    at = pa.array([500 * n for n in range(4000)], pa.timestamp("ns", "UTC"))
    table.write(pa.table({"at": at, "n": range(4000)}))
    table.set(split_rows=1000)
    with lakebed.Pipeline(instance, launcher="this-thread") as pipeline:
        pipeline.split(table)
    assert table.partitions().num_rows > 2
    assert [row["n"] for row in read(table.splits())] == list(range(4000))
    years = instance.create_table("y", Schema({"at": "timestamp[s]"}), split_points=[dt.datetime(2000, 1, 1)])  # noqa: DTZ001
    years.write(pa.table({"at": pa.array([0, 10**9, 10**12, 10**12 + 1], pa.timestamp("s"))}))
    assert sum(split.scan().read_all().num_rows for split in years.splits()) == 4


def test_a_table_without_rows_or_split_points_is_one_split(instance):
    table = instance.create_table("t", Schema({"k": "int64"}, {"s": "string"}))
    (split,) = table.splits()
    assert (split.keys, split.rows, split.scan().read_all().num_rows) == (lakebed.KeyRange(), 0, 0)


def test_a_split_is_read_in_another_process_at_its_version(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    table = lake.create_table("t", Schema({"k": "int64"}), split_points=[10])
    table.write([{"k": n} for n in range(20)])
    data = pickle.dumps(table.splits()[1])
    table.write([{"k": 30}])
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).scan().read_all()['k'].to_pylist())"
    found = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, check=True)
    assert found.stdout.decode().strip() == str(list(range(10, 20)))


def test_a_handle_of_a_part_of_the_rows_refuses(instance):
    table = instance.create_table("t", Schema({"k": "int64"}))
    with pytest.raises(lakebed.AccessError, match="is of all rows"):
        RestrictedSnapshot(table.snapshot(), Policy(wheres=("k > 1",))).splits()
