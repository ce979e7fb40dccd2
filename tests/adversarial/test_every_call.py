"""Operations that are ended at any of their calls to the store take effect entirely or not at all, and leave no object.

The process is killed before a call, or the call fails. The next process finds the table as before the operation or
after it, completes the operation, and collects leftover objects.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import AddField, Aggregate, Latest, Schema, clock
from lakebed.cli.declarations import _plan, read_declaration
from lakebed.errors import Error, UnknownOutcomeError
from lakebed.log import tail
from lakebed.model.files import TABLES_FOLDER, data_folder
from lakebed.model.state.catalog import PurgeTable
from lakebed.storage.processes import this_process
from lakebed.table.instance import Instance
from lakebed.testing.faults import CountingStorage, Fault, FaultPlan, FaultyStorage, Rule
from lakebed.upkeep.compaction import merge_jobs
from lakebed.upkeep.migration.foreign_table import SourceLocation
from lakebed.upkeep.migration.hive import open_hive
from lakebed.upkeep.migration.run import Selection, migrate, plan
from lakebed.upkeep.retention.erasure.plan import unnamed
from lakebed.upkeep.retention.run import gc
from lakebed.upkeep.rewrite import run
from lakebed.upkeep.splitting.run import split
from lakebed.upkeep.view_feed import refresh
from tests.adversarial import spark_operations
from tests.adversarial.torture import merge
from tests.clocks import set_clock
from tests.tables.cases import rewritten
from tests.tables.retention.cases import AT_ONCE, Killed, let_time_pass

SCHEMA = Schema({"k": "string"}, values={"v": "int64", "w": "string"})
VIEW = "SELECT w, count(*) AS n FROM source GROUP BY w"


class Dying(CountingStorage):
    """A store whose process is killed before its n-th call."""

    def __init__(self, inner, call):
        super().__init__(inner)
        self.left = call

    def _count(self, operation, name):
        super()._count(operation, name)
        self.left -= 1
        if self.left <= 0:
            raise Killed


def rows(keys, v, w="x"):
    return pa.table({"k": list(keys), "v": [v] * len(keys), "w": [w] * len(keys)})


def upserted(lake):
    table = lake.create_table("t", SCHEMA, merge=Latest(), split_points=["c"])
    table.write(rows("abcd", 1))
    table.write(rows("cde", 2))


def kept(lake):
    table = lake.create_table("t", SCHEMA)
    table.write(rows("abcd", 1))
    table.tag("first")
    table.write(rows("cde", 2))
    # This tag is the only reason that the version is retained.
    table.remove(prefix="e")


def viewed(lake):
    table = lake.create_table("t", SCHEMA, settings={"history_s": 3600})
    table.write(rows("abcd", 1))
    merged = {"merge": Aggregate({"n": "sum"}), "row_key": ["w"]}
    refresh(lake.create_view_table("view", source="t", select=VIEW, **merged), table)
    table.write(rows("cde", 2, "y"))


def large(lake):
    table = lake.create_table("t", SCHEMA, settings={"split_rows": 1000})
    table.write(rows([f"{n:05}" for n in range(2500)], 1))


def declared(lake):
    lake.create_table("old", SCHEMA)
    kept(lake)


def migrated(lake):
    """A folder of Parquet files, with the values of a column in their names."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "w=z").mkdir()
        pq.write_table(rows("amz", 5).drop_columns("w"), f"{folder}/w=z/rows.parquet")
        source = open_hive(SourceLocation(folder, lake.storage))
        table = lake.table("t")
        migrate(table, plan(table.state(), source, "once"), Selection({}), lambda _done, _total: None)


def applied(lake):
    """Change everything that a declaration can change; the changes before a failed one stay."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(DECLARATION)
        file.flush()
        for change in _plan(lake, read_declaration(Path(file.name)), prune=True):
            change.make()


DECLARATION = """
settings: {split_rows: 5000, history_s: 0, log_s: 0, orphan_age_s: 0}
tables:
  t:
    schema: {row_key: {k: string}, values: {v: int64, w: string, n: int64}}
    filter: v > 1
    online: false
    tags: {second: 3}
  new:
    schema: {row_key: {k: string}, values: {v: int64}}
    merge: {mode: latest, by: arrival}
    filter: k > 'a'
    online: false
views:
  sums: {source: new, select: "SELECT k, v FROM source", row_key: [k], online: false, settings: {history_s: 99}}
