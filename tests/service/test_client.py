"""A connected instance does what a local one does: the same calls against both, with the same answers and errors."""

from __future__ import annotations

import datetime as dt
import inspect
import pickle
import re
import subprocess
import sys
import time
import uuid
from decimal import Decimal
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import KeyRange, dbapi
from lakebed.errors import Code
from lakebed.model.operations import OPERATIONS
from lakebed.read.snapshot.snapshot import Snapshot
from lakebed.server.security import stored
from lakebed.server.security.authentication import BearerAuthenticator
from lakebed.server.security.principal import Permission
from lakebed.server.security.roles import Role
from lakebed.table.client.remote_instance import RemoteInstance
from lakebed.table.client.remote_table import RemoteSnapshot, RemoteTable
from tests import pages
from tests.processes.web.serving import serving
from tests.raising import raises

SCHEMA = lakebed.Schema(
    {"place": "string", "n": "int64"}, {"at": "timestamp[us, tz=UTC]"}, {"x": "double", "b": "binary"}
)
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def rows(count=100, first=0):
    numbers = range(first, first + count)
    return pa.table(
        {
            "place": [f"p{n % 10}" for n in numbers],
            "n": list(numbers),
            "at": [START + dt.timedelta(hours=n) for n in numbers],
            "x": [None if n % 7 == 0 else n / 4 for n in numbers],
            "b": [bytes([n % 256]) for n in numbers],
        },
        schema=SCHEMA.arrow,
    )


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    lake = lakebed.create(str(tmp_path_factory.mktemp("lake")))
    with serving(lake) as url:
        yield SimpleNamespace(lake=lake, url=url)


@pytest.fixture(params=["local", "connected"])
def lake(request, service):
    """The instance, itself or through its service. Tables of a test have the test's name and this one's."""
    if request.param == "local":
        yield service.lake
    else:
        with lakebed.connect(service.url) as connected:
            yield connected


@pytest.fixture
def table(request, lake):
    name = f"t{abs(hash(request.node.name))}"
    made = lake.create_table(name, SCHEMA, split_points=["p3", ("p5", 7)])
    assert made.write(rows()) == made.version
    return made


def test_tables_by_name_and_creations_that_may_be_repeated(lake, table):
    assert lake[table.name].count().rows == 100
    assert (table.name in lake, "nowhere" in lake) == (True, False)
    assert list(lake) == lake.tables()
    assert len(lake) == len(lake.tables())
    assert lake.create_table(table.name, SCHEMA, if_not_exists=True).count().rows == 100
    with pytest.raises(lakebed.ExistsError, match="there is no value z"):
        lake.create_table(table.name, lakebed.Schema({"place": "string"}, {}, {"z": "int64"}), if_not_exists=True)
    with raises(Code.TABLE_EXISTS):
        lake.create_table(table.name, SCHEMA)


# -- the same answers ---------------------------------------------------------------------------------------------


def test_rows_of_keys(table):
    found = table.get("p3", 13)
    assert isinstance(found, pa.Table)
    assert found.schema.equals(SCHEMA.arrow)
    assert found.to_pylist() == rows().slice(13, 1).to_pylist()
    assert table.get("p3", 14).num_rows == 0
    assert table.get("p3", 13, columns=["x", "n"]).to_pydict() == {"x": [3.25], "n": [13]}
    keys = [("p3", 13), ("p1", 1), ("p3", 13), ("nowhere", 0)]
    assert table.get_many(keys, columns=["n"])["n"].to_pylist() == [1, 13]
    arrow = pa.table({"n": [13, 1], "place": ["p3", "p1"]})
    assert table.get_many(arrow, columns=["n"])["n"].to_pylist() == [1, 13]
    assert table.get_many([]).num_rows == 0


TYPED = {
    "uuid": uuid.UUID(int=2**100),
    "decimal128(10, 2)": Decimal("1.50"),
    "double": 1.5,
    "float": float("-inf"),
    "bool": True,
    "uint64": 2**64 - 1,
    "fixed_size_binary[2]": b"ab",
    "date32": dt.date(2026, 1, 31),
    "time64[us]": dt.time(12, 30, 0, 5),
    "timestamp[us]": dt.datetime(2026, 1, 31, 12),  # noqa: DTZ001 - the type has no zone
}


