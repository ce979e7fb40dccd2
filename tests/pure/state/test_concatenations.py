"""Chains: files of a partition that do not overlap become one run, and nothing else changes."""

import pytest

from lakebed.errors import DamagedError
from lakebed.model.keys import EncodedRange
from lakebed.model.state.transactions import (
    ConcatenateRuns,
    OpenJob,
    ProposeFiles,
    ProposeOutput,
    ProposeSplit,
    Rejected,
    Repeated,
    apply,
    resolve,
)
from tests.pure.state.cases import drawn, job, key, new_file, step, table, through_an_image


def grown():
    """One partition: f1 abc, f3 xyz and, between them, f2 of the same run as f4."""
    files = [new_file("f1", "abc"), new_file("f2", "de", "r"), new_file("f3", "xyz"), new_file("f4", "eg", "r")]
    return step(table(), ProposeFiles(tuple(files)))


def runs(state, partition=1):
    """The runs of a partition: the name of each and its files."""
    return " ".join(f"{one.run}:{one.file.id}" for one in state.held_by(partition))


def test_the_files_of_a_chain_are_one_run_and_stay_in_the_order_of_arrival():
    before = grown()
    state = step(before, ConcatenateRuns(1, ("f3", "f1", "f2", "f4"), "c"))
    assert runs(state) == "c:f1 c:f2 c:f3 c:f4"
    assert drawn(state) == drawn(before)
    assert state.files == before.files
    assert through_an_image(state) == state
    assert runs(step(before, ConcatenateRuns(1, ("f1", "f3"), "c"))) == "c:f1 r:f2 c:f3 r:f4"


def test_a_file_may_be_in_a_chain_of_one_partition_alone():
    state = step(grown(), ProposeSplit({1: (key("b"),)}))
    state = step(state, ProposeFiles((new_file("f5", "p"),)))
    state = step(state, ConcatenateRuns(3, ("f1", "f5"), "c"))
    assert (runs(state, 2), runs(state, 3)) == ("f1:f1", "c:f1 r:f2 f3:f3 r:f4 c:f5")
    assert through_an_image(state) == state


@pytest.mark.parametrize(
    ("chain", "says"),
    [
        (ConcatenateRuns(9, ("f1", "f3"), "c"), "partition 9 does not refer to f1"),
        (ConcatenateRuns(1, ("f1", "f9"), "c"), "partition 1 does not refer to f9"),
        (ConcatenateRuns(1, ("f1",), "c"), "less than two files"),
        (ConcatenateRuns(1, ("f1", "f1"), "c"), "one twice"),
        (ConcatenateRuns(1, ("f1", "f3"), "r"), "partition 1 has a run r already"),
        (ConcatenateRuns(1, ("f1", "f5"), "c"), "files f1 and f5 overlap"),
        (ConcatenateRuns(1, ("f6", "f3"), "c"), "files f6 and f3 overlap"),
    ],
)
def test_a_chain_of_what_is_no_run_together_is_refused(chain, says):
    """f5 lies across f1; f6 ends with the key that f3 begins with, under which the two may not be in order."""
    state = step(grown(), ProposeFiles((new_file("f5", "bd"), new_file("f6", "wx"))))
    found = resolve(chain, state)
    assert isinstance(found, Rejected)
    assert says in found.reason


def test_a_chain_that_is_proposed_again_changes_nothing():
    chain = ConcatenateRuns(1, ("f1", "f3"), "c")
    state = step(grown(), chain)
    assert resolve(chain, state) == Repeated(state.version)


def test_an_open_job_goes_its_way_whatever_is_chained_meanwhile():
    state = step(grown(), OpenJob(job("j1", "f1", "f2", "f4", keys=EncodedRange(b"", None))))
    state = step(state, ConcatenateRuns(1, ("f1", "f3"), "c"))
    state = step(state, ProposeOutput("j1", (new_file("f9", "abcdeeg"),)))
    assert runs(state) == "c:f3 f9:f9"


def test_a_chain_of_what_is_not_there_is_damage():
    with pytest.raises(DamagedError, match="concatenates f9 in partition 1"):
        apply(grown(), ConcatenateRuns(1, ("f1", "f9"), "c"), 3)
