"""Restores: the references of an older version, mapped onto the partitions in force. The random test is in
test_histories.
"""

import pytest

from lakebed.errors import Code, DamagedError
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.state.codec import decode_transaction, encode_transaction
from lakebed.model.state.transactions import (
    OpenJob,
    ProposeFiles,
    ProposeJoin,
    ProposeOutput,
    ProposeRemoval,
    ProposeRestore,
    ProposeSplit,
    PurgeFiles,
    Rejected,
    Repeated,
    RetireFiles,
    SetTag,
    apply,
    resolve,
)
from tests.pure.state.cases import drawn, job, key, new_file, step, table
from tests.raising import raises


def lettered(state):
    return "".join(boundary[:1].decode() for boundary in state.partitions.boundaries)


def refused(state, proposal):
    outcome = resolve(proposal, state)
    assert isinstance(outcome, Rejected)
    return outcome


def span(letters):
    low, high = letters
    return EncodedRange(key(low), key(high))


@pytest.fixture
def older():
    """Three partitions: f1 reaches all of them, f2 the first, f3 the last."""
    files = (new_file("f1", "ahz", samples="gn"), new_file("f2", "bc"), new_file("f3", "xy"))
    return step(table("g", "n"), ProposeFiles(files))


def test_removed_rows_come_back_by_references_alone(older):
    """Only in the partition that lost any; f1 is still referenced beside it, f2 was not at all."""
    state = step(older, ProposeRemoval((EncodedRange(b"", key("g")),)))
    assert drawn(state) == ["", "f1:1", "f1:1 f3:2"]
    assert state.files["f2"].dropped == state.version
    restored = resolve(ProposeRestore(older), state)
    assert [partitions for partitions, _ in restored.regions] == [(1,)]
    assert {file.id for file in restored.files} == {"f1", "f2"}
    state = step(state, ProposeRestore(older))
    assert drawn(state) == drawn(older)
    assert state.partitions.ids == (4, 2, 3)
    assert (state.files["f2"].dropped, state.files["f2"].added) == (None, older.version)


def test_what_was_written_since_is_gone(older):
    state = step(older, ProposeFiles((new_file("f4", "hi"),), "monday", older.version))
    state = step(state, ProposeRestore(older))
    assert drawn(state) == drawn(older)
    assert state.files["f4"].dropped == state.version
    assert resolve(ProposeFiles((new_file("f4", "hi"),), "monday", older.version), state) == Repeated(3)


def test_a_restore_is_undone_by_another(older):
    newer = step(older, ProposeFiles((new_file("f4", "bz", samples="gn"),)))
    state = step(newer, ProposeRestore(older))
    assert drawn(step(state, ProposeRestore(newer))) == drawn(newer)


def test_splits_and_joins_since_are_undone_where_they_lie_and_nowhere_else(older):
    """[, g) was split at c, and [g, n) joined with [n, ); both regions change, by 3 partitions in place of 3."""
    state = step(older, ProposeSplit({1: (key("c"),)}))
    assert [p for p, _ in resolve(ProposeRestore(older), state).regions] == [(4, 5)]
    state = step(state, ProposeJoin((2, 3)))
    assert (lettered(state), resolve(ProposeRestore(older), state).regions) == (
        "cg",
        (((4, 5), ()), ((6,), (key("n"),))),
    )
    state = step(state, ProposeRestore(older))
    assert (lettered(state), drawn(state)) == ("gn", drawn(older))
    assert state.partitions.parents[7] == (4, 5)
    assert state.partitions.parents[8] == state.partitions.parents[9] == (6,)


def test_rows_that_were_merged_away_in_a_part_do_not_come_back_with_it():
    """At the older version f1 counts above m only: f2 has its rows below. Joined since, and merged to f3."""
    state = step(table(), ProposeFiles((new_file("f1", "ay", samples="m"),)))
    state = step(state, ProposeSplit({1: (key("m"),)}, {"f1": new_file("f1", "ay", samples="m").summary}))
    state = step(state, OpenJob(job("j1", "f1", keys=EncodedRange(b"", key("m")))))
    older = step(state, ProposeOutput("j1", (new_file("f2", "a"),)))
    state = step(older, OpenJob(job("j2", "f1", keys=EncodedRange(key("m"), None))))
    state = step(state, ProposeOutput("j2", (new_file("f3", "y"),)))
    state = step(state, ProposeJoin((2, 3)))
    assert drawn(state) == ["f2:1 f3:1"]
    assert drawn(step(state, ProposeRestore(older))) == drawn(older) == ["f2:1", "f1:1"]