def test_keys_of_every_type(request, lake):
    schema = lakebed.Schema({name: name for name in TYPED}, {}, {"n": "int64"})
    typed = lake.create_table(f"t{abs(hash(request.node.name))}", schema)
    typed.write([{**TYPED, "n": 1}, {**TYPED, "time64[us]": dt.time(13), "n": 2}])
    key = tuple(TYPED.values())
    assert typed.get(*key).to_pylist() == [{**TYPED, "n": 1}]
    assert typed.get_many([key], columns=["n"])["n"].to_pylist() == [1]
    assert typed.scan(KeyRange.prefix(*key[:8]), columns=["n"]).read_all()["n"].to_pylist() == [1, 2]
    assert typed.scan(KeyRange(key[:9]), columns=["n"]).read_all()["n"].to_pylist() == [1, 2]
    with raises(Code.KEY_UNPARSABLE):
        typed.get("none", *key[1:])
    with raises(Code.KEY_TYPE_MISMATCH):
        typed.get(*key[:4], 1, *key[5:])


@pytest.mark.parametrize(
    ("ranges", "options", "numbers"),
    [
        ((), {}, None),
        ((KeyRange("p2", "p3"),), {"columns": ["n"]}, range(2, 100, 10)),
        ((KeyRange("p2", "p2", max_inclusive=True),), {"limit": 2}, [2, 12]),
        ((KeyRange.prefix("p9"), KeyRange.prefix("p1", 11)), {}, [11, *range(9, 100, 10)]),
        ((KeyRange.starts_with("p"),), {"where": "n < 3 AND x IS NOT NULL"}, [1, 2]),
        ((KeyRange(("p0", 90)), KeyRange(None, ("p0", 10))), {"limit": 3}, [0, 90, 1]),
        ((), {"reverse": True, "limit": 2}, [99, 89]),
        ((KeyRange("x"),), {}, []),
    ],
)
def test_rows_of_ranges(table, ranges, options, numbers):
    with table.scan(*ranges, **options) as stream:
        found = stream.read_all()
    expected = sorted(range(100), key=lambda n: (n % 10, n)) if numbers is None else list(numbers)
    assert found["n"].to_pylist() == expected


def test_raw_rows_and_batches(table):
    assert table.scan(raw=True).read_all().num_rows == 100
    assert sum(batch.num_rows for batch in table.scan()) == 100


def test_counts_samples_prefixes_and_plans(table):
    assert (table.count(exact=True).rows, table.count(exact=True).exact) == (100, True)
    assert table.count(KeyRange("p2", "p4"), exact=True).rows == 20
    estimate = table.count(KeyRange("p2", ("p4", 3)))
    assert estimate.rows_min <= 20 <= estimate.rows_max
    assert table.sample(5, seed=1).equals(table.sample(5, seed=1))
    assert table.sample(1000).num_rows == 100
    assert table.prefixes(1).to_pydict() == {"place": [f"p{n}" for n in range(10)]}
    assert table.prefixes(2, KeyRange("p2", "p3"), limit=2)["n"].to_pylist() == [2, 12]
    plan = table.explain("p3", 13)
    assert (plan.rows, plan.version, plan.partitions) == (1, table.version, 1)
    assert table.explain(KeyRange("p2", "p3"), where="n > 50").rows == 5
    assert "partitions" in str(table.explain())


def test_splits_are_read_apart(table):
    before = table.scan().read_all()
    splits = [pickle.loads(pickle.dumps(split)) for split in table.splits()]
    table.write(rows())
    assert len(splits) == 3
    assert [split.rows for split in splits] == [split.scan(columns=["n"]).read_all().num_rows for split in splits]
    assert pa.concat_tables(split.scan().read_all() for split in splits).equals(before)


