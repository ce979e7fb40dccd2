"""Rewrites as plans and proposals: files of letters, in partitions that begin at letters."""

import pytest

from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.state.invariants import check_invariants
from lakebed.model.state.transactions import (
    CloseJob,
    ConcatenateRuns,
    OpenJob,
    ProposeFiles,
    ProposeOutput,
    ProposeRemoval,
    ProposeRewrite,
    ProposeSplit,
    Rejected,
    Replace,
    apply,
    resolve,
)
from lakebed.upkeep.rewrite.plan import RewriteScope, plan
from tests.pure.state.cases import drawn, job, key, new_file, step, table


def scope(state, *spans):
    """The keys of these spans, such as ``"ce"``: from c to before e."""
    ranges = tuple(EncodedRange(key(low), key(high)) for low, high in spans) or (ALL_KEYS,)
    return RewriteScope(ranges, None, state.next_sequence)


def shown(state, found):
    """A line for each file: its partitions, its slices, and how many rows it has there."""

    def letter(bound):
        return "" if not bound else state.created.codec.decode_values(bound)["k"]

    return [
        f"{one.file.id} in {' '.join(map(str, one.partitions))}: "
        f"{' '.join(f'{letter(keys.min)}-{letter(keys.max)}' for keys in one.slices)} ({one.rows})"
        for one in found
    ]


def after(state, proposal):
    """The state after a proposal that may need several transactions."""
    resolved = resolve(proposal, state)
    assert not isinstance(resolved, Rejected), resolved
    for change in resolved if isinstance(resolved, tuple) else (resolved,):
        state = apply(state, change, state.version + 1)
    check_invariants(state)
    return state


@pytest.fixture
def state():
    """Partitions 1 3 5 begin at the beginning, at g and at p."""
    return step(table("g", "p"), ProposeFiles((new_file("f1", "abhiqr"), new_file("f2", "cdk"), new_file("f3", "xz"))))


def test_a_file_is_one_unit_over_all_partitions_that_refer_to_it(state):
    first, second, third = state.partitions.ids
    assert shown(state, plan(state, scope(state))) == [
        f"f1 in {first} {second} {third}: - (6)",
        f"f2 in {first} {second}: -p (3)",
        f"f3 in {third}: p- (2)",
    ]


def test_partitions_that_no_range_reaches_keep_the_old_file(state):
    first, second, third = state.partitions.ids
    assert shown(state, plan(state, scope(state, "ab"))) == [f"f1 in {first}: -g (2)"]
    assert shown(state, plan(state, scope(state, "kl"))) == [f"f1 in {second}: g-p (2)", f"f2 in {second}: g-p (1)"]
    assert shown(state, plan(state, scope(state, "ab", "qr"))) == [f"f1 in {first}: -g (2)", f"f1 in {third}: p- (2)"]
    assert shown(state, plan(state, scope(state, "st"))) == []


def test_a_file_that_was_merged_away_between_two_partitions_is_one_unit(state):
    first, second, third = state.partitions.ids
    state = step(state, OpenJob(job("compact-1", "f1", "f2", keys=EncodedRange(key("g"), key("p")))))
    state = step(state, ProposeOutput("compact-1", (new_file("g1", "hik"),)))
    found = shown(state, plan(state, scope(state)))
    assert found[0] == f"f1 in {first} {third}: -g p- (4)"
    assert f"g1 in {second}: g-p (3)" in found


def test_files_that_came_later_are_left_out_and_what_was_merged_with_them_is_not(state):
    began = scope(state)
    state = step(state, ProposeFiles((new_file("f4", "b"), new_file("f5", "b"))))
    assert not any("f4" in line for line in shown(state, plan(state, began)))
    state = step(state, OpenJob(job("compact-1", "f1", "f4", keys=EncodedRange(b"", key("g")))))
    state = step(state, ProposeOutput("compact-1", (new_file("g1", "abb"),)))
    names = [line.split()[0] for line in shown(state, plan(state, began))]
    assert "g1" in names
    assert "f5" not in names


def test_what_is_claimed_is_planned_no_more_even_if_its_partition_was_split(state):
    mine = job("rewrite-1", "f1", keys=EncodedRange(b"", key("p")))
    state = step(state, OpenJob(mine))
    state = step(state, ProposeSplit({state.partitions.ids[0]: (key("c"),)}))
    found = shown(state, plan(state, scope(state), [mine]))
    assert [line.split(":")[0] for line in found if line.startswith("f1")] == [f"f1 in {state.partitions.ids[-1]}"]


