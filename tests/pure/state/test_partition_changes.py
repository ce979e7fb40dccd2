"""What changes the partitions, as drawings: splits and joins move references, removals drop them, a line a
partition."""

import pytest

from lakebed.errors import Code, DamagedError
from lakebed.model.files import Reference
from lakebed.model.keys import EncodedRange
from lakebed.model.partitions import Partitions
from lakebed.model.state.invariants import check_invariants
from lakebed.model.state.sums import table_rows
from lakebed.model.state.transactions import (
    CloseJob,
    JoinPartitions,
    OpenJob,
    ProposeFiles,
    ProposeJoin,
    ProposeOutput,
    ProposeRemoval,
    ProposeSplit,
    PurgeFiles,
    RaiseWatermark,
    Rejected,
    RemoveRange,
    Repeated,
    RetireFiles,
    SplitPartitions,
    Watermark,
    apply,
    resolve,
)
from lakebed.model.state.transactions.partition_changes import bounds_of_cuts
from lakebed.model.state.transactions.removals import FENCES_MAX, bounds_of_removal
from tests.pure.state.cases import drawn, job, key, new_file, step, table, through_an_image
from tests.raising import raises

UNCUT = SplitPartitions({}, ())


def refused(state, proposal):
    resolved = resolve(proposal, state)
    assert isinstance(resolved, Rejected), resolved
    return resolved.reason


def span(text):
    """``bm`` is the range [b, m)."""
    return EncodedRange(key(text[0]), key(text[1]))


def lettered(state):
    """The boundaries as letters."""
    return "".join(state.created.codec.decode_values(bound)["k"] for bound in state.partitions.boundaries)


# -- splits -----------------------------------------------------------------------------------------------------


def test_several_partitions_are_cut_at_once_and_their_parts_are_numbered_cut_by_cut():
    """A file that lies in two of them moves in both; the partition between stays as it is."""
    state = step(table("g", "n"), ProposeFiles((new_file("f1", "abhpy", samples="gn"), new_file("f2", "cd"))))
    summaries = {"f1": new_file("f1", "abhpy", samples="bcgnq").summary}
    state = step(state, ProposeSplit({3: (key("q"),), 1: (key("b"), key("c"))}, summaries))
    assert drawn(state) == ["f1:1", "f1:1", "f2:2", "f1:1", "f1:1", "f1:1"]
    assert (lettered(state), state.partitions.ids) == ("bcgnq", (6, 7, 8, 2, 4, 5))
    assert dict(state.partitions.parents) == {4: (3,), 5: (3,), 6: (1,), 7: (1,), 8: (1,)}
    assert through_an_image(state) == state


def test_a_split_is_made_in_all_of_its_partitions_or_in_none():
    assert "partition 9 is gone" in refused(table("g"), ProposeSplit({1: (key("b"),), 9: (key("z"),)}))
    assert "a partition at least" in refused(table("g"), ProposeSplit({}))


@pytest.mark.parametrize(
    ("cuts", "reference"),
    [
        ({9: ("b",)}, ("f1", 3)),
        ({1: ("z",)}, ("f1", 3)),
        ({1: ("b",)}, ("f2", 3)),
        ({1: ("b",)}, ("f1", 2)),
    ],
    ids=["no such partition", "not inside it", "brought in", "to another partition"],
)
def test_a_split_that_does_not_fit_is_damage(cuts, reference):
    state = step(table("g"), ProposeFiles((new_file("f1", "ac"), new_file("f2", "xy"))))
    file, partition = reference
    bad = SplitPartitions(
        {partition: tuple(map(key, keys)) for partition, keys in cuts.items()},
        (Reference(file, partition, 1, True, file),),
    )
    with pytest.raises(DamagedError) as raised:
        apply(state, bad, state.version + 1)
    assert raised.value.code is Code.TRANSACTION_IMPOSSIBLE


# -- joins ------------------------------------------------------------------------------------------------------


