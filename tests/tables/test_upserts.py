"""Tables that merge by Latest: upserts, partial rows and deletes give what a dictionary gives, in any order."""

import contextlib
import pickle
import threading

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakebed
from lakebed import Aggregate, First, KeepAll, Latest, Schema
from lakebed.clock import random_token
from lakebed.errors import Code, ContentionError, Error, RejectedError, SchemaMismatchError, UsageError
from lakebed.model.settings import Strategy
from lakebed.table import deletion
from lakebed.testing.faults import Meanwhile
from tests.tables.compaction.test_merging import compacted
from tests.tables.retention.cases import Killed, Mortal, on

SCHEMA = Schema({"k": "int64"}, {"at": "int64"}, {"a": "int64", "b": pa.field("b", pa.string(), nullable=False)})
ARROW = pa.schema([("k", pa.int64()), ("at", pa.int64()), ("a", pa.int64()), ("b", pa.string())])


def new_table(mode=None, schema=SCHEMA, **how):
    lake = lakebed.create(f"memory://{random_token()}")
    return lake.create_table("t", schema, merge=mode or Latest(), **how)


def rows(*values, names=ARROW.names):
    return pa.table(
        [
            pa.array(column, ARROW.field(name).type)
            for name, column in zip(names, zip(*values, strict=True), strict=True)
        ],
        names=names,
    )


def held(table):
    return [tuple(row.values()) for row in table.to_arrow().to_pylist()]


# -- against a dictionary -----------------------------------------------------------------------------------------

KEYS = st.integers(0, 5)
ROW = st.tuples(KEYS, st.integers(0, 3), st.none() | st.integers(0, 9), st.sampled_from("xyz"))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(ROW, min_size=1, max_size=6)),
        st.tuples(st.just("partial"), st.lists(ROW, min_size=1, max_size=4)),
        st.tuples(st.just("delete"), st.lists(st.tuples(KEYS, st.integers(0, 3)), min_size=1, max_size=3)),
        st.tuples(st.just("where"), st.integers(0, 9)),
        st.tuples(
            st.just("kinds"), st.lists(st.tuples(st.sampled_from(["c", "d", "-U", "+U"]), ROW), min_size=1, max_size=5)
        ),
        st.tuples(st.just("compact"), st.sampled_from(list(Strategy))),
    ),
    max_size=9,
)


class Reference:
    """What the table must show: for each key the list of changes in order, applied anew for every look."""

    def __init__(self, mode):
        self.by_sort_key = mode.by == "sort_key"
        self.changes = {}

    def change(self, key, at, kind, values=None):
        self.changes.setdefault(key, []).append((at, kind, values))

    def rows(self):
        found = []
        for key, changes in sorted(self.changes.items()):
            ordered = sorted(changes, key=lambda change: change[0]) if self.by_sort_key else changes
            row = None
            for at, kind, values in ordered:
                if kind == "delete":
                    row = None
                elif kind == "whole":
                    row = {"k": key, "at": at, **values}
                else:
                    row = {"k": key, "a": None, "b": None, **(row or {}), "at": at, **values}
            if row is not None:
                found.append((key, row["at"], row["a"], row["b"]))
        return found


