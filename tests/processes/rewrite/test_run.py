"""Rewrites of real tables, their tasks run here: against plain lists of rows, and with all else that may happen."""

from __future__ import annotations

import math
import tempfile
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import AddField, AgeOff, DropField, KeyRange, Schema, SetFilter, clock
from lakebed.errors import Code, Error
from lakebed.files.sorting.merge import merge_stream
from lakebed.model.files import data_folder, data_name
from lakebed.model.merge_modes import Aggregate, First, Latest
from lakebed.model.row_kinds import KIND, RowKind, with_hidden
from lakebed.model.state.transactions import (
    CloseJob,
    DropTable,
    OpenJob,
    ProposeFiles,
    ProposeSplit,
    SetMerge,
)
from lakebed.testing.faults import Meanwhile
from lakebed.upkeep.compaction.run import compact, run_merge_task
from lakebed.upkeep.compaction.run import prepare as prepare_compaction
from lakebed.upkeep.rewrite.run import RewriteLimits
from lakebed.write.batches import BatchSizes
from lakebed.write.run import FileTarget, write_files
from tests.clocks import set_clock
from tests.pure.state.cases import job as job_over
from tests.tables.cases import rewrite_tasks, rewritten
from tests.tables.retention.cases import on
from tests.workers import in_process

SCHEMA = Schema({"k": "int64"}, {"s": "int64"}, {"n": "int32", "t": "string"})


def compacted(table):
    def execute(tasks):
        with tempfile.TemporaryDirectory() as scratch:
            return [run_merge_task(task, table.storage, Path(scratch)) for task in tasks]

    return compact(table, prepare_compaction(table, "full"), execute, cores=1)


def rows_of(table, version=None):
    found = table if version is None else table.at(version=version)
    return Counter(tuple(row.values()) for row in found.scan().read_all().to_pylist())


def new_table(*split_points, schema=SCHEMA):
    lake = lakebed.create(f"memory://{uuid.uuid4().hex}")
    return lake.create_table("t", schema, split_points=[(point,) for point in split_points])


def batch(rows):
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA.arrow)


@pytest.fixture
def table():
    """Three writes of 40 rows each over partitions that begin at 10 and 30."""
    found = new_table(10, 30)
    for write in range(3):
        found.write(batch([(k, write, k * 10 + write, f"t{write}") for k in range(40)]))
    return found


# -- against a list of rows -------------------------------------------------------------------------------------------

ROWS = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(0, 3), st.none() | st.integers(-5, 5), st.none() | st.sampled_from(["a", "b"])
    ),
    max_size=40,
)
PREDICATES = {
    "n > 0": lambda k, s, n, t: n is not None and n > 0,
    "n IS NULL": lambda k, s, n, t: n is None,
    "k >= 10 AND k < 20": lambda k, s, n, t: 10 <= k < 20,
    "t = 'a' OR s = 2": lambda k, s, n, t: t == "a" or s == 2,
    "k % 7 = 3 -- a comment": lambda k, s, n, t: k % 7 == 3,
    "true": lambda k, s, n, t: True,
    "n > 100": lambda k, s, n, t: False,
}
CHANGES = {
    ("n", "n + k"): lambda k, s, n, t: (k, s, None if n is None else n + k, t),
    ("n", "NULL"): lambda k, s, n, t: (k, s, None, t),
    ("t", "'x'"): lambda k, s, n, t: (k, s, n, "x"),
    ("t", "CASE WHEN s = 1 THEN upper(t) ELSE t END"): lambda k, s, n, t: (k, s, n, t.upper() if t and s == 1 else t),
}