def test_a_job_over_what_changes_is_closed_and_brings_nothing_back(older):
    """It was to merge f2 with f4, which is undone; under the restored partition its output would bring the rows of f4
    back. A job beside it goes on.
    """
    state = step(older, ProposeFiles((new_file("f4", "de"),)))
    state = step(state, OpenJob(job("j1", "f2", "f4", keys=EncodedRange(b"", key("g")))))
    state = step(state, OpenJob(job("j2", "f1", "f3", keys=EncodedRange(key("n"), None))))
    state = step(state, ProposeRestore(older))
    assert refused(state, ProposeOutput("j1", (new_file("f5", "bcde"),))).code == Code.JOB_NOT_OPEN
    assert drawn(step(state, ProposeOutput("j2", (new_file("f6", "xyz"),)))) == ["f1:1 f2:2", "f1:1", "f6:3"]


def test_a_version_with_the_same_files_in_the_same_partitions_makes_no_entry(older):
    assert resolve(ProposeRestore(older), older) == Repeated(older.version)
    state = step(step(older, OpenJob(job("j1", "f2", keys=EncodedRange(b"", key("g"))))), SetTag("t", 2))
    assert resolve(ProposeRestore(older), state) == Repeated(state.version)


def test_a_version_whose_files_are_retired_is_refused(older):
    """Also if they go between the plan and the commit. A tag keeps them."""
    state = step(older, ProposeRemoval((EncodedRange(b"", key("g")),)))
    retired = step(state, RetireFiles(("f2",)))
    for after in (retired, step(retired, PurgeFiles(("f2",)))):
        outcome = refused(after, ProposeRestore(older))
        assert outcome.code == Code.VERSION_NOT_RETAINED
        assert outcome.facts["earliest_retained_version"] == state.version
        assert "tag a version" in outcome.reason
    tagged = step(state, SetTag("kept", older.version))
    assert refused(tagged, RetireFiles(("f2",))).code == Code.RETAINED_BY_TAG
    assert drawn(step(tagged, ProposeRestore(older))) == drawn(older)


def test_a_version_that_is_not_of_this_table_yet_is_refused(older):
    newer = step(older, ProposeFiles((new_file("f4", "hi"),)))
    assert "no version 3" in refused(older, ProposeRestore(newer)).reason


def test_a_restore_is_written_and_read_back(older):
    state = step(older, ProposeRemoval((ALL_KEYS,)))
    restored = resolve(ProposeRestore(older), state)
    assert decode_transaction(encode_transaction(restored).document) == restored


def test_a_restore_that_does_not_fit_is_damage(older):
    state = step(older, ProposeRemoval((EncodedRange(b"", key("g")),)))
    good = resolve(ProposeRestore(older), state)
    (reference, *others) = good.references
    regions = (((9,), ()),), (((1, 3), ()),), (((1,), (key("h"),)),), (((1,), ()), ((1,), ()))
    bad = [type(good)(2, some, good.files, good.references) for some in regions]
    stray = type(reference)(reference.file, 2, reference.rows, reference.exact, reference.run)
    bad.append(type(good)(2, good.regions, good.files, (stray, *others)))
    bad.append(type(good)(2, good.regions, (*good.files, new_file("f9", "a").file), good.references))
    bad.append(type(good)(2, good.regions, good.files[:1], good.references))
    for transaction in bad:
        with raises(Code.STATE_INCONSISTENT, Code.TRANSACTION_IMPOSSIBLE):
            apply(state, transaction, state.version + 1)
    with pytest.raises(DamagedError, match="retired"):
        apply(step(state, RetireFiles(("f2",))), good, state.version + 2)
