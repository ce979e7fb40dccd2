"""Values of every type for every public parameter: each call works as documented, or raises a Lakebed error.

After any call, the log has no value of a wrong type: the table is checkpointed, collected, tagged and listed
afterwards, and a new instance opens it. The full test, marked slow, passes two strange values at a time.
"""

import datetime as dt
import decimal
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Schema, aio, clock
from lakebed.errors import Code
from lakebed.model.schema import Field, Generated
from lakebed.model.state.transactions.schema_changes import AddField, AllowNulls, DropField, RenameField, WidenField
from tests.adversarial.tables import assert_whole
from tests.clocks import skip_sleeps
from tests.soaked import few

SCHEMA = Schema({"k": "string", "n": "int64"}, {"at": "timestamp[us, tz=UTC]"}, {"v": "double", "s": "string"})
AWARE = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


class Hostile:
    """An object whose methods all raise."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    def __hash__(self):
        raise TypeError("no hash")

    def __bool__(self):
        raise RuntimeError("no truth")


class BrokenStream:
    """An object with a stream protocol that raises."""

    def __arrow_c_stream__(self, requested_schema=None):
        raise RuntimeError("the producer broke")


def deep(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found


VALUES = [
    None,
    True,
    False,
    0,
    1,
    7,
    -1,
    2**31,
    2**63 - 1,
    2**63,
    10**30,
    -(10**30),
    0.5,
    1.0,
    -0.0,
    math.nan,
    math.inf,
    -math.inf,
    "",
    "x",
    "7",
    "k",
    "a\0b",
    "\ud800",
    "\U0010ffff",
    "' OR 1=1 --",
    "x" * 5000,
    "2026-01-31T12:00:00Z",
    "inf",
    "nan",
    b"",
    b"x",
    [],
    ["x"],
    [None],
    [7],
    [[]],
    deep(2000),
    (),
    ("x",),
    ("x", 1),
    {},
    {"k": 1},
    {7: "x"},
    set(),
    frozenset({"k"}),
    object(),
    Hostile(),
    BrokenStream(),
    AWARE.replace(tzinfo=None),
    AWARE,
    dt.datetime.max.replace(tzinfo=dt.UTC),
    dt.date(2026, 1, 31),
    dt.time(12),
    dt.timedelta(1),
    Path("x"),
    Path("/dev/zero"),
    decimal.Decimal("1.5"),
    decimal.Decimal("NaN"),
    np.int64(3),
    np.float64("nan"),
    np.array([1, 2]),
    pa.scalar(3),
    pa.array(["x"]),
    pa.table({"x": [1]}),
    pa.null(),
    pa.int64(),
    KeyRange(),
    SCHEMA,
    int,
    len,
    iter([1]),
    Ellipsis,
    3 + 4j,
]


def rows():
    return pa.table({"k": ["a", "b"], "n": [1, 2], "at": [AWARE] * 2, "v": [0.5, None], "s": ["x", None]}).cast(
        SCHEMA.arrow
    )


def drained(stream):
    return stream.read_all()


Call = Callable[[lakebed.Table, object], object]

TABLE_CALLS: dict[str, Call] = {
    "write data": lambda t, v: t.write(v),
    "write commit_id": lambda t, v: t.write(rows(), commit_id=v),
    "write base_version": lambda t, v: t.write(rows(), commit_id=clock.new_id(), base_version=v),
    "remove range": lambda t, v: t.remove(v),
    "remove fence": lambda t, v: t.remove(KeyRange.prefix("zz"), fence=v),
    "remove min": lambda t, v: t.remove(KeyRange(("zz", 5), v)),
    "submit files": lambda t, v: t.submit(v),
    "submit list": lambda t, v: t.submit([v]),
    "submit again": lambda t, v: t.submit([], again=v),
    "withdraw": lambda t, v: t.withdraw(v),
    "get key": lambda t, v: t.get(v, 1),
    "get key 2": lambda t, v: t.get("a", v),
    "get one": lambda t, v: t.get(v),
    "get columns": lambda t, v: t.get("a", 1, columns=v),
    "get column": lambda t, v: t.get("a", 1, columns=[v]),
    "get max_staleness": lambda t, v: t.get("a", 1, max_staleness=v),
    "get at_least": lambda t, v: t.get("a", 1, at_least=v),
    "get_many keys": lambda t, v: t.get_many(v),
    "get_many key": lambda t, v: t.get_many([v]),
    "get_many part": lambda t, v: t.get_many([("a", v)]),
    "get_many columns": lambda t, v: t.get_many([("a", 1)], columns=v),
    "scan range": lambda t, v: drained(t.scan(v)),
    "scan columns": lambda t, v: drained(t.scan(columns=v)),
    "scan where": lambda t, v: drained(t.scan(where=v)),
    "scan limit": lambda t, v: drained(t.scan(limit=v)),
    "scan reverse": lambda t, v: drained(t.scan(reverse=v)),
    "scan max_staleness": lambda t, v: drained(t.scan(max_staleness=v)),
    "scan at_least": lambda t, v: drained(t.scan(at_least=v)),
    "count range": lambda t, v: t.count(v),
    "count exact": lambda t, v: t.count(exact=v),
    "sample rows": lambda t, v: t.sample(v),
    "sample columns": lambda t, v: t.sample(1, columns=v),
    "sample seed": lambda t, v: t.sample(1, seed=v),
    "explain asked": lambda t, v: t.explain(v),
    "explain key": lambda t, v: t.explain("a", v),
    "explain where": lambda t, v: t.explain(where=v),
    "explain limit": lambda t, v: t.explain(limit=v),
    "explain columns": lambda t, v: t.explain(columns=v),
    "explain reverse": lambda t, v: t.explain(reverse=v),
    "state": lambda t, v: t.state(v),
    "newest": lambda t, v: t.snapshot(v),
    "newest at_least": lambda t, v: t.snapshot(at_least=v),
    "at version": lambda t, v: t.at(version=v),
    "at time": lambda t, v: t.at(time=v),
    "at tag": lambda t, v: t.at(tag=v),
    "pin": lambda t, v: t.pin(v).__enter__(),
    "tag name": lambda t, v: t.tag(v),
    "tag number": lambda t, v: t.tag(f"t-{clock.new_id()}", v),
    "untag": lambda t, v: t.untag(v),
    "outcome": lambda t, v: t.outcome(v),
    "history": lambda t, v: t.history(v),
    "set split_rows": lambda t, v: t.set(split_rows=v),
    "set join_share": lambda t, v: t.set(join_share=v),
    "set compaction_strategy": lambda t, v: t.set(compaction_strategy=v),
    "alter": lambda t, v: t.alter(v),
    "alter add": lambda t, v: t.alter(AddField(v, "int64")),
    "alter add type": lambda t, v: t.alter(AddField(f"f{clock.new_id()}", v)),
    "alter drop": lambda t, v: t.alter(DropField(v)),
    "alter rename": lambda t, v: t.alter(RenameField("s", v), RenameField(v, "s")),
    "alter widen": lambda t, v: t.alter(WidenField(v, "int64")),
    "alter widen type": lambda t, v: t.alter(WidenField("v", v)),
    "alter allow nulls": lambda t, v: t.alter(AllowNulls(v)),
    "to_arrow": lambda t, v: t.to_arrow(v),
    "to_polars columns": lambda t, v: t.to_polars(columns=v),
    "files": lambda t, v: t.files(v),
    "aio get": lambda t, v: run(aio.get(t, "a", v)),
    "KeyRange min": lambda t, v: t.count(KeyRange(v)),
    "KeyRange both": lambda t, v: t.count(KeyRange(("a", v), ("b", v))),
    "KeyRange max_inclusive": lambda t, v: t.count(KeyRange("a", "b", max_inclusive=v)),
    "KeyRange.prefix": lambda t, v: t.count(KeyRange.prefix(v)),
    "KeyRange.starts_with": lambda t, v: t.count(KeyRange.starts_with(v)),
    "KeyRange.starts_with 2": lambda t, v: t.count(KeyRange.starts_with("a", v)),
}

INSTANCE_CALLS = {
    "open": lambda i, v: lakebed.open(v),
    "open options": lambda i, v: lakebed.open(i.url, storage_options=v),
    "open option": lambda i, v: lakebed.open(i.url, storage_options={"timeout": v}),
    "create": lambda i, v: lakebed.create(v),
    "create log_url": lambda i, v: lakebed.create(f"memory://{clock.random_token()}", log_url=v),
    "create_table name": lambda i, v: dropped(i, i.create_table(v, SCHEMA)),
    "create_table schema": lambda i, v: dropped(i, i.create_table("new", v)),
    "create_table split_points": lambda i, v: dropped(i, i.create_table("new", SCHEMA, split_points=v)),
    "create_table split_point": lambda i, v: dropped(i, i.create_table("new", SCHEMA, split_points=[v])),
    "create_table settings": lambda i, v: dropped(i, i.create_table("new", SCHEMA, settings=v)),
    "create_table setting": lambda i, v: dropped(i, i.create_table("new", SCHEMA, settings={"split_rows": v})),
    "table": lambda i, v: i.table(v),
    "rename_table": lambda i, v: i.rename_table(v, "other"),
    "rename_table to": lambda i, v: (i.rename_table("other", v), i.rename_table(v, "other")),
    "drop_table": lambda i, v: i.drop_table(v),
    "is_online": lambda i, v: i.is_online(v),
    "set_online": lambda i, v: i.set_online("other", v),
    "set_online name": lambda i, v: i.set_online(v, True),
    "paused": lambda i, v: i.paused(v),
    "pause": lambda i, v: i.pause("other", v),
    "resume": lambda i, v: i.resume("other", v),
    "sql": lambda i, v: i.sql(v).read_all(),
    "set": lambda i, v: i.set(history_s=v),
    "set float": lambda i, v: i.set(bloom_fpp=v),
    "unnamed": lambda i, v: i.unnamed(v),
    "Schema row_key": lambda i, v: dropped(i, i.create_table("new", Schema(v))),
    "Schema name": lambda i, v: dropped(i, i.create_table("new", Schema(named(v)))),
    "Schema type": lambda i, v: dropped(i, i.create_table("new", Schema({"k": v}))),
    "Schema sort_key": lambda i, v: dropped(i, i.create_table("new", Schema({"k": "int64"}, v))),
    "Schema values": lambda i, v: dropped(i, i.create_table("new", Schema({"k": "int64"}, values=v))),
    "Schema value": lambda i, v: dropped(i, i.create_table("new", Schema({"k": "int64"}, values={"v": v}))),
    "Schema version": lambda i, v: dropped(i, i.create_table("new", Schema({"k": "int64"}, version=v))),
    "Schema.from_json": lambda i, v: Schema.from_json(v),
    "Schema.from_json key": lambda i, v: Schema.from_json({"row_key": v}),
    "Schema.from_arrow": lambda i, v: Schema.from_arrow(v, ["k"]),
    "Schema.from_arrow key": lambda i, v: Schema.from_arrow(SCHEMA.arrow, v),
    "Field id": lambda i, v: dropped(i, i.create_table("new", Schema([Field(v, "k", pa.int64())]))),
    "Field name": lambda i, v: dropped(i, i.create_table("new", Schema([Field(1, v, pa.int64())]))),
    "Field type": lambda i, v: dropped(i, i.create_table("new", Schema([Field(1, "k", v)]))),
    "Field nullable": lambda i, v: dropped(i, i.create_table("new", with_value(Field(2, "v", pa.int64(), v)))),
    "Generated": lambda i, v: dropped(i, i.create_table("new", Schema({"k": Generated("int64", v), "n": "int64"}))),
    "Generated type": lambda i, v: dropped(
        i, i.create_table("new", Schema({"k": Generated(v, "n + 1"), "n": "int64"}))
    ),
    "read cache": lambda i, v: kept(lakebed.set_read_cache_bytes, v),
    "state cache": lambda i, v: kept(lakebed.set_state_cache_bytes, v),
}


def named(value):
    """Return a key field of that name, if a mapping can have it."""
    try:
        return {value: "int64"}
    except TypeError:
        return value


def with_value(field):
    return Schema([Field(1, "k", pa.int64())], values=[field])


def kept(set_bytes, value):
    try:
        set_bytes(value)
    finally:
        set_bytes(2**30)


def dropped(instance, table):
    """A created table is valid, written to, and dropped again."""
    assert_whole(instance.url, table.name)
    instance.drop_table(table.name)


def run(coroutine):
    import asyncio

    return asyncio.run(coroutine)


@pytest.fixture
def instance(monkeypatch, tmp_path):
    # Disables the wait for a version that does not exist yet.
    skip_sleeps(monkeypatch)
    monkeypatch.chdir(tmp_path)
    made = lakebed.create(f"memory://{clock.random_token()}")
    made.create_table("t", SCHEMA).write(rows())
    made.create_table("other", SCHEMA)
    return made


def strange(call, *arguments):
    """Return the error if it is not one of Lakebed's; else the facts to check."""
    try:
        call(*arguments)
    except lakebed.Error as error:
        return None if str(error).encode() and error.kind else "an error without words"
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what the test looks for
        return f"{shown(arguments[1:])}: {type(error).__module__}.{type(error).__name__}: {str(error)[:150]!a}"
    return None


