"""The content of the golden instance: every kind of stored object, written through the public calls.

``kinds``     every key and value type, nested values, sort key, a generated field, several schema versions, nulls
``keys``      a key field of each type that keys may have, values of uuid and json
``events``    one text key: Parquet's own filters, a summary, requests in every state, tags, a pin, a fence, cuts
``wide``      more partitions than a log entry names: sidecars, a checkpoint whose rows are objects
``truncated`` a log whose beginning is gone: its start, retained checkpoints, files that were collected
``attached``  an export of ``events``, attached again
``newest``    rows merged by arrival: deletes and partial rows, in files with hidden columns; a mode that was set later
``by_rank``   rows merged by sort key, with deletes, of which old ones age off
``first``     rows of which the first counts, with a filter on the key
``totals``    rows aggregated by every function
``greatest``  rows merged by a query
``filtered``  a predicate and an age-off, and files that were dropped for their age
``appended``  runs that were concatenated, and a job that was closed
``by_letter`` a view of ``events``
``newest_by_v`` an index of ``newest``, which had another one
``settings``  every setting of a table at another value than its default
``published`` rows merged by arrival, with nested values, published as Iceberg with deletes of the rows that newer ones
              replace
``published_3`` the same, in format 3 of Iceberg with deletion vectors

Besides: exports in three formats, a quarantine, roles and tokens, submitted queries, hooks. Names of current calls are
only in this module of the folder, so a renaming changes no other one.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from contextlib import contextmanager, suppress
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed import (
    AddField,
    AgeOff,
    Aggregate,
    AllowNulls,
    Custom,
    DropField,
    First,
    Generated,
    InProcess,
    KeyRange,
    Latest,
    Pipeline,
    RenameField,
    Schema,
    SetFilter,
    SetMerge,
    WidenField,
    clock,
    sketches,
)
from lakebed.model.documents import SQL_DIALECT
from lakebed.model.files import query_object
from lakebed.model.keys import ALL_KEYS
from lakebed.model.settings import describe
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions import CloseJob, OpenJob, RequireFeatures
from lakebed.read.inspect.hooks import add_hook, checked_hook
from lakebed.server.security.access_keys import create_access_key
from lakebed.server.security.principal import Principal
from lakebed.server.security.roles import Permission, Role
from lakebed.server.security.sessions import SealedSessions
from lakebed.server.security.stored import create_role, create_token
from lakebed.storage import connect
from lakebed.storage.disk_space import scratch_folder
from lakebed.table.tracker.runs import Begun, RunPlace, request_retry
from lakebed.table.tracker.submitted_queries import (
    ROWS,
    AskedScan,
    QueryAttempt,
    QueryEnd,
    QueryObjects,
    SubmittedQuery,
)
from lakebed.upkeep.export.query_result import Attempt, write_stream
from lakebed.upkeep.follow.declared_follower import DeclaredFollower, declare_follower
from lakebed.upkeep.index_feed import feed_index
from lakebed.upkeep.retention.run import collect_garbage
from tests.orphans import delete_orphans

WIDE_KEYS = 1100
LETTERS = "abcdefghijklmnopqrstuvwxyz"

# A value of each type for a row number; every fourth row is null.
VALUES = {
    "bool": lambda n: n % 2 == 0,
    "int8": lambda n: -n,
    "int16": lambda n: -1000 * n,
    "int32": lambda n: 100_000 * n,
    "int64": lambda n: -(2**40) * n,
    "uint8": lambda n: 250 + n % 5,
    "uint16": lambda n: 65_000 + n,
    "uint32": lambda n: 2**32 - 1 - n,
    "uint64": lambda n: 2**64 - 1 - n,
    "float16": lambda n: n / 2,
    "float32": lambda n: n / 4,
    "float64": lambda n: float("-inf") if n == 3 else n / 3,
    "string": lambda n: ["", "a\0b", "Zürich", "\U0001f600"][n % 4],
    "binary": lambda n: bytes(range(n)),
    "date32": lambda n: dt.date(1969, 12, 30) + dt.timedelta(n),
    "timestamp[s]": lambda n: dt.datetime(2000, 1, 1, 0, 0, n),  # noqa: DTZ001 - the type has no zone
    "timestamp[ms, tz=Europe/Zurich]": lambda n: dt.datetime(2000, 1, 1, 0, 0, n, 1000, dt.UTC),
    "timestamp[ns, tz=UTC]": lambda n: dt.datetime(1900, 1, 1, 0, 0, n, 1, dt.UTC),
    "time32[s]": lambda n: dt.time(n, 59, 1),
    "time32[ms]": lambda n: dt.time(n, 59, 1, 1000),
    "time64[us]": lambda n: dt.time(n, 59, 1, 1),
    "time64[ns]": lambda n: dt.time(n, 59, 1, 2),
    "decimal128(10, 2)": lambda n: Decimal(n) / 4,
    "decimal256(50, 5)": lambda n: Decimal(10) ** 40 + Decimal(n) / 8,
    "fixed_size_binary[4]": lambda n: bytes([n]) * 4,
}
NESTED = {
    "list": (pa.list_(pa.string()), lambda n: [None, "x"][: n % 3]),
    "struct": (
        pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.list_(pa.date32()))]),
        lambda n: {"a": n, "b": None if n % 2 else [dt.date(2000, 1, 1)]},
    ),
    "map": (pa.map_(pa.string(), pa.float64()), lambda n: [("pi", 3.14), ("none", None)][: n % 3]),
    "fixed_size_list": (pa.list_(pa.float32(), 3), lambda n: [n, n / 4, None]),
    "null": (pa.null(), lambda _: None),
}


@contextmanager
def built(root):
    """Write everything below ``root``; a pin is alive inside the block."""
    lake = lakebed.create(str(root / "lake"))
    lake.set(page_rows=100)
    pipeline = Pipeline(lake, launcher=InProcess(workers=1))
    _kinds(lake)
    _keys(lake)
    events, pinned = _events(lake, pipeline, root / "inbox")
    _wide(lake, pipeline)
    _truncated(lake, pipeline)
    _exports(lake, pipeline, root)
    _merged(lake, pipeline)
    _filtered(lake, pipeline)
    _view(lake, pipeline)
    _indexes(lake, pipeline)
    _settings(lake)
    _published(lake, pipeline)
    _access(lake)
    _queries(lake)
    _hooks(lake)
    lake.fence_creations()
    lake.create_table("passing", Schema({"k": "int32"}), online=False)
    lake.rename_table("passing", "gone")
    lake.drop_table("gone")
    lake.set_online("truncated", False)
    lake.pause("truncated", "compaction", "gc")
    lake.resume("truncated", "compaction")
    _features(lake)
    _quarantine(root)
    request_retry(lake.storage, lake.tracker.begin(Begun(operation="gc", tries=3)))
    lake.tracker.flush()
    with events.pin(pinned):
        yield


# -- every type -------------------------------------------------------------------------------------------------


def _kinds(lake):
    keys = {
        "text": "string",
        "version": "int64",
        "bytes": "binary",
        "day": Generated("date32", "cast(moment as date)"),
        "small": "int32",
        "moment": "timestamp[us, tz=UTC]",
    }
    values = {f"v {name}": name for name in VALUES} | {f"v {name}": kind for name, (kind, _) in NESTED.items()}
    given = pa.field("given", pa.int32(), nullable=False)
    schema = Schema(keys, {"rank": "timestamp[ns]", "turn": "binary"}, {**values, "given": given, "unused": "bool"})
    table = lake.create_table("kinds", schema, split_points=[("m",)])
    table.write(_kind_rows(table.schema, range(12)))
    table.alter(AddField("later", "int8"), RenameField("v string", "words"), DropField("unused"))
    table.write(_kind_rows(table.schema, range(12, 16)))
    table.alter(WidenField("later", "int32"), WidenField("v float32", "double"), AllowNulls("given"))
    table.write(_kind_rows(table.schema, range(4, 6)))


def _kind_rows(schema, versions):
    def value(field, n):
        made = {
            "text": LETTERS[n % 7 * 3],
            "version": (-1) ** n * 2**40,
            "bytes": bytes([0, n, 0, 255]),
            "small": -n,
            "moment": dt.datetime(2020, 1, 1 + n, 12, tzinfo=dt.UTC),
            "rank": dt.datetime(2020, 1, 1, n),  # noqa: DTZ001 - the type has no zone
            "turn": bytes([n % 3]),
            "given": n,
            "later": n,
            "words": f"word {n}",
            "unused": True,
        }
        if field.name in made:
            return made[field.name]
        if n % 4 == 3 and field.name != "v float64":
            return None
        name = field.name.removeprefix("v ")
        return VALUES[name](n) if name in VALUES else NESTED[name][1](n)

    plain = [field for field in schema.fields if field.name != "day"]
    columns = [pa.array([value(field, n) for n in versions], field.type) for field in plain]
    return pa.Table.from_arrays(columns, names=[field.name for field in plain])


def _keys(lake):
    names = [name for name in VALUES if name != "float16"]
    schema = Schema({"k uuid": "uuid", **{f"k {name}": name for name in names}}, {}, {"id": "uuid", "doc": "json"})
    table = lake.create_table("keys", schema)
    columns = [
        pa.array([VALUES[name](n) for n in (0, 1, 2)], table.schema.fields[n].type) for n, name in enumerate(names, 1)
    ]
    ids = pa.array([bytes(range(n, n + 16)) for n in (0, 1, 2)], pa.binary(16))
    docs = pa.array(['{"a": 1}', None, "[]"])
    table.write(pa.Table.from_arrays([ids, *columns, ids, docs], names=[field.name for field in schema.fields]))


# -- one text key -----------------------------------------------------------------------------------------------


def _events(lake, pipeline, inbox):
    schema = Schema({"id": "string"}, {"at": "int64"}, {"note": "string"})
    table = lake.create_table("events", schema, split_points=["event-g"], settings={"split_rows": 2000})
    table.write(_event_rows("a", 20))
    table.tag("first")
    table.write(_event_rows("p", 2500, noise=1))
    pinned = table.write(_event_rows("t", 10))
    pipeline.split(table)
    pipeline.compact(table, strategy="full")
    table.write(_event_rows("k", 1500, noise=89), commit_id="large", base_version=table.version)
    table.remove(KeyRange("event-k-0100", "event-k-0103"))
    table.remove(KeyRange("event-q", "event-r"), fence=True)
    table.tag("passing")
    table.untag("passing")
    table.set(runs_max=500, bloom_fpp=0.01, compaction_strategy="basic")
    table.set(runs_max=None, page_rows=2000)
    _requests(table, pipeline, inbox)
    with suppress(lakebed.NotFoundError):
        pipeline.attach(table, str(inbox / "nothing.parquet"), job_id="tuesday")
    table.set(join_share=0.5)
    pipeline.join_partitions(table)
    joined = table.version
    table.remove(prefix="event-a-0003")
    table.write(_event_rows("b", 2))
    table.restore(version=joined)
    return table, pinned


def _event_rows(letter, count, noise=4):
    letters = random.Random(letter)
    return pa.table(
        {
            "id": [f"event-{letter}-{n:04}" for n in range(count)],
            "at": list(range(count)),
            "note": [None if n % 9 == 8 else letters.randbytes(noise).hex() for n in range(count)],
        }
    )


def _requests(table, pipeline, inbox):
    inbox.mkdir()
    names = ("carried-out", "vanished", "withdrawn", "unfit", "waiting")
    for version, name in enumerate(names):
        rows = _event_rows(name[0], 3) if name != "unfit" else pa.table({"other": [1]})
        pq.write_table(rows, inbox / f"{name}.parquet")
        os.utime(inbox / f"{name}.parquet", (1_700_000_000 + version, 1_700_000_000 + version))
    paths = {name: str(inbox / f"{name}.parquet") for name in names}
    submitted = table.submit([paths[name] for name in names[:4]])
    (inbox / "vanished.parquet").unlink()
    table.withdraw(next(file.url for file in submitted.files if "withdrawn" in file.url))
    pipeline.ingest(table, force=True)
    table.submit(paths["waiting"])


# -- logs and checkpoints ---------------------------------------------------------------------------------------


def _wide(lake, pipeline):
    split_points = [(10 * n,) for n in range(1, WIDE_KEYS)]
    table = lake.create_table("wide", Schema({"k": "int64"}), split_points=split_points)
    for turn in range(9):
        table.write(pa.table({"k": [10 * n + turn for n in range(WIDE_KEYS)]}))
    table.set(log_s=0, history_s=0)
    collect_garbage(table)
    table.write(pa.table({"k": [5]}))


def _truncated(lake, pipeline):
    table = lake.create_table("truncated", Schema({"k": "int32"}), settings={"log_s": 0, "history_s": 0})
    for turn in range(4):
        table.write(pa.table({"k": range(turn, turn + 5)}, schema=pa.schema([("k", pa.int32())])))
        if turn == 1:
            table.tag("retained")
        pipeline.compact(table, strategy="full")
        collect_garbage(table)
    delete_orphans(table)


# -- merged and hidden rows -------------------------------------------------------------------------------------

# The type of a field for each function, and its value for a row number. A new function is added here.
AGGREGATED = {
    "sum": ("int64", lambda n: n),
    "product": ("int64", lambda n: n + 1),
    "min": ("double", lambda n: float("nan") if n == 1 else n / 2),
    "max": ("string", lambda n: "bé\U0001f600"[n % 3]),
    "first": ("string", lambda n: f"first {n}"),
    "last": ("date32", lambda n: dt.date(2020, 1, 1 + n)),
    "any": ("bool", lambda n: n == 1),
    "all": ("bool", lambda n: n != 1),
    "or": ("uint8", lambda n: 1 << n),
    "count": ("int64", lambda _: 1),
    "mean": (sketches.MEAN, lambda n: {"sum": n / 4, "count": 1}),
    # A sketch of one value each: the union of several is not the same bytes in every version of its library.
    "hll": ("binary", lambda n: sketches.hll(["a", "b"]) if n == 0 else None),
    "quantiles": ("binary", lambda n: sketches.quantiles([1.0, 2.0]) if n == 0 else None),
    "list": (pa.list_(pa.int64()), lambda n: [n, None]),
    "set": (pa.list_(pa.string()), lambda n: [f"n{n % 2}", "n0", None]),
    "join": ("string", lambda n: f"t{n}"),
    "map_sum": (pa.map_(pa.string(), pa.int64()), lambda n: [(f"b{n % 2}", 1), ("a", n)]),
    "map_min": (pa.map_(pa.string(), pa.decimal128(6, 2)), lambda n: [("a", Decimal(n) / 4)]),
    "map_max": (pa.map_(pa.int32(), pa.float32()), lambda n: [(n % 2, n / 4)]),
}


def _merged(lake, pipeline):
    plain = Schema({"k": "string"}, {"at": "int64"}, {"v": "int64", "w": "string"})
    table = lake.create_table("newest", plain, split_points=["m"])
    table.alter(SetMerge(Latest()))
    table.write(_letters("abcz", v=range(4)))
    table.write(_letters("ac", at=5, v=[10, 11]))
    table.write(pa.table({"k": ["b", "q"], "at": [7, 8], "v": [77, 78]}), partial=True)
    table.delete(["c", "absent"])
    pipeline.compact(table, strategy="full")
    table.write(pa.table({"k": ["a", "d"], "at": [-9, 1], "w": ["part", "alone"]}), partial=True)
    table.delete(where="v = 3")

    table = lake.create_table("by_rank", plain, merge=Latest(by="sort_key"))
    table.alter(AgeOff("at", seconds=1, unit="s"))
    young = 2**33
    table.write(_letters("abz", at=young + 5, v=range(3)))
    table.delete(pa.table({"k": ["b", "c"], "at": [young + 6, young + 4]}))
    table.write(_letters("abc", at=young + 4, v=range(3)))
    table.write(_letters("yz", at=5, v=[20, 21]))

    table = lake.create_table("first", plain, merge=First())
    table.write(_letters("abz", v=range(3)))
    table.write(_letters("acz", at=-4, v=range(3)))
    table.alter(SetFilter("k <> 'b'"))

    values = {f"v {name}": kind for name, (kind, _) in AGGREGATED.items()}
    schema = Schema({"k": "string"}, {"at": "int64"}, values)
    table = lake.create_table("totals", schema, merge=Aggregate({f"v {name}": name for name in AGGREGATED}))
    for turn in range(3):
        columns = {
            f"v {name}": pa.array([of(turn), None, of(turn + 1)], table.schema.arrow.field(f"v {name}").type)
            for name, (_, of) in AGGREGATED.items()
        }
        table.write(pa.table({"k": ["a", "b", "c"], "at": [0, 0, turn % 2]} | columns))

    query = "SELECT k, at, max(v) AS v, min(w) AS w FROM rows GROUP BY k, at"
    table = lake.create_table("greatest", plain, merge=Custom(sql=query))
    table.write(_letters("abz", v=range(3)))
    table.write(_letters("acz", v=[10, 11, None]))


def _letters(keys, v, at=0):
    return pa.table({"k": list(keys), "at": [at] * len(keys), "v": list(v), "w": [f"w{key}" for key in keys]})


def _filtered(lake, pipeline):
    table = lake.create_table("filtered", Schema({"day": "timestamp[s]", "k": "int64"}, values={"v": "int64"}))
    table.alter(SetFilter("v >= 2"), AgeOff("day", seconds=60))
    for year in (2024, 2034):
        day = pa.array([dt.datetime(year, 1, 20)] * 3, pa.timestamp("s"))  # noqa: DTZ001 - the type has no zone
        table.write(pa.table({"day": day, "k": range(3), "v": [1, None, year]}))
    pipeline.compact(table)

    # Files of this size need not be merged: their runs are concatenated.
    table = lake.create_table("appended", Schema({"k": "int64"}), settings={"file_bytes": 4096, "history_s": 0})
    for turn in range(12):
        table.write(pa.table({"k": range(10 * turn, 10 * turn + 10)}))
    pipeline.compact(table)
    state = table.state()
    inputs = tuple(one.id for one in state.files_of(state.partitions.ids[0]))
    began_us = max(one.last_modified_us for one in state.referenced().values())
    job = Job(clock.new_id(), ALL_KEYS, inputs, "golden", 60, began_us)
    table.commit(OpenJob(job))
    table.commit(CloseJob(job.id, "gave up"))
    table.remove(KeyRange(20, 40))
    collect_garbage(table)
    delete_orphans(table)


def _view(lake, pipeline):
    query = "SELECT substr(id, 7, 1) AS letter, count(*) AS events FROM source GROUP BY substr(id, 7, 1)"
    lake.create_view_table(
        "by_letter", source="events", select=query, row_key=["letter"], merge=Aggregate({"events": "sum"})
    )
    pipeline.refresh("by_letter")


def _indexes(lake, pipeline):
    feed_index(lake.create_index("newest_by_v", table="newest", on=["v"]), lake["newest"], part_rows=1)
    lake.table("newest").write(_letters("a", v=[5]))
    pipeline.refresh("newest_by_v")
    lake.create_index("newest_by_w", table="newest", on=["w", "k"])
    lake.drop_index("newest_by_w")


def _features(lake):
    """What a later Lakebed requires of others, with the one feature that there is."""
    lake.catalog_log().commit(RequireFeatures({SQL_DIALECT: "collectors"}))
    for program in ("collectors", "writers", None):
        lake.table("settings").commit(RequireFeatures({SQL_DIALECT: program}))
    lake.table("kinds").commit(RequireFeatures({SQL_DIALECT: "readers"}))


# -- settings, and what services keep ---------------------------------------------------------------------------


def _settings(lake):
    def other(one):
        if one.choices:
            return next(name for name in one.choices if name != one.default)
        return "*" if one.maximum is None else one.maximum

    changed = {one.name: other(one) for one in describe()}
    lake.create_table("settings", Schema({"k": "int32"}), settings=changed)
    lake.set(history_s=172_800)


def _published(lake, pipeline):
    nested = {"l": "list<struct<x: int64, y: string>>", "m": "map<string, list<double>>", "j": "json"}
    schema = Schema({"k": "int64"}, {}, {"v": "string"} | nested)
    for name, publish in (("published", "iceberg"), ("published_3", "iceberg-3")):
        table = lake.create_table(name, schema, merge=Latest(), settings={"publish": publish})
        for version, keys in enumerate((range(10), range(5, 8))):
            made = {"v": f"v{version}", "l": [{"x": version, "y": None}, None], "m": [("a", [0.5, None])], "j": "[1]"}
            table.write([{"k": k} | (made if k % 4 else {"l": [], "m": []}) for k in keys])
            pipeline.publish(table)
        table.tag("first", 2)
        pipeline.publish(table)


def _access(lake):
    events = frozenset({"events"})
    create_role(
        lake.storage, Role("auditor", Permission.READ, events, "at > 3", frozenset({"at"}), (("note", "'***'"),))
    )
    create_role(lake.storage, Role("loader", Permission.WRITE))
    create_token(lake.storage, "ann", ["auditor", "admin"])
    create_token(lake.storage, "bob", ["loader"], ["events"], dt.datetime(2030, 1, 1, tzinfo=dt.UTC))
    create_access_key(lake.storage, "carl", ["read"], ["events"])
    SealedSessions(lake.storage).begin("Bearer golden")


def _queries(lake):
    """A scan that a second attempt completed, and a statement that waits."""
    objects, table = QueryObjects(lake.storage), lake.table("events")
    facts = {"submitted_by": "ann", "principal": Principal("ann", ()).to_json(), "kept_s": 86_400.0}
    made = {"created_at": clock.now()} | facts
    scan = AskedScan(
        table="events", table_id=table.id, version=table.version, ranges=((b"event-k".hex(), None),), where="at < 9"
    )
    query = SubmittedQuery(id=clock.new_id(), asked={"table": "events", "scan": {"where": "at < 9"}}, scan=scan, **made)
    objects.submit(query)
    where = RunPlace("golden", "golden:1", writer="lakebed 0.0.1 on golden, pid 1")
    attempts = [QueryAttempt(number=n, token=clock.random_token(), where=where, updated_at=clock.now()) for n in (1, 2)]
    objects.claim(query.id, attempts[0])
    objects.release(query.id, attempts[0])
    objects.claim(query.id, attempts[1])
    objects.beat(query.id, attempts[1])
    target = connect(f"{lake.url}/{query_object(query.id, ROWS)}")
    rows = table.scan(KeyRange("event-k"), where="at < 9")
    with scratch_folder("golden") as scratch:
        attempt = Attempt.numbered(query.id, 2, target, "parquet")
        result = write_stream(rows, attempt, scratch, memory_limit_bytes=2**26, progress=lambda _: None)
    ended = clock.now()
    objects.end(
        query.id, QueryEnd(state="completed", ended_at=ended, rows=result.rows, size_bytes=result.size_bytes, files=1)
    )
    statement = "SELECT count(*) AS n FROM events"
    objects.submit(SubmittedQuery(id=clock.new_id(), asked={"statement": statement}, statement=statement, **made))


def _hooks(lake):
    table = lake.table("events")
    for given in (
        {"url": "https://example.com/hook", "secret": "golden", "kinds": ("add_files",)},
        {"command": "true"},
    ):
        add_hook(lake.storage, checked_hook(table.id, **given), table.version)
    declare_follower(lake.storage, DeclaredFollower(name="shop", url="postgresql://h/d", tables=(("orders", "shop"),)))


# -- beside the instance ----------------------------------------------------------------------------------------


def _exports(lake, pipeline, root):
    events = lake.table("events")
    pipeline.export(events, str(root / "export-parquet"), ranges=[KeyRange("event-a", "event-k-0010")])
    pipeline.export(events, str(root / "export-csv"), format="csv", where="note IS NULL", ranges=[KeyRange("event-p")])
    pipeline.export("kinds", str(root / "export-json"), format="json", partitions=1)
    attached = lake.create_table("attached", events.schema)
    pipeline.attach(attached, str(root / "export-parquet"), job_id="monday")


def _quarantine(root):
    """Make a quarantine as a bulk import leaves it; the import itself needs Spark."""
    from lakebed.jobs.bulk_import.staging import Quarantine, RejectedRowsWriter
    from lakebed.jobs.executor import Root

    quarantine = Quarantine(Root(str(root / "quarantine")), "monday", "attempt-one")
    scratch = root / "scratch"
    scratch.mkdir()
    aside = RejectedRowsWriter(quarantine, scratch)
    aside.add(pa.RecordBatch.from_pydict({"id": [None], "at": ["x"], "lakebed_reason": ["id is null"]}))
    quarantine.finish([aside.send()], {"table": "events", "version": 7})
    scratch.rmdir()
