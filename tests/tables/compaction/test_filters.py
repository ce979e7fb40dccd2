"""Compaction of tables with a filter: it changes no answer, and hidden rows go for good."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import lakebed
from lakebed import AgeOff, Aggregate, First, KeepAll, Latest, Schema, SetFilter, clock
from lakebed.errors import UsageError
from lakebed.log.last_modified_times import to_us
from lakebed.model.settings import Strategy
from lakebed.model.state.invariants import check_invariants
from lakebed.model.state.transactions import ProposeCut
from lakebed.table.filter_choice import age_off
from lakebed.upkeep.compaction.plan import plan
from lakebed.upkeep.compaction.run import compact, prepare, run_merge_task
from lakebed.upkeep.retention.run import collect_garbage
from lakebed.upkeep.splitting.run import split

NOW = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
SCHEMA = Schema({"k": "string"}, sort_key={"at": "timestamp[s]"}, values={"n": "int64"})


def rows(*held, schema=SCHEMA):
    """Rows of a key, an age in days, and a number."""
    columns = {
        "k": [k for k, _, _ in held],
        "at": [NOW - timedelta(days=days) for _, days, _ in held],
        "n": [n for _, _, n in held],
    }
    return pa.table(columns, schema=pa.schema([schema.arrow.field(name) for name in columns]))


def compacted(table, tmp_path, strategy=None):
    """Compact in this process; returns the report."""

    def execute(tasks):
        return [run_merge_task(task, table.storage, tmp_path) for task in tasks]

    report = compact(table, prepare(table, strategy), execute, cores=1)
    check_invariants(table.state())
    assert not report.failed, report.failed
    return report


def stored(table):
    """The rows of all files that are referenced, hidden ones included."""
    return sum(file.rows for file in table.state().referenced().values())


def shown(table):
    return sorted(map(str, table.to_arrow().to_pylist()))


@pytest.mark.parametrize(
    "change", [(SetFilter("n % 2 = 0"),), (AgeOff("at", days=30),), (SetFilter("k <> 'b'"), AgeOff("at", days=30))]
)
def test_a_compaction_drops_hidden_rows_and_changes_no_answer(memory_lake, tmp_path, change):
    table = memory_lake.create_table("t", SCHEMA)
    for write in range(3):
        table.write(rows(*((k, days, write + days) for k in "abc" for days in (1, 20, 29, 31, 60))))
    table.alter(*change)
    before = shown(table)
    compacted(table, tmp_path, "full")
    assert shown(table) == before
    assert stored(table) == len(before) < 45
    assert table.count(exact=True).rows == len(before)


def test_a_single_run_is_compacted_for_a_new_predicate_once(memory_lake, tmp_path):
    table = memory_lake.create_table("t", SCHEMA)
    table.write(rows(("a", 1, 1), ("b", 1, 2)))
    assert compacted(table, tmp_path, "full").jobs == 0
    table.alter(SetFilter("n > 1"))
    assert compacted(table, tmp_path).jobs == 0
    assert compacted(table, tmp_path, "full").jobs == 1
    assert stored(table) == 1
    assert compacted(table, tmp_path, "full").jobs == 0
    table.write(rows(("a", 1, 1)))
    assert stored(table) == 2


def test_old_files_are_compacted_though_nothing_else_is_due(memory_lake, tmp_path):
    table = memory_lake.create_table("t", SCHEMA)
    table.write(rows(("a", 29, 1), ("b", 35, 2), ("c", 1, 3)))
    table.alter(AgeOff("at", days=30))
    # Rows of 35 days: due only when they are older by a quarter of the age.
    assert compacted(table, tmp_path).jobs == 0
    table.write(rows(("a", 29, 1), ("b", 38, 2), ("c", 1, 3)))
    report = compacted(table, tmp_path)
    assert (report.jobs, report.rows) == (1, 2)
    assert stored(table) == 5
    assert compacted(table, tmp_path).jobs == 0


def test_files_wholly_past_go_without_being_read(memory_lake, tmp_path):
    table = memory_lake.create_table("t", SCHEMA)
    table.write(rows(("a", 40, 1), ("b", 50, 2)))
    table.write(rows(("a", 1, 3)))
    table.alter(AgeOff("at", days=30))
    old = next(file for file in table.state().referenced().values() if file.rows == 2)
    table.storage.delete([f"tables/{table.id}/data/{old.job}/{old.id}.parquet"])
    assert shown(table) == [str(row) for row in rows(("a", 1, 3)).to_pylist()]
    assert compacted(table, tmp_path).jobs == 0
    assert old.id not in table.state().referenced()
    assert table.history(limit=1)["type"].to_pylist() == ["drop_expired"]


def test_by_a_value_field_files_are_due_once_they_were_written_before_the_cut(memory_lake, tmp_path):
    schema = Schema({"k": "string"}, values={"at": "timestamp[s]", "n": "int64"})
    table = memory_lake.create_table("t", schema)
    table.write(rows(("a", 60, 1), ("b", 1, 2), schema=schema))
    table.alter(AgeOff("at", days=30))
    assert compacted(table, tmp_path).jobs == 0
    state = table.state()
    later = structs.replace(state, age_off_cut_us=to_us(table.log.now()) + 1_000_000)
    assert len(plan(later, table.settings_in_force()).merges) == 1


def test_garbage_collection_and_compaction_raise_the_cut(memory_lake, tmp_path):
    table = memory_lake.create_table("t", SCHEMA)
    table.write(rows(("a", 1, 1)))
    table.alter(AgeOff("at", seconds=64))
    cut = table.state().age_off_cut_us
    for act in (lambda: age_off(table), lambda: collect_garbage(table), lambda: compacted(table, tmp_path)):
        before = table.version
        act()
        # The clock has not gone on by a second: no entry.
        assert table.version - before <= 1
    table.commit(ProposeCut(to_us(table.log.now()) + 5_000_000))
    assert table.state().age_off_cut_us > cut


def test_a_job_that_runs_while_the_filter_is_loosened_is_refused(memory_lake, tmp_path):
    """It dropped rows that the table shows again."""
    table = memory_lake.create_table("t", SCHEMA)
    table.write(rows(("a", 1, 1), ("b", 1, 2)))
    table.write(rows(("c", 1, 3)))
    table.alter(SetFilter("n > 1"))

    def execute(tasks):
        made = [run_merge_task(task, table.storage, tmp_path) for task in tasks]
        table.alter(SetFilter(None))
        return made

    report = compact(table, prepare(table, "full"), execute, cores=1)
    assert [one.reason for one in report.skipped if "filter" in one.reason]
    assert table.count().rows == len(table.to_arrow()) == 3
    assert not table.state().jobs


def test_a_filter_that_is_set_between_plan_and_opening_is_the_one_that_the_job_applies(memory_lake, tmp_path):
    table = memory_lake.create_table("t", SCHEMA)
    table.write(rows(("a", 1, 1), ("b", 1, 2)))
    table.write(rows(("c", 1, 3)))
    table.alter(SetFilter("n > 2"))
    prepared = prepare(table, "full")
    table.alter(SetFilter("n < 3"))
    compact(table, prepared, lambda tasks: [run_merge_task(one, table.storage, tmp_path) for one in tasks], cores=1)
    table.alter(SetFilter(None))
    assert table.to_arrow()["n"].to_pylist() == [1, 2]


# -- tables that merge rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Latest(), First(), Aggregate({"n": "sum"})], ids=str)
def test_a_job_that_leaves_out_older_files_keeps_hidden_rows(memory_lake, tmp_path, mode):
    """Without them an older row would take their place when the filter is ended."""
    table = memory_lake.create_table("t", SCHEMA, merge=mode)
    for n in (1, 2, 4):
        table.write(rows(("a", 1, n), ("b", 1, n)))
    everything = shown(table)
    table.alter(SetFilter("k <> 'b'"))
    before = shown(table)
    prepared = prepare(table, "full")
    (merge,) = prepared.planned.merges
    newer = replace(merge, inputs=merge.inputs[1:], runs=2, exact=False, complete=False)
    planned = replace(prepared.planned, merges=(newer,))
    execute = lambda tasks: [run_merge_task(one, table.storage, tmp_path) for one in tasks]  # noqa: E731
    compact(table, replace(prepared, planned=planned), execute, cores=1)
    assert shown(table) == before
    table.alter(SetFilter(None))
    assert shown(table) == everything
    table.alter(SetFilter("k <> 'b'"))
    compacted(table, tmp_path, "full")
    assert shown(table) == before
    assert stored(table) == 1


def test_by_sort_key_rows_go_by_their_age_in_any_job(memory_lake, tmp_path):
    table = memory_lake.create_table("t", SCHEMA, merge=Latest(by="sort_key"))
    table.write(rows(("a", 60, 1), ("b", 1, 2)))
    table.write(rows(("a", 50, 3), ("b", 40, 4)))
    table.write(rows(("c", 70, 5), ("d", 2, 6)))
    table.alter(AgeOff("at", days=30), SetFilter("k <> 'd'"))
    before = shown(table)
    compacted(table, tmp_path, "full")
    assert shown(table) == before == [str(row) for row in rows(("b", 1, 2)).to_pylist()]
    assert stored(table) == 2


def test_a_table_that_ages_off_by_the_sort_key_takes_deletes_and_no_partial_rows(memory_lake, tmp_path):
    table = memory_lake.create_table("t", SCHEMA, merge=Latest(by="sort_key"))
    table.alter(AgeOff("at", days=30))
    table.write(rows(("a", 3, 1), ("b", 2, 2)))
    with pytest.raises(UsageError, match="partial rows"):
        table.write(rows(("a", 1, 1)).select(["k", "at"]), partial=True)
    table.delete(where="k = 'a'")
    before = shown(table)
    compacted(table, tmp_path, "full")
    assert shown(table) == before == [str(row) for row in rows(("b", 2, 2)).to_pylist()]


KEYS, AGES = st.sampled_from("abcd"), st.integers(0, 60)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"),
            st.lists(st.tuples(KEYS, AGES, st.integers(0, 3)), min_size=1, unique_by=lambda row: row[0]),
        ),
        st.tuples(st.just("compact"), st.sampled_from(list(Strategy))),
        st.tuples(st.just("split"), st.none()),
        st.tuples(st.just("raise"), st.integers(1, 20)),
        st.tuples(st.just("collect"), st.none()),
    ),
    max_size=8,
)


@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@given(
    mode=st.sampled_from([KeepAll(), Latest(), Latest(by="sort_key"), First(), Aggregate({"n": "sum"})]),
    steps=STEPS,
    predicate=st.sampled_from([None, "k <> 'b'", "k > 'b'", "k = 'a' OR k = 'c'"]),
    age=st.booleans(),
)
def test_no_step_but_a_higher_cut_hides_a_row(tmp_path_factory, mode, steps, predicate, age):
    """Visible rows are those of the same writes that were merged without a filter, less what it hides."""
    tmp_path = tmp_path_factory.mktemp("compaction")
    lake = lakebed.create(f"memory://{clock.random_token()}")
    table, plain = (lake.create_table(name, SCHEMA, merge=mode, settings={"split_rows": 4}) for name in ("t", "plain"))
    may_age = age and mode not in (Latest(), First())
    changes = [SetFilter(predicate)] if predicate else []
    changes += [AgeOff("at", days=30)] if may_age else []
    if changes:
        table.alter(*changes)
    later = 0
    for step, value in steps:
        if step == "write":
            table.write(rows(*value))
            plain.write(rows(*value))
        elif step == "compact":
            compacted(table, tmp_path, str(value))
        elif step == "split":
            split(table)
        elif step == "collect":
            collect_garbage(table)
        elif may_age:
            later += value
            table.commit(ProposeCut(to_us(table.log.now()) + later * 86_400_000_000))
        where = f"({predicate or 'true'})"
        if may_age:
            where += (
                f" AND at >= arrow_cast({-(-table.state().age_off_cut_us // 1_000_000)}, 'Timestamp(Second, None)')"
            )
        expected = plain.scan(where=where).read_all()
        assert shown(table) == sorted(map(str, expected.to_pylist()))


def test_the_history_shows_what_a_filter_did(memory_lake, tmp_path):
    table = memory_lake.create_table("t", SCHEMA)
    table.write(rows(("a", 40, 1)))
    table.alter(AgeOff("at", days=30), SetFilter("n > 0"))
    compacted(table, tmp_path)
    found = table.history(limit=2).to_pylist()
    assert [one["type"] for one in found] == ["drop_expired", "set_filter"]
    assert "n > 0" in found[1]["detail"]