@pytest.mark.parametrize("mode", [Latest(), Latest(by="sort_key")], ids=["arrival", "sort_key"])
@settings(
    max_examples=settings.default.max_examples // 2,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(steps=STEPS)
def test_a_table_shows_what_a_dictionary_has(mode, steps):
    table, reference = new_table(mode, split_points=[3]), Reference(mode)
    for what, given_rows in steps:
        match what:
            case "compact":
                compacted(table, given_rows)
            case "write":
                table.write(rows(*given_rows))
                for k, at, a, b in given_rows:
                    reference.change(k, at, "whole", {"a": a, "b": b})
            case "partial" if reference.by_sort_key:
                # Refused, as below.
                pass
            case "partial":
                table.write(rows(*((k, at, b) for k, at, _, b in given_rows), names=["k", "at", "b"]), partial=True)
                for k, at, _, b in given_rows:
                    reference.change(k, at, "partial", {"b": b})
            case "delete":
                keys = [k for k, _ in given_rows]
                named = pa.table({"k": keys, "at": [at for _, at in given_rows]})
                report = table.delete(named if reference.by_sort_key else keys)
                assert report.keys == len(set(keys))
                for k, at in given_rows:
                    reference.change(k, at, "delete")
            case "where":
                going = [row for row in reference.rows() if row[2] == given_rows]
                assert table.delete(where=f"a = {given_rows}").keys == len(going)
                for k, at, *_ in going:
                    reference.change(k, at, "delete")
            case "kinds":
                data = rows(*(row for _, row in given_rows)).append_column("op", [[op for op, _ in given_rows]])
                table.write(data, row_kind="op")
                for op, (k, at, a, b) in given_rows:
                    if op != "-U":
                        reference.change(k, at, "delete" if op == "d" else "whole", {"a": a, "b": b})
        assert held(table) == reference.rows(), what
    for k in range(6):
        assert [tuple(row.values()) for row in table.get(k).to_pylist()] == [r for r in reference.rows() if r[0] == k]


# -- one by one -----------------------------------------------------------------------------------------------------


def test_a_write_has_one_row_a_key_and_counts_its_markers():
    table = new_table()
    table.write(rows((1, 0, 1, "x"), (1, 0, 2, "y"), (2, 0, 3, "z")))
    table.write(rows((1, 0, "w"), (1, 0, "v"), names=["k", "at", "b"]), partial=True)
    table.delete([2])
    files = [held.file for held in table.state().held_by(1)]
    assert [(file.rows, file.markers) for file in files] == [(2, 0), (1, 1), (1, 1)]
    assert held(table) == [(1, 0, 2, "v")]


def test_a_partial_row_of_an_older_schema_leaves_a_field_that_it_did_not_know():
    table = new_table()
    table.write(rows((1, 0, 1, "x")))
    stale = pickle.loads(pickle.dumps(table.schema))
    table.alter(lakebed.AddField("c", "int64"))
    table.write(pa.table({"k": [1], "at": [0], "a": [1], "b": ["x"], "c": [7]}))
    _write_by(table, stale, pa.table({"k": [1], "at": [0], "b": ["y"]}))
    assert table.get(1).to_pylist() == [{"k": 1, "at": 0, "a": 1, "b": "y", "c": 7}]


def _write_by(table, schema, data):
    """A partial write of a process that has not seen the newest schema."""
    from dataclasses import replace

    from lakebed import clock
    from lakebed.model.state.transactions import ProposeFiles
    from lakebed.write.conformer import Conformer
    from lakebed.write.row_encoder import Action, Operation, RowEncoder
    from lakebed.write.run import FileTarget, write_files
    from lakebed.write.source_rows import RowInput, conformed

    encoder = RowEncoder(Conformer(schema), Latest(), Operation(Action.PARTIAL))
    files = write_files(
        conformed(RowInput.of(data.to_reader()), encoder),
        replace(table.layout(), schema=encoder.schema),
        FileTarget(table.storage, table.id, clock.new_id()),
        memory_limit_bytes=2**26,
        cuts=(),
        merge=Latest(),
    )
    table.commit(ProposeFiles(files, base_version=table.version))


def test_new_columns_of_partial_rows_and_of_rows_with_kinds_become_fields():
    table = new_table(settings={"schema_growth": "add"})
    table.write(rows((1, 0, 1, "x")))
    table.write(pa.table({"k": [1], "at": [0], "b": ["y"], "c": [5]}), partial=True)
    table.write(pa.table({"op": ["c"], "k": [2], "at": [0], "b": ["z"], "d": ["D"]}), row_kind="op")
    assert table.to_arrow().to_pylist() == [
        {"k": 1, "at": 0, "a": 1, "b": "y", "c": 5, "d": None},
        {"k": 2, "at": 0, "a": None, "b": "z", "c": None, "d": "D"},
    ]
    assert "op" not in table.schema.names


def test_partial_rows_whose_new_field_was_taken_meanwhile_are_written_again_and_stay_partial():
    table = new_table(settings={"schema_growth": "add"})
    table.write(rows((1, 0, 1, "x"), (2, 0, 2, "y")))
    other = lakebed.open(table.storage.url).table("t")
    altered = []

    def alter():
        altered.append(other.alter(lakebed.AddField("c", "int32")))

    data = pa.table(
        {"op": ["u", "d"], "k": [1, 2], "at": [0, 0], "b": ["z", None], "c": pa.array([5, None], pa.int32())}
    )
    on(table, Meanwhile(table.storage, "create", "*/log/*", alter)).write(data, partial=True, row_kind="op")
    assert altered
    assert table.to_arrow().to_pylist() == [{"k": 1, "at": 0, "a": 1, "b": "z", "c": 5}]


def test_a_repeat_of_a_write_or_a_delete_with_a_commit_id_does_nothing():
    table = new_table()
    first = table.write(rows((1, 0, 1, "x")), commit_id="w")
    partial = table.write(rows((1, 0, "y"), names=["k", "at", "b"]), partial=True, commit_id="p")
    gone = table.delete(where="b = 'y'", commit_id="d")
    table.write(rows((1, 0, 2, "y")))
    assert table.write(rows((1, 0, 1, "x")), commit_id="w") == first
    assert table.write(rows((1, 0, "y"), names=["k", "at", "b"]), partial=True, commit_id="p") == partial
    again = table.delete(where="b = 'y'", commit_id="d")
    assert (again.version, again.keys, again.repeated) == (gone.version, 0, True)
    assert table.delete([1], commit_id="d").repeated
    assert held(table) == [(1, 0, 2, "y")]


def test_a_delete_of_nothing_commits_nothing():
    table = new_table()
    version = table.write(rows((1, 0, 1, "x")))
    assert table.delete([]).version == version
    assert table.delete(where="a > 5") == deletion.DeleteReport("t", version, 0)
    assert table.version == version
    assert table.delete(where="a > 5", commit_id="d").version == version + 1


def test_a_row_that_is_written_while_a_delete_looks_for_its_key_survives():
    table = new_table()
    table.write(rows((1, 0, 1, "x"), (2, 0, 1, "x"), (9, 0, 1, "x")))
    written = []

    def write():
        written.append(table.write(rows((1, 0, 7, "new"))))

    report = on(table, Meanwhile(table.storage, "create", "*/log/*", write)).delete(where="a = 1")
    assert written
    assert (report.keys, held(table)) == (2, [(1, 0, 7, "new")])


def test_a_delete_whose_keys_are_written_again_and_again_gives_up_and_deletes_nothing():
    table = new_table()
    table.write(rows((1, 0, 1, "x")))

    def write():
        table.write(rows((1, 0, 1, "again")))

    with pytest.raises(ContentionError, match="10 times"):
        on(table, Meanwhile(table.storage, "create", "*/log/*", write, again=True)).delete(where="a = 1")
    assert held(table) == [(1, 0, 1, "again")]
    assert len(table.state().files) == 11


def test_writers_and_deleters_at_once_lose_no_row():
    """Each thread of writers gives its keys ascending values; a deleter removes odd ones: the last value of each key is
    even, so every key must be there with it.
    """
    table = new_table()
    errors = []

    def write(key):
        for value in (1, 3, 5, 8):
            table.write(rows((key, 0, value, "x")))

    def delete():
        for _ in range(4):
            try:
                table.delete(where="a % 2 = 1")
            except (RejectedError, ContentionError) as error:
                errors.append(error)

    threads = [threading.Thread(target=write, args=(key,)) for key in range(3)] + [threading.Thread(target=delete)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(k, a) for k, _, a, _ in held(table)] == [(0, 8), (1, 8), (2, 8)]
    assert all(error.code is Code.COMMIT_CONTENDED for error in errors)


def test_a_late_row_below_a_delete_by_sort_key_stays_hidden():
    table = new_table(Latest(by="sort_key"))
    table.write(rows((1, 5, 1, "x")))
    table.delete(pa.table({"k": [1], "at": [5]}))
    table.write(rows((1, 4, 2, "late"), (1, 6, 3, "new")))
    table.write(rows((1, 3, 2, "later")))
    assert held(table) == [(1, 6, 3, "new")]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("change", [1, 2])
@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.write(rows((1, 0, 9, "w"), (3, 0, 3, "n")), commit_id="c"),
        lambda table: table.write(rows((1, 0, "p"), names=["k", "at", "b"]), partial=True, commit_id="c"),
        lambda table: table.delete([1], commit_id="c"),
        lambda table: table.delete(where="a = 1", commit_id="c"),
    ],
    ids=["upsert", "partial", "delete", "where"],
)
def test_a_call_that_was_killed_and_is_repeated_takes_effect_once(call, change, after):
    """Another row of the key is written in between: the repeat must not hide it, if the first was committed."""
    table, alone = new_table(), new_table()
    for one in (table, alone):
        one.write(rows((1, 0, 1, "x"), (2, 0, 2, "y")))
    with contextlib.suppress(Killed):
        call(on(table, Mortal(table.storage, change, after=after)))
    committed = on(table).outcome("c") is not None
    last = rows((1, 0, 7, "last"))
    if committed:
        on(table).write(last)
        call(on(table))
        call(alone)
        alone.write(last)
    else:
        call(on(table))
        call(on(table))
        call(alone)
    assert held(on(table)) == held(alone)
    assert on(table).verify(files=True).sound