@settings(max_examples=settings.default.max_examples // 3, deadline=None)
@given(
    writes=st.lists(ROWS, min_size=1, max_size=4),
    cuts=st.sets(st.integers(1, 29), max_size=3),
    spans=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 15)), max_size=2),
    what=st.tuples(
        st.none() | st.sampled_from(sorted(PREDICATES)),
        st.none() | st.sampled_from(sorted(CHANGES)),
        st.none() | st.sampled_from(sorted(PREDICATES)),
    ).filter(lambda what: what[0] or what[1]),
    merge=st.booleans(),
)
def test_a_rewrite_does_to_the_rows_what_it_does_to_a_list(writes, cuts, spans, what, merge):
    delete_where, change, where = what
    table = new_table(*sorted(cuts))
    for rows in writes:
        table.write(batch(rows))
    if merge:
        compacted(table)
        table.write(batch(writes[0]))
        writes = [*writes, writes[0]]
    before, version = rows_of(table), table.version
    ranges = [KeyRange((low,), (low + width,)) for low, width in spans]

    expected, deleted, changed = Counter(), 0, 0
    for row in (row for rows in writes for row in rows):
        after = row
        if not spans or any(low <= row[0] < low + width for low, width in spans):
            if delete_where is not None and PREDICATES[delete_where](*row):
                deleted += 1
                continue
            if change is not None and (where is None or PREDICATES[where](*row)):
                changed += 1
                after = CHANGES[change](*row)
        expected[after] += 1

    report = rewritten(
        table,
        *ranges,
        set=None if change is None else dict([change]),
        where=where if change is not None else None,
        delete_where=delete_where,
    )
    assert rows_of(table) == expected
    assert (report.rows_deleted, report.rows_changed) == (deleted, changed)
    assert (report.version is None) == (expected == before)
    assert rows_of(table, version) == before
    assert not table.state().jobs
    assert table.verify(deep=True).sound
    if change is None:
        assert rewritten(table, *ranges, delete_where=delete_where).version is None


# -- files --------------------------------------------------------------------------------------------------------


def files(table):
    return [[file.id for file in table.state().files_of(partition)] for partition in table.state().partitions.ids]


def test_files_and_partitions_without_such_a_row_stay_as_they_are(table):
    before = files(table)
    report = rewritten(table, KeyRange((30,)), delete_where="t = 't1'")
    after = files(table)
    assert after[:2] == before[:2]
    assert after[2] == [before[2][0], before[2][2]]
    assert (report.files_read, report.files_in, report.files_out, report.rows_deleted) == (3, 1, 0, 10)
    assert rows_of(table) == Counter(
        (k, write, k * 10 + write, f"t{write}") for write in range(3) for k in range(40) if k < 30 or write != 1
    )


def test_a_file_over_many_partitions_is_read_and_written_once(table):
    tasks = []

    def execute(some):
        tasks.extend(some)
        return rewrite_tasks(table, some)

    report = rewritten(table, set={"n": "0"}, where="t = 't0'", execute=execute)
    assert (len(tasks), report.files_in, report.files_out) == (3, 1, 1)
    assert all(held.exact for every in table.state().references.values() for held in every)


def test_a_file_whose_bounds_exclude_the_rows_is_not_read():
    table = new_table()
    for first in (0, 100, 200):
        table.write(batch([(first + k, 0, 0, "t") for k in range(5)]))
    assert rewritten(table, delete_where="k = 102").files_read == 1
    assert rewritten(table, KeyRange((0,), (50,)), KeyRange((200,)), set={"n": "1"}).files_read == 2


def test_a_file_of_which_all_rows_go_is_replaced_by_none(table):
    report = rewritten(table, delete_where="s = 2")
    assert (report.files_in, report.files_out, report.rows_deleted) == (1, 0, 40)
    assert [len(some) for some in files(table)] == [2, 2, 2]


def test_nothing_is_committed_if_every_value_is_as_before(table):
    report = rewritten(table, set={"t": "concat('t', s)"})
    assert (report.version, report.rows_changed, report.files_in) == (None, 120, 0)
    assert "replace" not in table.history().column("type").to_pylist()


def test_zero_with_another_sign_is_another_value():
    """Arrow has the two zeros equal: a row counted as changed, and stayed as it was."""
    schema = Schema({"k": "int64"}, values={"v": "double"})
    table = lakebed.create(f"memory://{clock.new_id()}").create_table("zeros", schema)
    table.write(pa.table({"k": [1, 2], "v": [-0.0, float("nan")]}))
    assert rewritten(table, set={"v": "v"}).version is None
    assert rewritten(table, set={"v": "abs(v)"}, where="k = 1").version == table.version
    assert str(table.to_arrow()["v"].to_pylist()) == "[0.0, nan]"