def test_rows_for_other_libraries(table):
    assert pa.table(table).num_rows == 100
    assert table.to_arrow(KeyRange.prefix("p1"), columns=["n"])["n"].to_pylist() == list(range(1, 100, 10))
    assert table.to_pandas().shape == (100, 5)
    assert table.to_polars(KeyRange.prefix("p1")).height == 10


def test_versions_and_tags(table):
    first = table.version
    moment = table.history()["time"][0].as_py()
    assert table.tag("audited") == first
    then = table.at(version=first)
    # The clock of a file system moves in steps of several milliseconds: the next version is to be of another one.
    time.sleep(0.05)
    second = table.write(rows(10, first=100))
    assert second > first
    assert table.get("p5", 105, at_least=second).num_rows == 1
    for snapshot in (then, table.at(tag="audited"), table.at(time=moment)):
        assert isinstance(snapshot, Snapshot | RemoteSnapshot)
        assert (snapshot.version, snapshot.count(exact=True).rows) == (first, 100)
        assert snapshot.get("p5", 105).num_rows == 0
        assert snapshot.scan(where="n >= 99").read_all()["n"].to_pylist() == [99]
        assert snapshot.snapshot() is snapshot
    assert table.snapshot().version == table.version
    assert table.tags() == {"audited": first}
    for moment in ({"tag": "2999-01-31"}, {"time": "2999-01-31"}):
        with pytest.raises(lakebed.NotFoundError, match=r"no tag '2999-01-31'|ahead of the store's clock"):
            table.at(**moment)
    assert table.tag("now") == table.version - 1  # the tag is a version as well
    table.untag("audited")
    table.untag("now")
    assert table.tags() == {}
    history = table.history(limit=1)
    assert history.num_rows == 1
    assert table.history().schema.names == history.schema.names
    assert table.history()["type"].to_pylist().count("add_files") == 2