# -- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [KeepAll(), First(), Aggregate({"a": "sum", "b": "last"})], ids=str)
@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.delete([1]),
        lambda table: table.delete(where="a = 1"),
        lambda table: table.write(rows((1, 0, "x"), names=["k", "at", "b"]), partial=True),
        lambda table: table.write(rows((1, 0, 1, "x")).append_column("op", [["c"]]), row_kind="op"),
    ],
    ids=["delete", "where", "partial", "row_kind"],
)
def test_a_table_of_another_mode_refuses_with_what_to_do(mode, call):
    table = new_table(mode)
    version = table.write(rows((1, 0, 1, "x")))
    with pytest.raises(UsageError, match="merges by Latest") as caught:
        call(table)
    assert caught.value.code is Code.MERGE_MODE_MISMATCH
    assert table.state().version == version


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda table: table.delete(), "keys or where"),
        (lambda table: table.delete([1], where="a = 1"), "keys or where"),
        (lambda table: table.delete(where="nothing = 1"), "not a predicate"),
        (lambda table: table.delete(where="a + 1"), "not a predicate"),
        (lambda table: table.delete(["x"]), "key field k is int64"),
        (lambda table: table.delete([(1, 2)]), "a key has 1"),
        (lambda table: table.delete([None]), "k"),
        (lambda table: table.delete(pa.table({"x": [1]})), "no column k"),
        (lambda table: table.delete([1], base_version=1), "base_version"),
        (lambda table: table.write(rows((1, 0, 1, "x")), partial="yes"), "partial"),
        (lambda table: table.write(rows((1, 0, 1, "x")), row_kind=""), "row_kind"),
        (lambda table: table.write(rows((1, 0, 1, "x")), row_kind="op"), "one column op"),
    ],
)
def test_a_bad_argument_is_refused_and_changes_nothing(call, said):
    table = new_table()
    version = table.write(rows((1, 0, 1, "x")))
    with pytest.raises(Error, match=said):
        call(table)
    assert table.state().version == version


