"""Merge modes in the state: when they may change, and the order of arrival that merges rest on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lakebed.errors import Code, UsageError
from lakebed.model.keys import ALL_KEYS
from lakebed.model.merge_modes import Aggregate, Custom, First, KeepAll, Latest, check_mode, mode_of
from lakebed.model.state import codec
from lakebed.model.state.table_state import TableState
from lakebed.model.state.transactions import (
    CreateTable,
    OpenJob,
    ProposeFiles,
    ProposeJoin,
    ProposeOutput,
    ProposeRemoval,
    ProposeRestore,
    ProposeSchema,
    ProposeSplit,
    Rejected,
    SetMerge,
    apply,
    resolve,
)
from lakebed.model.state.transactions.schema_changes import AddField, DropField, RenameField, WidenField
from tests.pure.state.cases import SCHEMA, drawn, job, key, new_file, step, through_an_image

MODES = [KeepAll(), Latest(), First(), Aggregate({"v": "sum"}), Custom("f", 2), Custom(sql="SELECT k, v FROM rows")]


def merging(mode=None, *boundaries):
    """An empty table with a merge mode, cut at these letters."""
    return step(TableState(), CreateTable("table-00", SCHEMA, {}, tuple(map(key, boundaries)), mode or Latest()))


def add(state, *files):
    return step(state, ProposeFiles(tuple(new_file(*one) for one in files), base_version=state.version))


def refused(state, proposal, code):
    found = resolve(proposal, state)
    assert isinstance(found, Rejected), found
    assert found.code is code
    return found.reason


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_is_stored_with_its_table_and_read_back(mode):
    state = merging(mode)
    assert state.merge == mode
    assert through_an_image(state).merge == mode
    assert mode_of(json.loads(json.dumps(mode.document()))) == mode


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_of_a_table_without_rows_can_be_changed(mode):
    before = merging(Latest(by="arrival") if mode != Latest() else First())
    after = step(before, SetMerge(mode))
    assert (after.merge, after.merge_version) == (mode, 2)
    assert through_an_image(after) == after
    encoded = codec.encode_transaction(SetMerge(mode))
    assert codec.decode_transaction(encoded.document, encoded.sidecars) == SetMerge(mode)


def test_a_mode_of_a_table_with_rows_is_refused_with_what_to_do():
    state = add(merging(), ("a", "abc"))
    reason = refused(state, SetMerge(KeepAll()), Code.MERGE_CHANGE_REJECTED)
    assert "1 file" in reason
    assert "import the rows" in reason
    emptied = step(state, ProposeRemoval((ALL_KEYS,)))
    assert step(emptied, SetMerge(KeepAll())).merge == KeepAll()


def test_a_mode_that_does_not_fit_the_newest_schema_is_refused():
    refused(merging(), SetMerge(Latest(by="sort_key")), Code.MERGE_CHANGE_REJECTED)
    refused(merging(), SetMerge(Aggregate({"w": "sum"})), Code.MERGE_CHANGE_REJECTED)
    refused(merging(), SetMerge(Aggregate({"v": "join"})), Code.MERGE_CHANGE_REJECTED)


def test_a_write_from_before_a_change_of_the_mode_is_refused():
    state = step(merging(), SetMerge(First()))
    refused(state, ProposeFiles((new_file("a", "abc"),), base_version=1), Code.MERGE_CHANGED)
    assert drawn(add(state, ("a", "abc"))) == ["a:3"]


def test_a_version_of_another_mode_is_not_restored():
    state = add(merging(), ("a", "abc"))
    later = step(step(state, ProposeRemoval((ALL_KEYS,))), SetMerge(First()))
    refused(later, ProposeRestore(state), Code.MERGE_CHANGE_REJECTED)


def test_aggregate_functions_follow_their_fields():
    state = merging(Aggregate({"v": "sum"}))
    state = step(state, ProposeSchema((RenameField("v", "w"),)))
    assert state.merge == Aggregate({"w": "sum"})
    state = step(state, ProposeSchema((AddField("v", "string", "max"), WidenField("w", "int64"))[:1]))
    assert state.merge == Aggregate({"w": "sum", "v": "max"})
    state = step(state, ProposeSchema((DropField("w"),)))
    assert state.merge == Aggregate({"v": "max"})
    assert through_an_image(state) == state


def test_a_field_without_a_function_is_refused_by_a_table_that_aggregates():
    reason = refused(
        merging(Aggregate({"v": "sum"})), ProposeSchema((AddField("w", "int64"),)), Code.MERGE_CHANGE_REJECTED
    )
    assert "w" in reason


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (Aggregate({}), "missing: v"),
        (Aggregate({"k": "sum", "v": "sum"}), "key field"),
        (Aggregate({"v": "sum", "x": "sum"}), "no value field 'x'"),
        (Aggregate((("v", "sum"), ("v", "max"))), "twice"),
        (Aggregate({"v": "any"}), "any takes bool"),
        ("latest", "not a merge mode"),
    ],
)
def test_a_mode_that_cannot_be_is_refused(mode, said):
    with pytest.raises(UsageError, match=said):
        check_mode(mode, SCHEMA)


@pytest.mark.parametrize("make", [lambda: Aggregate({"v": "median"}), lambda: Aggregate(["v"]), lambda: Latest(by="v")])
def test_a_mode_is_checked_when_it_is_made(make):
    with pytest.raises(UsageError) as raised:
        make()
    assert raised.value.code is Code.MERGE_MODE_INVALID


# -- jobs -------------------------------------------------------------------------------------------------------


def test_the_output_of_a_job_stands_where_its_inputs_stood():
    state = add(merging(), ("a", "af"), ("b", "bg"), ("c", "ch"), ("d", "di"))
    state = step(state, OpenJob(job("j", "b", "c")))
    state = add(state, ("e", "ej"))
    state = step(state, ProposeOutput("j", (new_file("o", "bcgh"),)))
    assert drawn(state) == ["a:2 o:4 d:2 e:2"]
    assert through_an_image(state) == state


def test_a_job_over_files_that_are_not_neighbours_is_refused():
    state = add(merging(), ("a", "af"), ("b", "bg"), ("c", "ch"))
    assert "neighbours" in refused(state, OpenJob(job("j", "a", "c")), Code.PROPOSAL_OUTDATED)
    kept = add(step(TableState(), CreateTable("table-00", SCHEMA, {}, ())), ("a", "af"), ("b", "bg"), ("c", "ch"))
    assert step(kept, OpenJob(job("j", "a", "c"))).jobs


def test_a_complete_job_has_the_oldest_files():
    state = add(merging(), ("a", "af"), ("b", "bg"), ("c", "ch"))
    late = job("j", "b", "c")
    assert "older" in refused(state, OpenJob(complete(late)), Code.PROPOSAL_OUTDATED)
    opened = step(state, OpenJob(complete(job("j", "a", "b"))))
    assert opened.jobs["j"].complete
    assert through_an_image(opened) == opened


def test_the_inputs_of_a_job_are_in_order_of_arrival():
    state = add(merging(), ("a", "af"), ("b", "bg"))
    assert "order of arrival" in refused(state, OpenJob(job("j", "b", "a")), Code.PROPOSAL_INVALID)


def test_a_job_over_partitions_has_no_other_file_between_its_inputs_in_any_of_them():
    # The output would stand before b in the first partition, and after it in the second.
    state = add(merging(Latest(), "e"), ("a", "a"), ("b", "af"), ("c", "f"))
    assert "neighbours" in refused(state, OpenJob(job("j", "a", "c")), Code.PROPOSAL_OUTDATED)


def test_a_job_over_partitions_has_no_other_file_of_one_partition_between_its_inputs():
    # The output would have the sequence of c, and a join would put it behind b, over the newer row of key a.
    state = add(merging(Latest(), "e"), ("a", "a"), ("b", "a"), ("c", "f"))
    assert "neighbours" in refused(state, OpenJob(job("j", "a", "c")), Code.PROPOSAL_OUTDATED)
    assert step(state, OpenJob(job("j", "b", "c"))).jobs


def test_a_job_over_one_file_of_several_partitions_may_have_others_beside_it():
    state = add(merging(Latest(), "e"), ("a", "af"), ("b", "a"), ("c", "af"))
    opened = step(state, OpenJob(job("j", "a")))
    assert drawn(step(opened, ProposeOutput("j", (new_file("o", "af"),)))) == ["o:~1 b:1 c:~1", "o:~1 c:~1"]


def test_a_join_keeps_the_order_of_outputs_with_the_same_sequence():
    """Files with an early and a late sequence, whose order only the lists of the partitions tell."""
    state = add(merging(Latest(), "e"), ("one", "a"), ("two", "f"), ("three", "a"))
    state = step(state, OpenJob(job("i", "one", "three", keys=range_of(state, 0))))
    state = step(state, ProposeOutput("i", (new_file("long", "a"),)))
    state = add(step(state, ProposeJoin((1, 2))), ("both", "af"))
    state = step(state, OpenJob(job("j", "long", "both")))
    state = step(state, ProposeOutput("j", (new_file("low", "a"), new_file("high", "f"))))
    assert drawn(state) == ["two:1 low:1 high:1"]
    state = step(state, OpenJob(job("k", "two", "low")))
    state = step(state, ProposeOutput("k", (new_file("merged", "af"),)))
    # The row f of the file two is older than that of the file high, and both files have sequence 4.
    assert drawn(state) == ["merged:2 high:1"]
    split = step(state, ProposeSplit({3: (key("b"),)}))
    assert drawn(split) == ["merged:~1", "merged:~1 high:1"]
    assert drawn(step(split, ProposeJoin((4, 5)))) == ["merged:2 high:1"]


def range_of(state, position):
    return state.partitions.range_at(position)


def complete(one):
    return replace(one, complete=True)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.text("abcdefghijkl", min_size=1, max_size=5)),
        st.tuples(st.just("open"), st.integers(0, 5), st.integers(1, 4)),
        st.tuples(st.just("commit"), st.integers(0, 3)),
        st.tuples(st.just("split"), st.sampled_from("cfi")),
        st.tuples(st.just("join"), st.integers(0, 3)),
    ),
    max_size=30,
)


@given(STEPS)
def test_files_stay_in_the_order_of_their_greatest_sequence(steps):
    state = merging(Latest(), "e")
    letters = {}
    for number, (what, *facts) in enumerate(steps):
        state = _after(state, what, facts, f"f{number:02d}", letters)
        for partition in state.partitions.ids:
            spans = [
                (state.files[held.file.id].sequence_lo, state.files[held.file.id].sequence_hi)
                for held in state.held_by(partition)
            ]
            assert [hi for _, hi in spans] == sorted(hi for _, hi in spans)


def _after(state, what, facts, name, letters):
    match what:
        case "add":
            letters[name] = facts[0]
            return add(state, (name, facts[0]))
        case "open":
            partition = state.partitions.ids[facts[0] % len(state.partitions.ids)]
            held = [one.file.id for one in state.held_by(partition)][facts[0] : facts[0] + facts[1]]
            keys = state.partitions.range_at(state.partitions.position_of(partition))
            proposal = OpenJob(job(name, *held, keys=keys))
        case "commit":
            if not state.jobs:
                return state
            chosen = sorted(state.jobs)[facts[0] % len(state.jobs)]
            letters[name] = "".join(letters[one] for one in state.jobs[chosen].inputs)
            proposal = ProposeOutput(chosen, (new_file(name, letters[name]),))
        case "split":
            partition = state.partitions.ids[state.partitions.position(key(facts[0]))]
            proposal = ProposeSplit({partition: (key(facts[0]),)})
        case _:
            proposal = ProposeJoin(state.partitions.ids[facts[0] : facts[0] + 2])
    resolved = resolve(proposal, state)
    return state if isinstance(resolved, Rejected) else apply(state, resolved, state.version + 1)
