"""Every transaction: what it does, when it is refused, and that it survives being written down."""

import pytest
from msgspec.structs import replace

from lakebed.errors import Code, DamagedError, UnsupportedFormatError
from lakebed.model.keys import EncodedRange
from lakebed.model.merge_modes import Latest
from lakebed.model.row_filters import RowFilter
from lakebed.model.state import codec
from lakebed.model.state.checkpoint_codec import to_table
from lakebed.model.state.table_state import TableState
from lakebed.model.state.transactions import (
    AddFiles,
    AlterSettings,
    CloseJob,
    CreateTable,
    DropTable,
    OpenJob,
    ProposeFiles,
    ProposeOutput,
    ProposeSplit,
    PurgeFiles,
    RaiseWatermark,
    Rejected,
    Repeated,
    RetireFiles,
    TooOld,
    Watermark,
    apply,
    resolve,
)
from tests.golden.history import everything
from tests.pure.state.cases import SCHEMA, drawn, job, key, new_file, step, table, through_an_image


def refused(state, proposal):
    resolved = resolve(proposal, state)
    assert isinstance(resolved, Rejected), resolved
    return resolved.reason


def test_a_file_is_referenced_by_every_partition_it_reaches_with_its_rows_there():
    """Exact where a boundary was noted by the writer, else an estimate; the shares sum to the whole."""
    state = step(table("g", "n"), ProposeFiles((new_file("f1", "abghz", samples="gn"),)))
    assert drawn(state) == ["f1:2", "f1:2", "f1:1"]

    state = step(state, ProposeFiles((new_file("f2", "aaaaz", samples=""),)))
    assert drawn(state) == ["f1:2 f2:~3", "f1:2 f2:~0", "f1:1 f2:~2"]


def test_a_partition_between_two_exact_ranks_without_rows_gets_no_reference():
    """Proved empty, not estimated empty."""
    state = step(table("g", "n"), ProposeFiles((new_file("f1", "az", samples="gn"),)))
    assert drawn(state) == ["f1:1", "", "f1:1"]


def test_a_writer_with_an_old_view_is_mapped_onto_the_partitions_as_they_are_now():
    """Its proposal names files only."""
    proposal = ProposeFiles((new_file("f1", "abyz"),))
    state = step(table(), ProposeSplit({1: (key("m"),)}))
    assert drawn(step(state, proposal)) == ["f1:~2", "f1:~2"]


def test_a_split_moves_what_arrived_after_it_was_planned():
    """References are found at commit; without a summary the rows are shared evenly and marked as estimates."""
    summaries = {"f1": new_file("f1", "abyz").summary}
    state = step(table(), ProposeFiles((new_file("f1", "abyz"),)))
    state = step(state, ProposeFiles((new_file("f2", "abyz"),)))
    state = step(state, ProposeSplit({1: (key("m"),)}, summaries))
    assert drawn(state) == ["f1:~2 f2:~2", "f1:~2 f2:~2"]
    assert dict(state.partitions.parents) == {2: (1,), 3: (1,)}


def test_a_split_into_several_partitions_drops_what_bounds_prove_empty():
    """A file below the cut stays below it; an estimate of 0 proves nothing."""
    state = step(table(), ProposeFiles((new_file("f1", "ab"), new_file("f2", "ayz"))))
    state = step(state, ProposeSplit({1: (key("c"), key("m"))}, {"f2": new_file("f2", "ayz", samples="ay").summary}))
    assert drawn(state) == ["f1:2 f2:~1", "f2:~0", "f2:~2"]


@pytest.mark.parametrize(
    ("partition", "keys", "says"),
    [
        (9, "m", "gone"),
        (2, "a", "strictly inside"),
        (2, "g", "strictly inside"),
        (2, "kj", "ascend"),
        (1, "h", "inside"),
    ],
)
def test_a_split_outside_its_partition_is_refused(partition, keys, says):
    """Partition 2 is [g, n)."""
    assert says in refused(table("g", "n"), ProposeSplit({partition: tuple(map(key, keys))}))