def test_a_zero_in_a_list_with_another_sign_is_another_value():
    schema = Schema({"k": "int64"}, values={"v": "list<double>"})
    table = lakebed.create(f"memory://{clock.new_id()}").create_table("zeros", schema)
    table.write(pa.table({"k": [1, 2], "v": [[-0.0], [float("nan")]]}))
    assert rewritten(table, set={"v": "v"}).version is None
    assert rewritten(table, set={"v": "make_array(0.0)"}, where="k = 1").version == table.version
    assert str(table.to_arrow()["v"].to_pylist()) == "[[0.0], [nan]]"


def test_a_rewritten_file_keeps_its_run_and_its_place_in_time(table):
    before = {held.run for held in table.state().held_by(table.state().partitions.ids[0])}
    sequences = sorted(known.sequence_lo for known in table.state().files.values())
    rewritten(table, set={"n": "0"})
    state = table.state()
    assert {held.run for held in state.held_by(state.partitions.ids[0])} == before
    assert sorted(known.sequence_lo for known in state.files.values() if known.references) == sequences


def test_a_file_of_an_earlier_schema_is_rewritten_with_the_newest(table):
    table.alter(AddField("extra", "int64"), DropField("t"))
    rewritten(table, set={"extra": "n * 2"}, where="k < 5")
    found = table.scan(KeyRange((4,), (6,)), columns=["k", "n", "extra"]).read_all().to_pylist()
    assert {(row["k"], row["extra"]) for row in found} == {(4, 80), (4, 82), (4, 84), (5, None)}
    # The first partition's part of each file is rewritten.
    assert sorted(file.schema_version for file in table.state().referenced().values()) == [1, 1, 1, 2, 2, 2]


