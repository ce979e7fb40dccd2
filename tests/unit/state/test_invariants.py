"""What holds of every state is checked: each way in which a state can contradict itself is an error that names it."""

import pytest
from msgspec import structs
from msgspec.structs import replace

from lakebed.errors import DamagedError
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.state.table_state import Fence, check_invariants
from lakebed.state.transactions import ProposeFiles, Request, Source
from tests.unit.state.cases import job, new_file, step, table

NO_KEYS = EncodedRange(b"b", b"a")
SOURCE = Source("file:///in.parquet", 10, "version")
REQUEST = Request("r", (SOURCE,), 0, 1, 0, 0, "")


def state():
    """Two partitions: the first has rows of both files, the second of the wide one."""
    return step(table("m"), ProposeFiles((new_file("wide", "az"), new_file("low", "bc"))))


def with_file(name, **changes):
    """The state with one of its files recorded otherwise."""
    good = state()
    return replace(good, files=dict(good.files.items()) | {name: replace(good.files[name], **changes)})


def with_references(**changes):
    """The state with other references in its ``second`` partition, or in one that it does not have."""
    good = state()
    first, second = good.partitions.ids
    held = dict(good.references.items())
    changed = {second if name == "second" else 99: of(held[first], held[second]) for name, of in changes.items()}
    return replace(good, references=held | changed)


def with_other_facts(low_and_wide, only_wide):
    del low_and_wide
    return tuple(one._replace(file=replace(one.file, size_bytes=1)) for one in only_wide)


BROKEN = {
    "a reference of no partition": (
        lambda: with_references(other=lambda a, _: a),
        "a partition that does not exist: 99",
    ),
    "a file twice": (lambda: with_references(second=lambda _, b: b + b), "references a file twice"),
    "a file that is not recorded": (lambda: replace(state(), files={}), "which is purged or retired"),
    "a file of other keys": (lambda: with_references(second=lambda a, _: a), "low, which does not reach it"),
    "facts that differ": (
        lambda: with_references(second=with_other_facts),
        "other facts of wide than another partition",
    ),
    "a job of nothing": (lambda: replace(state(), jobs={"j": replace(job("j"), opened=1)}), "job j has no inputs"),
    "a job of no keys": (
        lambda: replace(state(), jobs={"j": replace(job("j", "low", keys=NO_KEYS), opened=1)}),
        "job j has no inputs, or no keys",
    ),
    "a job of the future": (
        lambda: replace(state(), jobs={"j": replace(job("j", "low"), opened=9)}),
        "was opened at 9",
    ),
    "a request of no files": (
        lambda: replace(state(), open_requests={"r": structs.replace(REQUEST, files=())}),
        "request r is carried out, or empty",
    ),
    "a request of the future": (
        lambda: replace(state(), open_requests={"r": structs.replace(REQUEST, submitted=9)}),
        "or of version 9",
    ),
    "a rejected request that is open": (
        lambda: replace(state(), open_requests={"r": REQUEST}, rejected=(structs.replace(REQUEST, rejected=2),)),
        "request r is open, or was rejected at 2",
    ),
    "a request rejected before it came": (
        lambda: replace(state(), rejected=(structs.replace(REQUEST, submitted=2, rejected=1),)),
        "was rejected at 1",
    ),
    "a fence around nothing": (lambda: replace(state(), fences=(Fence(NO_KEYS, 1),)), "a fence of version 1"),
    "a fence of the future": (lambda: replace(state(), fences=(Fence(ALL_KEYS, 9),)), "a fence of version 9"),
    "a wrong count of references": (lambda: with_file("low", references=2), "file low has 1 references, not 2"),
    "a file dropped and referenced": (lambda: with_file("low", dropped=1), "file low: dropped at 1 with 1 references"),
    "facts of another file": (
        lambda: with_file("low", file=new_file("other", "bc").file),
        "file low of 1 references has the wrong facts",
    ),
}


def test_a_state_that_is_whole_passes():
    check_invariants(state())


@pytest.mark.parametrize("how", BROKEN)
def test_a_state_that_contradicts_itself_is_damage(how):
    broken, message = BROKEN[how]
    with pytest.raises(DamagedError, match=message):
        check_invariants(broken())
