"""The known holes of test_known_holes that show only where rows lie in files: what is deleted, read, repeated, fits."""

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import KeyRange, Schema, clock
from lakebed.errors import Code, UnknownOutcomeError
from lakebed.log.backends.objects import ObjectLogs
from lakebed.log.checkpoint import Head
from lakebed.log.log_limits import LIMITS
from lakebed.log.replay import advance
from lakebed.model.files import data_folder, data_name
from lakebed.model.keys import ALL_KEYS
from lakebed.model.state.machine import TABLE
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions import OpenJob, ProposeOutput
from lakebed.read.rows.plan import plan as plan_query
from lakebed.table.table import Table
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from lakebed.upkeep.retention.run import collect_garbage
from lakebed.write.run import FileTarget, write_files
from tests.clocks import set_clock
from tests.orphans import delete_orphans
from tests.pure.state.cases import known_files
from tests.raising import raises
from tests.tables.log.cases import Overtaken
from tests.tables.retention.cases import Killed, Mortal, let_time_pass

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})
AT_ONCE = {"history_s": 0}
LOW, HIGH = KeyRange(max=("m",)), KeyRange(("m",))


@pytest.fixture
def table(memory_lake):
    """Two partitions, cut at m; garbage goes as soon as it is any."""
    return memory_lake.create_table("t", SCHEMA, split_points=["m"], settings=AT_ONCE)


def rows(letters):
    return pa.table({"k": list(letters), "v": pa.array(range(len(letters)), pa.int64())})


def letters(table):
    """What a process that knows nothing yet reads, and that every object it needs is there."""
    fresh = on(table, table.storage)
    assert fresh.verify(files=True).sound
    return "".join(fresh.scan().read_all().column("k").to_pylist())


def on(table, storage):
    """The same table as another process has it, through a storage of its own."""
    return Table(table.id, table.name, storage, ObjectLogs(storage), dict)


def claimed(table, within):
    """A job over all that one partition refers to."""
    keys = SCHEMA.codec.encode_range(within)
    state = table.state()
    partition = state.partitions.ids[state.partitions.position(keys.min)]
    name = clock.new_id()
    table.commit(OpenJob(Job(name, keys, tuple(r.file for r in state.references_of(partition)), "", 60, 0)))
    return name


def merge(table, within):
    name = claimed(table, within)
    target = FileTarget(table.storage, table.id, name)
    files = write_files(table.scan(within), table.layout(), target, memory_limit_bytes=2**28, cuts=())
    table.commit(ProposeOutput(name, files))


# -- deleting ---------------------------------------------------------------------------------------------------


def test_cleanup_after_a_removal_keeps_what_shares_its_file(table):
    """Cleanup drops the log objects of an insert once part of it was removed, and the rest of the insert with them."""
    table.write(rows("abyz"))
    table.remove(HIGH)
    assert collect_garbage(table).files == 0
    assert letters(table) == "ab"
    merge(table, LOW)
    assert collect_garbage(table).files == 1
    assert letters(table) == "ab"


def test_cleanup_after_a_rewrite_and_a_merge_leaves_every_file_that_is_read(table):
    """Once the dead markers are cleaned up, older entries that were copied but not ended name files that are gone."""
    for text in ("abyz", "ay", "bz"):
        table.write(rows(text))
    merge(table, HIGH)
    merge(table, LOW)
    for _ in range(2):
        collect_garbage(table)
        assert letters(table) == "aabbyyzz"
    merge(table, HIGH)
    collect_garbage(table)
    assert letters(table) == "aabbyyzz"


def test_a_merge_that_commits_while_cleanup_runs_is_not_undone_by_it(table):
    """Cleanup writes down what it read before the merge, and the merge's inputs count again beside its output."""
    table.write(rows("ab"))
    merge(table, LOW)
    table.write(rows("ab"))
    collector = on(table, Overtaken(table.storage, lambda: merge(table, LOW)))
    assert collect_garbage(collector).files == 3
    assert collector.storage.meanwhile is None
    assert collector.state() == table.state()
    assert letters(table) == "aabb"


def test_cleanup_by_a_fast_clock_neither_hides_the_log_nor_shortens_the_delay(memory_lake, monkeypatch):
    """Cleanup by a clock an hour ahead leaves others an empty table for that hour, and deletes an hour too early."""
    table = memory_lake.create_table("t", SCHEMA, settings={"history_s": 1800})
    table.write(rows("ab"))
    table.write(rows("cd"))
    merge(table, KeyRange())
    true = clock.now
    set_clock(monkeypatch, now=lambda: true() + dt.timedelta(hours=1))
    report = collect_garbage(table)
    set_clock(monkeypatch, now=true)
    assert (report.files, report.waiting) == (0, 2)
    assert letters(table) == "abcd"


def test_older_states_stay_readable_for_as_long_as_was_said(memory_lake):
    """After a cleanup a look back inside the declared time fails, or finds less than there was."""
    table = memory_lake.create_table("t", SCHEMA, settings={"history_s": 3600})
    table.write(rows("ab"))
    version = table.write(rows("cd"))
    merge(table, KeyRange())
    assert collect_garbage(table).files == 0
    head = Head(0, "", TABLE.empty)
    while head.version < version:
        head = advance(head, table.log.backend.get(head.version + 1), table.id, TABLE, table.log.read_sidecars).head
    past = table.reader.scan(plan_query(head.state, [ALL_KEYS]), ["k"], None).read_all()
    assert past.column("k").to_pylist() == list("abcd")


