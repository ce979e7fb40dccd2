"""Key guards: which changes of a table may have written keys that were read at a version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import Code
from lakebed.model.merge_modes import First, Latest
from lakebed.model.state.table_state import TableState
from lakebed.model.state.transactions import (
    CreateTable,
    OpenJob,
    ProposeFiles,
    ProposeOutput,
    ProposeRestore,
    ProposeSplit,
    Rejected,
    SetMerge,
    resolve,
)
from lakebed.model.state.transactions.key_guard import KeyGuards
from tests.pure.state.cases import SCHEMA, job, key, new_file, step


def merging(*boundaries):
    return step(TableState(), CreateTable("table-00", SCHEMA, {}, tuple(map(key, boundaries)), Latest()))


def add(state, *files):
    return step(state, ProposeFiles(tuple(new_file(*one) for one in files), base_version=state.version))


def guard_of(state, letters):
    guards = KeyGuards()
    for letter in sorted(letters):
        guards.add([key(letter)])
    return guards.guard(state)


@pytest.fixture
def state():
    return add(merging("m"), ("old", "abcxyz"))


def test_nothing_has_changed(state):
    assert guard_of(state, "bx").broken_by(state) is None


@pytest.mark.parametrize("letters", ["b", "ac", "x", "az"])
def test_a_file_that_arrived_and_reaches_a_key_breaks_the_guard(state, letters):
    assert guard_of(state, "bx").broken_by(add(state, ("new", letters))) == "new"


@pytest.mark.parametrize("letters", ["a", "cw", "yz"])
def test_a_file_that_reaches_no_key_does_not(state, letters):
    assert guard_of(state, "bx").broken_by(add(state, ("new", letters))) is None


def test_a_compaction_of_older_files_is_nothing_new_and_one_with_newer_files_is():
    older = add(merging(), ("old", "abcxyz"), ("second", "bc"))
    guard = guard_of(older, "b")
    opened = step(older, OpenJob(job("j", "old", "second")))
    merged = step(opened, ProposeOutput("j", (new_file("merged", "abcxyz"),)))
    assert guard.broken_by(merged) is None
    newer = add(older, ("third", "b"))
    opened = step(newer, OpenJob(job("j", "second", "third")))
    merged = step(opened, ProposeOutput("j", (new_file("merged", "bc"),)))
    assert guard.broken_by(merged) == "merged"


def test_rows_that_a_restore_brought_back_break_the_guard():
    before = add(merging(), ("first", "b"))
    removed = step(before, ProposeRestore(merging()))
    later = add(removed, ("second", "b"))
    guard = guard_of(later, "b")
    assert guard.broken_by(later) is None
    assert guard.broken_by(step(later, ProposeRestore(before))) == "first"


def test_rows_that_a_restore_uncovered_break_the_guard():
    """The later row of the key, which was read, went; the older one, which was not, has taken its place."""
    before = add(merging(), ("first", "ab"))
    later = add(before, ("second", "b"))
    guard = guard_of(later, "b")
    assert guard.broken_by(step(later, ProposeRestore(before))) == "second"
    opened = step(later, OpenJob(job("j", "first", "second")))
    merged = step(opened, ProposeOutput("j", (new_file("merged", "ab"),)))
    assert guard.broken_by(merged) is None
    assert guard.broken_by(step(merged, ProposeRestore(before))) == "second"


def test_a_split_changes_no_row(state):
    assert guard_of(state, "bx").broken_by(step(state, ProposeSplit({1: (key("b"),)}))) is None


def test_files_with_a_broken_guard_are_rejected(state):
    guard = guard_of(state, "b")
    newer = add(state, ("new", "b"))
    proposal = ProposeFiles((new_file("deletes", "b"),), base_version=state.version, guard=guard)
    refused = resolve(proposal, newer)
    assert isinstance(refused, Rejected)
    assert refused.code is Code.KEYS_CHANGED
    assert "file new" in refused.reason
    step(state, proposal)


def test_rows_merged_by_an_older_mode_are_refused_and_an_older_base_version_alone_is_not():
    before = merging()
    after = step(before, SetMerge(First()))
    late = ProposeFiles((new_file("a", "a"),), "id", base_version=before.version, merged_at=before.version)
    refused = resolve(late, after)
    assert isinstance(refused, Rejected)
    assert refused.code is Code.MERGE_CHANGED
    step(after, ProposeFiles((new_file("a", "a"),), "id", base_version=before.version, merged_at=after.version))


@given(
    st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, min_size=1, max_size=40),
    st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(1, 9),
)
def test_a_guard_of_many_keys_misses_no_file(keys, written, spans_max):
    state = add(merging("c"), ("old", keys))
    guards = KeyGuards(2 * spans_max)
    guards.add([key(text) for text in sorted(keys)])
    guard = guards.guard(state)
    assert len(guard.lows) <= 2 * spans_max
    newer = add(state, ("new", written))
    if set(keys) & set(written):
        assert guard.broken_by(newer) == "new"
    elif len(keys) <= 2 * spans_max and len(set(written)) == 1:
        assert guard.broken_by(newer) is None