def test_neighbours_become_one_partition_with_their_references_summed():
    """A file in two of them has one reference, exact if both were, or it has no others; the newest comes last."""
    state = step(table("g", "n"), ProposeFiles((new_file("f1", "aahz", samples="gn"), new_file("f2", "hi"))))
    state = step(state, ProposeFiles((new_file("f3", "abhi", samples=""),)))
    state = step(state, ProposeJoin((1, 2)))
    assert (drawn(state), lettered(state)) == (["f1:3 f2:2 f3:4", "f1:1"], "n")
    state = step(state, ProposeJoin((4, 3)))
    assert drawn(state) == ["f1:4 f2:2 f3:4"]
    assert dict(state.partitions.parents) == {4: (1, 2), 5: (4, 3)}
    assert through_an_image(state) == state


@pytest.mark.parametrize(
    ("partitions", "says"),
    [((1, 9), "gone"), ((1,), "two or more"), ((2, 1), "order"), ((1, 3), "neighbours"), ((), "two")],
)
def test_a_join_takes_neighbours(partitions, says):
    assert says in refused(table("g", "n"), ProposeJoin(partitions))


def test_partitions_that_an_open_job_works_on_are_not_joined():
    """It would not find the partition that it claimed."""
    state = step(table("g", "n"), ProposeFiles((new_file("f1", "ab"),)))
    state = step(state, OpenJob(job("j1", "f1", keys=EncodedRange(b"", key("g")))))
    assert "job j1 is open" in refused(state, ProposeJoin((1, 2)))
    assert lettered(step(state, ProposeJoin((2, 3)))) == "g"
    assert lettered(step(step(state, CloseJob("j1", "x")), ProposeJoin((1, 2, 3)))) == ""


def test_a_file_that_was_merged_away_in_one_partition_keeps_it_from_its_neighbour():
    """Its rows there would come back. Its bounds decide: one that ends before the other partition is in no way."""
    state = step(table("g"), ProposeFiles((new_file("f1", "abxy", samples="g"), new_file("f2", "ab"))))
    low = EncodedRange(b"", key("g"))
    state = step(state, OpenJob(job("j1", "f1", "f2", keys=low)))
    state = step(state, ProposeOutput("j1", (new_file("f3", "aabb"),)))
    assert drawn(state) == ["f3:4", "f1:2"]
    assert "compact first" in refused(state, ProposeJoin((1, 2)))
    state = step(state, OpenJob(job("j2", "f1", keys=EncodedRange(key("g"), None))))
    state = step(state, ProposeOutput("j2", (new_file("f4", "xy"),)))
    assert drawn(step(state, ProposeJoin((1, 2)))) == ["f4:2 f3:4"]


def test_a_join_that_does_not_fit_is_damage():
    state = step(table("g", "n"), ProposeFiles((new_file("f1", "ah", samples="g"),)))
    for bad in (JoinPartitions((1, 2), ()), JoinPartitions((3, 2), ()), JoinPartitions((1, 9), state.references_of(1))):
        with raises(Code.STATE_INCONSISTENT, Code.TRANSACTION_IMPOSSIBLE):
            apply(state, bad, state.version + 1)
    with pytest.raises(DamagedError) as raised:
        Partitions().join(())
    assert raised.value.code is Code.STATE_INCONSISTENT


# -- removals ---------------------------------------------------------------------------------------------------


def test_a_removal_drops_what_lies_in_the_range_and_cuts_where_it_ends_inside_a_partition():
    """Partition [g, n) goes whole; the first is cut, for a and b stay; the last is not, for nothing of it goes."""
    state = step(table("g", "n"), ProposeFiles((new_file("f1", "abch", samples="cg"), new_file("f2", "cd"))))
    state = step(state, ProposeFiles((new_file("f3", "yz"),)))
    state = step(state, ProposeRemoval((span("cp"),), summaries={"f1": new_file("f1", "abch", samples="cg").summary}))
    assert (drawn(state), lettered(state)) == (["f1:2", "", "", "f3:2"], "cgn")
    assert state.files["f2"].dropped == state.version
    assert state.files["f1"].dropped is None
    assert not state.fences


def test_a_partition_of_which_everything_goes_is_not_cut():
    state = step(table("m"), ProposeFiles((new_file("f1", "bc"), new_file("f2", "xy"))))
    state = step(state, ProposeRemoval((span("bf"), span("xz"))))
    assert (drawn(state), lettered(state)) == (["", ""], "m")