def test_values_of_every_kind_of_type_can_be_set():
    members = pa.struct([("a", pa.int64())])
    schema = Schema({"k": "int64"}, values={"l": pa.list_(pa.int64()), "m": members, "b": "bool", "f": "float64"})
    table = new_table(schema=schema)
    rows = [{"k": k, "l": [k], "m": {"a": k}, "b": None, "f": math.nan} for k in range(3)]
    table.write(pa.Table.from_pylist(rows, schema.arrow))
    rewritten(table, set={"l": "[k, 7]", "m": "named_struct('a', k + 1)", "b": "k = 1", "f": "k"}, where="k > 0")
    assert table.scan().read_all().to_pylist()[1:] == [
        {"k": k, "l": [k, 7], "m": {"a": k + 1}, "b": k == 1, "f": float(k)} for k in (1, 2)
    ]


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ({}, Code.ARGUMENT_MISSING, "give set, expressions by column, or delete_where"),
        ({"where": "n > 1"}, Code.ARGUMENTS_CONFLICT, "where chooses the rows that set changes"),
        ({"delete_where": "n + 1"}, Code.PREDICATE_INVALID, "not a predicate over a row of this table: 'n + 1'"),
        ({"delete_where": 3}, Code.PREDICATE_INVALID, "delete_where = 3"),
        ({"delete_where": "nothing = 1"}, Code.PREDICATE_INVALID, "No field named nothing"),
        ({"delete_where": "now() > s"}, Code.PREDICATE_INVALID, "Invalid function 'now'"),
        ({"delete_where": "random() > 0.5"}, Code.PREDICATE_INVALID, "Invalid function 'random'"),
        ({"set": {"n": "1"}, "where": "n"}, Code.PREDICATE_INVALID, "non-boolean"),
        ({"set": "n = 1"}, Code.ARGUMENT_INVALID, "must map columns to SQL expressions"),
        ({"set": {"n": 1}}, Code.ARGUMENT_INVALID, "set: n = 1: must be an SQL expression"),
        ({"set": {"k": "1"}}, Code.ARGUMENT_INVALID, "k is a key column"),
        ({"set": {"s": "1"}}, Code.ARGUMENT_INVALID, "s is a key column"),
        ({"set": {"x": "1"}}, Code.COLUMN_UNKNOWN, "no column 'x'; the table has k, s, n, t"),
        ({"set": {"n": "random()"}}, Code.SQL_INVALID, "Invalid function 'random'"),
        ({"set": {"n": "now()"}}, Code.SQL_INVALID, "Invalid function 'now'"),
        ({"set": {"n": "max(n)"}}, Code.SQL_INVALID, "Invalid function 'max'"),
        ({"set": {"n": "(SELECT 1)"}}, Code.SQL_INVALID, "reads more than a row"),
        ({"set": {"n": "'7'"}}, Code.COLUMN_TYPE_MISMATCH, "the expression is string, and column n is int32; cast it"),
        ({"set": {"n": "true"}}, Code.COLUMN_TYPE_MISMATCH, "the expression is bool"),
        ({"ranges": [KeyRange(("a",))], "delete_where": "true"}, Code.KEY_TYPE_MISMATCH, "k"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_read(table, how, code, text):
    version = table.version
    with pytest.raises(Error) as caught:
        rewritten(table, *how.pop("ranges", ()), **how, execute=lambda _: pytest.fail("a task ran"))
    assert (caught.value.code, table.version) == (code, version)
    assert text in caught.value.message


def test_a_column_that_is_not_nullable_is_not_set_to_null():
    table = new_table(schema=Schema({"k": "int64"}, values=[lakebed.Field(2, "n", pa.int64(), nullable=False)]))
    table.write(pa.table({"k": [1, 2], "n": [1, 2]}, schema=table.schema.arrow))
    with pytest.raises(Error, match="column n is not nullable"):
        rewritten(table, set={"n": "NULL"})
    with pytest.raises(Error, match=r"the row with key \(2,\): column n is null, and is not nullable") as caught:
        rewritten(table, set={"n": "nullif(n, 2)"})
    assert caught.value.code is Code.VALUE_NULL


def test_a_column_from_which_a_key_is_generated_is_not_set():
    generated = lakebed.Generated(pa.string(), "upper(name)")
    table = new_table(schema=Schema({"k": generated}, values={"name": "string"}))
    with pytest.raises(Error, match="key column k is generated from name"):
        rewritten(table, set={"name": "'x'"})


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"n": "n * 100000000"}, Code.VALUE_NOT_REPRESENTABLE, "column n is int64 and holds a value that int32"),
        ({"n": "1 / (k - 17)"}, Code.EXPRESSION_FAILED, "cannot evaluate '1 / (k - 17)' for column n"),
        ({"n": "CAST(t AS INT)"}, Code.EXPRESSION_FAILED, "cannot evaluate"),
        ({"n": "k + 0.5"}, Code.VALUE_NOT_REPRESENTABLE, "that int32 cannot keep"),
    ],
)
def test_a_value_that_does_not_fit_fails_the_rewrite_and_names_the_key(table, change, code, text):
    before, version = rows_of(table), table.version
    with pytest.raises(Error) as caught:
        rewritten(table, KeyRange((17,)), set=change)
    assert caught.value.code is code
    assert text in caught.value.message
    assert "key (17,)" in caught.value.message or "key (22,)" in caught.value.message
    untouched(table, before, version)


def untouched(table, before, version):
    """The rows are as before, no job is open, and no object is left behind."""
    assert rows_of(table) == before == rows_of(table, version)
    assert not table.state().jobs
    named = {file.id for file in table.state().referenced().values()}
    assert {Path(found.name).stem for found in table.storage.list(data_folder(table.id))} == named


# -- failures -----------------------------------------------------------------------------------------------------


def test_a_task_that_fails_leaves_the_table_as_it_was(table):
    before, version = rows_of(table), table.version

    def execute(tasks):
        made = rewrite_tasks(table, tasks)
        return [made[0], Code.WORKER_KILLED("the worker was killed"), *made[2:]]

    with pytest.raises(Error, match="the worker was killed"):
        rewritten(table, set={"n": "0"}, execute=execute)
    left = [found.name for found in table.storage.list(data_folder(table.id))]
    assert rows_of(table) == before == rows_of(table, version)
    assert not table.state().jobs
    # What the killed worker sent is an orphan; what the others sent was deleted.
    assert len(left) == 3 + 1