def test_a_request_key_answers_with_its_first_number():
    """Whatever files the repeat brings."""
    state = step(table(), ProposeFiles((new_file("f1", "ab"),), "request"))
    assert resolve(ProposeFiles((new_file("f2", "ab"),), "request"), state) == Repeated(2)


def test_below_the_forget_line_a_request_is_unknown_and_not_refused():
    """Its first proposal may be in the log, and forgotten. On record it gets its version, whatever base it
    brings."""
    state = step(table(), ProposeFiles((new_file("f1", "a"),), "one", 1))
    state = step(state, ProposeFiles((new_file("f2", "b"),), "two", 2))
    state = step(state, RaiseWatermark(Watermark.REQUEST_WATERMARK, 2))
    assert state.answered("one") is None
    assert resolve(ProposeFiles((new_file("f3", "a"),), "one", 1), state) == TooOld(1, 2)
    assert resolve(ProposeFiles((new_file("f3", "b"),), "two", 1), state) == Repeated(3)
    assert "write it again" in refused(state, ProposeFiles((new_file("f3", "a"),), None, 1))
    assert "f3" in step(state, ProposeFiles((new_file("f3", "a"),), "one", 2)).files


def test_a_base_number_that_is_not_there_yet_is_refused():
    """It would pass the request watermark, and fences, that are to come."""
    assert "not there yet" in refused(table(), ProposeFiles((new_file("f1", "a"),), None, 2))


def test_a_known_file_is_refused():
    """Known already, or twice in one proposal."""
    state = step(table(), ProposeFiles((new_file("f1", "ab"),)))
    assert "already" in refused(state, ProposeFiles((new_file("f1", "cd"),)))
    assert "twice" in refused(table(), ProposeFiles((new_file("f1", "ab"), new_file("f1", "cd"))))


def test_a_job_replaces_its_inputs_by_its_outputs():
    """The outputs take the span of the inputs' sequence; the inputs remember when they went."""
    state = step(table(), ProposeFiles((new_file("f1", "ac"),)))
    state = step(state, ProposeFiles((new_file("f2", "bd"),)))
    state = step(state, OpenJob(job("j1", "f1", "f2")))
    state = step(state, ProposeOutput("j1", (new_file("f3", "abcd"),)))
    assert drawn(state) == ["f3:4"]
    assert (state.files["f3"].sequence_lo, state.files["f3"].sequence_hi) == (1, 2)
    assert state.files["f1"].dropped == state.version
    assert not state.jobs


def test_a_job_commits_under_the_partitions_that_a_split_made_meanwhile():
    """Partition by partition; rows written after its start stay."""
    state = step(table(), ProposeFiles((new_file("f1", "az"),)))
    state = step(state, OpenJob(job("j1", "f1")))
    state = step(state, ProposeSplit({1: (key("m"),)}))
    state = step(state, ProposeFiles((new_file("f2", "bc"),)))
    state = step(state, ProposeOutput("j1", (new_file("f3", "az"),)))
    assert drawn(state) == ["f2:2 f3:~1", "f3:~1"]


def test_a_partition_without_an_input_of_the_job_gains_nothing():
    """After two splits f1 does not reach the middle partition, so the output's estimate of none there is not
    referenced."""
    state = step(table(), ProposeFiles((new_file("f1", "az"),)))
    state = step(state, OpenJob(job("j1", "f1")))
    state = step(state, ProposeSplit({1: (key("g"), key("n"))}, {"f1": new_file("f1", "az", samples="gn").summary}))
    state = step(state, ProposeOutput("j1", (new_file("f3", "az", samples=""),)))
    assert drawn(state) == ["f3:~1", "", "f3:~1"]