def shown(values):
    try:
        return ascii(values)[:80]
    except Exception:  # noqa: BLE001 - a hostile value
        return " ".join(type(value).__name__ for value in values)


every_share = pytest.mark.parametrize("share", few((2, 1), 1))
"""A share of 2 tries every second value, from a start that the name of the call gives; a share of 1 tries all."""


@every_share
@pytest.mark.parametrize("name", TABLE_CALLS)
def test_a_table_takes_what_it_says_or_says_why_not(instance, name, share):
    table = instance.table("t")
    some = VALUES[list(TABLE_CALLS).index(name) % share :: share]
    found = [strange(TABLE_CALLS[name], table, value) for value in some]
    assert not [one for one in found if one], "\n".join(one for one in found if one)
    assert_whole(instance.url, "t")


@every_share
@pytest.mark.parametrize("name", INSTANCE_CALLS)
def test_an_instance_takes_what_it_says_or_says_why_not(instance, name, share):
    some = VALUES[list(INSTANCE_CALLS).index(name) % share :: share]
    found = [strange(INSTANCE_CALLS[name], instance, value) for value in some]
    assert not [one for one in found if one], "\n".join(one for one in found if one)
    fresh = lakebed.open(instance.url)
    assert set(fresh.tables()) >= {"t"} or name == "drop_table"
    for each in fresh.tables():
        assert_whole(instance.url, each)
        assert type(fresh.is_online(each)) is bool
    fresh.settings()