"""


def streaming(lake):
    """Two files to stream into another table."""
    for name in ("t", "copy"):
        lake.create_table(name, SCHEMA, split_points=["c"])
    lake.table("t").write(rows("abcd", 1))
    lake.table("t").write(rows("cde", 2))


def altered(table):
    if "n" not in table.snapshot().schema.names:
        table.alter(AddField("n", "int64"))


def named(lake):
    if "t" in lake.tables():
        lake.rename_table("t", "u")


def tagged(lake):
    table = lake.table("t")
    if "second" not in table.tags():
        table.tag("second", 3)


def untagged(lake):
    table = lake.table("t")
    if "first" in table.tags():
        table.untag("first")


def dropped(lake):
    if "t" in lake.tables():
        lake.drop_table("t")


Act = Callable[[lakebed.Instance], object]

OPERATIONS: dict[str, tuple[Act, Act]] = {
    "upsert": (upserted, lambda lake: lake.table("t").write(rows("bcz", 5), commit_id="once")),
    "partial": (upserted, lambda lake: lake.table("t").write({"k": ["a"], "v": [7]}, partial=True, commit_id="once")),
    "delete": (upserted, lambda lake: lake.table("t").delete(where="v = 2", commit_id="once")),
    "compact": (upserted, lambda lake: merge(lake.table("t"), "full")),
    "rewrite": (kept, lambda lake: rewritten(lake.table("t"), delete_where="k = 'c'")),
    "restore": (kept, lambda lake: lake.table("t").restore(tag="first")),
    "alter": (kept, lambda lake: altered(lake.table("t"))),
    "split": (large, lambda lake: split(lake.table("t"))),
    "refresh": (viewed, lambda lake: refresh(lake.table("view"), lake.table("t"))),
    "refresh anew": (viewed, lambda lake: refresh(lake.table("view"), lake.table("t"), anew=True)),
    "migrate": (upserted, migrated),
    "migrate on Spark": (upserted, spark_operations.migrated),
    "bulk import": (upserted, spark_operations.imported),
    "stream": (streaming, spark_operations.streamed),
    "tag": (kept, tagged),
    "untag": (kept, untagged),
    "rename": (kept, named),
    "create": (kept, lambda lake: lake.create_table("new", SCHEMA, if_not_exists=True)),
    "apply": (declared, applied),
    "drop": (kept, dropped),
    "gc": (kept, lambda lake: gc(lake, force=True)),
}


def set_alone(patch):
    """Write checkpoints in turn, skip pauses, and make jobs belong to a process that has ended."""
    ended = ":".join([*this_process().split(":")[:3], "99999999", "1"])
    for module in (merge_jobs, run):
        patch.setattr(module, "this_process", lambda: ended)
    patch.setattr(tail.LogTail, "start_checkpoint", lambda one: one._write_checkpoint(one._head))
    set_clock(patch, sleep=lambda _: None)


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    set_alone(monkeypatch)


def shown(lake):
    """Return the content of the instance as readers see it."""
    return {
        name: (
            lake.table(name).tags(),
            lake.table(name).snapshot().schema.names,
            lake.table(name).to_arrow().to_pylist(),
        )
        for name in lake.tables()
    }


def doubled(lake):
    """Return the requests that were committed more than once: a merge mode may hide that from who reads the rows."""
    keys = Counter(key for name in lake.tables() for key in lake.table(name).history()["request_key"].to_pylist())
    return [key for key, count in keys.items() if key is not None and count > 1]


def made(before):
    lake = lakebed.create(f"memory://{clock.random_token()}")
    lake.set(**AT_ONCE, log_s=0)
    before(lake)
    return lake


def through(lake, storage):
    """Return the instance as opened by another process, which has read nothing yet."""
    return Instance(storage, {"instance": lake.id, "log_url": lake.log_url}, lake.storage_options)


def collected(lake):
    """Return the instance after garbage collection, which leaves only objects in use."""
    for _ in range(2):
        let_time_pass(lake.storage)
        report = gc(lake, force=True)
        assert not report.errors
    fresh = through(lake, lake.storage)
    left = {one.name for one in lake.storage.list(TABLES_FOLDER) if "/data/" in one.name}
    for table in map(fresh.table, fresh.tables()):
        state, folder = table.state(), data_folder(table.id)
        mine = [name for name in left if name.startswith(f"{folder}/")]
        assert not unnamed(state, mine)
        assert not state.jobs
        assert table.verify(files=True, deep=True).sound
        left -= set(mine)
    assert not left
    # The log of a dropped table stays, with a checkpoint and its pins.
    gone = {change.table for change in fresh.catalog_changes() if isinstance(change, PurgeTable)}
    known = ("instance.json", "catalog", *(f"tables/{one}" for one in {*fresh.table_ids(), *gone}))
    assert not [one.name for one in lake.storage.list("") if not one.name.startswith(known)]
    return shown(fresh)


def failing(storage, fault, call):
    """Return a store whose n-th call fails, and a function that tells whether it has."""
    if fault is None:
        dying = Dying(storage, call)
        return dying, lambda: dying.left <= 0
    faulty = FaultyStorage(storage, FaultPlan([Rule(fault, calls={call})]))
    return faulty, lambda: bool(faulty.fired)


def fails_at(name, fault, call):
    """Run the operation with this call failing; False if it makes fewer calls."""
    before, act = OPERATIONS[name]
    lake = made(before)
    first = shown(lake)
    storage, has_failed = failing(lake.storage, fault, call)
    done = refused = False
    try:
        act(through(lake, storage))
        done = True
    except Killed:
        pass
    except Error as error:
        # The end of a drop may fail, and its error says that the name is free.
        refused = not isinstance(error, UnknownOutcomeError) and "is out of the catalog" not in str(error)
    found = shown(through(lake, lake.storage))
    act(through(lake, lake.storage))
    last = shown(through(lake, lake.storage))
    assert not doubled(through(lake, lake.storage))
    if name != "apply":
        # Unless an error reports an unknown outcome, nothing was changed: a caller may repeat the request.
        assert found in ([last] if done else [first] if refused else [first, last])
    for table in lake.tables():
        assert lake.table(table).verify(files=True, deep=True).sound
    assert collected(lake) == last
    return has_failed()


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_commits(name):
    before, act = OPERATIONS[name]
    lake = made(before)
    storage = CountingStorage(lake.storage)
    act(through(lake, storage))
    assert any("/log/" in created for created in storage.names["create"])


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_is_killed_is_done_or_not_and_can_be_repeated(name):
    """Killed before some of its calls."""
    some = itertools.chain((1, 5), itertools.count(20, 40))
    assert sum(1 for _ in itertools.takewhile(lambda call: fails_at(name, None, call), some)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.CONFLICT, Fault.FULL])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_fails_at_any_call_is_done_or_not_and_can_be_repeated(name, fault):
    assert sum(1 for _ in itertools.takewhile(lambda call: fails_at(name, fault, call), itertools.count(1))) > 0