def test_a_job_planned_before_a_split_is_not_opened_after_it():
    """Half of its input may be merged away already, and would come back with its output."""
    state = step(table(), ProposeFiles((new_file("f1", "az"), new_file("f2", "by"))))
    state = step(state, ProposeSplit({1: (key("m"),)}))
    state = step(state, OpenJob(job("j1", "f1", keys=EncodedRange(b"", key("m")))))
    state = step(state, ProposeOutput("j1", (new_file("f3", "a"),)))
    assert "was split" in refused(state, OpenJob(job("j2", "f1", "f2")))
    assert resolve(OpenJob(job("j2", "f1")), state) == OpenJob(job("j2", "f1"))


def test_a_job_may_leave_nothing():
    """Its inputs go, of which a table that merges may show no row; no file comes."""
    state = step(replace(table(), merge=Latest()), ProposeFiles((new_file("f1", "az"),)))
    state = step(state, OpenJob(job("j1", "f1")))
    assert drawn(step(state, ProposeOutput("j1", ()))) == [""]


def test_a_closed_job_commits_nothing():
    """Otherwise rows that were compacted again meanwhile would be there twice."""
    state = step(step(table(), ProposeFiles((new_file("f1", "az"),))), OpenJob(job("j1", "f1")))
    state = step(state, CloseJob("j1", "past its deadline"))
    assert "not open" in refused(state, ProposeOutput("j1", (new_file("f3", "az"),)))
    assert "not open" in refused(state, CloseJob("j1", "again"))


def test_an_input_belongs_to_one_job_at_a_time_in_a_range():
    """Two jobs may share a file in different partitions."""
    state = step(table("m"), ProposeFiles((new_file("f1", "az"),)))
    low, high = EncodedRange(b"", key("m")), EncodedRange(key("m"), None)
    state = step(state, OpenJob(job("j1", "f1", keys=low)))
    assert "belongs to open job j1" in refused(state, OpenJob(job("j2", "f1", keys=low)))
    assert "not referenced" in refused(state, OpenJob(job("j3", "f9", keys=high)))
    assert "no inputs" in refused(state, OpenJob(job("j4", keys=high)))
    assert set(step(state, OpenJob(job("j5", "f1", keys=high))).jobs) == {"j1", "j5"}


def test_a_deletion_takes_two_steps_and_only_what_no_partition_references():
    """Retire, then purge; a retired file cannot come back."""
    state = step(step(table(), ProposeFiles((new_file("f1", "az"),))), OpenJob(job("j1", "f1")))
    assert "referenced" in refused(state, RetireFiles(("f1",)))
    state = step(state, ProposeOutput("j1", (new_file("f2", "az"),)))
    assert "not retired" in refused(state, PurgeFiles(("f1",)))
    state = step(state, RetireFiles(("f1",)))
    assert "retired" in refused(state, RetireFiles(("f1",)))
    assert "already" in refused(state, ProposeFiles((new_file("f1", "az"),)))
    assert set(step(state, PurgeFiles(("f1",))).files) == {"f2"}


def test_a_mark_only_rises():
    """Each by itself; what it would not raise is refused."""
    state = replace(table(), row_filter=RowFilter(age_field=1, age_s=1))
    for mark in Watermark:
        assert getattr(step(state, RaiseWatermark(mark, 1)), mark.value) == 1
        assert "only rises" in refused(step(state, RaiseWatermark(mark, 1)), RaiseWatermark(mark, 1))
        assert "only rises" in refused(state, RaiseWatermark(mark, 0))
    for mark in (Watermark.EARLIEST_RETAINED_VERSION, Watermark.REQUEST_WATERMARK):
        assert "newest version is 1" in refused(state, RaiseWatermark(mark, 2))


def test_a_file_older_than_the_orphan_horizon_is_not_added():
    """A sweep may have deleted it. Of the same last-modified time it is not older; by a replace no more than by an
    add."""
    state = step(table(), ProposeFiles((new_file("f1", "ab", last_modified_us=5),)))
    state = step(state, RaiseWatermark(Watermark.ORPHAN_CUTOFF, 10))
    state = step(state, OpenJob(job("j1", "f1", began_us=10)))
    for proposal in (ProposeFiles, lambda files: ProposeOutput("j1", files)):
        old, same = ((new_file("f2", "ab", last_modified_us=last_modified),) for last_modified in (9, 10))
        assert "write it again" in refused(state, proposal(old))
        assert "f2" in step(state, proposal(same)).files