def test_an_executor_that_raises_leaves_the_table_as_it_was(table):
    before, version = rows_of(table), table.version

    def execute(tasks):
        rewrite_tasks(table, tasks[:0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rewritten(table, set={"n": "0"}, execute=execute)
    untouched(table, before, version)


def test_a_damaged_file_is_named_and_nothing_is_changed(table):
    before, version = rows_of(table), table.version
    (name, *_) = sorted(found.name for found in table.storage.list(data_folder(table.id)))
    data = table.storage.get(name)
    table.storage.replace(name, data[:100] + b"\0" + data[101:])
    with pytest.raises(Error, match=Path(name).stem):
        rewritten(table, set={"n": "0"})
    table.storage.replace(name, data)
    untouched(table, before, version)


# -- with others ---------------------------------------------------------------------------------------------------


def test_rows_that_are_written_meanwhile_stay_as_they_were_written(table):
    def execute(tasks):
        table.write(batch([(5, 9, 1, "new")]))
        return rewrite_tasks(table, tasks)

    report = rewritten(table, set={"t": "'old'"}, execute=execute)
    assert report.base_version == 4
    texts = Counter(row[3] for row in rows_of(table).elements())
    assert texts == {"old": 120, "new": 1}


def test_files_that_arrive_meanwhile_can_be_compacted(table):
    def execute(tasks):
        for write in range(3):
            table.write(batch([(5, 9, write, "new")]))
        # The claimed files are left alone.
        assert not compacted(table).failed
        return rewrite_tasks(table, tasks)

    rewritten(table, set={"t": "'old'"}, execute=execute)
    assert Counter(row[3] for row in rows_of(table).elements()) == {"old": 120, "new": 3}
    compacted(table)
    assert Counter(row[3] for row in rows_of(table).elements()) == {"old": 120, "new": 3}


def test_partitions_that_are_split_meanwhile_get_the_output_in_all_parts(table):
    def execute(tasks):
        state = table.state()
        key = table.schema.codec.encode_key((20,))
        table.commit(ProposeSplit({state.partitions.ids[1]: (key,)}))
        return rewrite_tasks(table, tasks)

    rewritten(table, set={"n": "0"}, delete_where="k % 2 = 1", execute=execute)
    assert len(table.state().partitions.ids) == 4
    assert rows_of(table) == Counter((k, s, 0, f"t{s}") for s in range(3) for k in range(0, 40, 2))
    assert table.verify(deep=True).sound


def test_rows_that_are_removed_meanwhile_stay_removed(table):
    def execute(tasks):
        table.remove(KeyRange((5,), (35,)))
        return rewrite_tasks(table, tasks)

    rewritten(table, set={"n": "0"}, execute=execute)
    assert rows_of(table) == Counter((k, s, 0, f"t{s}") for s in range(3) for k in range(40) if not 5 <= k < 35)


def test_a_restore_meanwhile_wins_and_the_rewrite_says_so(table):
    version = table.version - 1
    before = rows_of(table, version)

    def execute(tasks):
        table.restore(version=version)
        return rewrite_tasks(table, tasks)

    with pytest.raises(Error, match="was changed while rows were rewritten") as caught:
        rewritten(table, set={"n": "0"}, execute=execute)
    assert caught.value.code is Code.JOB_NOT_OPEN
    assert rows_of(table) == before
    assert not table.state().jobs


def test_a_removal_with_a_fence_meanwhile_refuses_the_rewrite(table):
    def execute(tasks):
        table.remove(KeyRange((5,), (6,)), fence=True)
        return rewrite_tasks(table, tasks)

    with pytest.raises(Error, match="removed a range for good"):
        rewritten(table, set={"n": "0"}, execute=execute)
    assert all((row[0] != 5 and row[2] != 0) or row[0] == 0 for row in rows_of(table).elements())
    assert not table.state().jobs


def test_rows_that_a_fence_removed_before_the_jobs_were_opened_are_not_written_again():
    """The removal comes between the plan and the opening, so that its fence does not refuse the rewrite."""
    table = new_table(10, 30)
    table.write(batch([(k, 0, k, "") for k in range(40)]))

    def remove():
        table.remove(KeyRange((10,), (30,)), fence=True)

    rewritten(on(table, Meanwhile(table.storage, "create", "*/log/*", remove)), set={"n": "n + 1"})
    assert rows_of(table) == Counter((k, 0, k + 1, "") for k in range(40) if not 10 <= k < 30)
    state = table.state()
    for file in state.referenced().values():
        with table.storage.fetch(data_name(table.id, file)) as path:
            stored = pq.read_table(path).column("k").to_pylist()
            assert not [k for k in stored if 10 <= k < 30]
    assert not state.jobs


def test_what_a_compaction_holds_is_rewritten_when_it_has_ended(table, monkeypatch):
    """The second partition is being merged when the rewrite begins; the merged file is rewritten."""
    waits = []
    keys = table.state().partitions.range_at(1)
    inputs = [file.id for file in table.state().files_of(table.state().partitions.ids[1])]
    table.commit(OpenJob(job_over("compact-1", *inputs, keys=keys)))

    def sleep(_seconds):
        waits.append(len(table.state().jobs))
        table.commit(CloseJob("compact-1", "it was slow"))
        compacted(table)

    set_clock(monkeypatch, sleep=sleep)
    report = rewritten(table, set={"t": "'old'"}, where="n % 2 = 0")
    assert len(waits) == 1
    assert report.rows_changed == 80
    assert {row[3] for row in rows_of(table).elements() if row[2] % 2 == 0} == {"old"}


def test_a_job_that_does_not_end_is_an_error(table):
    before, version = rows_of(table), table.version
    (name, *_) = table.state().files_of(table.state().partitions.ids[0])
    table.commit(OpenJob(job_over("compact-1", name.id)))
    with pytest.raises(Error, match="job compact-1 of table t still holds files") as caught:
        rewritten(table, set={"n": "0"}, limits=RewriteLimits(wait_s=0.1))
    assert caught.value.code is Code.JOB_CONFLICT
    table.commit(CloseJob("compact-1", ""))
    untouched(table, before, version)


def test_of_two_rewrites_at_once_one_gives_up(table):
    def execute(tasks):
        with pytest.raises(Error, match="another rewrite of table t is under way"):
            rewritten(table, set={"n": "1"})
        return rewrite_tasks(table, tasks)

    rewritten(table, set={"n": "0"}, execute=execute)
    assert {row[2] for row in rows_of(table).elements()} == {0}


def test_a_file_of_which_no_row_changes_is_given_back_at_once(table):
    one_by_one = RewriteLimits(batches=BatchSizes(tasks_per_core=1, tasks_min=1, at_once=1))
    open_jobs = []

    def execute(tasks):
        open_jobs.append(len(table.state().jobs))
        return rewrite_tasks(table, tasks)

    rewritten(table, delete_where="t = 't2'", execute=execute, limits=one_by_one)
    assert open_jobs == [3, 2, 1]


def test_all_files_are_claimed_in_one_entry_and_replaced_in_another(table):
    def execute(tasks):
        assert (len(table.state().jobs), table.version) == (3, before + 1)
        return rewrite_tasks(table, tasks)

    before = table.version
    report = rewritten(table, set={"n": "0"}, execute=execute)
    assert report.version == table.version == before + 2


def test_what_others_take_while_files_are_claimed_is_claimed_when_they_have_ended(table, monkeypatch):
    """One of three files is taken between the plan and the claim."""
    (one, *_) = table.state().files_of(table.state().partitions.ids[0])
    taken = OpenJob(job_over("compact-1", one.id, keys=table.state().partitions.range_at(0)))
    late = on(table, Meanwhile(table.storage, "create", "*/log/*", lambda: table.commit(taken)))
    closing = [CloseJob("compact-1", "done")]

    def close(_):
        if closing and "compact-1" in late.log.head.state.jobs:
            table.commit(closing.pop())

    set_clock(monkeypatch, sleep=close)
    assert rewritten(late, set={"n": "0"}).rows_changed == 120
    assert {row[2] for row in rows_of(table).elements()} == {0}


def test_a_table_that_is_dropped_meanwhile_ends_the_rewrite(table):
    late = on(table, Meanwhile(table.storage, "create", "*/log/*", lambda: table.commit(DropTable())))
    with pytest.raises(Error) as caught:
        rewritten(late, set={"n": "0"})
    assert caught.value.code is Code.TABLE_DROPPED


def test_too_many_files_are_refused(table):
    with pytest.raises(Error, match="would concern 3 files, and 2 can change together") as caught:
        rewritten(table, set={"n": "0"}, limits=RewriteLimits(files_max=2))
    assert caught.value.code is Code.LIMIT_REACHED
    assert not table.state().jobs


# -- tables that merge rows ---------------------------------------------------------------------------------------


def merging(mode, schema=SCHEMA):
    """A table of a merge mode."""
    table = new_table(schema=schema)
    table.commit(SetMerge(mode))
    return table


@pytest.mark.parametrize(
    ("mode", "how", "text"),
    [
        (Latest(), {"delete_where": "n > 1"}, "delete_where names column n, which is not part of that key"),
        (Latest(), {"delete_where": "s > 1"}, "delete_where names column s"),
        (First(), {"delete_where": "k = 1 OR t = 'a'"}, "delete_where names column t"),
        (Aggregate({"n": "sum", "t": "max"}), {"delete_where": "n > 1"}, "delete_where names column n"),
        (Aggregate({"n": "sum", "t": "max"}), {"set": {"n": "0"}}, "set would change parts of its values"),
    ],
)
def test_what_would_not_change_the_merged_rows_alike_is_refused(mode, how, text):
    with pytest.raises(Error, match=text) as caught:
        rewritten(merging(mode), **how)
    assert caught.value.code is Code.MERGE_MODE_MISMATCH


@pytest.mark.parametrize("mode", [Latest(), First(), Aggregate({"n": "sum", "t": "max"})])
def test_rows_of_a_key_go_from_all_files_and_the_others_stay_in_their_order(mode):
    table = merging(mode)
    for write in range(3):
        table.write(batch([(k, 0, write, "t") for k in range(4)]))
    before = files(table)[0]
    rewritten(table, delete_where="k = 1")
    state = table.state()
    ranks = [state.files[file.id].sequence_lo for file in state.files_of(state.partitions.ids[0])]
    assert ranks == sorted(ranks)
    assert not set(before) & set(files(table)[0])
    assert [file.rows for file in state.referenced().values()] == [3, 3, 3]
    assert 1 not in table.scan(columns=["k"]).read_all().column("k").to_pylist()


def test_a_file_that_alone_is_rewritten_stays_between_its_neighbours():
    table = merging(Latest())
    for write in range(3):
        table.write(batch([(k, 0, write, f"t{write}") for k in range(4)]))
    before = files(table)[0]
    rewritten(table, set={"t": "'x'"}, where="n = 1")
    after = files(table)[0]
    assert [after[0], after[2]] == [before[0], before[2]]
    assert after[1] != before[1]


def with_markers(table):
    """Adds a file of three rows: 1 is deleted, 2 is a partial row, 3 is whole."""
    schema = with_hidden(table.schema)
    rows = [{"k": k, "s": 0, "n": k, KIND: kind} for k, kind in ((1, RowKind.DELETE), (2, RowKind.PARTIAL), (3, None))]
    batches = iter([pa.RecordBatch.from_pylist(rows, schema=schema.arrow)])
    layout = replace(table.layout(), schema=schema)
    target = FileTarget(table.storage, table.id, clock.new_id())
    made = write_files(batches, layout, target, memory_limit_bytes=2**28, cuts=())
    table.commit(ProposeFiles(made, base_version=table.version))
    return schema


def stored(table, schema):
    """The rows of the only file, with their hidden columns."""
    (file,) = table.state().referenced().values()
    with table.storage.fetch(data_name(table.id, file)) as path, tempfile.TemporaryDirectory() as scratch:
        found = merge_stream([path], schema, key_range=None, memory_limit_bytes=2**28, scratch=Path(scratch))
        return file, [(row["k"], row[KIND]) for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("mode", [Latest(), Latest(by="sort_key")])
def test_deletes_and_partial_rows_go_with_their_key(mode):
    """A partial row that stayed would be a row again, once the whole row is gone; a delete would keep the key."""
    table = merging(mode)
    schema = with_markers(table)
    assert rewritten(table, delete_where="k <= 2").rows_deleted == 1
    assert stored(table, schema)[1] == [(3, None)]
    assert rewritten(table, delete_where="k <= 2").version is None


@pytest.mark.parametrize("by", ["arrival", "sort_key"])
def test_a_key_that_was_deleted_is_erased_by_a_rewrite(tmp_path, by):
    """With Latest(by="sort_key") no compaction drops a delete."""
    lake = lakebed.create(str(tmp_path / "lake"))
    schema = Schema({"person": "string"}, {"visit": "int64"}, {"city": "string"})
    table = lake.create_table("t", schema, merge=Latest(by=by), settings={"history_s": 0, "orphan_age_s": 0})
    table.write(pa.table({"person": ["ann", "bob"], "visit": [1, 1], "city": ["x", "x"]}, schema.arrow))
    table.delete(pa.table({"person": ["bob"], "visit": [5]}) if by == "sort_key" else ["bob"])
    with in_process(lake) as pipeline:
        pipeline.rewrite("t", delete_where="person = 'bob'")
        pipeline.gc("t")
        pipeline.gc("t")
        places = pipeline.erase_report("t", where="person = 'bob'").places
    # The key stays in entries of the log until they are truncated.
    assert {str(place.where) for place in places} <= {"log entry", "checkpoint"}
    assert table.scan().read_all().column("person").to_pylist() == ["ann"]


def test_partial_rows_are_not_changed_before_they_are_merged():
    table = merging(Latest())
    with_markers(table)
    with pytest.raises(Error, match="has deletes or partial rows") as caught:
        rewritten(table, set={"n": "0"})
    assert caught.value.code is Code.MERGE_MODE_MISMATCH


def test_rows_that_the_table_hides_are_rewritten_too(table):
    """An erasure takes what is in the files: rows of a filter, and files of which every row is past its age."""
    before = rows_of(table)
    table.alter(SetFilter("t <> 't1'"), AgeOff("s", days=1, unit="s"))
    assert not rows_of(table)
    assert rewritten(table, delete_where="t = 't1' OR n = 0").rows_deleted == 41
    table.alter(SetFilter(None), AgeOff(None))
    assert rows_of(table) == Counter({row: n for row, n in before.items() if row[3] != "t1" and row[2] != 0})


@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("write"), st.dictionaries(st.integers(0, 9), st.integers(0, 5), min_size=1)),
            st.tuples(st.just("delete"), st.integers(0, 9)),
            st.tuples(st.just("erase"), st.integers(0, 9)),
            st.tuples(st.just("set"), st.integers(0, 5)),
            st.just(("compact",)),
        ),
        max_size=8,
    )
)
def test_rewrites_of_a_table_of_latest_rows_do_what_they_do_to_a_dictionary(steps):
    schema = Schema({"k": "int64"}, values={"n": "int32"})
    table, expected = merging(Latest(), schema), {}
    for what, *how in steps:
        match what, how:
            case "write", [rows]:
                table.write(pa.table({"k": list(rows), "n": list(rows.values())}, schema=schema.arrow))
                expected |= rows
            case "delete", [key]:
                table.delete([key])
                expected.pop(key, None)
            case "erase", [key]:
                rewritten(table, delete_where=f"k = {key}")
                expected.pop(key, None)
            case "set", [value]:
                if any(file.markers for file in table.state().referenced().values()):
                    continue
                rewritten(table, set={"n": "n + 10"}, where=f"n = {value}")
                expected = {key: old + 10 * (old == value) for key, old in expected.items()}
            case "compact", _:
                compacted(table)
        found = table.scan().read_all().to_pylist()
        assert {row["k"]: row["n"] for row in found} == expected
        assert len(found) == len(expected)