def test_a_long_query_reads_on_while_its_files_are_merged_and_cleaned_up(memory_lake):
    """A file is deleted under the query that reads it.

    Here the history protects it; a query that takes longer fails with a clear error, or holds its files by a pin.
    """
    table = memory_lake.create_table("t", SCHEMA, settings={"history_s": 900})
    for text in ("ab", "cd"):
        table.write(rows(text))
    query = on(table, table.storage).scan()
    merge(table, KeyRange())
    assert collect_garbage(table).files == 0
    assert query.read_all().column("k").to_pylist() == list("abcd")


def test_a_query_that_outlives_the_delay_reads_on_by_a_pin(memory_lake):
    """A file is deleted under the query that reads it, however long that may take."""
    table = memory_lake.create_table("t", SCHEMA, settings=AT_ONCE)
    for text in ("ab", "cd"):
        table.write(rows(text))
    reader, late = on(table, table.storage), on(table, table.storage).snapshot()
    with reader.pin() as pinned:
        merge(table, KeyRange())
        assert collect_garbage(table).pinned == 2
        assert pinned.scan().read_all().column("k").to_pylist() == list("abcd")
    assert collect_garbage(table).files == 2
    with raises(Code.DATA_FILE_NOT_RETAINED):
        late.scan().read_all()


# -- writing ----------------------------------------------------------------------------------------------------


def test_a_crash_between_the_upload_and_the_entry_adds_nothing(table):
    """A data file whose entry never came is counted by a reader of the folder, and is never swept.

    Here no reader looks into the folder, and a sweep deletes what no entry names.
    """
    with pytest.raises(Killed):
        on(table, Mortal(table.storage, 1, after=False)).write(rows("ab"))
    uploaded = [listed.name for listed in table.storage.list(data_folder(table.id)) if listed.name.endswith(".parquet")]
    assert len(uploaded) == 1
    assert letters(table) == ""
    table.write(rows("ab"))
    merge(table, LOW)
    assert letters(table) == "ab"
    table.set(orphan_age_s=0)
    let_time_pass(table.storage)
    assert delete_orphans(table, force=True).orphans == 1
    assert table.storage.last_modified(uploaded[0]) is None
    assert letters(table) == "ab"


def test_an_insert_repeated_because_its_answer_was_lost_counts_once(table):
    """A client that repeats an insert, whose entry was stored and whose answer was lost, doubles the batch."""
    lost = Rule(Fault.FAIL_AFTER, "create", "*/log/*", calls=range(1, LIMITS.settle_puts + 1))
    with pytest.raises(UnknownOutcomeError) as unknown:
        on(table, FaultyStorage(table.storage, FaultPlan([lost]))).write(rows("ab"), commit_id="batch 1")
    for process in (table, on(table, table.storage)):
        assert process.write(rows("ab"), commit_id="batch 1") == unknown.value.version
    overtaken = on(table, Overtaken(table.storage, lambda: table.write(rows("yz"), commit_id="batch 2")))
    assert overtaken.write(rows("yz"), commit_id="batch 2") == unknown.value.version + 1
    assert letters(table) == "abyz"


def test_rows_of_another_type_are_refused_and_a_column_of_nulls_fits(table):
    """One insert whose column has another type, or nothing but nulls, makes the whole table unreadable."""
    table.write(rows("ab"))
    version = table.version
    for wrong in ({"k": ["c"], "v": ["text"]}, {"k": [1], "v": [1]}, {"k": [None], "v": [1]}):
        with raises(Code.COLUMN_TYPE_MISMATCH, Code.VALUE_NULL):
            table.write(pa.table(wrong))
    assert table.state().version == version
    table.write(pa.table({"k": ["c"], "v": [None]}))
    merge(table, LOW)
    assert table.scan().read_all().to_pydict() == {"k": ["a", "b", "c"], "v": [0, 1, None]}


def test_every_file_has_the_columns_that_the_log_says(table):
    """A query that shapes an insert or a merge changes the files' columns, and the schema in the log says otherwise.

    Here rows are made to fit the schema or refused, and the footers prove it.
    """
    table.write(pa.table({"v": pa.array([1, 2], pa.int32()), "k": pa.array(["a", "z"], pa.large_string())}))
    table.write(rows("bc"))
    with raises(Code.COLUMN_UNEXPECTED):
        table.write(rows("d").append_column("extra", pa.array([1])))
    with raises(Code.COLUMN_MISSING):
        table.write(rows("d").drop_columns(["k"]))
    merge(table, LOW)
    files = known_files(table.state())
    assert len(files) == 3
    for file in files:
        footer = pq.read_schema(pa.BufferReader(table.storage.get(data_name(table.id, file))))
        assert footer.remove_metadata() == SCHEMA.arrow.remove_metadata()


def test_names_on_the_way_to_the_table_mean_nothing(tmp_path):
    """A prefix or partition that contains the name of the data folder is taken for it: all partitions become one."""
    root = tmp_path / "tables" / "raw-data-00" / "data" / "log"
    table = lakebed.create(str(root)).create_table("data", SCHEMA, split_points=["tables/data/m"], settings=AT_ONCE)
    keys = [f"tables/data/{letter}" for letter in "abyz"]
    for _ in range(2):
        table.write(pa.table({"k": keys, "v": [1, 2, 3, 4]}))
    merge(table, KeyRange(max=("tables/data/m",)))
    assert table.partitions().column("rows").to_pylist() == [4, 4]
    assert collect_garbage(table).files == 0
    report = table.verify(files=True)
    assert (report.findings, report.objects) == ((), 3)
    assert table.scan().read_all().column("k").to_pylist() == sorted(keys * 2)
