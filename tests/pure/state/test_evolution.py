"""How schemas follow one another: what may change, why the rest is refused, and that ids mean one field for ever."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import AddField, AllowNulls, DropField, Field, RenameField, Schema, WidenField
from lakebed.errors import DamagedError, UsageError
from lakebed.model import types
from lakebed.model.state import codec
from lakebed.model.state.table_state import TableState
from lakebed.model.state.transactions import (
    AlterSchema,
    CreateTable,
    OpenJob,
    ProposeFiles,
    ProposeOutput,
    ProposeSchema,
    Rejected,
    apply,
    resolve,
)
from lakebed.model.state.transactions.schema_changes import append_schema, check_changes, describe
from tests.pure.state.cases import job, new_file, step, through_an_image

SCHEMA = Schema({"k": "string"}, {"s": "int32"}, {"n": pa.field("n", pa.int8(), nullable=False), "v": "string"})
"""Ids 1 to 4."""


def table(schema=SCHEMA):
    return step(TableState(), CreateTable("table-00", schema, {}, ()))


def drawn(schema):
    """``id name type`` of each field, a question mark where it may be null."""
    return ", ".join(f"{f.id} {f.name} {f.type}{'?' * f.nullable}" for f in schema.fields)


def altered(state, *changes):
    return step(state, ProposeSchema(changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([AddField("w", "int64")], "1 k string, 2 s int32, 3 n int8, 4 v string?, 5 w int64?"),
        ([DropField("n")], "1 k string, 2 s int32, 4 v string?"),
        ([DropField("n"), DropField("v")], "1 k string, 2 s int32"),
        ([RenameField("k", "key"), RenameField("v", "k")], "1 key string, 2 s int32, 3 n int8, 4 k string?"),
        ([WidenField("n", "int32")], "1 k string, 2 s int32, 3 n int32, 4 v string?"),
        ([AllowNulls("n")], "1 k string, 2 s int32, 3 n int8?, 4 v string?"),
        ([DropField("v"), AddField("v", "string")], "1 k string, 2 s int32, 3 n int8, 5 v string?"),
        ([RenameField("n", "x"), WidenField("x", "int16"), RenameField("x", "y")],
         "1 k string, 2 s int32, 3 y int16, 4 v string?"),
    ],
)  # fmt: skip
def test_changes_are_made_in_order_and_make_the_next_version(changes, expected):
    state = altered(table(), *changes)
    assert drawn(state.created) == expected
    assert [schema.version for schema in state.schemas] == [1, 2]
    assert state.schemas[0] == SCHEMA
    assert through_an_image(state) == state


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ([AddField("v", "string")], "there is a field 'v' already"),
        ([AddField("k", "string")], "there is a field 'k' already"),
        ([DropField("x")], "there is no field 'x'; the fields are: k, s, n, v"),
        ([DropField("k")], "k is a key field"),
        ([DropField("s")], "s is a key field"),
        ([WidenField("s", "int64")], "s is a key field"),
        ([AllowNulls("k")], "k is a key field"),
        ([RenameField("n", "v")], "there is a field 'v' already"),
        ([RenameField("x", "y")], "there is no field 'x'"),
        ([WidenField("n", "int8")], "n is int8 and cannot become int8, only int16, int32, int64"),
        ([WidenField("n", "string")], "cannot become string"),
        ([WidenField("n", "double")], "cannot become double"),
        ([WidenField("n", "uint16")], "cannot become uint16"),
        ([AddField("d", "decimal(10, 2)"), WidenField("d", "decimal(9, 2)")], "only decimals of 11 digits or more"),
        ([AddField("d", "decimal(10, 2)"), WidenField("d", "decimal(12, 3)")], "cannot become decimal128(12, 3)"),
        ([AddField("d", "decimal(10, 2)"), WidenField("d", "decimal256(40, 2)")], "cannot become decimal256"),
        ([AddField("d", "decimal(38, 2)"), WidenField("d", "decimal(38, 2)")], "cannot be widened"),
        ([WidenField("v", "binary")], "v is string and cannot become binary; string cannot be widened"),
        ([AllowNulls("v")], "v may be null already"),
        ([RenameField("v", "x"), RenameField("x", "v")], "leave the schema as it is"),
        ([AddField("w", "int8"), DropField("w")], "leave the schema as it is"),
        ([AddField("w", "int8"), DropField("n"), DropField("n")], "there is no field 'n'"),
    ],
)  # fmt: skip
def test_a_change_that_cannot_be_made_is_refused_with_its_reason_and_none_is_made(changes, reason):
    refused = resolve(ProposeSchema(tuple(changes)), table())
    assert isinstance(refused, Rejected)
    assert reason in refused.reason


def test_what_widens_into_what_is_one_table():
    names = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "halffloat", "float", "double"]
    pairs = {(a, b) for a in names for b in names if types.can_become(types.parse(a), types.parse(b))}
    ladders = [["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"], ["float", "double"]]
    assert pairs == {(a, b) for ladder in ladders for i, a in enumerate(ladder) for b in ladder[i + 1 :]}


def test_of_two_alters_at_once_each_is_judged_by_what_the_other_left():
    """Proposed against the same state; the second is resolved again after its lost race."""
    base = table()
    rename, widen, drop = (
        ProposeSchema((c,)) for c in (RenameField("n", "m"), WidenField("n", "int16"), DropField("v"))
    )
    assert isinstance(resolve(widen, base), AlterSchema)
    first = step(base, rename)
    assert "no field 'n'" in resolve(widen, first).reason
    assert drawn(step(first, drop).created) == "1 k string, 2 s int32, 3 m int8"


def test_an_alter_is_written_down_with_the_schema_and_the_words():
    resolved = resolve(ProposeSchema((AddField("w", "float32"), RenameField("k", "key"))), table())
    stored = codec.encode_transaction(resolved).document
    document = json.loads(stored)
    assert document["type"] == "alter_schema"
    assert document["changes"] == ["add w: float", "rename k to key"]
    assert document["schema"]["version"] == 2
    assert document["schema"]["values"][2] == {"id": 5, "name": "w", "type": "float", "nullable": True}
    assert codec.decode_transaction(stored) == resolved


def test_an_id_is_not_given_out_again():
    state = altered(table(), DropField("v"))
    state = altered(state, AddField("v", "string"))
    assert state.created.by_name["v"].id == 5


def of_version(name, version, letters="abc"):
    """A file of letters written with that version of the schema."""
    return new_file(name, letters, version=version)


def test_files_of_every_version_that_the_table_had_are_taken_and_no_others():
    state = altered(altered(table(), DropField("v")), AddField("w", "int8"))
    for version in (1, 2, 3):
        state = step(state, ProposeFiles((of_version(f"file-{version}", version),)))
    for version in (0, 4):
        refused = resolve(ProposeFiles((of_version("other", version),)), state)
        assert f"schema version {version}; the table has versions 1 to 3" in refused.reason
    with pytest.raises(DamagedError, match="schema version 4"):
        apply(state, resolve(ProposeFiles((of_version("late", 4),)), altered(state, DropField("w"))), state.version + 1)


def test_an_output_that_would_lose_a_field_of_its_inputs_is_refused():
    """Made with an older schema than an input; the same with the newest, or with one that both have, is taken."""
    state = step(table(), ProposeFiles((of_version("f1", 1),)))
    state = altered(state, AddField("w", "int8"))
    state = step(state, ProposeFiles((of_version("f2", 2),)))
    state = altered(state, AddField("x", "int8"))
    state = step(state, OpenJob(job("job-0001", "f1", "f2")))
    assert (
        "has not all fields of its input f2" in resolve(ProposeOutput("job-0001", (of_version("o", 1),)), state).reason
    )
    for version in (2, 3):
        step(state, ProposeOutput("job-0001", (of_version("o", version, "aabbcc"),)))


@pytest.mark.parametrize(
    ("fields", "version", "reason"),
    [
        ((), 3, "version 3 follows version 1"),
        ((), 1, "version 1 follows version 1"),
        ((Field(9, "w", pa.int8()),), 2, "cannot be read as field w"),
        ((Field(3, "n", pa.string()),), 2, "cannot be read as field n"),
        ((Field(4, "v", pa.string(), nullable=False),), 2, "cannot be read as field v"),
    ],
)
def test_a_schema_by_which_older_files_cannot_be_read_is_damage(fields, version, reason):
    schema = Schema(SCHEMA.row_key, SCHEMA.sort_key, fields, version=version)
    with pytest.raises(DamagedError, match=reason):
        append_schema((SCHEMA,), schema)


def test_other_keys_and_a_field_that_comes_back_are_damage():
    for keys in (({"k": "int64"}, {"s": "int32"}), ({"k": "string", "s": "int32"},), ({"k": "string"},)):
        with pytest.raises(DamagedError, match="other keys"):
            append_schema((SCHEMA,), Schema(*keys, version=2))
    without = Schema(SCHEMA.row_key, SCHEMA.sort_key, SCHEMA.values[:1], version=2)
    back = Schema(SCHEMA.row_key, SCHEMA.sort_key, SCHEMA.values, version=3)
    with pytest.raises(DamagedError, match="cannot be read as field v"):
        append_schema((SCHEMA, without), back)


NAMES = st.sampled_from("ksnvwxyz")
TYPES = st.sampled_from(["int8", "int32", "int64", "uint8", "uint64", "float32", "float64", "string"])
CHANGES = st.one_of(
    st.builds(AddField, NAMES, TYPES),
    st.builds(DropField, NAMES),
    st.builds(RenameField, NAMES, NAMES),
    st.builds(WidenField, NAMES, TYPES),
    st.builds(AllowNulls, NAMES),
)


@given(st.lists(st.lists(CHANGES, min_size=1, max_size=3), max_size=12))
def test_whatever_is_taken_can_be_applied_and_read_back_and_no_id_changes_its_meaning(alters):
    state = table()
    seen = {field.id: field for field in SCHEMA.fields}
    for changes in alters:
        resolved = resolve(ProposeSchema(tuple(changes)), state)
        if isinstance(resolved, Rejected):
            continue
        assert codec.decode_transaction(codec.encode_transaction(resolved).document) == resolved
        state = apply(state, resolved, state.version + 1)
        for field in state.created.fields:
            before = seen.get(field.id)
            if before is None:
                assert field.id > max(seen)
                assert field.nullable
            else:
                assert before.id in {earlier.id for earlier in state.schemas[-2].fields}
                assert field.type == before.type or types.can_become(before.type, field.type)
        seen |= {field.id: field for field in state.created.fields}
    assert through_an_image(state) == state


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AddField("", "int8"), "not a name"),
        (lambda: AddField(7, "int8"), "not a name"),
        (lambda: AddField("a", "integer"), "not a type"),
        (lambda: AddField("a", pa.month_day_nano_interval()), "cannot be month_day_nano_interval"),
        (lambda: RenameField("a", ""), "not a name"),
        (lambda: WidenField("a", "much"), "not a type"),
        (lambda: check_changes([]), "alter takes"),
        (lambda: check_changes(["drop a"]), "not 'drop a'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_changes_in_words():
    changes = [AddField("a", "int8"), DropField("b"), RenameField("c", "d"), WidenField("e", "int64"), AllowNulls("f")]
    assert [describe(change) for change in changes] == [
        "add a: int8", "drop b", "rename c to d", "widen e to int64", "allow nulls in f",
    ]  # fmt: skip