def test_two_ranges_in_one_partition_go_in_one_entry():
    """And ranges that overlap count once."""
    state = step(table(), ProposeFiles((new_file("f1", "abcdefg"),)))
    summaries = {"f1": new_file("f1", "abcdefg").summary}
    state = step(state, ProposeRemoval((span("bc"), span("eg"), span("ef")), summaries=summaries))
    assert (drawn(state), lettered(state)) == (["f1:1", "", "f1:2", "", "f1:1"], "bceg")


def test_what_is_left_of_a_file_is_never_counted_as_all_of_it():
    """Of [b, c) no row was thought to be there, and b is gone: what is left seems to have all rows of the file."""
    state = step(table("f"), ProposeFiles((new_file("f1", "abg", samples="g"),)))
    state = step(state, ProposeRemoval((span("bc"),)))
    assert drawn(state) == ["f1:~1", "", "f1:~0", "f1:~2"]
    assert table_rows(state) == (3, 3)


def test_a_share_that_was_guessed_is_what_the_known_ones_leave():
    """[, e) was thought to have half of the rows, and is known to have 7 of 8 when it is cut again: so [e, ) has 1."""
    state = step(table(), ProposeFiles((new_file("f1", "aaabbbcz"),)))
    state = step(state, ProposeSplit({1: (key("e"),)}))
    assert (drawn(state), table_rows(state)) == (["f1:~4", "f1:~4"], (8, 0))
    known = {"f1": new_file("f1", "aaabbbcz", samples="be").summary}
    state = step(state, ProposeSplit({2: (key("b"),)}, known))
    assert (drawn(state), table_rows(state)) == (["f1:3", "f1:4", "f1:~4"], (8, 0))
    assert table_rows(through_an_image(state)) == (8, 0)


def test_a_join_that_holds_all_of_a_file_knows_its_rows():
    """Whatever was thought of the parts."""
    state = step(table(), ProposeFiles((new_file("f1", "aaabbbcz"),)))
    state = step(state, ProposeSplit({1: (key("e"),)}))
    state = step(state, ProposeJoin((2, 3)))
    assert drawn(state) == ["f1:8"]


def test_what_is_left_of_an_exact_share_is_exact():
    """[m, ) has 2 of the rows; no more is known of the file, whose rows end before the cut at y."""
    state = step(table("m"), ProposeFiles((new_file("f1", "abnox", samples="am"),)))
    state = step(state, ProposeSplit({2: (key("y"),)}, {"f1": new_file("f1", "abnox", samples="a").summary}))
    assert drawn(state) == ["f1:2", "f1:3", ""]


def test_nothing_to_remove_makes_no_entry():
    state = step(table("m"), ProposeFiles((new_file("f1", "bc"),)))
    assert resolve(ProposeRemoval((span("xz"),)), state) == Repeated(2)
    assert "no key" in refused(state, ProposeRemoval((span("zx"),)))


def test_a_job_brings_nothing_back_that_was_removed_while_it_was_open():
    """It commits under the partitions that hold inputs of it; the removed part holds none. All removed: it is
    refused."""
    state = step(table(), ProposeFiles((new_file("f1", "ay"), new_file("f2", "bz"))))
    state = step(state, OpenJob(job("j1", "f1", "f2")))
    some = step(state, ProposeRemoval((EncodedRange(b"", key("m")),)))
    assert drawn(step(some, ProposeOutput("j1", (new_file("f3", "abyz", samples="m"),)))) == ["", "f3:2"]
    none = step(state, ProposeRemoval((EncodedRange(),)))
    assert "none of the inputs" in refused(none, ProposeOutput("j1", (new_file("f3", "abyz"),)))


def test_an_input_that_was_removed_and_deleted_does_not_hinder_its_job():
    """What is left of the inputs gives the output its place in the order."""
    state = step(table(), ProposeFiles((new_file("f1", "ab"), new_file("f2", "yz"))))
    state = step(state, OpenJob(job("j1", "f1", "f2")))
    state = step(state, ProposeRemoval((span("am"),)))
    state = step(step(state, RetireFiles(("f1",))), PurgeFiles(("f1",)))
    state = step(state, ProposeOutput("j1", (new_file("f3", "yz"),)))
    assert (drawn(state)[-1], state.files["f3"].sequence_lo) == ("f3:2", 2)