# -- opening --------------------------------------------------------------------------------------------------------


def test_a_job_of_one_input_may_be_opened_where_only_some_of_its_rows_count(state):
    """f1 is left at both ends. A job of two inputs could bring rows of one back where only the other is left."""
    state = step(state, OpenJob(job("compact-1", "f1", "f2", keys=EncodedRange(key("g"), key("p")))))
    state = step(state, ProposeOutput("compact-1", (new_file("g1", "hik"),)))
    assert isinstance(resolve(OpenJob(job("rewrite-1", "f1")), state), OpenJob)
    assert isinstance(resolve(OpenJob(job("rewrite-1", "f1", "f2")), state), Rejected)
    gone = resolve(OpenJob(job("rewrite-1", "f1", keys=EncodedRange(key("g"), key("p")))), state)
    assert "f1 of job rewrite-1 is not referenced there" in gone.reason


def test_the_output_goes_where_the_input_is_left(state):
    state = step(state, OpenJob(job("compact-1", "f1", "f2", keys=EncodedRange(key("g"), key("p")))))
    state = step(state, ProposeOutput("compact-1", (new_file("g1", "hik"),)))
    state = step(state, OpenJob(job("rewrite-1", "f1")))
    # The file has rows in the middle, too, as if they were merged away after it was planned.
    state = after(state, ProposeRewrite((ProposeOutput("rewrite-1", (new_file("r1", "ahq"),)),)))
    assert [sorted(line.split()) for line in drawn(state)] == [["f2:~2", "r1:~1"], ["g1:3"], ["f3:2", "r1:~1"]]


# -- the commit -----------------------------------------------------------------------------------------------------


@pytest.fixture
def claimed(state):
    for place, name in enumerate(("f1", "f2", "f3"), 1):
        state = step(state, OpenJob(job(f"rewrite-{place}", name)))
    return state


OUTPUTS = (
    ProposeOutput("rewrite-1", (new_file("r1", "ahq"),)),
    ProposeOutput("rewrite-2", ()),
    ProposeOutput("rewrite-3", (new_file("r3", "x"),)),
)


def test_all_files_are_replaced_together_and_each_keeps_its_sequence_and_its_run(claimed):
    sequences = {name: known.sequence_lo for name, known in claimed.files.items()}
    runs = {held.file.id: held.run for every in claimed.references.values() for held in every}
    resolved = resolve(ProposeRewrite(OUTPUTS), claimed)
    assert [type(change) for change in resolved] == [Replace] * 3
    state = after(claimed, ProposeRewrite(OUTPUTS))
    assert sorted(state.referenced()) == ["r1", "r3"]
    assert not state.jobs
    for old, new in (("f1", "r1"), ("f3", "r3")):
        assert (state.files[new].sequence_lo, state.files[new].sequence_hi) == (sequences[old], sequences[old])
        assert {held.run for every in state.references.values() for held in every if held.file.id == new} == {runs[old]}


def test_files_of_a_run_stay_a_run(claimed):
    """f1 and f3 were chained into one run of the last partition while they were rewritten."""
    last = claimed.partitions.ids[-1]
    claimed = after(claimed, CloseJob("rewrite-2", ""))
    claimed = after(claimed, ConcatenateRuns(last, ("f1", "f3"), "chain-01"))
    state = after(claimed, ProposeRewrite((OUTPUTS[0], OUTPUTS[2])))
    assert {held.run for held in state.held_by(last)} == {"chain-01"}


def test_nothing_is_replaced_if_one_job_was_closed(claimed):
    claimed = step(claimed, CloseJob("rewrite-3", "it took too long"))
    refused = resolve(ProposeRewrite(OUTPUTS), claimed)
    assert isinstance(refused, Rejected)
    assert "rewrite-3 is not open" in refused.reason


def test_a_file_that_was_removed_meanwhile_stays_removed(claimed):
    claimed = step(claimed, ProposeRemoval((EncodedRange(key("p"), None),)))
    state = after(claimed, ProposeRewrite(OUTPUTS))
    assert drawn(state)[-1] == ""
    assert not state.jobs
    assert "x" not in "".join(drawn(state))


def test_behind_a_fence_nothing_is_replaced(claimed):
    claimed = step(claimed, ProposeRemoval((EncodedRange(key("p"), None),), fence=True))
    refused = resolve(ProposeRewrite(OUTPUTS), claimed)
    assert isinstance(refused, Rejected)
    assert "removed a range for good" in refused.reason