def test_an_open_job_holds_the_orphan_horizon_where_it_began():
    """So it is never refused for the age of what it wrote."""
    state = step(table(), ProposeFiles((new_file("f1", "ab"),)))
    state = step(state, OpenJob(job("j1", "f1", began_us=10)))
    assert "job j1 is open" in refused(state, RaiseWatermark(Watermark.ORPHAN_CUTOFF, 11))
    assert step(state, RaiseWatermark(Watermark.ORPHAN_CUTOFF, 10)).orphan_cutoff_us == 10
    assert step(step(state, CloseJob("j1", "done")), RaiseWatermark(Watermark.ORPHAN_CUTOFF, 11)).orphan_cutoff_us == 11


def test_nothing_is_accepted_before_creation_or_after_dropping():
    """The first entry creates, the last one drops."""
    assert "does not exist" in refused(TableState(), ProposeFiles(()))
    assert "exists already" in refused(table(), CreateTable("t", SCHEMA, {}, ()))
    assert "dropped" in refused(step(table(), DropTable()), ProposeFiles((new_file("f1", "a"),)))


def test_settings_change_and_are_taken_back():
    """None takes a value back."""
    state = step(table(), AlterSettings({"split_rows": 5, "split_bytes": 10**6}))
    assert step(state, AlterSettings({"split_rows": None})).settings == {"split_bytes": 10**6}


def test_every_transaction_and_state_survives_being_written_down():
    """Through JSON text, and applied again to the same state."""
    transactions, states = everything()
    replayed = TableState()
    for version, transaction in enumerate(transactions, 1):
        read = codec.decode_transaction(codec.encode_transaction(transaction).document)
        assert read == transaction
        replayed = apply(replayed, read, version)
        assert replayed == states[version - 1] == through_an_image(replayed)


def test_an_unknown_transaction_stops_and_a_mangled_one_is_damage():
    """Skipping a change would make another table."""
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        codec.decode_transaction(b'{"type":"from_the_future","files":[1]}')
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        codec.decode_transaction(b'{"type":"raise_watermark","mark":"from_the_future","value":1}')
    with pytest.raises(DamagedError) as raised:
        codec.decode_transaction(b'{"type":"add_files","files":[{}]}')
    assert raised.value.code is Code.DOCUMENT_DAMAGED
    with pytest.raises(DamagedError) as raised:
        to_table({"version": 1}, {})
    assert raised.value.code is Code.DOCUMENT_DAMAGED


@pytest.mark.parametrize("change", ["unknown file", "unknown partition", "rows", "twice", "out of reach", "lowered"])
def test_applying_what_does_not_fit_is_damage(change):
    """What a log holds was valid when it was written."""
    state = step(table("m"), ProposeFiles((new_file("f1", "az"),)))
    good = resolve(ProposeFiles((new_file("f2", "bc"),)), state)
    file, reference = good.files[0], good.references[0]
    bad = {
        "unknown file": AddFiles((), (reference,)),
        "unknown partition": AddFiles((file,), (type(reference)("f2", 77, 2, True, "r"),)),
        "rows": AddFiles((file,), (type(reference)("f2", 1, 1, True, "r"),)),
        "twice": AddFiles((file, file), (reference,)),
        "out of reach": AddFiles((file,), (type(reference)("f2", 2, 2, True, "r"),)),
        "lowered": RaiseWatermark(Watermark.EARLIEST_RETAINED_VERSION, 0),
    }[change]
    with pytest.raises(DamagedError) as raised:
        apply(state, bad, state.version + 1)
    assert raised.value.code is Code.TRANSACTION_IMPOSSIBLE
