"""Files that bring fields along: resolved against whatever the schema has become, added in one entry or not at all."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lakebed import AddField, DropField, RenameField, WidenField
from lakebed.errors import Code, UsageError
from lakebed.model.schema import FIELD_ID_MAX, FIRST_CHOSEN_ID
from lakebed.model.state.codec import decode_transaction, encode_transaction
from lakebed.model.state.invariants import check_invariants
from lakebed.model.state.transactions import AddFiles, AlterSchema, ProposeFiles, ProposeSchema, apply, resolve
from lakebed.model.state.transactions.schema_growth import new_field, new_id
from tests.pure.state.cases import new_file, step, table, through_an_image


def brought(state, name, *columns, letters="abc"):
    """A file written for the newest schema of the state, with these columns, ``name: type``, added."""
    used = {field.id for schema in state.schemas for field in schema.fields}
    added = []
    for column in columns:
        label, kind = column.split(": ")
        added.append(new_field(label, kind, used))
        used.add(added[-1].id)
    version = state.created.version + bool(added)
    return replace(new_file(name, letters, version=version), added=tuple(added))


def committed(state, *files):
    """The state after one entry, and the transactions in it."""
    resolved = resolve(ProposeFiles(files), state)
    changes = resolved if isinstance(resolved, tuple) else (resolved,)
    for change in changes:
        state = apply(state, decode_transaction(encode_transaction(change).document), state.version + 1)
        state = replace(state, version=state.version - 1)
    state = replace(state, version=state.version + 1)
    check_invariants(state)
    assert through_an_image(state) == state
    return state, changes


def shown(state):
    return [f"{field.name}: {field.type}" for field in state.created.values]


def refused(state, *files):
    found = resolve(ProposeFiles(files), state)
    assert found.code is Code.SCHEMA_CHANGED
    return found.reason


def test_new_fields_and_the_files_that_have_them_are_one_pair_of_transactions():
    state, changes = committed(table(), brought(table(), "f1", "x: int64", "y: string"))
    alter, add = changes
    assert isinstance(alter, AlterSchema)
    assert isinstance(add, AddFiles)
    assert alter.changes == ("add x: int64", "add y: string")
    assert shown(state) == ["v: int64", "x: int64", "y: string"]
    assert all(field.nullable for field in state.created.values[1:])
    assert [file.schema_version for file in add.files] == [2]


def test_the_second_of_two_writers_takes_the_field_of_the_first():
    """Both wrote files for the first schema: the id is the same, whatever else they add."""
    state, _ = committed(table(), brought(table(), "f1", "x: int64", "y: string"))
    state, changes = committed(state, brought(table(), "f2", "x: int64"))
    assert [type(change) for change in changes] == [AddFiles]
    state, (alter, _) = committed(state, brought(table(), "f3", "z: bool", "y: string"))
    assert alter.changes == ("add z: bool",)
    assert shown(state) == ["v: int64", "x: int64", "y: string", "z: bool"]
    assert [file.schema_version for file in state.files_of(1)] == [2, 2, 3]
    assert len({field.id for field in state.created.fields}) == 5


def test_files_of_one_proposal_may_bring_different_fields():
    state, _ = committed(table(), brought(table(), "f1", "x: int64"), brought(table(), "f2", "y: string"))
    assert shown(state) == ["v: int64", "x: int64", "y: string"]
    assert "x is string; the table has int64 by now" in refused(
        table(), brought(table(), "f1", "x: int64"), brought(table(), "f2", "x: string")
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ((AddField("x", "int64"),), "column x was new when its rows were written, and is another field now"),
        ((RenameField("v", "x"),), "column x was new when its rows were written, and is another field now"),
        ((RenameField("v", "w"),), "column v is w: int64 by now"),
        ((RenameField("k", "x"),), "column x was new"),
    ],
)
def test_files_that_the_newest_schema_would_misread_are_refused(changes, reason):
    state = step(table(), ProposeSchema(changes))
    assert reason in refused(state, brought(table(), "f1", "x: int64"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ((WidenField("x", "int64"),), "column x is int32; the table has int64 by now"),
        ((RenameField("x", "y"),), "was given to another field, or dropped"),
        ((DropField("x"),), "was given to another field, or dropped"),
        ((DropField("x"), AddField("x", "int32")), "is another field now"),
    ],
)
def test_a_field_that_another_writer_added_and_that_was_changed_since_is_refused(changes, reason):
    state, _ = committed(table(), brought(table(), "f1", "x: int32"))
    state = step(state, ProposeSchema(changes))
    assert reason in refused(state, brought(table(), "f2", "x: int32"))


def test_changes_that_leave_the_files_readable_do_not_matter():
    """A field that the file lacks, and one that is not read any more."""
    state = step(table(), ProposeSchema((AddField("w", "int8"), DropField("v"))))
    state, _ = committed(state, brought(table(), "f1", "x: int64"))
    assert shown(state) == ["w: int8", "x: int64"]


def test_a_name_that_was_dropped_is_another_field_when_it_comes_back():
    state, _ = committed(table(), brought(table(), "f1", "x: int32"))
    first = state.created.by_name["x"].id
    state = step(state, ProposeSchema((DropField("x"),)))
    state, _ = committed(state, brought(state, "f2", "x: string"))
    assert state.created.by_name["x"].id != first


def test_ids_of_altered_fields_go_on_below_those_that_writers_chose():
    state, _ = committed(table(), brought(table(), "f1", "x: int32"))
    assert step(state, ProposeSchema((AddField("y", "int8"),))).created.by_name["y"].id == 3


def test_a_file_for_a_schema_that_the_table_never_had_is_refused():
    file = brought(table(), "f1", "x: int32")
    file = replace(file, file=replace(file.file, schema_version=3))
    assert "the table has versions 1 to 1" in resolve(ProposeFiles((file,)), table()).reason


def test_fields_that_no_table_may_have_are_refused_by_name():
    with pytest.raises(UsageError, match="column x cannot be month_day_nano_interval"):
        new_field("x", pa.month_day_nano_interval(), ())
    with pytest.raises(UsageError, match="leave out control characters"):
        new_field("x\n", pa.int8(), ())


@given(st.lists(st.text(min_size=1), unique=True, max_size=50))
def test_ids_are_those_of_the_names_and_never_used_twice(names):
    used = {1, 2}
    for name in names:
        alone, found = new_id(name, {1, 2}), new_id(name, used)
        assert FIRST_CHOSEN_ID <= found < FIELD_ID_MAX - 200
        assert found not in used
        assert found == alone or alone in used
        used.add(found)
    if names:
        assert new_id(names[0], {new_id(names[0], ())}) != new_id(names[0], ())


CHANGES = [
    AddField("x", "int64"), AddField("y", "string"), DropField("x"), DropField("y"), DropField("v"),
    RenameField("x", "y"), RenameField("v", "x"), RenameField("y", "v"), WidenField("x", "int64"),
]  # fmt: skip
COLUMNS = st.lists(st.sampled_from(["x: int32", "x: int64", "y: string", "z: bool"]), unique_by=lambda one: one[0])
STEPS = st.lists(st.sampled_from(CHANGES) | st.tuples(st.integers(0, 5), COLUMNS), max_size=12)


@given(STEPS)
def test_whatever_happens_meanwhile_every_column_is_read_as_what_it_was_written_as(steps):
    """Writers that looked some versions ago, among others that alter the schema."""
    states, written = [table()], {}
    for number, one in enumerate(steps):
        newest = states[-1]
        if not isinstance(one, tuple):
            resolved = resolve(ProposeSchema((one,)), newest)
            if isinstance(resolved, AlterSchema):
                states.append(apply(newest, resolved, newest.version + 1))
            continue
        ago, columns = one
        base = states[max(0, len(states) - 1 - ago)]
        new = [column for column in columns if column[0] not in base.created.by_name]
        file = brought(base, f"f{number}", *new)
        columns_of = {field.id: (field.name, field.type) for field in (*base.created.fields, *file.added)}
        if new and isinstance(resolve(ProposeFiles((file,)), newest), tuple | AddFiles):
            state, _ = committed(newest, file)
            (name,) = {held.id for held in state.files_of(1)} - set(written)
            written[name] = columns_of
            for field in file.added:
                assert state.created.by_name[field.name] == field
            states.append(state)
    for held in states[-1].files_of(1):
        columns = written[held.id]
        schema = states[-1].schemas[held.schema_version - 1]
        assert all(
            columns.get(field.id, (field.name, field.type)) == (field.name, field.type) for field in schema.fields
        )
    for state in states:
        ids = {field.id: field.name for schema in state.schemas for field in schema.fields}
        assert len(state.created.fields) == len({field.id for field in state.created.fields}) <= len(ids)