PIPELINE_CALLS = {
    "instance": lambda p, v: type(p)(v),
    "launcher": lambda p, v: type(p)(p.instance, launcher=v),
    "bulk_import table": lambda p, v: p.bulk_import(v, "x"),
    "bulk_import source": lambda p, v: p.bulk_import("t", v),
    "bulk_import format": lambda p, v: p.bulk_import("t", "x", format=v),
    "bulk_import job_id": lambda p, v: p.bulk_import("t", "x", job_id=v),
    "bulk_import columns": lambda p, v: p.bulk_import("t", "x", columns=v),
    "attach table": lambda p, v: p.attach(v, "x"),
    "attach source": lambda p, v: p.attach("t", v),
    "attach job_id": lambda p, v: p.attach("t", "x", job_id=v),
    "ingest table": lambda p, v: p.ingest(v),
    "ingest method": lambda p, v: p.ingest("t", method=v),
    "compact table": lambda p, v: p.compact(v),
    "split table": lambda p, v: p.split(v),
    "gc table": lambda p, v: p.gc(v),
    "export table": lambda p, v: p.export(v, "x"),
}


@pytest.mark.parametrize("name", PIPELINE_CALLS)
def test_a_pipeline_takes_what_it_says_or_says_why_not(tmp_path, monkeypatch, name):
    """As far as possible without Spark, whose session is replaced by one that refuses."""
    from lakebed import Pipeline
    from lakebed.spark import spark_executor

    def refuse(*_):
        raise Code.ARGUMENT_INVALID("there is no Spark here")

    monkeypatch.setattr(spark_executor, "active_session", refuse)
    monkeypatch.chdir(tmp_path)
    made = lakebed.create(str(tmp_path / "lake"))
    made.create_table("t", SCHEMA).write(rows())
    whole = Pipeline(made)
    found = [strange(PIPELINE_CALLS[name], whole, value) for value in VALUES]
    assert not [one for one in found if one], "\n".join(one for one in found if one)
    assert_whole(made.url, "t")


