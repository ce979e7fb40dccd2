"""Chains: files of a leaf that do not overlap become one run, and nothing else changes."""

import pytest

from lakebed.errors import DamagedError
from lakebed.keys import EncodedRange
from lakebed.state.apply import apply
from lakebed.state.resolve import resolve
from lakebed.state.transactions import ChainRuns, OfferFiles, OfferOutput, OfferSplit, OpenJob, Rejected, Repeated
from tests.unit.state.cases import drawn, job, key, new_file, step, table, through_an_image


def grown():
    """One leaf: f1 abc, f3 xyz and, between them, f2 of the same run as f4."""
    files = [new_file("f1", "abc"), new_file("f2", "de", "r"), new_file("f3", "xyz"), new_file("f4", "eg", "r")]
    return step(table(), OfferFiles(tuple(files)))


def runs(state, leaf=1):
    """The runs of a leaf: the name of each and its files."""
    return " ".join(f"{one.run}:{one.file.id}" for one in state.held_by(leaf))


def test_the_files_of_a_chain_are_one_run_and_stay_in_the_order_of_arrival():
    before = grown()
    state = step(before, ChainRuns(1, ("f3", "f1", "f2", "f4"), "c"))
    assert runs(state) == "c:f1 c:f2 c:f3 c:f4"
    assert drawn(state) == drawn(before)
    assert state.files == before.files
    assert through_an_image(state) == state
    assert runs(step(before, ChainRuns(1, ("f1", "f3"), "c"))) == "c:f1 r:f2 c:f3 r:f4"


def test_a_file_may_be_in_a_chain_of_one_leaf_alone():
    state = step(grown(), OfferSplit({1: (key("b"),)}))
    state = step(state, OfferFiles((new_file("f5", "p"),)))
    state = step(state, ChainRuns(3, ("f1", "f5"), "c"))
    assert (runs(state, 2), runs(state, 3)) == ("f1:f1", "c:f1 r:f2 f3:f3 r:f4 c:f5")
    assert through_an_image(state) == state


@pytest.mark.parametrize(
    ("chain", "says"),
    [
        (ChainRuns(9, ("f1", "f3"), "c"), "f1, which leaf 9 does not refer to"),
        (ChainRuns(1, ("f1", "f9"), "c"), "f9, which leaf 1 does not refer to"),
        (ChainRuns(1, ("f1",), "c"), "less than two files"),
        (ChainRuns(1, ("f1", "f1"), "c"), "one twice"),
        (ChainRuns(1, ("f1", "f3"), "r"), "leaf 1 has a run r already"),
        (ChainRuns(1, ("f1", "f5"), "c"), "files f1 and f5 overlap"),
        (ChainRuns(1, ("f6", "f3"), "c"), "files f6 and f3 overlap"),
    ],
)
def test_a_chain_of_what_is_no_run_together_is_refused(chain, says):
    """f5 lies across f1; f6 ends with the key that f3 begins with, under which the two may not be in order."""
    state = step(grown(), OfferFiles((new_file("f5", "bd"), new_file("f6", "wx"))))
    found = resolve(chain, state)
    assert isinstance(found, Rejected)
    assert says in found.reason


def test_a_chain_that_is_offered_again_changes_nothing():
    chain = ChainRuns(1, ("f1", "f3"), "c")
    state = step(grown(), chain)
    assert resolve(chain, state) == Repeated(state.number)


def test_an_open_job_goes_its_way_whatever_is_chained_meanwhile():
    state = step(grown(), OpenJob(job("j1", "f1", "f2", "f4", keys=EncodedRange(b"", None))))
    state = step(state, ChainRuns(1, ("f1", "f3"), "c"))
    state = step(state, OfferOutput("j1", (new_file("f9", "abcdeeg"),)))
    assert runs(state) == "c:f3 f9:f9"


def test_a_chain_of_what_is_not_there_is_damage():
    with pytest.raises(DamagedError, match="chains f9 in leaf 1"):
        apply(grown(), ChainRuns(1, ("f1", "f9"), "c"), 3)