def test_a_fence_keeps_out_what_was_begun_before_it():
    """Adds by their base version, jobs by their opening, both only where they reach into the range."""
    state = step(table(), ProposeFiles((new_file("f1", "abyz"),)))
    state = step(state, OpenJob(job("j1", "f1")))
    fenced = step(state, ProposeRemoval((span("am"),), fence=True))
    assert "for good" in refused(fenced, ProposeFiles((new_file("f2", "bz"),), None, 3))
    assert "f2" in step(fenced, ProposeFiles((new_file("f2", "yz"),), None, 3)).files
    assert "f2" in step(fenced, ProposeFiles((new_file("f2", "bz"),), None, 4)).files
    assert "for good" in refused(fenced, ProposeOutput("j1", (new_file("f3", "yz"),)))

    unclaimed = step(state, ProposeRemoval((span("am"),)))
    assert "f2" in step(unclaimed, ProposeFiles((new_file("f2", "bz"),), None, 0)).files
    assert "f3" in step(unclaimed, ProposeOutput("j1", (new_file("f3", "yz"),))).files


def test_a_job_of_the_same_entry_does_not_pass_the_fence():
    """Transactions of several callers go into one entry; the number of both is that of the entry."""
    state = step(table(), ProposeFiles((new_file("f1", "abyz"),)))
    for proposal in (OpenJob(job("j1", "f1")), ProposeRemoval((span("am"),), fence=True)):
        state = apply(state, resolve(proposal, state), 3)
    assert (state.jobs["j1"].opened, state.fences[0].version) == (3, 3)
    assert "for good" in refused(state, ProposeOutput("j1", (new_file("f3", "yz"),)))
    check_invariants(state)


def test_a_fence_stands_also_where_nothing_was():
    state = step(table(), ProposeRemoval((span("am"),), fence=True))
    assert [(fence.keys, fence.version) for fence in state.fences] == [(span("am"), 2)]
    assert through_an_image(state) == state


def test_a_fence_falls_when_the_forget_line_keeps_out_the_same_proposals():
    """Not before, and not while a job is open that it has to stop."""
    state = step(table(), ProposeFiles((new_file("f1", "abyz"),)))
    state = step(state, OpenJob(job("j1", "f1")))
    state = step(state, ProposeRemoval((span("am"),), fence=True))
    held = step(state, RaiseWatermark(Watermark.REQUEST_WATERMARK, 4))
    assert len(held.fences) == 1
    assert "for good" in refused(held, ProposeOutput("j1", (new_file("f3", "yz"),)))
    closed = step(state, CloseJob("j1", "x"))
    assert len(step(closed, RaiseWatermark(Watermark.REQUEST_WATERMARK, 3)).fences) == 1
    fallen = step(closed, RaiseWatermark(Watermark.REQUEST_WATERMARK, 4))
    assert not fallen.fences
    assert "not validated" in refused(fallen, ProposeFiles((new_file("f2", "bz"),), None, 3))


def test_there_are_at_most_so_many_fences():
    state = table()
    for _ in range(FENCES_MAX):
        state = apply(state, RemoveRange((span("am"),), True, UNCUT, ()), state.version + 1)
    assert "collect garbage" in refused(state, ProposeRemoval((span("am"),), fence=True))


def test_only_the_files_that_an_end_cuts_are_asked_for_ranks():
    state = step(table("m"), ProposeFiles((new_file("f1", "ac"), new_file("f2", "ce"), new_file("f3", "xz"))))
    bounds = bounds_of_removal([span("cz")], state)
    assert {name: (file.id, keys) for name, (file, keys) in bounds.items()} == {
        "f1": ("f1", [key("c")]),
        "f3": ("f3", [key("z")]),
    }


def test_a_file_that_reaches_over_a_partition_is_asked_for_the_ranks_of_its_ends():
    state = step(table("f", "p"), ProposeFiles((new_file("f1", "agkz"), new_file("f2", "ab"))))
    (file, keys) = bounds_of_cuts({2: (key("h"), key("k"))}, state)["f1"]
    assert (file.id, keys) == ("f1", [key(letter) for letter in "fhkp"])
    assert bounds_of_cuts({2: (key("h"),), 99: (key("b"),)}, state).keys() == {"f1"}


def test_a_removal_from_a_partition_that_is_not_there_is_damage():
    with pytest.raises(DamagedError) as raised:
        apply(table(), RemoveRange((span("am"),), False, UNCUT, (7,)), 2)
    assert raised.value.code is Code.TRANSACTION_IMPOSSIBLE