def test_writes_are_repeated_by_their_ids(table):
    before = table.version
    first = table.write(rows(5, first=200), commit_id="load-1")
    assert table.write(rows(5, first=200), commit_id="load-1", base_version=before) == first
    assert table.count(exact=True).rows == 105
    batches = [rows(1000, first=1000 * n).to_batches()[0] for n in range(1, 6)]
    table.write(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert table.count(exact=True).rows == 5105
    assert table.write(rows(0)) == table.version


def test_upserts_and_deletes(lake, request):
    schema = lakebed.Schema({"k": "int64"}, {}, {"v": "string", "w": "int64"})
    table = lake.create_table(f"u{abs(hash(request.node.name))}", schema, merge=lakebed.Latest())
    table.write(pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"], "w": [1, 2, 3]}))
    table.write(pa.table({"k": [2], "v": ["B"]}), partial=True)
    table.write(pa.table({"op": ["d", "u"], "k": [3, 4], "v": ["", "d"], "w": [0, 4]}), row_kind="op")
    assert table.scan().read_all().to_pydict() == {"k": [1, 2, 4], "v": ["a", "B", "d"], "w": [1, 2, 4]}
    report = table.delete([1, 9])
    assert (report.keys, report.version, report.repeated) == (2, table.version, False)
    assert table.delete(pa.table({"k": [4]})).keys == 1
    assert table.delete(where="w = 2", commit_id="gone").keys == 1
    assert table.delete(where="w = 2", commit_id="gone").repeated
    assert table.count(exact=True).rows == 0


def test_the_catalog(lake, request):
    name, other = (f"c{abs(hash((request.node.name, n)))}" for n in (1, 2))
    made = lake.create_table(name, SCHEMA, settings={"history_s": 60}, online=False)
    assert name in lake.tables()
    assert made.name == lake.table(name).name == name
    assert made.schema == SCHEMA
    assert made.settings()["history_s"] == 60
    assert not lake.is_online(name)
    lake.set_online(name, True)
    assert lake.is_online(name)
    lake.rename_table(name, other)
    assert other in lake.tables()
    assert name not in lake.tables()
    lake.create_table(name, SCHEMA)
    lake.rename_table(name, other, replace=True)
    assert name not in lake.tables()
    assert lake.table(other).settings()["history_s"] != 60
    lake.drop_table(other)
    assert other not in lake.tables()


def test_settings(lake, table):
    table.set(split_rows=1234)
    assert table.settings()["split_rows"] == 1234
    table.set(split_rows=None)
    assert table.settings() == {**lake.settings()}
    lake.set(split_rows=4321)
    assert lake.settings()["split_rows"] == 4321
    lake.set(split_rows=None)


def test_sql(lake, table):
    with lake.sql(f"SELECT place, sum(n) AS s FROM {table.name} GROUP BY place ORDER BY place LIMIT 2") as found:
        assert found.read_all().to_pydict() == {"place": ["p0", "p1"], "s": [450, 460]}
    assert lake.sql("SELECT 1 AS one", timeout_s=60, memory_limit_bytes=2**30).read_all().to_pydict() == {"one": [1]}


def test_the_schema_is_altered_and_rows_are_hidden(table):
    before = table.version
    version = table.alter(lakebed.AddField("note", "string"), lakebed.RenameField("x", "y"))
    assert version == table.version
    assert table.schema.names == ("place", "n", "at", "y", "b", "note")
    assert table.at(version=before).schema == SCHEMA
    table.alter(lakebed.DropField("note"))
    table.alter(lakebed.SetFilter("n < 50"), lakebed.AgeOff("at", days=18_000))
    assert table.count(exact=True).rows == 50
    table.alter(lakebed.SetFilter(None), lakebed.AgeOff(None))
    assert table.count(exact=True).rows == 100


def test_rows_are_removed_and_restored(table):
    before = table.version
    table.remove(KeyRange.prefix("p1"), fence=True)
    assert table.count(exact=True).rows == 90
    table.remove(prefix=["p2", ("p3", 13)])
    assert table.count(exact=True).rows == 79
    table.remove(choose=lambda found: [place == "p4" for place in found["place"].to_pylist()], depth=1)
    table.remove(choose=lambda found: [("p5", 5)], depth=2)
    assert table.count(exact=True).rows == 68
    assert table.remove(choose=lambda found: [], depth=1) == table.version
    assert table.restore(version=before) == table.version
    assert table.count(exact=True).rows == 100
    assert table.tag("whole") == table.at(tag="whole").version
    table.remove(KeyRange())
    table.restore(tag="whole")
    assert table.count(exact=True).rows == 100


def test_changes(table):
    before = table.version
    after = table.write(rows(3, first=100), commit_id="late")
    with table.changes(before, columns=["n"]) as stream:
        found = stream.read_all()
    assert found.schema.names == ["_version", "_change", "_range", "n"]
    assert found.to_pydict()["n"] == [100, 101, 102]
    assert set(found["_version"].to_pylist()) == {after}
    assert table.changes(str(before), after, ranges=[KeyRange.prefix("p1")], where="n > 0").read_all().num_rows == 1
    assert table.changes(after).read_all().num_rows == 0
    assert table.outcome("late") == after
    assert table.outcome("never") is None


def test_parts_and_verification(table):
    assert table.partitions().num_rows == 3
    assert table.at(version=1).partitions()["rows"].to_pylist() == [0, 0, 0]
    assert table.files().num_rows == 3
    (url,) = set(table.files(KeyRange.prefix("p1"))["url"].to_pylist())
    assert url.endswith(".parquet")
    report = table.verify(files=True)
    assert report.sound
    assert (report.table, report.version, report.objects) == (table.name, table.version, 1)
    assert table.failures().schema.names[0] == "time"
    assert [row.version for row in table.history_rows(2)] == [2, 1]


def test_requests_that_are_withdrawn(lake, service, request, tmp_path):
    table = lake.create_table(f"r{abs(hash(request.node.name))}", SCHEMA)
    pq.write_table(rows(), tmp_path / "more.parquet")
    # A service takes files below folders that its operator names; here the instance itself submits.
    submitted = service.lake.table(table.name).submit(tmp_path / "more.parquet")
    (found,) = table.requests().to_pylist()
    assert (found["id"], found["state"]) == (submitted.files[0].request, "open")
    report = table.withdraw(found["id"])
    assert (report.withdrawn, report.late) == ((found["id"],), ())
    assert table.requests()["state"].to_pylist() == ["rejected"]
    assert isinstance(table.requests()["time"][0].as_py(), dt.datetime)


def test_views_and_pauses(lake, table, request):
    name = f"v{abs(hash(request.node.name))}"
    select = "SELECT place, count(*) AS n FROM source GROUP BY place"
    merge = lakebed.Aggregate({"n": "sum"})
    view = lake.create_view_table(name, source=table.name, select=select, row_key=["place"], merge=merge)
    assert view.schema.names == ("place", "n")
    assert lake.paused(name) == frozenset()
    lake.pause(name, "compaction", "gc")
    assert lake.paused(name) == {"compaction", "gc"}
    lake.resume(name, "gc")
    assert lake.paused(name) == {"compaction"}
    lake.pause(name)
    assert lake.paused(name) == set(OPERATIONS)
    lake.resume(name)
    assert lake.paused(name) == frozenset()


def test_indexes(lake, table, request):
    name = f"i{abs(hash(request.node.name))}"
    index = lake.create_index(name, table=table.name, on=["n"])
    assert (index.name, lake.indexes(table.name)) == (name, {name: ["n"]})
    (row, *_) = table.scan(where="n IS NOT NULL").read_all().to_pylist()
    assert row in table.get(by={"n": row["n"]}).to_pylist()
    with raises(Code.INDEX_EXISTS, Code.ARGUMENT_INVALID):
        lake.create_index(f"{name}2", table=table.name, on=["n"])
    with raises(Code.ARGUMENT_INVALID):
        lake.create_index(f"{name}2", table=table.name, on="n")
    with raises(Code.ARGUMENT_INVALID):
        lake.drop_index(table.name)
    lake.drop_index(name)
    assert lake.indexes(table.name) == {}


def test_raw_rows_of_keys_and_installed_functions(lake, request, monkeypatch):
    schema = lakebed.Schema({"k": "int64"}, {}, {"v": "int64"})
    table = lake.create_table(f"w{abs(hash(request.node.name))}", schema, merge=lakebed.Latest())
    for v in (1, 2):
        table.write(pa.table({"k": [1], "v": [v]}))
    assert table.get(1)["v"].to_pylist() == [2]
    assert sorted(table.get(1, raw=True)["v"].to_pylist()) == [1, 2]
    assert table.get_many([1], raw=True).num_rows == 2
    assert table.get_many(pa.table({"k": [1]}), raw=True).num_rows == 2
    for call in (table.get, lambda *key, apply: table.get_many([key], apply=apply).num_rows):
        with pytest.raises(lakebed.UsageError, match="nowhere"):
            call(1, apply="nowhere")
    with pytest.raises(lakebed.UsageError, match="nowhere"):
        table.scan(apply="nowhere").read_all()


# -- the same errors ----------------------------------------------------------------------------------------------

FAULTS = {
    "unknown column": (lambda t: t.get("p1", 1, columns=["nope"]), Code.COLUMN_UNKNOWN),
    "short key": (lambda t: t.get("p1"), Code.KEY_LENGTH_MISMATCH),
    "null key": (lambda t: t.get("p1", None), Code.KEY_NULL),
    "float key": (lambda t: t.get("p1", 1.5), Code.KEY_TYPE_MISMATCH),
    "upside down": (lambda t: t.scan(KeyRange("b", "a")), Code.KEY_RANGE_INVALID),
    "no range": (lambda t: t.scan("a"), None),
    "bad predicate": (lambda t: t.scan(where="n >").read_all(), Code.PREDICATE_INVALID),
    "negative limit": (lambda t: t.scan(limit=-1), Code.ARGUMENT_INVALID),
    "no flag": (lambda t: t.scan(reverse="yes"), Code.ARGUMENT_INVALID),
    "depth": (lambda t: t.prefixes(3), None),
    "no version": (lambda t: t.at(version=10**6), Code.VERSION_NOT_FOUND),
    "no tag": (lambda t: t.at(tag="nope"), Code.TAG_NOT_FOUND),
    "two moments": (lambda t: t.at(tag="nope", version=1), None),
    "bad time": (lambda t: t.at(time="yesterday"), Code.ARGUMENT_INVALID),
    "bad tag": (lambda t: t.tag("12"), Code.NAME_INVALID),
    "tag of another": (lambda t: t.untag("nope"), Code.TAG_MISSING),
    "later": (lambda t: t.snapshot().get("p1", 1, at_least=10**6), Code.VERSION_NOT_FOUND),
    "extra column": (lambda t: t.write(pa.table({"more": [1]})), None),
    "wrong type": (lambda t: t.write(rows().set_column(1, "n", pa.array(["x"] * 100))), Code.COLUMN_TYPE_MISMATCH),
    "no rows": (lambda t: t.write([1, 2]), Code.SOURCE_UNSUPPORTED),
    "partial": (lambda t: t.write(rows(), partial=True), None),
    "delete": (lambda t: t.delete([("p1", 1)]), None),
    "no change": (lambda t: t.alter(), Code.ARGUMENT_INVALID),
    "strange change": (lambda t: t.alter("add"), Code.ARGUMENT_INVALID),
    "no such field": (lambda t: t.alter(lakebed.DropField("nope")), Code.SCHEMA_CHANGE_REJECTED),
    "changes of two kinds": (lambda t: t.alter(lakebed.SetFilter("n > 1"), lakebed.DropField("x")), None),
    "filter that is none": (lambda t: t.alter(lakebed.SetFilter("n >")), Code.PREDICATE_INVALID),
    "nothing to remove": (lambda t: t.remove(), None),
    "empty prefix": (lambda t: t.remove(prefix=()), None),
    "long prefix": (lambda t: t.remove(prefix=("p", 1, 2)), None),
    "choice without depth": (lambda t: t.remove(choose=lambda found: []), Code.ARGUMENTS_CONFLICT),
    "restore of nothing": (lambda t: t.restore(), Code.ARGUMENTS_CONFLICT),
    "restore of no version": (lambda t: t.restore(version=10**6), Code.VERSION_NOT_FOUND),
    "changes until before": (lambda t: t.changes(2, 1).read_all(), None),
    "changes of no version": (lambda t: t.changes(10**6).read_all(), None),
    "changes since no moment": (lambda t: t.changes(1.5).read_all(), None),
    "no key of a request": (lambda t: t.outcome(""), None),
    "withdrawn twice": (lambda t: t.withdraw("nope"), None),
    "withdrawn nothing": (lambda t: t.withdraw(), None),
    "raw and apply": (lambda t: t.scan(raw=True, apply="f"), Code.ARGUMENTS_CONFLICT),
    "verify what": (lambda t: t.verify(files="yes"), Code.ARGUMENT_INVALID),
    "no setting": (lambda t: t.set(nope=1), Code.SETTING_UNKNOWN),
    "bad setting": (lambda t: t.set(split_rows=-1), None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_errors_have_the_class_and_the_code(service, fault):
    call, code = FAULTS[fault]
    name = "faulty"
    if name not in service.lake.tables():
        service.lake.create_table(name, SCHEMA).write(rows())
    with lakebed.connect(service.url) as connected:
        caught = []
        for table in (service.lake.table(name), connected.table(name)):
            with pytest.raises(lakebed.Error) as one:
                call(table)
            caught.append(one.value)
    local, remote = caught
    assert (type(remote), remote.code) == (type(local), local.code)
    assert code in (None, local.code)


@pytest.mark.parametrize(
    "call",
    [
        lambda lake: lake.table("nope"),
        lambda lake: lake.drop_table("nope"),
        lambda lake: lake.rename_table("nope", "other"),
        lambda lake: lake.is_online("nope"),
        lambda lake: lake.create_table("faulty2", SCHEMA, settings={"nope": 1}),
        lambda lake: lake.create_table("bad name", SCHEMA),
        lambda lake: lake.sql("SELEC 1").read_all(),
        lambda lake: lake.sql("SELECT * FROM nope").read_all(),
        lambda lake: lake.set(nope=1),
        lambda lake: lake.pause("nope"),
        lambda lake: lake.paused("nope"),
        lambda lake: lake.create_view_table("faulty3", source="nope", select="SELECT 1", row_key=["k"]),
    ],
)
def test_errors_of_the_instance_are_the_same(service, call):
    with lakebed.connect(service.url) as connected:
        caught = []
        for lake in (service.lake, connected):
            with pytest.raises(lakebed.Error) as one:
                call(lake)
            caught.append(one.value)
    assert (type(caught[1]), caught[1].code) == (type(caught[0]), caught[0].code)


# -- notebooks ----------------------------------------------------------------------------------------------------


def shown(html):
    """The texts of a view, without its styles."""
    root = ET.fromstring(re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL))
    return [text for text in root.itertext() if text.strip()]


def test_what_a_notebook_shows_is_the_same(lake, table):
    figures = {"rows", "100", "partitions", "3", "stored bytes", "place", "row key", "sort key", "double"}
    for one in (table, table.snapshot(), table.at(version=table.version)):
        assert figures <= set(shown(one._repr_html_()))
        assert one.plot_partitions().svg.count("<title>partition") == 3
    # Other tests have made tables; the first ones by name are shown.
    assert {lake.tables()[0], "100"} <= set(shown(lake._repr_html_()))
    assert "Rows returned" in shown(table.explain("p1", 1)._repr_html_())
    empty = lake.create_table(f"{table.name}_empty", SCHEMA)
    assert {"rows", "0"} <= set(shown(empty._repr_html_()))


def test_a_notebook_of_a_role_with_a_part_of_the_rows_shows_what_the_role_may_know(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    schema = lakebed.Schema({"k": "int64"}, values={"tenant": "string"})
    lake.create_table("t", schema).write(pa.table({"k": [1, 2, 3], "tenant": ["a", "b", "a"]}))
    lake.create_table("u", schema)
    stored.create_role(lake.storage, Role("part", Permission.READ, frozenset({"t"}), where="tenant = 'a'"))
    _, token = stored.create_token(lake.storage, "ann", ["part"])
    access = stored.AccessList(lake.storage)
    with serving(lake, BearerAuthenticator(access)) as url, lakebed.connect(url, token=token) as connected:
        texts = shown(connected["t"]._repr_html_())
        assert texts[texts.index("partitions") + 1] == "not shown to this role"
        assert "stored bytes" not in texts
        listed = shown(connected._repr_html_())
        assert ("t" in listed, "u" in listed) == (True, False)
        with raises(Code.PERMISSION_MISSING):
            connected["t"].plot_partitions()
    access.close()


# -- what there is not --------------------------------------------------------------------------------------------

MISSING = {
    RemoteTable: {"lazy_polars", "pin", "register", "to_duckdb"},
    RemoteInstance: {"named"},
}
INNER = {
    # What the pipeline and the service themselves use.
    "base_state", "catalog", "catalog_changes", "catalog_log", "commit", "commit_service", "fence_creations", "id",
    "known_tables", "layout", "location", "log", "log_of", "log_url", "opened", "reader", "register_new", "release",
    "settings_in_force", "snapshot_named", "sql_engine", "sql_pool_bytes", "state", "storage", "storage_options",
    "table_ids", "take_catalog_ahead", "tracker", "try_commit", "unnamed", "unnamed_logs",
}  # fmt: skip


@pytest.mark.parametrize(("remote", "local"), [(RemoteTable, lakebed.Table), (RemoteInstance, lakebed.Instance)])
def test_every_method_is_there_or_says_what_to_do(remote, local):
    public = {name for name in dir(local) if not name.startswith("_")} - INNER
    assert public - set(dir(remote)) == set()
    refusing = set()
    for name in public:
        found = getattr(remote, name)
        if getattr(found, "__module__", "") == "lakebed.table.client.connection":
            refusing.add(name)
            with pytest.raises(lakebed.UsageError, match=f"^{name} is not there through a service; .") as caught:
                found(None)
            assert caught.value.code is Code.REMOTE_UNSUPPORTED
    assert refusing == MISSING[remote]


@pytest.mark.parametrize(("remote", "local"), [(RemoteTable, lakebed.Table), (RemoteInstance, lakebed.Instance)])
def test_methods_have_the_same_parameters(remote, local):
    for name in {name for name in dir(local) if not name.startswith("_")} - INNER - MISSING[remote]:
        ours, theirs = (getattr(one, name) for one in (remote, local))
        if callable(theirs) and name != "create_view_table":  # its options are those of create_table
            shapes = [
                [(p.name, p.kind, p.default) for p in inspect.signature(one).parameters.values()]
                for one in (ours, theirs)
            ]
            assert shapes[0] == shapes[1], name


def test_options_that_are_not_there_say_what_to_do(service):
    service.lake.create_table("options", SCHEMA)
    table = lakebed.connect(service.url).table("options")
    for call in (
        lambda: table.scan(apply=lambda rows: rows),
        lambda: table.get("p1", 1, apply=lambda rows: rows),
        lambda: table.verify(deep=True),
    ):
        with pytest.raises(lakebed.UsageError) as caught:
            call()
        assert caught.value.code is Code.REMOTE_UNSUPPORTED


def test_the_client_imports_no_engine():
    program = (
        "import sys, lakebed.table.client.remote_instance, lakebed.table.client.remote_table, lakebed\n"
        "lakebed.connect('http://localhost:1'); lakebed.Schema({'k': 'int64'}).to_json()\n"
        "print([name for name in ('datafusion', 'obstore', 'pandas', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_code_of_the_page_runs(service):
    schema = lakebed.Schema({"tail": "string"}, {}, {"n": "int64"})
    service.lake.create_table("flights", schema).write(pa.table({"tail": ["N14228"], "n": [1]}))
    block, background = pages.blocks("docs/client.md", "python")
    names = {"rows": pa.table({"tail": ["N1"], "n": [2]})}
    pages.run(block.replace(("http://127.0.0.1:8017", service.url)), names)
    assert service.lake.table("flights").version == names["version"]
    pages.run(background, names)
    with raises(Code.QUERY_NOT_FOUND):
        names["query"].state()


# -- the Python Database API ---------------------------------------------------------------------------------------


def test_a_connection_of_the_database_api_reads_through_a_service_as_locally(service):
    service.lake.create_table("connected", SCHEMA).write(rows())
    statement = "SELECT place, n, at, x, b FROM connected WHERE n >= ? ORDER BY n"
    expected = [tuple(row.values()) for row in rows().slice(90).to_pylist()]
    folder = service.lake.url.removeprefix("file://")
    for url, options in [(folder, {}), (service.url, {"token": "unused"}), (folder, {"timeout_s": 600})]:
        with dbapi.connect(url, **options) as connection, connection.cursor() as cursor:
            assert cursor.execute(statement, [90]).fetchmany(4) == expected[:4]
            assert [column[6] for column in cursor.description] == [False, False, False, True, True]
            assert cursor.fetchall() == expected[4:]
            assert (cursor.fetchone(), cursor.fetchall()) == (None, [])
            assert cursor.execute(statement, [0]).fetch_arrow_table().num_rows == 100
            with pytest.raises(dbapi.ProgrammingError, match="no table named 'nowhere'"):
                cursor.execute("SELECT * FROM nowhere").fetchall()


def test_a_service_that_is_not_there_is_an_operational_error():
    with dbapi.connect("http://127.0.0.1:9") as connection, pytest.raises(dbapi.OperationalError, match="not answer"):
        connection.cursor().execute("SELECT 1")