PAIRS = {
    "write": lambda t, v, w: t.write(rows(), commit_id=v, base_version=w),
    "get": lambda t, v, w: t.get(v, w),
    "get options": lambda t, v, w: t.get("a", 1, columns=v, max_staleness=w),
    "get_many": lambda t, v, w: t.get_many([(v, w), ("a", 1)]),
    "scan": lambda t, v, w: drained(t.scan(where=v, limit=w)),
    "scan ranges": lambda t, v, w: drained(t.scan(v, w)),
    "KeyRange": lambda t, v, w: t.count(KeyRange(v, w)),
    "KeyRange 2": lambda t, v, w: t.count(KeyRange(("a", v), ("a", w))),
    "remove": lambda t, v, w: t.remove(KeyRange(("zz", v)), fence=w),
    "at": lambda t, v, w: t.at(version=v, time=w),
    "tag": lambda t, v, w: t.tag(v, w),
    "sample": lambda t, v, w: t.sample(v, seed=w),
    "set": lambda t, v, w: t.set(split_rows=v, bloom_fpp=w),
    "alter": lambda t, v, w: t.alter(AddField(v, w)),
    "alter rename": lambda t, v, w: t.alter(RenameField(v, w)),
    "submit": lambda t, v, w: t.submit([v, w]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_two_strange_values_at_once_are_reported_as_well(instance, name):
    table = instance.table("t")
    found = [strange(PAIRS[name], table, one, other) for one in VALUES for other in VALUES]
    assert not [one for one in found if one], "\n".join(one for one in found if one)
    assert_whole(instance.url, "t")