def test_partial_rows_are_refused_by_a_table_that_merges_by_sort_key():
    """A whole row that arrives late may belong before a partial row that was merged with an older one already."""
    table = new_table(Latest(by="sort_key"))
    version = table.write(rows((1, 1, 1, "x")))
    with pytest.raises(UsageError, match="merged already") as caught:
        table.write(rows((1, 5, "y"), names=["k", "at", "b"]), partial=True)
    assert caught.value.code is Code.MERGE_MODE_MISMATCH
    assert table.state().version == version


def test_row_keys_alone_name_no_delete_by_sort_key():
    table = new_table(Latest(by="sort_key"))
    table.write(rows((1, 0, 1, "x")))
    for keys in ([1], pa.table({"k": [1]}), pa.array([1])):
        with pytest.raises(SchemaMismatchError, match="sort key columns too"):
            table.delete(keys)


def test_an_aggregate_of_a_write_that_does_not_fit_names_its_key_and_writes_nothing():
    schema = Schema({"k": "string"}, values={"n": "int8"})
    table = new_table(Aggregate({"n": "sum"}), schema)
    data = pa.table({"k": ["a", "b", "b"], "n": pa.array([1, 100, 100], pa.int8())})
    with pytest.raises(SchemaMismatchError, match=r"200 for key \{'k': 'b'\}") as caught:
        table.write(data)
    assert caught.value.code is Code.AGGREGATE_TOO_LARGE
    assert table.state().version == 1
    assert not list(table.storage.list(f"tables/{table.id}/data"))


def test_a_new_column_needs_a_function_in_a_table_that_aggregates():
    table = new_table(
        Aggregate({"n": "sum"}), Schema({"k": "string"}, values={"n": "int64"}), settings={"schema_growth": "add"}
    )
    table.write(pa.table({"k": ["a"], "n": [1]}))
    with pytest.raises(RejectedError, match="function for every value field; missing: x"):
        table.write(pa.table({"k": ["a"], "n": [1], "x": [1]}))
    assert table.schema.names == ("k", "n")


def test_rows_of_a_write_that_a_change_of_the_mode_overtook_are_refused():
    table = new_table()
    other = lakebed.open(table.storage.url).table("t")
    changed = []

    def change():
        changed.append(other.alter(lakebed.SetMerge(First())))

    with pytest.raises(RejectedError) as caught:
        on(table, Meanwhile(table.storage, "create", "*/log/*", change)).write(rows((1, 0, 1, "x")))
    assert caught.value.code is Code.MERGE_CHANGED
    # A repeat with the base version of the first attempt was merged by the new mode.
    assert table.write(rows((1, 0, 1, "x")), commit_id="w", base_version=1) == changed[0] + 1
